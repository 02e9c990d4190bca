"""Record a session of training: metrics, re-evaluations and checkpoints.

`Recorder` is what the training loop calls. `Logs` holds the tables and TensorBoard events, which
grow with every iteration. `_Saver` writes checkpoints in a thread of its own. `Loggers` pass the
metrics on to other services, if the configuration asks for it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from elites.core import catalogue
from elites.core.algorithm import Metrics
from elites.core.reevaluation import Reevaluation
from elites.output import warn
from elites.runs import checkpoint as checkpoints
from elites.runs import gaps, services, snapshots
from elites.runs.checkpoint import WEIGHTS, Checkpoint
from elites.runs.config import Config
from elites.runs.directory import METRICS, REEVALUATIONS, RunDirectory, RunError
from elites.runs.job import Job
from elites.runs.logs import Events, Table, read_table
from elites.training import named
from elites.training.display import Display
from elites.words import one_line

REEVALUATION_COLUMNS = (
    "qd_score",
    "descriptor_error",
    "actor_qd_score",
    "actor_descriptor_error",
    "actor_rebinned_qd_score",
    "actor_rebinned_coverage",
)


class Recorder:
    """Writes everything that a session records: metrics, re-evaluations and checkpoints.

    The metrics of an iteration are written while the next one computes. A separate thread writes
    the checkpoints.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        job: Job,
        last: Checkpoint | None,
        progress: Display,
    ):
        """Start to record a session. `last` is the checkpoint that it continues from, if any."""
        self._run, self._config, self._job, self._progress = run, config, job, progress
        self._seconds_before = last.information.get("seconds", 0.0) if last else 0.0
        self._begun = time.perf_counter()
        self._logs = Logs(run, config, job, last)
        self._loggers = services.open_loggers(run, config, config.seed_numbers)
        self._saver = _Saver(run)
        self._pending: tuple[int, Metrics] | None = None
        self._last_saved = last.iteration if last else -1

    def seconds(self) -> float:
        """Return the training time of the run in seconds, over all sessions so far."""
        return self._seconds_before + time.perf_counter() - self._begun

    def metrics(self, iteration: int, metrics: Metrics) -> None:
        """Write the metrics of the previous iteration, and keep the given ones for the next call.

        The device computes the given metrics in the meantime.
        """
        self._write_pending()
        self._saver.check()
        self._pending = (iteration, metrics)

    def _write_pending(self) -> None:
        """Write the metrics that `metrics` kept, if any. Waits until the device has computed them.

        Raises a RunError if a loss is not finite.
        """
        if self._pending is None:
            return
        iteration, metrics = self._pending[0], named(self._pending[1])
        self._pending = None
        if complaint := _not_finite(iteration, metrics, self._config):
            self._saver.wait()
            raise RunError(f"{complaint} {_last_good(self._run, self._config.algorithm)}")
        self._logs.iteration(iteration, metrics, self.seconds())
        self._loggers.log(iteration, metrics)
        self._progress.update(
            iteration,
            float(metrics["evaluations"][0]),
            float(np.median(metrics["qd_score"])),
            float(np.median(metrics["coverage"])),
        )

    def finished(self, metrics: Metrics) -> dict[str, np.ndarray]:
        """Return the metrics of the last iteration by name, as callbacks get them.

        Waits until the device has computed them, and writes them.
        """
        self._write_pending()
        return {**named(metrics), "seconds": np.full(self._config.seeds, self.seconds())}

    def reevaluation(self, iteration: int, again: Reevaluation) -> None:
        """Write the results of re-evaluating archive and actor to reevaluations.csv."""
        self._write_pending()
        if self._logs.reevaluation(iteration, again, self.seconds()):
            scores = {name: getattr(again, name) for name in REEVALUATION_COLUMNS}
            self._loggers.log(iteration, scores, "reevaluation/")

    def checkpoint(self, iteration: int, state: Any) -> None:
        """Save a training state as a checkpoint, unless this iteration has already been saved."""
        self._write_pending()
        if self._last_saved == iteration:
            return
        self._logs.sync()
        information = {
            "config": self._config.to_json(),
            "seconds": self.seconds(),
            gaps.REEVALUATED: self._logs.reevaluations,
        }
        self._saver.save(iteration, self._job.by_file(self._job.arrays(state)), information)
        self._last_saved = iteration

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk, then close the progress display."""
        self._saver.wait()
        self._progress.close()

    def say(self, text: str) -> None:
        """Print a permanent line above the progress display."""
        self._progress.say(text)

    def sync(self) -> None:
        """Write metrics.csv, reevaluations.csv and the TensorBoard events to disk (fsync)."""
        self._logs.sync()

    def close(self) -> None:
        """Close all files of the session. Ignores errors of closing them.

        Such errors do no harm: either everything was flushed with the last checkpoint, or the
        session has failed with another error, which must not be hidden.
        """
        self._progress.close()
        with contextlib.suppress(OSError):
            self._logs.close()
        self._saver.close()
        self._loggers.close()


def _not_finite(number: int, metrics: Mapping[str, np.ndarray], config: Config) -> str | None:
    """Return a message about the first loss that is not finite, or None if all are finite.

    `metrics` has the metrics [seeds] of the iteration `number`.
    """
    for name, values in metrics.items():
        if not name.startswith(("critic_loss", "actor_loss")):
            continue
        for seed, value in zip(config.seed_numbers, values, strict=True):
            if not np.isfinite(value):
                return f"{name} of seed {seed} became {value} in iteration {number}: stopped."
    return None


_RATES = {
    "progress_me": "--hp.progress-learning-rate",
    "pbt_me": "--hp.pbt-critic-learning-rate or --hp.pbt-actor-learning-rate",
    catalogue.DISTIL: "--learning-rate",  # of 'elites distil'
}
_OTHER_RATES = "--hp.critic-learning-rate or --hp.actor-learning-rate"


def _last_good(run: RunDirectory, algorithm: str) -> str:
    """Return advice for a run whose loss diverged: its last checkpoint, and options to lower."""
    good = checkpoints.complete(run.checkpoints)
    kept = f"The last good checkpoint is {good[-1]}" if good else "No checkpoint was saved yet"
    return (
        f"{kept}. The same numbers would fail again: start anew with a lower "
        f"{_RATES.get(algorithm, _OTHER_RATES)}"
    )


class _Saver:
    """Writes checkpoints of a run in a thread while training continues, one at a time.

    If writing fails, the next call of `save`, `check` or `wait` raises the error.
    """

    def __init__(self, run: RunDirectory):
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        """Wait for the previous write to finish, then start to write a checkpoint in the thread."""
        self.wait()
        self._writing = self._pool.submit(self._write, iteration, parts, information)

    def _write(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        """Write the snapshot (the archive without policies) and the checkpoint of an iteration."""
        # The snapshot comes first, so that every checkpoint has one.
        snapshots.write(self._run, iteration, parts[WEIGHTS])
        checkpoints.save(self._run.checkpoints, iteration, parts, information)

    def check(self) -> None:
        """Raise the error of the last write if that has failed.

        Does not wait for a write that is still in progress.
        """
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the write in progress, and raise its error if it fails."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the write in progress, and end the thread."""
        self._pool.shutdown(wait=True)


