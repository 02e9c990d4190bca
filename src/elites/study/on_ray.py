"""Compute the runs of a study on a Ray cluster.

Each run is a Ray task. It requests CPUs and GPUs, and starts the worker process of `worker.py` on
the machine that Ray chooses. If that machine sees the study's directory, the worker computes there.
Otherwise it computes in a temporary directory: the existing files of the run are fetched first, and
new files are sent back after every checkpoint and at the end. So is the model of the run, if the
study keeps models.

If a machine is lost, its run is restarted on another one, from the last checkpoint that arrived.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elites import trust
from elites.files import RunError, read_bytes, read_text
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory
from elites.runs.sharing import belongs_to_a_run
from elites.study import ray_cluster, worker
from elites.study.engines import WorkerProcess
from elites.study.study import FORMAT, INDEX, PLAN, TOKEN, Item, Study, is_model_of
from elites.study.worker import Ending, Work
from elites.words import one_line
from elites.writing import open_to_append, sweep_folders

Files = dict[str, bytes]  # contents by path inside the run
_PREFIX = "elites-study-"  # of the names of temporary directories


class RayEngine:
    """Engine that computes the runs of a study as tasks of a Ray cluster."""

    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, in_place: bool = True
    ):
        """Join the Ray cluster at an address, or start one on this machine. See `ray_cluster`.

        `cpus` and `gpus` are the resources that each run gets. If `in_place` is False, files are
        always sent between machines, even if these share the study's directory.
        """
        self.text = "" if ray.is_initialized() else ray_cluster.connect(address)
        """A line for the user that says which cluster is used."""
        self._cpus, self._gpus, self._in_place = cpus, gpus, in_place
        _refuse_impossible(cpus, gpus)
        self._collector: Any = None
        self._starts = 0

    @property
    def slots(self) -> int:
        """Number of runs that fit on the machines currently in the cluster, at least one."""
        have = ray.cluster_resources()
        room = [have.get("CPU", 0) / self._cpus] if self._cpus else []
        room += [have.get("GPU", 0) / self._gpus] if self._gpus else []
        return max(int(min(room, default=1)), 1)

    def has_room(self, item: Item) -> bool:
        """Return True: all runs get the same resources, and `slots` says how many fit."""
        return True

    def start(self, study: Study, item: Item, work: Work) -> RayHandle:
        """Start a Ray task for one run of a study, and return the run's handle."""
        study.logs.mkdir(exist_ok=True)
        token = study.path / TOKEN
        if not token.exists():
            directories.write_text(token, secrets.token_hex(16))
        if self._collector is None:
            # On the machine of this process, which sees the directory.
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            actor = ray.remote(num_cpus=0, max_restarts=-1)(_Collector)
            actor = actor.options(scheduling_strategy=here)
            self._collector = actor.remote(str(study.path.resolve()))
        location = _Location(str(study.path.resolve()), read_text(token), self._in_place)
        task = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=0)(_compute)
        plan = directories.read_json(study.path / PLAN)
        self._starts += 1
        trusted = trust.trusted_digests(item.task, item.algorithm)
        order = _Order(item, work, self._starts, str(study.path), trusted)
        reference = task.remote(location, plan, order, self._collector)
        return RayHandle(reference, study.logs / f"{item.name}.log")


