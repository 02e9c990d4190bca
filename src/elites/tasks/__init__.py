"""Tasks by name.

    task = elites.tasks.make("ant_omni")

There are three ways to use a task of your own: pass the `Task` instead of a name, add it with
`register`, or name its file and function: `make("my_task.py:pendulum")`. Tasks of other simulators
have names such as `brax:hopper,backend=spring`, see `elites.names` and `elites.tasks.families`.
Some of them also have a standard name, such as `hopper_uni`, see `elites.tasks.standard`.
Importing this module does not load JAX. Making a task does.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from elites import names as simulated
from elites import references
from elites.core.catalogue import suggestion
from elites.names import absolute, short_name
from elites.tasks import families
from elites.tasks.standard import QD_OFFSETS, STANDARD

if TYPE_CHECKING:
    from elites.tasks.task import Task

__all__ = [
    "absolute", "check", "lasting_name", "make", "names", "register", "resolve", "short_name",
]  # fmt: skip

_FACTORIES: dict[str, str | Callable[[], Task]] = {
    "ant_omni": "elites.tasks.omni",
    "anttrap_omni": "elites.tasks.omni",
    "hexapod_omni": "elites.tasks.omni",
    "ant_uni": "elites.tasks.ant_uni",
    "walker_uni": "elites.tasks.walker",
    "ant_maze": "elites.tasks.mazes",
    "point_maze": "elites.tasks.mazes",
    "point_omni": "elites.tasks.analytic",
    "noisy_point_omni": "elites.tasks.analytic",
    "arm_reach": "elites.tasks.analytic",
}


def names() -> list[str]:
    """Return the names of all built-in and registered tasks, without standard names."""
    return list(_FACTORIES)


def check(name: str) -> str:
    """Return the name of a task unchanged, or raise a ValueError if there is no such task.

    A reference FILE.py:FUNCTION to an existing file and the name of a task of another simulator
    are also accepted. JAX is not loaded.
    """
    if name in _FACTORIES:
        return name
    if name in STANDARD:
        check(STANDARD[name])
        return name
    if _is_simulated(name):
        return families.check(name)
    if references.is_reference(name):
        return references.check("task", name)
    examples = ", ".join(family.example for family in families.FAMILIES.values())
    raise ValueError(
        f"unknown task '{name}'.{suggestion(name, [*_FACTORIES, *STANDARD])} Known tasks: "
        f"{', '.join([*_FACTORIES, *STANDARD])}; of other simulators: {examples}; or "
        "FILE.py:FUNCTION for one of your own"
    )


def check_form(name: str) -> str:
    """Return the name of a task in a saved study unchanged, or raise a ValueError.

    Unlike for `check`, files and packages need not exist.
    """
    if _is_simulated(STANDARD.get(name, name)):
        families.read(STANDARD.get(name, name))
        return name
    return references.check_form("task", name) if references.is_reference(name) else check(name)


def _is_simulated(name: str) -> bool:
    """Return whether a name is that of a task of another simulator.

    Raises a ValueError if it looks like one, but begins with no known family.
    """
    family, colon, rest = name.partition(":")
    if family in families.FAMILIES and colon:
        return True
    if colon and family.isidentifier() and ".py" not in rest:
        raise ValueError(
            f"task '{name}': unknown simulator '{family}'."
            f"{suggestion(family, families.FAMILIES)} Known: {', '.join(families.FAMILIES)}; or "
            "FILE.py:FUNCTION for a task of your own"
        )
    return False


def make(name: str) -> Task:
    """Return the task with this name, or the one from a reference FILE.py:FUNCTION.

    The result is always the same object, so that compiled code is shared. Unknown bounds of a
    descriptor are estimated, see `resolve`.
    """
    if check(name) not in _FACTORIES:
        if name in STANDARD:
            return _standard(name)
        if _is_simulated(name):
            return _simulated(resolve(name))
        return _from_file(absolute(name))
    factory = _FACTORIES[name]
    if isinstance(factory, str):
        factory = getattr(importlib.import_module(factory), name)
    return factory()


def is_built_in(task: Task) -> bool:
    """Return whether a task is one that comes with elites, or is made by it from a simulator."""
    return _name_of(task) is not None or comes_with_elites(task)


def comes_with_elites(task: Task) -> bool:
    """Return whether a task is one of elites' own, which needs no other simulator."""
    return isinstance(_FACTORIES.get(task.name), str) and make(task.name) is task


def resolve(name: str, say: Callable[[str], object] | None = None) -> str:
    """Return a name of the same task that determines it completely.

    If the bounds of the descriptor of a simulator's task are neither known nor given, they are
    estimated from random policies and added to the name. `say` is then called with a sentence about
    them. Other names are returned with absolute paths.
    """
    name = absolute(check(name))
    if not _is_simulated(name):
        return name
    full, sentence = _resolved(name)
    if sentence and say:
        say(sentence)
    return full


