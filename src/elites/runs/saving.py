"""Save a run that was trained in Python as a run directory.

    run = elites.train("walker_uni", "dcg_me", preset="demo")
    run.save("runs/walker")                  # then: elites view runs/walker, elites resume ...

The directory is that of `elites train`: configuration, facts, environment, metrics, a snapshot of
the archive, and one checkpoint with the training state. Tables and figures are left to `elites
evaluate`, `elites plot` and `elites resume`.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from elites import tasks, trust
from elites.runs import checkpoint as checkpoints
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs import environment, fingerprints, snapshots, unchanged
from elites.runs import job as jobs
from elites.runs.checkpoint import WEIGHTS
from elites.runs.config import Config
from elites.runs.directory import CONFIG, FACTS, LOGGERS, RunDirectory
from elites.runs.job import Job
from elites.runs.placing import placing
from elites.runs.recording import Logs
from elites.training import Run, builders
from elites.training.results import Source


def save(
    run: Run, directory: Path | str, *, task: str | None = None, algorithm: str | None = None
) -> Path:
    """Write a run of `elites.train` as a run directory and return the directory's path.

    Every command accepts the directory. `elites resume` continues the run and reaches the same bits
    as a longer training in Python would have. Existing files are never overwritten.

    A task or an algorithm that was given as a function is saved as FILE.py:FUNCTION. If the
    function has no file, or if an object was given, pass `task` and `algorithm` to name what builds
    them.
    """
    path = Path(directory)
    directories.refuse_existing(path, "another directory")
    if run.source is None or run.state is None:
        raise ValueError(
            "this run was loaded, without its training state: copy its directory instead of saving"
        )
    job, config = _rebuilt(run, run.source, task, algorithm)
    with placing(path, ".saving-", "another directory") as folder:
        _write(run, config, job, RunDirectory(folder))
    trust.record(config.task, config.algorithm)  # this process has run their files
    return path


def _rebuilt(
    run: Run, source: Source, task: str | None, algorithm: str | None
) -> tuple[Job, Config]:
    """Return the job of a run, and a configuration from which another process can build it.

    `source` describes what the run was trained from. `task` and `algorithm` are the names that were
    given to `save`. If there are any, the job is built from them and compared with the run.
    """
    given_task, given_algorithm = task or source.given_task, algorithm or source.given_algorithm
    if given_task is None or given_algorithm is None:
        raise ValueError(
            "this run was trained from an Algorithm that was already built. Name what builds it: "
            "save(..., task=..., algorithm='FILE.py:FUNCTION')"
        )
    seeds = run.seeds
    follow = seeds == tuple(range(seeds[0], seeds[0] + len(seeds)))
    config = dataclasses.replace(
        configs.preset(source.preset, tasks.lasting_name(given_task)),
        algorithm=builders.lasting_name(given_algorithm),
        seeds=len(seeds),
        first_seed=seeds[0],
        seed_list=() if follow else seeds,
        evaluations=source.evaluations,
        start_from=source.start_from,
        log=tuple(source.logged),
        hp=source.hp,
    )
    nowhere = RunDirectory(Path())
    if task is None and algorithm is None:
        assert source.task is not None
        return jobs.assemble(source.task, run.algorithm, config, nowhere), config
    job = jobs.build(config, nowhere)
    _refuse_another(run, source, job, config)
    return job, config


def _refuse_another(run: Run, source: Source, job: Job, config: Config) -> None:
    """Raise a ValueError if the names given to `save` build a different run than `run`.

    `job` is what they build. `source` describes what the run was trained from.
    """
    now, before = job.algorithm, run.algorithm
    differing = [
        f"{what} is {theirs}, not {ours}"
        for what, theirs, ours in (
            ("the algorithm's name", now.name, before.name),
            ("the task's name", now.problem.name, before.problem.name),
            ("origins", now.origins, before.origins),
            ("descriptor_low", now.problem.descriptor_low, before.problem.descriptor_low),
            ("descriptor_high", now.problem.descriptor_high, before.problem.descriptor_high),
        )
        if theirs != ours
    ]
    recorded = fingerprints.of_task(source.task) if source.task else None
    if recorded and not differing:
        differing = fingerprints.task_changes(recorded, job.task)
    if not differing and jobs.shapes_by_name(job.shapes) != jobs.shapes_by_name(run.state):
        differing = ["the training state has other arrays"]
    if differing:
        raise ValueError(
            f"{config.task} and {config.algorithm} do not build this run: {'; '.join(differing)}"
        )


def _write(run: Run, config: Config, job: Job, place: RunDirectory) -> None:
    """Write all files of a trained run into the run directory `place`."""
    metrics = dict(run.metrics)
    seconds = metrics.pop("seconds")[:, 0]
    iteration = len(seconds)
    directories.write_json(place / CONFIG, config.to_json())
    facts = job.facts() | {unchanged.FINGERPRINT: unchanged.fingerprint(config, job)}
    directories.write_json(place / FACTS, facts)
    versions = tasks.versions(job.task)
    more = {environment.SIMULATOR: versions} if versions else {}
    devices = {environment.SEED_DEVICES: run.devices or job.batched.devices}
    environment.record_session(place, "elites.train(...) in Python, and save", **devices, **more)
    logs = Logs(place, config, job, None)
    for i in range(iteration):
        logs.iteration(i + 1, {name: values[i] for name, values in metrics.items()}, seconds[i])
    logs.sync()
    logs.close()
    parts = job.by_file(job.arrays(run.state))
    snapshots.write(place, iteration, parts[WEIGHTS])
    information = {"config": config.to_json(), "seconds": float(seconds[-1])}
    checkpoints.save(place.checkpoints, iteration, parts, information)
    if run.source and run.source.logged:
        directories.write_json(place / LOGGERS, dict(run.source.logged))
    if run.kernels is not None and run.kernels.is_dir():
        shutil.copytree(run.kernels, place.kernels)