def _refuse_impossible(cpus: float, gpus: float) -> None:
    """Raise a ValueError if no machine of the Ray cluster has enough CPUs and GPUs for a run.

    Ray would wait for such a machine forever.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {kind: max((m.get(kind, 0) for m in machines), default=0) for kind in ("CPU", "GPU")}
    if not any(m.get("CPU", 0) >= cpus and m.get("GPU", 0) >= gpus for m in machines):
        raise ValueError(
            f"no machine of the cluster has {cpus:g} CPUs and {gpus:g} GPUs; the most are "
            f"{most['CPU']:g} CPUs and {most['GPU']:g} GPUs. Lower --cpus or --gpus"
        )


class RayHandle:
    """Handle of a run that a Ray task computes."""

    def __init__(self, reference: Any, log: Path):
        self._reference, self._log = reference, log

    def poll(self) -> Ending | None:
        """Return how the run's worker ended, or None while it is running.

        When the worker has ended, its output is appended to the run's log.
        """
        ready, _ = ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            ending, output = ray.get(self._reference)
        except RayError as error:
            cause, output = error_of_task(error), f"{error}\n"
            if cause is None:
                ending = Ending(worker.LOST, f"lost the machine: {type(error).__name__}")
            else:
                ending = Ending(worker.FAILED, f"{type(cause).__name__}: {one_line(cause)}")
        with open_to_append(self._log) as log:
            log.write(output.encode("utf-8", "backslashreplace"))
        return ending

    def stop(self) -> None:
        """Cancel the Ray task. This tells the worker process to save its state and end."""
        ray.cancel(self._reference, force=False)


def error_of_task(error: RayError) -> BaseException | None:
    """Return the exception that a Ray task raised, or None if the cluster failed instead.

    The cluster has failed if the task's machine or process is gone, or if the Ray actor that
    exchanges files did not answer a call from the task.
    """
    if not isinstance(error, RayTaskError):
        return None
    cause = error.cause
    return error_of_task(cause) if isinstance(cause, RayError) else cause


class _Location(NamedTuple):
    """Directory of a study, and a secret token in a file there.

    A machine that can read the token shares the directory.
    """

    path: str
    token: str
    in_place: bool

    def is_visible(self) -> bool:
        """Return whether this machine can use the study's directory: it can read the token there.

        Always returns False if `in_place` is False.
        """
        if not self.in_place:
            return False
        with contextlib.suppress(OSError, RunError):
            return read_text(Path(self.path) / TOKEN) == self.token
        return False


class _Order(NamedTuple):
    """What a Ray task has to do for one run of a study."""

    item: Item
    work: Work
    start: int
    """Number that increases with every start, so a restarted run has a higher one than before."""
    study: str
    """Path of the study as the user gave it, for the command that the run records."""
    trusted: list[str]
    """Digests of the user's own files that may be executed."""


# ------------------------------------------------------------------------- on the worker's machine


def _compute(location: _Location, plan: Any, order: _Order, collector: Any) -> tuple[Ending, str]:
    """Train one run of a study, or keep its model, as a Ray task.

    Returns how the worker ended, and the last part of its output.

    `plan` is the content of `plan.json`, and `collector` is the actor that exchanges files.
    """
    # Ray cancels a task by an interrupt, which a process started in the background ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ray.get(collector.admit.remote(order.item.name, order.start))
    if location.is_visible():
        return _run_worker(Path(location.path), order, lambda: None)
    sweep_folders(Path(tempfile.gettempdir()), _PREFIX)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{directories.this_process()}-"))
    try:
        directories.write_json(folder / PLAN, plan)
        directories.write_json(folder / INDEX, {"format": FORMAT, "runs": [vars(order.item)]})
        return _compute_in_copy(Study(folder), order, collector)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compute_in_copy(study: Study, order: _Order, collector: Any) -> tuple[Ending, str]:
    """Do the work of an order in a copy of the study: fetch files of the run, and send new ones.

    Returns the same as `_compute`.
    """
    item, start = order.item, order.start
    run = study.run(item).path
    files: Any = ray.get(collector.fetch.remote(item.name, start))
    if files:
        write_files(run, files)
    sent = set(files)

    def send() -> None:
        """Send new and changed files of the run to the collector."""
        having = set(sent)
        new = new_files(run, having)
        if new:
            ray.get(collector.store.remote(item.name, start, new))
            sent.update(having)  # only after they have arrived

    ended = _run_worker(study.path, order, send)
    for model in study.models_of(item):
        ray.get(collector.store_model.remote(item.name, start, model.name, read_bytes(model)))
    return ended


def _run_worker(study: Path, order: _Order, send: Callable[[], None]) -> tuple[Ending, str]:
    """Run the worker process of an order until it ends.

    Returns how it ended, and the last 20 kB of its output as text.

    `study` is the study's directory on this machine. `send` is called after every checkpoint and at
    the end.
    """
    run = Study(study).run(order.item)
    with tempfile.TemporaryFile() as output:
        what = (study, order.item, order.work, output, order.trusted)
        process = WorkerProcess(*what, original=Path(order.study))
        last = None
        try:
            while process.poll() is None:
                newest = [path.name for path in checkpoints.complete(run.checkpoints)][-1:]
                if newest and newest != last:
                    last = newest
                    send()
                time.sleep(0.2)
        except KeyboardInterrupt:  # Ray cancels a task this way
            process.stop()
            process.process.wait()
        finally:
            process.kill()  # if it still runs: sending failed, and its results would be lost
        send()
        output.seek(0, os.SEEK_END)
        output.seek(max(output.tell() - 20_000, 0))
        ending = process.poll()
        assert ending is not None
        return ending, output.read().decode(errors="replace")


