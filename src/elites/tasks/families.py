"""Families of tasks of other simulators: packages, options, and the module that makes the tasks.

A family's module has a function `make(name, options) -> Task`. `name` is the parsed name of the
task, and `options` are the values of its options, read by the functions in `Family.options`. To add
a family, write the module, enter it in `FAMILIES` and its name in `elites.names.SIMULATORS`.

Nothing here loads JAX or imports a simulator.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elites import names, packages, references
from elites.core.catalogue import suggestion
from elites.names import Name

if TYPE_CHECKING:
    from elites.tasks.task import Task

DESCRIPTORS = ("feet_contact", "final_position", "mean_height", "mean_velocity", "joint_range")
"""Descriptors by name. `elites.tasks.descriptors` computes them."""


# ------------------------------------------------------------------------------ values of options


def whole(text: str) -> int:
    """Return an option's value as a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"must be a whole number of at least 1, got '{text}'")
    return int(text)


def numbers(text: str) -> tuple[float, ...]:
    """Split an option's value at its slashes and return the numbers: 0/0.5."""
    try:
        found = tuple(float(part) for part in text.split("/"))
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise ValueError(f"must be numbers separated by '/', one for each axis, got '{text}'")
    return found


def words(text: str) -> tuple[str, ...]:
    """Split an option's value at its slashes and return the names: left_foot/right_foot."""
    found = tuple(text.split("/"))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError(f"must be different names separated by '/', got '{text}'")
    return found


def yes_or_no(text: str) -> bool:
    """Return an option's value as a truth value."""
    if text not in ("yes", "no"):
        raise ValueError(f"must be yes or no, got '{text}'")
    return text == "yes"


def one_of(*known: str) -> Callable[[str], str]:
    """Return a function that returns an option's value if it is one of `known`."""

    def read(text: str) -> str:
        if text not in known:
            raise ValueError(
                f"must be one of {', '.join(known)}, got '{text}'.{suggestion(text, known)}"
            )
        return text

    return read


def function(text: str) -> str:
    """Return an option's value as a reference FILE.py:FUNCTION. The file is not read."""
    where, _, called = text.rpartition(":")
    if not where.endswith(".py") or not called.isidentifier():
        raise ValueError(f"must be FILE.py:FUNCTION, got '{text}'")
    return text


def descriptor(text: str) -> str:
    """Return an option's value as the name of a descriptor, or as a reference FILE.py:FUNCTION."""
    if references.is_reference(text):
        return function(text)
    if text not in DESCRIPTORS:
        raise ValueError(
            f"'{text}' is unknown.{suggestion(text, DESCRIPTORS)} Known: {', '.join(DESCRIPTORS)}; "
            "or FILE.py:FUNCTION for one of your own"
        )
    return text


def range_of(text: str) -> tuple[float, float]:
    """Return an option's value as a range of numbers: 0.7/inf."""
    try:
        low, high = map(float, text.split("/"))
    except ValueError:
        low, high = math.nan, math.nan
    if not low < high:
        raise ValueError(f"must be a lowest and a highest number, such as 0.7/inf, got '{text}'")
    return low, high


def implementation(text: str) -> str:
    """Return an option's value as the name of an implementation of MJX. Warp is refused."""
    if text == "warp":
        raise ValueError(
            "cannot be warp, because parts of its state are shared by all robots of a batch. Leave "
            "the option out, or use impl=jax"
        )
    return one_of("jax")(text)


COMMON: dict[str, Callable[[str], Any]] = {
    "descriptor": descriptor,
    "low": numbers,
    "high": numbers,
    "episode_length": whole,
    "feet": words,
    "joints": words,
    "over": one_of("mean", "final"),
    "random_start": yes_or_no,
}
"""Options of all families, each with the function that reads its value."""


# ------------------------------------------------------------------------------------- families


@dataclasses.dataclass(frozen=True)
class Family:
    """A simulator, and how the names of its tasks are read."""

    summary: str
    example: str
    """Name of a task that works."""
    module: str
    """Module with the function `make(name, options) -> Task`."""
    packages: tuple[str, ...]
    """Packages that the module imports."""
    extra: str
    """Extra of elites that installs them."""
    distributions: tuple[str, ...]
    """Distributions whose versions a run records, because its results depend on them."""
    own_options: Mapping[str, Callable[[str], Any]] = dataclasses.field(default_factory=dict)
    """Options of this family alone, each with the function that reads its value."""
    has_common: bool = True
    """Whether its tasks have the options of `COMMON` too."""
    needs_file: bool = False
    """Whether the environment is the path of a model file."""
    takes_code: bool = False
    """Whether the environment may be FILE.py:FUNCTION, a function that returns one."""

    @property
    def options(self) -> dict[str, Callable[[str], Any]]:
        """All options of the family, each with the function that reads its value."""
        return {**(COMMON if self.has_common else {}), **self.own_options}

    @property
    def is_installed(self) -> bool:
        """Whether all packages of the family are installed. Nothing is imported."""
        return all(map(packages.is_installed, self.packages))


