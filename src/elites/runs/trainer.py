"""Train in a run directory: compile, iterate, log, save, and stop on a signal.

    for each iteration:  state = step(state, key of this iteration)
                         write the metrics of the iteration before, while this one computes
    at intervals:        save a checkpoint and a snapshot; re-evaluate archive and actor
    at the end:          write evaluation tables, figures and a summary

The key of an iteration depends only on the seed and the iteration. A checkpoint therefore holds no
keys, and a resumed run computes the same bits as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.reevaluation import Reevaluation
from elites.core.types import Metrics
from elites.runs import checkpoint as checkpoints
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs import evaluation, saved, snapshots
from elites.runs.checkpoint import STATE, WEIGHTS, Checkpoint
from elites.runs.config import Config
from elites.runs.directory import (
    ENVIRONMENT,
    METRICS,
    REACH,
    RunDirectory,
    RunError,
    TooLargeError,
)
from elites.runs.job import (
    Job,
    memory_errors_explained,
    prepare,
    refuse_changed_task,
    refuse_too_much,
    warn,
)
from elites.runs.logs import Events, Table, read_table
from elites.runs.outcome import Outcome
from elites.runs.progress import Progress
from elites.runs.signals import Signals
from elites.runs.words import amount, counted, duration
from elites.training import iteration_keys, named, seed_keys

REACH_COLUMNS = ("qd_score", "descriptor_error", "actor_qd_score", "actor_descriptor_error")


# ---------------------------------------------------------------------------------------- the loop


def train(run: RunDirectory, config: Config, fresh: bool) -> Outcome:
    """Train in a directory that this process has locked, from its newest checkpoint or `fresh`."""
    with memory_errors_explained():
        job = prepare(config, run)
        last = None
        if not fresh:
            refuse_changed_task(run, job, but=("iterations",))
            last = _newest(run, config, job)
        if last and last.iteration >= job.total and _is_finished(run, last.iteration):
            seconds = last.information.get("seconds", 0.0)
            return Outcome(last.iteration, job.total, seconds, interrupted=False, already=True)
        _write_facts(run, config, job)
        try:
            with Signals() as signals:
                return _loop(run, config, job, last, signals)
        except TooLargeError:  # known once it is compiled
            if fresh:
                directories.discard(run)
            raise
        except ValueError as error:  # the request was checked before: from a task, or a bug
            raise RunError(f"training failed: {error} (ELITES_DEBUG=1 shows where)") from error


def _write_facts(run: RunDirectory, config: Config, job: Job) -> None:
    directories.write_json(run / directories.CONFIG, config.to_json())
    directories.write_json(run / directories.RESOLVED, job.facts())
    _report_environment(run)
    # A summary marks a run as finished, which it no longer is.
    (run / directories.SUMMARY).unlink(missing_ok=True)
    checkpoints.sweep(run.checkpoints)
    for left in run.snapshots.glob(".*"):  # temporary files of a killed process
        left.unlink()
    for folder in (run.path, run.evaluation, run.figures):
        directories.sweep(folder)


def _is_finished(run: RunDirectory, iteration: int) -> bool:
    return (
        evaluation.iteration_of(run.evaluation) == iteration
        and (run / directories.SUMMARY).exists()
    )


def _loop(
    run: RunDirectory, config: Config, job: Job, last: Checkpoint | None, signals: Signals
) -> Outcome:
    """Compile, then iterate until the budget is spent or a signal arrives."""
    iteration = last.iteration if last else 0
    progress = Progress(job.total, iteration)
    progress.say(_opening(run, config, job, iteration))
    keys = seed_keys(config.seed_numbers)
    state = _compile_and_start(config, job, last, keys, progress)
    if last is None:
        snapshots.write(run, 0, job.parts(job.arrays(state))[WEIGHTS])
    record = _Record(run, config, job, last, progress)
    try:
        while iteration < job.total and not signals.received:
            state, metrics = job.batched.step(state, iteration_keys(keys, iteration + 1))
            iteration += 1
            record.metrics(iteration, metrics)
            if config.reach_every and iteration % config.reach_every == 0:
                record.reevaluation(iteration, job.reevaluate(state, keys))
            if iteration % config.checkpoint_every == 0:
                record.checkpoint(iteration, state)
        record.checkpoint(iteration, state)
        record.wait()
        interrupted = iteration < job.total
        outcome = Outcome(iteration, job.total, record.seconds(), interrupted)
        if not interrupted:
            _finish(run, config, job, state, keys, record, outcome)
    except BaseException:
        record.close(failed=True)
        raise
    record.close()
    return outcome


def _compile_and_start(
    config: Config, job: Job, last: Checkpoint | None, keys: jax.Array, progress: Progress
) -> Any:
    """Compile an iteration and return the state to continue from."""
    try:
        with progress.compiling():
            refuse_too_much(job.batched.compile(job.shapes, keys), config)
            if last is None:
                return jax.block_until_ready(job.batched.start(iteration_keys(keys, 0)))
            state = jax.tree.map(jnp.asarray, job.tree(last.arrays))
            last.arrays.clear()  # so that the replay buffer is not held twice
            return state
    finally:
        progress.close()


class _Record:
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
        self._logs = _Logs(run, config, job, through=last.iteration if last else None)
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
        self._logs.iteration(iteration, metrics, self.seconds(), self._progress)

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
        information = {"config": self._config.to_json(), "seconds": self.seconds()}
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
    """Writes checkpoints while training continues: one at a time, in a thread of its own.

    The next call here raises the errors of that thread.
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