@functools.cache
def _resolved(name: str) -> tuple[str, str]:
    """Return the complete name of a simulator's task, and a sentence about estimated bounds.

    The sentence is empty if no bounds were estimated.
    """
    from elites.tasks import bounds

    task = _simulated(name)
    if bounds.are_known(task):
        return name, ""
    found = bounds.estimated(task)
    parsed = simulated.parse(name)
    missing = {
        option: bounds.as_option(values)
        for option, values in zip(simulated.BOUNDS, found, strict=True)
        if parsed.get(option) is None
    }
    return str(parsed.replace(**missing)), bounds.described(task, found)


@functools.cache
def _simulated(name: str) -> Task:
    """Return the task of another simulator with this name, which has absolute paths."""
    task = families.make(name)
    _SIMULATED[name] = task
    return task


@functools.cache
def _standard(name: str) -> Task:
    """Return the task with this standard name. It may have a QD offset of its own."""
    offset = QD_OFFSETS.get(name, 0.0)
    task = dataclasses.replace(make(STANDARD[name]), name=name, qd_offset=offset)
    _SIMULATED[name] = task
    return task


_SIMULATED: dict[str, Task] = {}
"""Tasks of other simulators or with standard names that this process has made, by their names."""


def _name_of(task: Task) -> str | None:
    """Return the name by which a simulator's or a standard task was made, or None for others."""
    return next((name for name, made in _SIMULATED.items() if made is task), None)


def versions(task: Task) -> dict[str, str]:
    """Return the versions of the simulator's packages behind a task, keyed by name.

    Returns an empty dictionary for tasks that need no other simulator.
    """
    name = _name_of(task)
    return families.versions(STANDARD.get(name, name)) if name else {}


def with_bounds_of(saved: str, name: str) -> str:
    """Return the name of the saved task if `name` is the same one without bounds, else `name`.

    Bounds that were estimated are part of the name of a saved task, but the user does not give them
    again.
    """
    if not (_is_simulated(name) and _is_simulated(saved)):
        return name
    asked, recorded = (simulated.parse(absolute(text)) for text in (name, saved))
    absent = {option: None for option in simulated.BOUNDS if asked.get(option) is None}
    return saved if recorded.replace(**absent) == asked else name


def with_option(name: str, option: str, value: str) -> str:
    """Return the name of a simulator's task with one more option. JAX is not loaded.

    Raises a ValueError for other tasks, and if the option has another value already.
    """
    if not _is_simulated(name):
        raise ValueError(
            f"{option} can be chosen for tasks of other simulators only, such as brax:hopper, not "
            f"for '{name}'"
        )
    parsed = simulated.parse(name)
    if parsed.get(option) not in (None, value):
        raise ValueError(f"task '{name}': {option} is given twice, the other time as '{value}'")
    return str(parsed.replace(**{option: value}))


@functools.cache
def _from_file(name: str) -> Task:
    """Return the task that the function in a reference FILE.py:FUNCTION returns.

    Raises a ValueError if the function does not exist or returns something else.
    """
    from elites.tasks.task import Task

    where, _, function = name.rpartition(":")
    factory = references.load(name)
    task = references.call(name, factory) if callable(factory) else factory
    if not isinstance(task, Task):
        have = "nothing of that name" if factory is None else references.kind(task)
        raise ValueError(
            f"{where}: '{function}' must be a function that returns a Task, found {have}"
        )
    return task


def lasting_name(given: str | Task | Callable[[], Task]) -> str:
    """Return a name by which another process can make the same task, or raise a ValueError.

    `given` is the argument `task` of `elites.train`. The name is that of a built-in task, or a
    reference FILE.py:FUNCTION to the function that makes the task. A `Task` object of your own has
    no such name.
    """
    if isinstance(given, str):
        factory = _FACTORIES.get(given)
        if factory is None or isinstance(factory, str):
            return resolve(given)
        given = factory
    if not callable(given) and (made := _name_of(given)):
        return made
    name = getattr(given, "__name__", "") if callable(given) else given.name
    if isinstance(_FACTORIES.get(name), str):  # one of elites' own, as an object or a function
        task = make(name)
        if given is task or (callable(given) and given.__module__ == _FACTORIES[name]):
            return name
    if not callable(given):
        raise ValueError(
            f"the task '{given.name}' was given as an object, which another process cannot find. "
            "Name the function that makes it: save(..., task='FILE.py:FUNCTION')"
        )
    return references.lasting("task", given)


def register(name: str, factory: Callable[[], Task]) -> None:
    """Add a task of your own under a name. `factory` should return the same object every time."""
    if name in _FACTORIES or name in STANDARD:
        raise ValueError(f"a task named '{name}' exists already")
    _FACTORIES[name] = factory
