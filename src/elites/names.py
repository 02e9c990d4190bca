"""Names of tasks of other simulators: FAMILY:NAME[,option=value...].

    brax:hopper
    brax:hopper,backend=spring,descriptor=feet_contact
    mjx:robot.xml,feet=left_foot/right_foot,reward=walking.py:reward

FAMILY is one of `SIMULATORS`. NAME is what the simulator calls the environment, or the path of a
model file, or for Gymnasium a function of the user's own, FILE.py:FUNCTION, that returns an
environment. An option's value with a colon is such a reference too. A comma inside of a path is
written twice: mjx:/robots/old,,new/robot.xml. This module only takes names apart.
`elites.tasks.families` knows which options exist.

The functions `absolute`, `short_name`, `title`, `paths` and `code` accept the name of any task.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from elites import references

SIMULATORS = ("brax", "playground", "mjx", "gymnasium", "vectors")
"""Families of tasks with options: those of other simulators, and plain vectors."""
BOUNDS = ("low", "high")
"""Options with the bounds of the descriptor. They are no part of short names."""
MODEL_FILES = (".xml", ".mjcf")
"""Suffixes by which the name of an environment is known to be the path of a model file."""


class Name(NamedTuple):
    """The parts of a task's name. `str` returns the name, with its options in alphabetical order.

    Two names of the same task with the same options are therefore equal. A comma in the environment
    or in a value is written twice.
    """

    family: str
    environment: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        options = [f"{option}={value}" for option, value in sorted(self.options)]
        parts = [f"{self.family}:{self.environment}", *options]
        return ",".join(part.replace(",", ",,") for part in parts)

    def get(self, option: str) -> str | None:
        """Return the value of an option as text, or None if the name does not have the option."""
        return dict(self.options).get(option)

    def replace(self, **options: str | None) -> Name:
        """Return a copy in which these options have these values. None removes an option."""
        values = {**dict(self.options), **options}
        kept = {option: value for option, value in values.items() if value is not None}
        return self._replace(options=tuple(sorted(kept.items())))

    @property
    def is_file(self) -> bool:
        """Whether the environment is given as the path of a model file."""
        return self.environment.endswith(MODEL_FILES)

    @property
    def is_code(self) -> bool:
        """Whether the environment is given as a reference FILE.py:FUNCTION."""
        return references.is_reference(self.environment)


def is_simulated(text: str) -> bool:
    """Return whether the name of a task begins with the family of another simulator."""
    family, colon, _ = text.partition(":")
    return bool(colon) and family in SIMULATORS


def parse(text: str) -> Name:
    """Return the parts of the name of a task of another simulator.

    Raises a ValueError if the name is not of the form FAMILY:NAME[,option=value...].
    """
    family, _, rest = text.partition(":")
    inner = "\0"  # stands for a comma that is written twice; no path has this character
    parts = [part.replace(inner, ",") for part in rest.replace(",,", inner).split(",")]
    environment = parts.pop(0)
    if not environment:
        raise ValueError(
            f"task '{text}': name an environment after the colon: {family}:NAME. "
            "'elites tasks' has examples"
        )
    options: dict[str, str] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if not (option and equals and value):
            hint = ". A comma inside of a path is written twice" if "/" in part else ""
            raise ValueError(
                f"task '{text}': an option is written option=value, got '{part}'{hint}"
            )
        if option in options:
            raise ValueError(f"task '{text}': the option {option} is given twice")
        options[option] = value
    return Name(family, environment, tuple(sorted(options.items())))


# ---------------------------------------------------------------------------- names of any task


def absolute(text: str) -> str:
    """Return the name of a task with absolute paths, and with its options in alphabetical order.

    A name without files, such as that of a built-in task, keeps its text.
    """
    if not is_simulated(text):
        return references.absolute(text)
    name = parse(text)
    if name.is_file:
        name = name._replace(environment=str(Path(name.environment).resolve()))
    if name.is_code:
        name = name._replace(environment=references.absolute(name.environment))
    return str(name.replace(**{option: references.absolute(value) for option, value in _own(name)}))


def short_name(text: str) -> str:
    """Return a short form of a task's name for use in file names, such as "brax-hopper".

    It contains the descriptor's value, and every other option as option_value. Bounds are left out.
    A reference FILE.py:FUNCTION is reduced to the function's name.
    """
    if not is_simulated(text):
        return references.short_name(text)
    name = parse(text)
    environment = references.short_name(name.environment)
    parts = [name.family, Path(environment).stem if name.is_file else environment]
    for option, value in sorted(name.options, key=lambda pair: pair[0] != "descriptor"):
        if option not in BOUNDS:
            value = references.short_name(value)
            parts.append(value if option == "descriptor" else f"{option}_{value}")
    return "-".join(re.sub(r"[^\w.-]", "_", part) for part in parts)[:150]


def title(text: str) -> str:
    """Return a form of a task's name for people: without folders and without bounds."""
    if not is_simulated(text):
        return references.short_name(text)
    name = parse(text).replace(low=None, high=None)
    if name.is_file:
        name = name._replace(environment=Path(name.environment).name)
    name = name._replace(environment=references.short_name(name.environment))
    return str(name.replace(**{o: references.short_name(value) for o, value in _own(name)}))


def code(*texts: str) -> list[str]:
    """Return the references FILE.py:FUNCTION in the names of tasks and algorithms."""
    found = []
    for text in texts:
        if is_simulated(text):
            name = parse(text)
            found += [name.environment] if name.is_code else []
            found += [value for _, value in _own(name)]
        elif references.is_reference(text):
            found.append(text)
    return found


def paths(text: str) -> list[str]:
    """Return the paths of all files that the name of a task or an algorithm refers to."""
    files = [reference.rpartition(":")[0] for reference in code(text)]
    if is_simulated(text) and (name := parse(text)).is_file:
        files.append(name.environment)
    return files


def _own(name: Name) -> list[tuple[str, str]]:
    """Return the options of a name whose values are references FILE.py:FUNCTION, as pairs."""
    return [(option, value) for option, value in name.options if references.is_reference(value)]
