"""Distil the archive of a run into one policy, as a run of its own (`elites distil`).

The new run has the source's task, seeds, cells and policies. Its archive is the source's archive,
which never changes. Its actor is the policy that is fitted. Every command for runs works on it.
"""

from __future__ import annotations

from pathlib import Path

import jax

from elites.core import distillation
from elites.core.algorithm import Algorithm
from elites.core.algorithms import conditioned_td3
from elites.core.archive import Archive
from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import FACTS, RunDirectory, RunError
from elites.tasks.rollout import problem
from elites.tasks.task import Task


def build(task: Task, config: Config, run: RunDirectory) -> Algorithm:
    """Return the algorithm that distils an archive, for the new run in the directory `run`.

    The names of the elites' origins are read from the new run's facts, or from the source run if
    the new run has no facts yet.
    """
    known = run if (run / FACTS).exists() else directories.existing(Path(config.start_from))
    origins = tuple(directories.read_facts(known)["origins"])
    on = problem(task)
    td3 = conditioned_td3(on, config.hp)
    return distillation.algorithm(distillation.Spec(on, config.hp, td3, origins))


def source_archive(config: Config, shapes: Archive) -> Archive:
    """Return the archives [seeds] of the run that is distilled, `config.start_from`.

    Raises a RunError if the shapes of their arrays differ from `shapes`, or if one of them is
    empty.
    """
    from elites.runs import saved

    run = directories.existing(Path(config.start_from))
    found = saved.load_checkpoint(run)[0].archives._replace(threshold=None, reached=None)
    differing = [
        name
        for name, array, expected in zip(Archive._fields, found, shapes, strict=True)
        if getattr(array, "shape", None) != getattr(expected, "shape", None)
    ]
    if differing:
        raise RunError(
            f"{run.path} has changed since the distillation was planned: {', '.join(differing)} of "
            "its archive have another shape. Distil it into a new directory"
        )
    if not jax.numpy.isfinite(found.fitness).any(axis=-1).all():
        raise RunError(f"{run.path}: the archive of a seed is empty, so there is nothing to distil")
    return found
