"""Tasks by name.

    task = elites.tasks.make("ant_omni")

There are three ways to use a task of your own: pass the `Task` instead of a name, add it with
`register`, or name its file and function: `make("my_task.py:pendulum")`. Importing this module does
not load JAX. Making a task does.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from elites import references
from elites.core.catalogue import suggestion
from elites.references import absolute, short_name

if TYPE_CHECKING:
    from elites.tasks.task import Task

__all__ = ["absolute", "check", "lasting_name", "make", "names", "register", "short_name"]

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
    """Return the names of all built-in and registered tasks."""
    return list(_FACTORIES)


def check(name: str) -> str:
    """Return the name of a task unchanged, or raise a ValueError if there is no such task.

    A reference FILE.py:FUNCTION to an existing file is also accepted. JAX is not loaded.
    """
    if name in _FACTORIES:
        return name
    if references.is_reference(name):
        return references.check("task", name)
    raise ValueError(
        f"unknown task '{name}'.{suggestion(name, _FACTORIES)} "
        f"Known tasks: {', '.join(_FACTORIES)}; or FILE.py:FUNCTION for one of your own"
    )


def make(name: str) -> Task:
    """Return the task with this name, or the one from a reference FILE.py:FUNCTION.

    The result is always the same object, so that compiled code is shared.
    """
    if check(name) not in _FACTORIES:
        return _from_file(absolute(name))
    factory = _FACTORIES[name]
    if isinstance(factory, str):
        factory = getattr(importlib.import_module(factory), name)
    return factory()


def is_built_in(task: Task) -> bool:
    """Return whether a task is one that comes with elites."""
    return isinstance(_FACTORIES.get(task.name), str) and make(task.name) is task


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
            return absolute(check(given))
        given = factory
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
    if name in _FACTORIES:
        raise ValueError(f"a task named '{name}' exists already")
    _FACTORIES[name] = factory
