"""Load a run's results: archive, actor and metrics, without the training state.

`elites.load("runs/ant_omni-dcg_me")` returns a `Run`, as training in Python does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites import trust
from elites.core.algorithm import Algorithm
from elites.interop.tables import MetricsTable
from elites.output import warn
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import environment, gaps, logs, pretrained, unchanged
from elites.runs import job as jobs
from elites.runs.checkpoint import WEIGHTS, Checkpoint
from elites.runs.config import Config
from elites.runs.directory import CONFIG, METRICS, RunDirectory, RunError
from elites.tasks.task import Task
from elites.training import Place, Run
from elites.words import quoted


def load(path: Path | str, iteration: int | None = None, trust_task: bool = False) -> Run:
    """Load the run in a directory and return it as a `Run`, without its training state.

    `iteration` selects a checkpoint, by default the newest. The metrics of the result have a row
    for every iteration. If `metrics.csv` lacks one, for example because an old copy was restored,
    its row is NaN except for `evaluations`, and a warning says so.

    Loading executes the Python file of the run's task or algorithm, if it names one. For a run from
    someone else, read that file first, then pass `trust_task=True`. This is remembered.
    """
    run = directories.existing(Path(path))
    if trust_task:
        config = run.config().check()
        trust.record(config.task, config.algorithm)
    try:
        found, iteration = load_checkpoint(run, iteration)
    except RunError as error:
        raise pretrained.explained(error) from None
    for gap in gaps.find(run):
        warn(f"{gap.path} lacks rows of {gap.text}")
    return found


def load_checkpoint(run: RunDirectory, iteration: int | None = None) -> tuple[Run, int]:
    """Load a run from a checkpoint, and return the `Run` and the checkpoint's iteration.

    `iteration` selects the checkpoint, by default the newest.
    """
    found, iteration = Reader(run).load(iteration)
    metrics = _every_iteration(run, logs.metrics(run), iteration, found.algorithm)
    archives, actors = jax.tree.map(jnp.asarray, (found.archives, found.actors))
    table = MetricsTable(metrics, found.seeds)
    return dataclasses.replace(found, archives=archives, actors=actors, metrics=table), iteration


def _every_iteration(
    run: RunDirectory, table: Mapping[str, np.ndarray], through: int, algorithm: Algorithm
) -> dict[str, np.ndarray]:
    """Return metrics [iterations, seeds], keyed by name, with a row for every iteration.

    `table` has the columns of metrics.csv, and `through` is the iteration of the checkpoint. Rows
    that the table lacks are NaN except for `evaluations`. Returns an empty dictionary if the table
    has no rows. Raises a RunError if it has iterations after the end of the run.
    """
    have = table.get("iteration", np.zeros((0, 0)))
    if not len(have):
        return {}
    rows = have[:, 0].astype(int) - 1
    count = max(through, rows[-1] + 1)
    if count > max(through, total := directories.read_facts(run)["iterations"]):
        raise RunError(
            f"{run / METRICS}: damaged: it has iteration {count}, but the run ends with {total}"
        )
    result = {}
    for name in table:
        if name not in ("iteration", "seed"):
            result[name] = np.full((count, have.shape[1]), np.nan)
            result[name][rows] = table[name]
    missing = np.setdiff1d(np.arange(count), rows)
    spent = algorithm.initial_evaluations + algorithm.evaluations_per_iteration * (missing + 1)
    result["evaluations"][missing] = spent[:, None]
    return result


class Reader:
    """Reads checkpoints of one run. It builds the run's algorithm once, for all of them."""

    def __init__(self, run: RunDirectory):
        """Build the algorithm of the run that is to be read.

        Raises a ValueError if the run does not fit its task, or names a file that is not trusted.
        """
        self._run, self._config = run, run.checked_config()
        trust.require(run.path, self._config.task, self._config.algorithm)
        environment.provide_devices(run, self._config.seeds)
        try:
            self._devices = environment.seed_devices(run, self._config.seeds)
            self._job = jobs.build(self._config, run, self._devices)
        except ValueError as error:
            raise ValueError(f"{run / CONFIG}: {error}") from None
        unchanged.check_loaded(run, self._job)
        expected = self._job.expected_arrays.items()
        self._expected = {name: what for name, what in expected if jobs.is_weight(name)}

    @property
    def task(self) -> Task:
        """Task of the run."""
        return self._job.task

    def load(self, iteration: int | None = None) -> tuple[Run, int]:
        """Return the run at a checkpoint, without metrics, and the checkpoint's iteration.

        If `iteration` is None, the newest readable checkpoint is used. The arrays of the run are
        NumPy arrays, because films and the page use few of the policies.
        """
        run = self._run
        if iteration is None:
            found = checkpoints.newest(run.checkpoints, self._read, warn)
            if found is None:
                raise RunError(
                    f"{run.path} has no checkpoint yet: wait for the first, or go on with "
                    f"'elites resume {quoted(run.path)}'"
                )
        else:
            have = [int(place.name) for place in checkpoints.complete(run.checkpoints)]
            if iteration not in have:
                kept = ", ".join(map(str, have)) or "none"
                raise ValueError(
                    f"{run.path} has no checkpoint of iteration {iteration}; kept: {kept}"
                )
            found = self._read(run.checkpoints / f"{iteration:09d}")
        # A state with its weights alone: enough to ask for the archive and the main actor.
        state = self._job.state_of({name: found.arrays.get(name) for name in self._job.names})
        algorithm, seeds = self._job.algorithm, tuple(self._config.seed_numbers)
        names = tuple(axis.name for axis in self.task.descriptor_axes)
        none = MetricsTable({}, seeds)
        place = Place(run.path, found.iteration)
        loaded = Run(
            algorithm, seeds, state.archive, algorithm.actor(state), none, kernels=run.kernels,
            descriptor_names=names, place=place, devices=self._devices,
        )  # fmt: skip
        return loaded, found.iteration

    def _read(self, place: Path) -> Checkpoint:
        """Read the checkpoint at a path and return it with its weights, but no other arrays."""
        return checkpoints.load(place, (WEIGHTS,), self._expected)


def of_state(config: Config, algorithm: Algorithm, state: Any) -> Run:
    """Return the results of a training state in memory as a `Run`."""
    archives, actors = jax.tree.map(jnp.asarray, state.archive), algorithm.actor(state)
    seeds = tuple(config.seed_numbers)
    return Run(algorithm, seeds, archives, actors, MetricsTable({}, seeds), state)