def _opening(run: RunDirectory, config: Config, job: Job, iteration: int) -> str:
    device = jax.devices()[0]
    whence = f"resumed at iteration {iteration} of" if iteration else "in"
    return (
        f"{config.algorithm} on {job.algorithm.problem.name}, {counted(config.seeds, 'seed')}, "
        f"{whence} {job.total} iterations, on {device.platform} ({device.device_kind}), "
        f"{amount(job.state_size)} of state; {run.path}"
    )


def _finish(
    run: RunDirectory,
    config: Config,
    job: Job,
    state: Any,
    keys: jax.Array,
    record: _Record,
    outcome: Outcome,
) -> None:
    """Re-evaluate archive and actor at the end of a run; write tables, figures and the summary."""
    subject = "archive and actor" if job.algorithm.conditioned else "the archive"
    record.say(f"re-evaluating {subject}")
    again = job.reevaluate(state, keys)
    record.reevaluation(outcome.iteration, again)
    record.sync()
    loaded = saved.of_state(config, job.algorithm, state)
    evaluation.write(run.evaluation, loaded, again, outcome.iteration)
    if config.figures:
        from elites.runs import figures

        record.say("drawing figures")
        figures.draw_run(run)
    write_summary(run, config, job, outcome)


def _newest(run: RunDirectory, config: Config, job: Job) -> Checkpoint | None:
    """Return the newest usable checkpoint of this run. Damaged ones are set aside."""

    def read(path: Path) -> Checkpoint:
        manifest = checkpoints.read_manifest(path)
        try:
            made_by = Config.from_json(manifest["information"].get("config"), str(path))
        except ValueError as error:
            raise checkpoints.CheckpointError(f"{path}: damaged: {error}") from None
        differing = configs.differences(made_by, config)
        if differing:
            raise checkpoints.UnsuitableError(
                f"{path} was made by another run than {run / directories.CONFIG} describes: "
                f"{'; '.join(differing)}"
            )
        return checkpoints.load(path, (WEIGHTS, STATE), job.expected)

    found = checkpoints.newest(run.checkpoints, read, warn)
    if found is not None:
        for path in checkpoints.complete(run.checkpoints):
            if int(path.name) > found.iteration:
                checkpoints.set_aside(path)
    return found


# -------------------------------------------------------------------------------------------- logs


class _Logs:
    """The files that grow during training."""

    def __init__(self, run: RunDirectory, config: Config, job: Job, through: int | None):
        self._run, self._config, self._job = run, config, job
        self._through = through
        self._metrics: Table | None = None  # opened with the first metrics, which give its columns
        self._reach = Table(
            run / REACH, ("iteration", "seed", "evaluations", *REACH_COLUMNS, "seconds"), through
        )
        self._reevaluated = set(read_table(run / REACH)["iteration"].astype(int))
        self._events = [
            Events(run.path / "events" / f"seed_{seed}", through or 0)
            for seed in config.seed_numbers
        ]

    def iteration(self, number: int, metrics: dict, seconds: float, progress: Progress) -> None:
        if self._metrics is None:
            columns = ("iteration", "seed", *metrics, "seconds")
            self._metrics = Table(self._run / METRICS, columns, self._through)
        rows = []
        for i, seed in enumerate(self._config.seed_numbers):
            values = {name: column[i] for name, column in metrics.items()}
            rows.append({"iteration": number, "seed": seed, **values, "seconds": f"{seconds:.3f}"})
            self._events[i].scalars(number, {k.replace(".", "/"): v for k, v in values.items()})
        self._metrics.append(rows)
        progress.update(
            number,
            float(metrics["evaluations"][0]),
            float(np.median(metrics["qd_score"])),
            float(np.median(metrics["coverage"])),
        )

    def reevaluation(self, number: int, again: Reevaluation, seconds: float) -> None:
        if number in self._reevaluated:
            return
        self._reevaluated.add(number)
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


def _report_environment(run: RunDirectory) -> None:
    path = run / ENVIRONMENT
    sessions: list[Any] = []
    with contextlib.suppress(FileNotFoundError, RunError):
        sessions = directories.read_json(path)
    command = shlex.join(["elites", *sys.argv[1:]])
    directories.write_json(path, [*sessions, {"command": command, **directories.environment()}])


# ----------------------------------------------------------------------------------------- summary


def write_summary(run: RunDirectory, config: Config, job: Job, outcome: Outcome) -> None:
    algorithm = job.algorithm
    problem = algorithm.problem
    layers = "-".join(map(str, algorithm.policy.sizes))
    lines = [
        f"# {config.algorithm} on {problem.name}",
        "",
        f"{outcome.iteration} iterations, {counted(config.seeds, 'seed')}, "
        f"{duration(outcome.seconds)}. Policies: {layers}, {algorithm.policy.size:,} parameters; "
        f"archive: {config.hp.cells} cells.",
        "",
        *evaluation.markdown(run.evaluation),
        "",
        "Medians over seeds where there are several; `evaluation/metrics.csv` has each, "
        "`evaluation/cells.csv` every cell.",
        "",
        "Figures: "
        + (", ".join(f"`figures/{p.name}`" for p in sorted(run.figures.glob("*.png"))) or "none"),
        "",
        "Configuration: `config.json`; machine and versions: `environment.json`.",
        "",
    ]
    directories.write_text(run / directories.SUMMARY, "\n".join(lines))
