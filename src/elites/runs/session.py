"""Start a run or continue one, after checking that this is allowed. Loads JAX only to train.

`start` creates a run. `resume` continues from the last complete checkpoint, to the same bits. Both
raise an `UntrustedError` if the user has not trusted a file that the configuration names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elites import output, tasks, trust
from elites.core import catalogue
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs import lock, services
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.outcome import Outcome
from elites.runs.signals import Signals


def start(
    path: Path, config: Config, resume: bool = False, accept_changed_task: bool = False
) -> Outcome:
    """Train a new run in the directory `path` and return its `Outcome`.

    With `resume`, an existing run with the same configuration is continued. With
    `accept_changed_task`, it is continued even if its task or algorithm has changed meanwhile.
    """
    config = config.check().absolute()
    services.check(config)
    run = RunDirectory(path)
    if not (resume and run.exists()):
        if config.start_from:  # refused here if there is no such run
            task = directories.task_with_bounds(config.start_from, config.task)
            config = dataclasses.replace(config, task=task)
        directories.refuse_existing(path)
        with lock.locked(path):
            if not (resume and run.exists()):  # another process may have created it meanwhile
                directories.refuse_existing(path)
                return _train(run, config, fresh=True)
    return _continue(path, lambda saved: _with_bounds_of(saved, config), accept_changed_task)


def _with_bounds_of(saved: Config, config: Config) -> Config:
    """Return a configuration with the bounds that were estimated for the run that is continued."""
    return dataclasses.replace(config, task=tasks.with_bounds_of(saved.task, config.task))


def resume(path: Path, accept_changed_task: bool = False, **changes: Any) -> Outcome:
    """Continue the run in the directory `path` and return its `Outcome`.

    `changes` are new values of configuration fields that do not affect the results. With
    `accept_changed_task`, the run is continued even if its task or algorithm has changed meanwhile.
    """
    directories.existing(path)

    def wanted(saved: Config) -> Config:
        return dataclasses.replace(saved, **changes).absolute()

    return _continue(path, wanted, accept_changed_task)


def _continue(path: Path, wanted: Callable[[Config], Config], accept_changed_task: bool) -> Outcome:
    """Continue the run at a path from its last checkpoint and return its `Outcome`.

    `wanted` is a function from the saved configuration to the requested one. Raises a ValueError if
    the two differ in a field that affects the results.
    """
    saved = RunDirectory(path).checked_config()
    config = wanted(saved)
    differing = configs.differences(saved, config)
    if differing:
        raise ValueError(
            f"{path} holds a different run: {'; '.join(differing)}. Give the same "
            "values, or another --output"
        )
    services.check(config, resumed=True)
    with lock.locked(path) as stale:
        if stale:
            output.complain(f"recovered the lock left by {stale}")
        return _train(RunDirectory(path), config, False, accept_changed_task)


def code_names(run: RunDirectory, config: Config) -> list[str]:
    """Return the names of the tasks and algorithms whose code a run executes, without duplicates.

    These are the run's own. A distillation without a checkpoint also loads the run that it starts
    from, which may be a distillation itself. Other runs only read the files of their source.
    """
    names, seen = [config.task, config.algorithm], {run.path.resolve()}
    if config.algorithm != catalogue.DISTIL:
        return list(dict.fromkeys(names))
    from elites.runs import checkpoint as checkpoints  # loads NumPy, which help does not need

    while config.algorithm == catalogue.DISTIL and not checkpoints.complete(run.checkpoints):
        run = RunDirectory(Path(config.start_from))
        if run.path.resolve() in seen or not run.exists():  # told when the run is loaded
            break
        seen.add(run.path.resolve())
        config = run.config()
        names += [config.task, config.algorithm]
    return list(dict.fromkeys(names))


def _train(
    run: RunDirectory, config: Config, fresh: bool, accept_changed_task: bool = False
) -> Outcome:
    """Train in a directory that this process has locked and return the `Outcome`. Loads JAX.

    Raises `Interrupted` if a signal arrives before the first file is written.
    """
    trust.require(run.path, *code_names(run, config), *config.callback)
    with Signals("before training starts") as signals:
        from elites.runs import trainer

        return trainer.train(run, config, fresh, signals, accept_changed_task)
