"""Train in a run directory: compile, iterate, log, save; stop when told to.

    for each iteration:  state = step(state, key of this iteration)
                         write the metrics of the one before, while this one computes
    every so often:      a checkpoint, a snapshot of the archive; archive and actor re-evaluated
    at the end:          evaluation tables, figures, a summary

The key of an iteration depends on the seed and the iteration alone, so a checkpoint holds no keys,
and a run that is resumed comes to the same bits.
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
from elites.runs.progress import Progress
from elites.runs.session import Outcome
from elites.runs.signals import Signals
from elites.runs.words import amount, counted, duration
from elites.training import iteration_keys, named, seed_keys

REACH_COLUMNS = ("qd_score", "descriptor_error", "actor_qd_score", "actor_descriptor_error")


# ---------------------------------------------------------------------------------------- the loop


def train(run: RunDirectory, config: Config, fresh: bool) -> Outcome:
    """Train in a directory that this process holds, from its newest checkpoint unless `fresh`."""
    with memory_errors_explained():
        job = prepare(config, run)
        last = None
        if not fresh:
            refuse_changed_task(run, job, but=("iterations",))
            last = _newest(run, config, job)
        if last and last.iteration >= job.total and _is_finished(run, last.iteration):
            seconds = last.information.get("seconds", 0.0)
            return Outcome(last.iteration, job.total, seconds, interrupted=False, already=True)
        _write_what_it_is(run, config, job)
        try:
            with Signals() as signals:
                return _loop(run, config, job, last, signals)
        except TooLargeError:  # as was seen once it was compiled
            if fresh:
                directories.discard(run)
            raise
        except ValueError as error:  # not of the user's request: of a task, or of a bug
            raise RunError(f"training failed: {error} (ELITES_DEBUG=1 shows where)") from error


def _write_what_it_is(run: RunDirectory, config: Config, job: Job) -> None:
    directories.write_json(run / directories.CONFIG, config.to_json())
    directories.write_json(run / directories.RESOLVED, job.facts())
    _report_environment(run)
    # A summary says that a run is finished; it is about not to be.
    (run / directories.SUMMARY).unlink(missing_ok=True)
    checkpoints.sweep(run.checkpoints)
    for left in run.snapshots.glob(".*"):  # nobody else writes there
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
    iteration = last.iteration if last else 0
    progress = Progress(job.total, iteration)
    progress.say(_opening(run, config, job, iteration))
    keys = seed_keys(config.seed_numbers)
    try:
        with progress.compiling():
            needed = job.batched.compile(job.shapes, keys)
            refuse_too_much(needed, config)
            if last:
                state = jax.tree.map(jnp.asarray, job.tree(last.arrays))
            else:
                state = jax.block_until_ready(job.batched.init(iteration_keys(keys, 0)))
    finally:
        progress.close()
    if last:
        last.arrays.clear()  # the replay buffer need not be held twice
    else:
        snapshots.write(run, 0, job.parts(job.arrays(state))[WEIGHTS])

    before = last.information.get("seconds", 0.0) if last else 0.0
    begun = time.perf_counter()
    logs = _Logs(run, config, job, through=iteration if last else None)
    saver = _Saver(run)
    pending: tuple[int, Any] | None = None
    last_saved = iteration if last else -1

    def seconds() -> float:
        return before + time.perf_counter() - begun

    def settle() -> None:
        """Log the metrics that are still out, waiting for them if need be."""
        nonlocal pending
        if pending is not None:
            number, metrics = pending[0], named(pending[1])
            pending = None
            if complaint := _not_finite(number, metrics, config):
                saver.wait()
                raise RunError(f"{complaint} {_last_good(run)}")
            logs.iteration(number, metrics, seconds(), progress)

    def save() -> None:
        nonlocal last_saved
        settle()
        if last_saved == iteration:
            return
        logs.sync()
        information = {"config": config.to_json(), "seconds": seconds()}
        saver.save(iteration, job.parts(job.arrays(state)), information)
        last_saved = iteration

    try:
        while iteration < job.total and not signals.received:
            state, metrics = job.batched.step(state, iteration_keys(keys, iteration + 1))
            settle()  # the one before: its numbers are written while this one computes
            saver.check()
            iteration += 1
            pending = (iteration, metrics)
            if config.reach_every and iteration % config.reach_every == 0:
                settle()
                logs.reach(iteration, job.reach(state, keys), seconds())
            if iteration % config.checkpoint_every == 0:
                save()
        save()
        saver.wait()
        progress.close()
        outcome = Outcome(iteration, job.total, seconds(), interrupted=iteration < job.total)
        if not outcome.interrupted:
            _finish(run, config, job, state, keys, logs, outcome, progress)
        logs.close()
        return outcome
    except BaseException:
        progress.close()
        with contextlib.suppress(OSError):  # what is already being raised says more
            logs.close()
        raise
    finally:
        saver.close()


def _not_finite(number: int, metrics: Mapping[str, np.ndarray], config: Config) -> str | None:
    """What to say of a loss that is not finite, None if all are."""
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
    """Writes checkpoints while training goes on: one at a time, in a thread of its own.

    What goes wrong there is raised by the next call here.
    """

    def __init__(self, run: RunDirectory):
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        self.wait()
        self._writing = self._pool.submit(self._write, iteration, parts, information)

    def _write(self, iteration: int, parts: Mapping[str, checkpoints.Arrays], information) -> None:
        # The snapshot first: where a checkpoint is, there is one.
        snapshots.write(self._run, iteration, parts[WEIGHTS])
        checkpoints.save(self._run.checkpoints, iteration, parts, information)

    def check(self) -> None:
        """Raise what went wrong, without waiting."""
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


def _finish(run, config, job: Job, state, keys, logs: _Logs, outcome: Outcome, progress) -> None:
    who = "archive and actor" if job.algorithm.reach.conditioned else "the archive"
    progress.say(f"re-evaluating {who}")
    reach = job.reach(state, keys)
    logs.reach(outcome.iteration, reach, outcome.seconds)
    logs.sync()
    loaded = saved.of_state(config, job.algorithm, state)
    evaluation.write(run.evaluation, loaded, reach, outcome.iteration)
    if config.figures:
        from elites.runs import figures

        progress.say("drawing figures")
        figures.draw_run(run)
    write_summary(run, config, job, outcome)


def _newest(run: RunDirectory, config: Config, job: Job) -> Checkpoint | None:
    """The newest usable checkpoint of this very run; damaged ones are set aside."""

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
    """The files that grow while a run goes on."""

    def __init__(self, run: RunDirectory, config: Config, job: Job, through: int | None):
        self._run, self._config, self._job = run, config, job
        self._through = through
        self._metrics: Table | None = None  # its columns are known with the first metrics
        self._reach = Table(
            run / REACH, ("iteration", "seed", "evaluations", *REACH_COLUMNS, "seconds"), through
        )
        self._reached = set(read_table(run / REACH)["iteration"].astype(int))
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

    def reach(self, number: int, reach, seconds: float) -> None:
        if number in self._reached:
            return
        self._reached.add(number)
        config, algorithm = self._config, self._job.algorithm
        spent = algorithm.initial_evaluations + number * algorithm.evaluations_per_iteration
        rows = []
        for i, seed in enumerate(config.seed_numbers):
            values = {name: getattr(reach, name)[i] for name in REACH_COLUMNS}
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
