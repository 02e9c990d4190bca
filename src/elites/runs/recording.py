"""Record a session of training: metrics, re-evaluations and checkpoints.

`Recorder` is what the training loop calls. `Logs` holds the tables and TensorBoard events, which
grow with every iteration. `_Saver` writes checkpoints in a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from elites.core.algorithm import Metrics
from elites.core.reevaluation import Reevaluation
from elites.runs import checkpoint as checkpoints
from elites.runs import gaps, snapshots
from elites.runs.checkpoint import WEIGHTS, Checkpoint
from elites.runs.config import Config
from elites.runs.directory import METRICS, REACH, RunDirectory, RunError
from elites.runs.job import Job
from elites.runs.logs import Events, Table, read_table
from elites.training import named
from elites.training.progress import Progress

REACH_COLUMNS = (
    "qd_score",
    "descriptor_error",
    "actor_qd_score",
    "actor_descriptor_error",
    "actor_rebinned_qd_score",
    "actor_rebinned_coverage",
)


class Recorder:
    """Everything that a session writes: metrics, re-evaluations, checkpoints.

    The metrics of an iteration are written while the next one computes. Checkpoints are written by
    a thread of their own.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        job: Job,
        last: Checkpoint | None,
        progress: Progress,
    ):
        self._run, self._config, self._job, self._progress = run, config, job, progress
        self._seconds_before = last.information.get("seconds", 0.0) if last else 0.0
        self._begun = time.perf_counter()
        self._logs = Logs(run, config, job, last)
        self._saver = _Saver(run)
        self._pending: tuple[int, Metrics] | None = None
        self._last_saved = last.iteration if last else -1

    def seconds(self) -> float:
        """Return the training time over all sessions."""
        return self._seconds_before + time.perf_counter() - self._begun

    def metrics(self, iteration: int, metrics: Metrics) -> None:
        """Write the metrics of the iteration before, and keep these for the next call."""
        self._write_pending()
        self._saver.check()
        self._pending = (iteration, metrics)

    def _write_pending(self) -> None:
        """Write the metrics that are not written yet, waiting for them if need be."""
        if self._pending is None:
            return
        iteration, metrics = self._pending[0], named(self._pending[1])
        self._pending = None
        if complaint := _not_finite(iteration, metrics, self._config):
            self._saver.wait()
            raise RunError(f"{complaint} {_last_good(self._run)}")
        self._logs.iteration(iteration, metrics, self.seconds())
        self._progress.update(
            iteration,
            float(metrics["evaluations"][0]),
            float(np.median(metrics["qd_score"])),
            float(np.median(metrics["coverage"])),
        )

    def reevaluation(self, iteration: int, again: Reevaluation) -> None:
        """Write a row of re-evaluation."""
        self._write_pending()
        self._logs.reevaluation(iteration, again, self.seconds())

    def checkpoint(self, iteration: int, state: Any) -> None:
        """Save a state, unless this iteration is saved already."""
        self._write_pending()
        if self._last_saved == iteration:
            return
        self._logs.sync()
        information = {
            "config": self._config.to_json(),
            "seconds": self.seconds(),
            gaps.REEVALUATED: self._logs.reevaluations,
        }
        self._saver.save(iteration, self._job.parts(self._job.arrays(state)), information)
        self._last_saved = iteration

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk, and end the progress display."""
        self._saver.wait()
        self._progress.close()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._progress.say(text)

    def sync(self) -> None:
        """Write the logs through to the disk."""
        self._logs.sync()

    def close(self, failed: bool = False) -> None:
        """Close all files. After a failure, an error here must not hide the first one."""
        self._progress.close()
        try:
            self._logs.close()
        except OSError:
            if not failed:
                raise
        finally:
            self._saver.close()


def _not_finite(number: int, metrics: Mapping[str, np.ndarray], config: Config) -> str | None:
    """Return a message about a loss that is not finite, or None."""
    for name, values in metrics.items():
        if not name.startswith(("critic_loss", "actor_loss")):
            continue
        for seed, value in zip(config.seed_numbers, values, strict=True):
            if not np.isfinite(value):
                return f"{name} of seed {seed} became {value} in iteration {number}: stopped."
    return None


def _last_good(run: RunDirectory) -> str:
    good = checkpoints.complete(run.checkpoints)
    kept = f"The last good checkpoint is {good[-1]}" if good else "No checkpoint was saved yet"
    return (
        f"{kept}. The same numbers would fail again: start anew with a lower "
        "--hp.critic-learning-rate or --hp.actor-learning-rate"
    )


class _Saver:
    """Writes checkpoints in a thread while training continues, one at a time.

    Errors of the thread are raised by the next call.
    """

    def __init__(self, run: RunDirectory):
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        self.wait()
        self._writing = self._pool.submit(self._write, iteration, parts, information)

    def _write(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        # The snapshot comes first, so that every checkpoint has one.
        snapshots.write(self._run, iteration, parts[WEIGHTS])
        checkpoints.save(self._run.checkpoints, iteration, parts, information)

    def check(self) -> None:
        """Raise the error of a finished write, without waiting for one in progress."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class Logs:
    """The files that grow during training."""

    def __init__(self, run: RunDirectory, config: Config, job: Job, last: Checkpoint | None):
        self._run, self._config, self._job = run, config, job
        self._through = through = last.iteration if last else None
        self._metrics: Table | None = None  # opened with the first metrics, which give its columns
        self._reach = Table(
            run / REACH, ("iteration", "seed", "evaluations", *REACH_COLUMNS, "seconds"), through
        )
        self._reevaluated = {int(i) for i in read_table(run / REACH)["iteration"]}
        lost = last.information.get(gaps.REEVALUATED, ()) if last else ()
        self._ever_reevaluated = {*self._reevaluated, *lost}
        self._events = [
            Events(run.path / "events" / f"seed_{seed}", through or 0)
            for seed in config.seed_numbers
        ]

    @property
    def reevaluations(self) -> list[int]:
        """Iterations re-evaluated so far, also those whose rows were lost."""
        return sorted(self._ever_reevaluated)

    def iteration(self, number: int, metrics: Mapping[str, np.ndarray], seconds: float) -> None:
        """Write the metrics [seeds] of an iteration."""
        if self._metrics is None:
            columns = ("iteration", "seed", *metrics, "seconds")
            self._metrics = Table(self._run / METRICS, columns, self._through)
        rows = []
        for i, seed in enumerate(self._config.seed_numbers):
            values = {name: column[i] for name, column in metrics.items()}
            rows.append({"iteration": number, "seed": seed, **values, "seconds": f"{seconds:.3f}"})
            self._events[i].scalars(number, {k.replace(".", "/"): v for k, v in values.items()})
        self._metrics.append(rows)

    def reevaluation(self, number: int, again: Reevaluation, seconds: float) -> None:
        if number in self._reevaluated:
            return
        self._reevaluated.add(number)
        self._ever_reevaluated.add(number)
        config, algorithm = self._config, self._job.algorithm
        spent = algorithm.initial_evaluations + number * algorithm.evaluations_per_iteration
        rows = []
        for i, seed in enumerate(config.seed_numbers):
            values = {name: getattr(again, name)[i] for name in REACH_COLUMNS}
            row = {"iteration": number, "seed": seed, "evaluations": spent, **values}
            rows.append(row | {"seconds": f"{seconds:.3f}"})
            self._events[i].scalars(number, {f"reach/{k}": v for k, v in values.items()})
        self._reach.append(rows)

    def _files(self) -> list[Any]:
        return [f for f in (self._metrics, self._reach, *self._events) if f is not None]

    def sync(self) -> None:
        for file in self._files():
            file.sync()

    def close(self) -> None:
        for file in self._files():
            file.close()
