"""Train in a run directory: compile, iterate, log, save, and stop on a signal.

    for each iteration:  state = step(state, key of this iteration)
                         write the metrics of the iteration before, while this one computes
    at intervals:        save a checkpoint and a snapshot; re-evaluate archive and actor
    at the end:          write evaluation tables, figures and a summary

The key of an iteration depends only on the seed and the iteration. A checkpoint therefore holds no
keys, and a resumed run computes the same bits as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from elites import output, tasks
from elites.output import errors_as_warnings, warn
from elites.runs import (
    announcing,
    environment,
    evaluation,
    gaps,
    saved,
    services,
    snapshots,
    starting,
    summary,
    unchanged,
)
from elites.runs import checkpoint as checkpoints
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs.checkpoint import STATE, WEIGHTS, Checkpoint
from elites.runs.config import Config
from elites.runs.directory import OutOfMemoryError, RunDirectory, RunError, TooLargeError
from elites.runs.job import (
    Job,
    choose_device,
    memory_errors_explained,
    prepare,
    refuse_too_much,
)
from elites.runs.outcome import Outcome
from elites.runs.recording import Recorder
from elites.runs.services import Callback
from elites.runs.signals import Signals
from elites.runs.unchanged import Comparison
from elites.training import iteration_keys, notes_on_axes, seed_keys
from elites.training.display import Display
from elites.trust import UntrustedError
from elites.words import quoted

# ---------------------------------------------------------------------------------------- the loop


def train(
    run: RunDirectory,
    config: Config,
    fresh: bool,
    signals: Signals,
    accept_changed_task: bool = False,
) -> Outcome:
    """Train in a run directory that this process has locked and return the `Outcome`.

    Starts a new run if `fresh`, otherwise continues from the newest checkpoint. With
    `accept_changed_task`, the run continues even if its task or algorithm has changed. Raises
    `Interrupted` if a signal arrives before the first file is written.
    """
    signals.check()
    with memory_errors_explained():
        choose_device(config.device)
        environment.provide_devices(run, config.seeds)
        config = dataclasses.replace(config, task=tasks.resolve(config.task, output.say))
        job = prepare(config, run)
        callbacks = services.load_callbacks(config.callback)
        signals.check()
        last, compared = None, Comparison([], None)
        if fresh:
            starting.check_source(config, job.algorithm)
        else:
            compared = unchanged.check_resumed(run, config, job, accept_changed_task)
            last = _newest(run, config, job)
            if last:
                _warn_of_gaps(run, last.iteration)
                # The end of a finished run was re-evaluated after its checkpoint.
                last.information[gaps.REEVALUATED] = gaps.reevaluated(run, last.iteration)
                config, job = _with_budget_for(last.iteration, config, job)
        if last and last.iteration == job.total:
            _refuse_empty(run, config, job.state_of(last.arrays))
            # Without a summary, what comes after the tables may be missing as well.
            if evaluation.has_tables(run, job.total) and (run / directories.SUMMARY).exists():
                seconds = last.information.get("seconds", 0.0)
                return Outcome(job.total, job.total, seconds, interrupted=False, was_finished=True)
        signals.check()
        signals.when = "after this iteration"
        if last and (note := environment.note_on_devices(run, config.seeds, job.batched.devices)):
            warn(note)
        if last and (note := environment.note_on_simulator(run, tasks.versions(job.task))):
            warn(note)
        _prepare_directory(run, config, job, compared)
        if fresh and (note := announcing.note_on_length(config, job)):
            Display(job.total).say(note)
    try:
        with memory_errors_explained():
            return _loop(run, config, job, last, signals, callbacks)
    except (TooLargeError, OutOfMemoryError):  # known once it compiles or trains
        if fresh:
            directories.discard(run)
        raise
    except UntrustedError:
        raise
    except ValueError as error:  # the configuration was checked: from the task, or a bug
        raise RunError(f"training failed: {error} (ELITES_DEBUG=1 shows where)") from error


def _with_budget_for(iteration: int, config: Config, job: Job) -> tuple[Config, Job]:
    """Return a configuration and its job, with a budget of at least `iteration` iterations.

    A run may be continued with a budget below what it has already spent. Its files then have the
    budget that it has spent.
    """
    if iteration <= job.total:
        return config, job
    spent = _spent(job, iteration)
    return dataclasses.replace(config, evaluations=spent), dataclasses.replace(job, total=iteration)


def _spent(job: Job, iteration: int) -> int:
    """Return the number of evaluations that each seed has spent after an iteration."""
    algorithm = job.algorithm
    return algorithm.initial_evaluations + iteration * algorithm.evaluations_per_iteration


def _prepare_directory(run: RunDirectory, config: Config, job: Job, compared: Comparison) -> None:
    """Write config.json, facts.json and environment.json of a run.

    Also removes what a killed process left behind. `compared` says whether a resumed run's task and
    algorithm have changed.
    """
    fingerprint = compared.fingerprint or unchanged.fingerprint(config, job)
    facts = job.facts() | {unchanged.FINGERPRINT: fingerprint}
    # A run with a summary counts as done, which it no longer is. The summary is removed first,
    # because the process may be killed before the other files are written.
    (run / directories.SUMMARY).unlink(missing_ok=True)
    directories.write_json(run / directories.CONFIG, config.to_json())
    directories.write_json(run / directories.FACTS, facts)
    more: dict[str, Any] = {environment.SEED_DEVICES: job.batched.devices}
    if compared.accepted:
        more["accepted_changes"] = compared.accepted
    if versions := tasks.versions(job.task):
        more[environment.SIMULATOR] = versions
    environment.record_session(run, environment.command(), **more)
    checkpoints.sweep(run.checkpoints)
    for folder in (run.path, run.snapshots, run.evaluation, run.figures):
        directories.sweep(folder)


def _loop(
    run: RunDirectory,
    config: Config,
    job: Job,
    last: Checkpoint | None,
    signals: Signals,
    callbacks: Sequence[Callback],
) -> Outcome:
    """Train until the budget is spent, a callback ends it or a signal arrives.

    Returns the `Outcome`. Continues from the checkpoint `last`, or starts a new run if it is None.
    """
    iteration = last.iteration if last else 0
    progress = Display(job.total, iteration)
    progress.say(announcing.opening(run, config, job, iteration))
    keys = seed_keys(config.seed_numbers)
    state = _compile_and_start(config, job, last, keys, progress)
    if last is None:
        for note in notes_on_axes(job.task.descriptor_axes, job.batched.constant_axes):
            warn(note)
        snapshots.write(run, 0, job.by_file(job.arrays(state))[WEIGHTS])
    record = Recorder(run, config, job, last, progress)
    try:
        while iteration < job.total and not signals.received:
            state, metrics = job.batched.step(state, iteration_keys(keys, iteration + 1))
            iteration += 1
            record.metrics(iteration, metrics)
            due = config.reevaluate_every and iteration % config.reevaluate_every == 0
            if due and iteration < job.total:  # the end re-evaluates in any case
                record.reevaluation(iteration, job.reevaluate(state, keys))
            if callbacks and services.call(callbacks, iteration, record.finished(metrics)):
                config, job = _ended_here(run, config, job, iteration)
            if iteration % config.checkpoint_every == 0:
                record.checkpoint(iteration, state)
        record.checkpoint(iteration, state)
        record.wait()
        outcome = Outcome(iteration, job.total, record.seconds(), iteration < job.total)
        if not outcome.interrupted:
            _refuse_empty(run, config, state)
            finished = _finish(run, config, job, state, keys, record, outcome, signals)
            outcome = dataclasses.replace(outcome, interrupted=not finished)
    finally:
        record.close()
    return outcome


def _ended_here(run: RunDirectory, config: Config, job: Job, iteration: int) -> tuple[Config, Job]:
    """Make an iteration the last of a run, because a callback has ended training.

    Returns the configuration and its job with the budget that is spent. `elites resume` with a
    larger one continues the run.
    """
    if iteration < job.total:
        spent = _spent(job, iteration)
        config = dataclasses.replace(config, evaluations=spent)
        job = dataclasses.replace(job, total=iteration)
        directories.write_json(run / directories.CONFIG, config.to_json())
        facts = {**directories.read_facts(run), "iterations": iteration}
        directories.write_json(run / directories.FACTS, facts)
    return config, job


def _refuse_empty(run: RunDirectory, config: Config, state: Any) -> None:
    """Raise a RunError if the archives of all seeds are empty, because no policy was valid.

    Called at the end of training, before tables and summary are written: such a run never counts as
    finished.
    """
    if not np.isfinite(np.asarray(state.archive.fitness)).any():
        raise RunError(
            f"{run.path}: the archive is empty, because every evaluation was rejected: no policy "
            "had a finite fitness and descriptor. Find the step in which a number stops being "
            f"finite with 'elites tasks {quoted(config.task)} --check'"
        )


def _compile_and_start(
    config: Config, job: Job, last: Checkpoint | None, keys: jax.Array, progress: Display
) -> Any:
    """Compile the training iteration and return the training state to start from.

    It is the state of the checkpoint `last` or, if that is None, a new one. `keys` are the random
    keys of the seeds.
    """
    try:
        with progress.compiling():
            needed = job.batched.compile(job.shapes, keys)
            refuse_too_much(needed, job.batched.devices, config)
            if last is None:
                archive = starting.source_archive(config, job.batched, job.shapes.archive, keys)
                return jax.block_until_ready(job.batched.start(iteration_keys(keys, 0), archive))
            state = job.batched.placed(job.state_of(last.arrays))
            last.arrays.clear()  # so that the replay buffer is not held twice
            return state
    finally:
        progress.close()


def _finish(
    run: RunDirectory,
    config: Config,
    job: Job,
    state: Any,
    keys: jax.Array,
    record: Recorder,
    outcome: Outcome,
    signals: Signals,
) -> bool:
    """Re-evaluate archive and actor at the end of a run; write tables, figures and the summary.

    Returns True if that was completed, and False if a signal arrived before. Resuming the run then
    repeats it. If drawing figures or writing the summary fails, this only causes a warning.
    """
    signals.when = "after this step"
    subject = "archive and actor" if job.algorithm.conditioned else "the archive"
    record.say(f"re-evaluating {subject}")
    again = job.reevaluate(state, keys)
    if signals.received:
        return False
    record.reevaluation(outcome.iteration, again)
    record.sync()
    loaded = saved.of_state(config, job.algorithm, state)
    evaluation.write(run.evaluation, loaded, again, outcome.iteration)
    if config.figures and not signals.received:
        record.say("drawing figures")
        with errors_as_warnings("drawing figures", f"'elites plot {quoted(run.path)}' draws them"):
            from elites.runs import figures

            figures.draw_run(run)
    if signals.received:
        return False
    with errors_as_warnings(f"writing {run / directories.SUMMARY}", "its tables are written"):
        summary.write(run, config, job, outcome)
    return True


def _newest(run: RunDirectory, config: Config, job: Job) -> Checkpoint | None:
    """Return the newest readable checkpoint of a run with all arrays, or None if there is none.

    Damaged checkpoints that are newer are renamed, but not deleted. Raises an UnsuitableError if
    the checkpoint was made with another configuration.
    """

    def read(path: Path) -> Checkpoint:
        """Return the checkpoint at a path with all of its arrays."""
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
        return checkpoints.load(path, (WEIGHTS, STATE), job.expected_arrays)

    found = checkpoints.newest(run.checkpoints, read, warn)
    if found is not None:
        for path in checkpoints.complete(run.checkpoints):
            if int(path.name) > found.iteration:
                checkpoints.set_aside(path)
    return found


def _warn_of_gaps(run: RunDirectory, through: int) -> None:
    """Print a warning for each table of a run with missing rows up to iteration `through`.

    `through` is the iteration of the checkpoint that the run continues from.
    """
    for gap in gaps.find(run, through):
        warn(
            f"{gap.path} lacks rows of {gap.text}, although the checkpoint is of iteration "
            f"{through}: curves will have a gap there. If another copy of the file has these rows, "
            "add them to it"
        )
