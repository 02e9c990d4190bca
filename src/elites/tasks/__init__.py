"""Tasks by name.

    task = elites.tasks.make("ant_omni")

There are three ways to use a task of your own: pass the `Task` instead of a name, add it with
`register`, or name its file and function: `make("my_task.py:pendulum")`. Importing this module does
not load JAX. Making a task does.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elites.core.catalogue import suggestion

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
    """Return the names of all tasks."""
    return list(_FACTORIES)


def check(name: str) -> str:
    """Return the name, or raise a ValueError that lists the known ones. Does not load JAX."""
    if name in _FACTORIES:
        return name
    where, colon, function = name.rpartition(":")
    if not colon:
        raise ValueError(
            f"unknown task '{name}'.{suggestion(name, _FACTORIES)} "
            f"Known tasks: {', '.join(_FACTORIES)}. For your own task, give FILE.py:FUNCTION"
        )
    if not where.endswith(".py") or not function.isidentifier():
        raise ValueError(f"your own task must be given as FILE.py:FUNCTION, got '{name}'")
    if not Path(where).is_file():
        raise ValueError(f"task '{name}': there is no file {where}")
    return name


def short_name(task: str) -> str:
    """Return the name of a task for file names: FUNCTION of FILE.py:FUNCTION."""
    return task.rpartition(":")[2]


def absolute(name: str) -> str:
    """Return a name that is valid in every directory: with the full path of the task's file."""
    where, colon, function = name.rpartition(":")
    return f"{Path(where).resolve()}:{function}" if colon else name


def make(name: str) -> Task:
    """Return the task of that name. It is always the same object, so compiled code is shared."""
    if check(name) not in _FACTORIES:
        return _from_file(absolute(name))
    factory = _FACTORIES[name]
    if isinstance(factory, str):
        factory = getattr(importlib.import_module(factory), name)
    return factory()


@functools.cache
def _from_file(name: str) -> Task:
    """Load a file and return the task that its function returns."""
    from elites.tasks.task import Task

    where, _, function = name.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"elites_own_task_{Path(where).stem}", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    factory = getattr(module, function, None)
    task = factory() if callable(factory) else factory
    if not isinstance(task, Task):
        have = "nothing of that name" if factory is None else f"a {type(task).__name__}"
        raise ValueError(
            f"{where}: '{function}' must be a function that returns a Task, found {have}"
        )
    return task


def register(name: str, factory: Callable[[], Task]) -> None:
    """Add a task of your own. `factory` should return the same object every time."""
    if name in _FACTORIES:
        raise ValueError(f"a task named '{name}' exists already")
    _FACTORIES[name] = factory
