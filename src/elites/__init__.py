"""Quality-diversity reinforcement learning in JAX.

    import elites
    run = elites.train("ant_omni", "dcg_me", seeds=4, evaluations=100_000)
    run = elites.load("runs/ant_omni-dcg_me")    # what 'elites train' made

See `elites.training` for what a run offers, `elites.tasks` for the tasks, `elites.core` for the
algorithms. JAX is loaded on first use.
"""

from __future__ import annotations

__version__ = "0.2.0.dev0"

TYPE_CHECKING = False  # not that of `typing`, whose import would delay the handling of signals
if TYPE_CHECKING:
    from typing import Any

    from elites.core.hyperparameters import Hyperparameters
    from elites.runs.directory import task_with_bounds as task_with_bounds
    from elites.runs.pretrained import pretrained
    from elites.runs.saved import load
    from elites.runs.saving import save
    from elites.runs.starting import given_to as given_to
    from elites.runs.switching import known_behaviours as known_behaviours
    from elites.tasks.task import Task, TaskState
    from elites.training import (
        AskTell,
        Episode,
        ExternalTask,
        Run,
        StopTraining,
        TrainingInterrupted,
        ask_tell,
        build,
        optimize,
        train,
    )

_LAZY = {
    "AskTell": "elites.training",
    "Episode": "elites.training",
    "Hyperparameters": "elites.core.hyperparameters",
    "ExternalTask": "elites.training",
    "Run": "elites.training",
    "StopTraining": "elites.training",
    "Task": "elites.tasks.task",
    "TaskState": "elites.tasks.task",
    "TrainingInterrupted": "elites.training",
    "ask_tell": "elites.training",
    "build": "elites.training",
    "given_to": "elites.runs.starting",  # for elites.training, which may not import it
    "known_behaviours": "elites.runs.switching",  # for elites.training too
    "load": "elites.runs.saved",
    "optimize": "elites.training",
    "pretrained": "elites.runs.pretrained",
    "save": "elites.runs.saving",
    "task_with_bounds": "elites.runs.directory",  # for elites.training too
    "train": "elites.training",
}

__all__ = [
    "AskTell",
    "Episode",
    "ExternalTask",
    "Hyperparameters",
    "Run",
    "StopTraining",
    "Task",
    "TaskState",
    "TrainingInterrupted",
    "ask_tell",
    "build",
    "load",
    "optimize",
    "pretrained",
    "save",
    "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in ("core", "physics", "presets", "runs", "tasks", "training"):
        return import_module(f"elites.{name}")
    raise AttributeError(f"module 'elites' has no attribute '{name}'")