# --------------------------------------------------------------------------------- sending files


def new_files(run: Path, sent: set[str]) -> Files:
    """Return the files of a run that must be sent: their contents, keyed by path inside the run.

    Checkpoints, snapshots (archives without policies) and kernels never change, so they are left
    out if `sent` contains them. All other files are returned every time. The paths of the returned
    files are added to `sent`.
    """
    files: Files = {}
    complete = {path.name for path in checkpoints.complete(run / "checkpoints")}
    for name in RunDirectory(run).files():
        if not belongs_to_a_run(name) or not (run / name).is_file():
            continue
        parts = name.split("/")
        if parts[0] == "checkpoints" and parts[1] not in complete:
            continue
        final = parts[0] in ("checkpoints", "snapshots", "kernels")
        if final and name in sent:
            continue
        with contextlib.suppress(FileNotFoundError):  # an old checkpoint was removed meanwhile
            files[name] = read_bytes(run / name)
            sent.add(name)
    return files


def write_files(run: Path, files: Files) -> None:
    """Write files into the directory of a run.

    `files` maps paths inside the run to contents. A checkpoint gets its final name only when it is
    complete. Raises a ValueError for a path that does not belong to a run.
    """
    by_checkpoint: dict[str, Files] = {}
    for name, data in files.items():
        parts = name.split("/")
        if not belongs_to_a_run(name):
            raise ValueError(f"'{name}' is not a file of a run")
        if parts[0] == "checkpoints":
            by_checkpoint.setdefault(parts[1], {})[parts[2]] = data
        elif name != directories.SUMMARY:
            _write_file(run / name, data)
    for number, parts in sorted(by_checkpoint.items()):
        if set(parts) == set(checkpoints.FILES):
            checkpoints.receive(run / "checkpoints", int(number), parts)
    if directories.SUMMARY in files:  # written last: it marks the run as done
        _write_file(run / directories.SUMMARY, files[directories.SUMMARY])


def _write_file(target: Path, data: bytes) -> None:
    """Write bytes to a file atomically. Creates the file's folder if necessary."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with directories.replacing(target) as temporary:
        temporary.write_bytes(data)


class _Collector:
    """A Ray actor that reads and writes the study's directory for the other machines.

    A machine that was given up as lost may still be computing and sending. After its run has been
    restarted elsewhere, the collector refuses its files.
    """

    def __init__(self, path: str):
        self.study = Study(Path(path))
        self._newest: dict[str, int] = {}

    def fetch(self, name: str, start: int) -> Files:
        """Return the contents of all files of a run, keyed by path inside the run.

        Returns an empty dictionary if the run has not been started yet. `start` is checked by
        `admit`.
        """
        run = self._run(name, start)
        return new_files(run, set()) if (run / directories.CONFIG).exists() else {}

    def store(self, name: str, start: int, files: Files) -> None:
        """Write files into a run's directory. `files` maps paths inside the run to contents.

        Raises a ValueError if the run was started again since `start`, see `admit`.
        """
        write_files(self._run(name, start), files)

    def store_model(self, name: str, start: int, file: str, data: bytes) -> None:
        """Write the model of a run in place of an earlier one. Its file has the bytes `data`.

        Raises a ValueError if `admit` refuses `start`, or if `file` is not the name of such a file.
        """
        self.admit(name, start)
        item = next(item for item in self.study.items() if item.name == name)
        if not is_model_of(item, file):
            raise ValueError(f"{json.dumps(file)} is not a model of {name}")
        _write_file(self.study.kept / file, data)
        self.study.remove_models_of(item, other_than=self.study.kept / file)

    def _run(self, name: str, start: int) -> Path:
        """Return the directory of a run. Raises a ValueError if `admit` refuses `start`."""
        self.admit(name, start)
        return self.study.path / "runs" / name

    def admit(self, name: str, start: int) -> None:
        """Raise a ValueError if the study has no such run, or if `start` is out of date.

        Each start of a run has a number, and later starts have higher ones. A number is out of date
        if a later start of the same run has already been seen: the machine of the older start was
        given up as lost, and the run was restarted elsewhere.
        """
        if name not in {item.name for item in self.study.items()}:
            raise ValueError(f"{json.dumps(name)} is not a run of this study")
        if start < self._newest.get(name, 0):
            raise ValueError(f"{name} was restarted on another machine")
        self._newest[name] = start