FAMILIES: dict[str, Family] = {
    "brax": Family(
        summary="environments of brax, such as hopper, walker2d, halfcheetah, ant, humanoid",
        example="brax:hopper",
        module="elites.tasks.brax_tasks",
        packages=("brax", "mujoco"),
        extra="brax",
        distributions=("brax", "mujoco", "mujoco-mjx"),
        own_options={
            "backend": one_of("spring", "positional", "generalized", "mjx"),
            "forward_reward": yes_or_no,
        },
    ),
    "playground": Family(
        summary="environments of MuJoCo Playground, such as HopperHop, CheetahRun, WalkerWalk",
        example="playground:WalkerWalk",
        module="elites.tasks.playground_tasks",
        packages=("mujoco_playground", "mujoco.mjx"),
        extra="playground",
        distributions=("playground", "mujoco", "mujoco-mjx"),
        own_options={"impl": implementation},
    ),
    "mjx": Family(
        summary="a MuJoCo model of your own, simulated by MJX",
        example="mjx:FILE.xml,feet=GEOM/GEOM",
        module="elites.tasks.mjx_tasks",
        packages=("mujoco", "mujoco.mjx"),
        extra="mjx",
        distributions=("mujoco", "mujoco-mjx"),
        own_options={
            "reward": function,
            "done": function,
            "observation": function,
            "healthy": range_of,
            "substeps": whole,
        },
        needs_file=True,
    ),
    "gymnasium": Family(
        summary="any environment of Gymnasium with continuous actions, in worker processes",
        example="gymnasium:Hopper-v5",
        module="elites.tasks.gymnasium_tasks",
        packages=("gymnasium",),
        extra="gymnasium",
        distributions=("gymnasium", "mujoco"),
        takes_code=True,
    ),
    "vectors": Family(
        summary="benchmark functions of plain vectors: sphere, rastrigin, arm",
        example="vectors:sphere,dimensions=20",
        module="elites.tasks.vectors",
        packages=(),
        extra="",
        distributions=(),
        own_options={"dimensions": whole},
        has_common=False,
    ),
}
"""Families of tasks, keyed by the beginning of their names."""


def read(text: str) -> tuple[Name, dict[str, Any]]:
    """Return the parts of the name of a simulator's task, and the values of its options.

    Raises a ValueError if an option is unknown or its value is wrong. Files and packages need not
    exist.
    """
    name = names.parse(text)
    known = FAMILIES[name.family].options
    values = {}
    for option, value in name.options:
        if option not in known:
            raise ValueError(
                f"task '{text}': unknown option '{option}'.{suggestion(option, known)} Known: "
                f"{', '.join(known)}"
            )
        try:
            values[option] = known[option](value)
        except ValueError as error:
            raise ValueError(f"task '{text}': {option} {error}") from None
    return name, values


def check(text: str) -> str:
    """Return the name of a simulator's task unchanged, or raise a ValueError if it cannot be made.

    The options, the files and the packages are checked. Whether the simulator has an environment of
    that name is only known when the task is made.
    """
    name, _ = read(text)
    family = FAMILIES[name.family]
    if family.needs_file and not name.is_file:
        raise ValueError(
            f"task '{text}': name a model file, {name.family}:FILE.xml, got '{name.environment}'"
        )
    if name.is_code:
        if not family.takes_code:
            raise ValueError(f"task '{text}': {name.family} has no environment with a colon")
        try:
            references.check_form("environment", name.environment)
        except ValueError as error:
            raise ValueError(
                f"task '{text}': {error}. An environment of another package is given this way too: "
                "write a file that imports the package, with a function that returns "
                "gymnasium.make(...)"
            ) from None
    for path in names.paths(text):
        if not Path(path).is_file():
            raise ValueError(f"task '{text}': there is no file {path}")
    packages.require(*family.packages, extra=family.extra, purpose=f"task {names.title(text)}")
    return text


def make(text: str) -> Task:
    """Return the task of this name. Its bounds may be unknown, see `elites.tasks.bounds`."""
    name, options = read(text)
    module = importlib.import_module(FAMILIES[name.family].module)
    return module.make(name, options)


def versions(text: str) -> dict[str, str]:
    """Return the versions of the packages behind a task, keyed by name. Empty for other tasks."""
    if not names.is_simulated(text):
        return {}
    return packages.versions(*FAMILIES[names.parse(text).family].distributions)