class Logs:
    """The files that training appends to: metrics.csv, reevaluations.csv and TensorBoard events."""

    def __init__(self, run: RunDirectory, config: Config, job: Job, last: Checkpoint | None):
        """Open the files of a run for appending, and drop the rows after the checkpoint `last`.

        If `last` is None, new files are created.
        """
        self._run, self._config, self._job = run, config, job
        self._through = through = last.iteration if last else None
        self._metrics: Table | None = None  # opened with the first metrics, which give its columns
        self._reevaluations = Table(
            run / REEVALUATIONS,
            ("iteration", "seed", "evaluations", *REEVALUATION_COLUMNS, "seconds"),
            through,
        )
        table = read_table(run / REEVALUATIONS, ("iteration",))
        self._reevaluated = {int(i) for i in table["iteration"]}
        lost = last.information.get(gaps.REEVALUATED, ()) if last else ()
        self._ever_reevaluated = {*self._reevaluated, *lost}
        self._warned = False
        self._events = [
            Events(run.path / "events" / f"seed_{seed}", through or 0, self._report)
            for seed in config.seed_numbers
        ]

    def _report(self, error: OSError) -> None:
        """Warn that TensorBoard events cannot be written. Only the first error is reported."""
        if not self._warned:
            warn(f"no more TensorBoard events: {one_line(error)}. {METRICS} has all numbers")
        self._warned = True

    @property
    def reevaluations(self) -> list[int]:
        """Iterations that were re-evaluated so far, sorted, including those whose rows are lost."""
        return sorted(self._ever_reevaluated)

    def iteration(self, number: int, metrics: Mapping[str, np.ndarray], seconds: float) -> None:
        """Append the metrics [seeds] of iteration `number` to metrics.csv and to the events.

        `seconds` is the training time so far.
        """
        if self._metrics is None:
            columns = ("iteration", "seed", *metrics, "seconds")
            self._metrics = Table(self._run / METRICS, columns, self._through)
        rows = []
        for i, seed in enumerate(self._config.seed_numbers):
            values = {name: column[i] for name, column in metrics.items()}
            rows.append({"iteration": number, "seed": seed, **values, "seconds": f"{seconds:.3f}"})
            self._events[i].scalars(number, {k.replace(".", "/"): v for k, v in values.items()})
        self._metrics.append(rows)

    def reevaluation(self, number: int, again: Reevaluation, seconds: float) -> bool:
        """Append a re-evaluation at iteration `number` to reevaluations.csv and to the events.

        Returns False, and does nothing, if reevaluations.csv already has rows for that iteration.
        `seconds` is the training time so far.
        """
        if number in self._reevaluated:
            return False
        self._reevaluated.add(number)
        self._ever_reevaluated.add(number)
        config, algorithm = self._config, self._job.algorithm
        spent = algorithm.initial_evaluations + number * algorithm.evaluations_per_iteration
        rows = []
        for i, seed in enumerate(config.seed_numbers):
            values = {name: getattr(again, name)[i] for name in REEVALUATION_COLUMNS}
            row = {"iteration": number, "seed": seed, "evaluations": spent, **values}
            rows.append(row | {"seconds": f"{seconds:.3f}"})
            self._events[i].scalars(number, {f"reevaluation/{k}": v for k, v in values.items()})
        self._reevaluations.append(rows)
        return True

    def _files(self) -> list[Any]:
        """Return the open files: the tables, and an event file for each seed."""
        return [f for f in (self._metrics, self._reevaluations, *self._events) if f is not None]

    def sync(self) -> None:
        """Write all files to disk (fsync)."""
        for file in self._files():
            file.sync()

    def close(self) -> None:
        """Close all files."""
        for file in self._files():
            file.close()
