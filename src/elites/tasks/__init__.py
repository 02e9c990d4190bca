"""Tasks by name.

    task = elites.tasks.make("ant_omni")

A task of your own joins the list with `register`, or is handed over as a `Task` wherever a name is
accepted. Importing this module does not load JAX; making a task does.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elites.tasks.task import Task

_FACTORIES: dict[str, str | Callable[[], Task]] = {
    "ant_omni": "elites.tasks.omni",
    "anttrap_omni": "elites.tasks.omni",
    "hexapod_omni": "elites.tasks.omni",
    "walker_uni": "elites.tasks.walker",
    "point_omni": "elites.tasks.analytic",
    "noisy_point_omni": "elites.tasks.analytic",
    "arm_reach": "elites.tasks.analytic",
}


def names() -> list[str]:
    """The known tasks."""
    return list(_FACTORIES)


def check(name: str) -> str:
    """The name, or a ValueError that lists the known ones."""
    if name not in _FACTORIES:
        raise ValueError(
            f"unknown task '{name}'.{suggestion(name, _FACTORIES)} "
            f"Known tasks: {', '.join(_FACTORIES)}"
        )
    return name


def suggestion(name: str, known: Iterable[str]) -> str:
    """What the writer of an unknown name may have meant."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def make(name: str) -> Task:
    """The task of that name; always the same object, so that compiled code is shared."""
    factory = _FACTORIES[check(name)]
    if isinstance(factory, str):
        factory = getattr(importlib.import_module(factory), name)
    return factory()


def register(name: str, factory: Callable[[], Task]) -> None:
    """Add a task of your own; `factory` should return the same object every time."""
    if name in _FACTORIES:
        raise ValueError(f"a task named '{name}' exists already")
    _FACTORIES[name] = factory
