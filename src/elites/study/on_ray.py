"""Compute the runs of a study on a Ray cluster.

Each run is a Ray task. It requests CPUs and GPUs, and starts the worker process of `worker.py` on
the machine that Ray chooses. If that machine sees the study's directory, the worker computes there.
Otherwise it computes in a temporary directory: the existing files of the run are fetched first, and
new files are sent back after every checkpoint and at the end.

If a machine is lost, its run is restarted on another one, from the last checkpoint that arrived.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
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
from elites.study.study import FORMAT, INDEX, PLAN, Item, Study
from elites.study.worker import Ending
from elites.words import one_line

Files = dict[str, bytes]  # contents by path inside the run
TOKEN = ".study-is-here"  # shows a machine that it sees the same directory


class RayEngine:
    """Engine that computes the runs of a study as tasks of a Ray cluster."""

    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, in_place: bool = True
    ):
        """Join the Ray cluster at an address, or start one if there is none, see `ray_cluster`.

        `cpus` and `gpus` are the resources of each run. If `in_place` is False, files are always
        sent, even if machines share the directory.
        """
        self.text = "" if ray.is_initialized() else ray_cluster.connect(address)
        """Line for the user about where the cluster is."""
        self._cpus, self._gpus, self._in_place = cpus, gpus, in_place
        _refuse_impossible(cpus, gpus)
        self._collector: Any = None
        self._starts = 0

    @property
    def slots(self) -> int:
        """Return how many runs fit on the machines currently in the cluster, at least one."""
        have = ray.cluster_resources()
        room = [have.get("CPU", 0) / self._cpus] if self._cpus else []
        room += [have.get("GPU", 0) / self._gpus] if self._gpus else []
        return max(int(min(room, default=1)), 1)

    def start(self, study: Study, item: Item) -> RayHandle:
        """Start a Ray task that computes one run of a study, and return a handle of the run."""
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
        reference = task.remote(location, plan, vars(item), self._starts, self._collector, trusted)
        return RayHandle(reference, study.logs / f"{item.name}.log")


def _refuse_impossible(cpus: float, gpus: float) -> None:
    """Raise a ValueError if no machine of the Ray cluster has that many CPUs and GPUs.

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
    """A run that is being computed as a Ray task."""

    def __init__(self, reference: Any, log: Path):
        self._reference, self._log = reference, log

    def poll(self) -> Ending | None:
        """Return how the run's worker ended, or None while the run is computed.

        When the run has ended, appends the output of the worker to the run's log.
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
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(output)
        return ending

    def stop(self) -> None:
        """Cancel the Ray task, which tells the worker process to save its state and end."""
        ray.cancel(self._reference, force=False)


def error_of_task(error: RayError) -> BaseException | None:
    """Return the exception that a Ray task raised, or None if the cluster failed instead.

    The cluster failed if the task's machine or process is gone, or if a call from the task to the
    collector was not answered.
    """
    if not isinstance(error, RayTaskError):
        return None
    cause = error.cause
    return error_of_task(cause) if isinstance(cause, RayError) else cause


class _Location(NamedTuple):
    """The directory of a study, and the token in it by which other machines recognise it."""

    path: str
    token: str
    in_place: bool

    def is_visible(self) -> bool:
        """Return whether this machine sees the study's directory: it can read the token there."""
        if not self.in_place:
            return False
        with contextlib.suppress(OSError, RunError):
            return read_text(Path(self.path) / TOKEN) == self.token
        return False


# ------------------------------------------------------------------------- on the worker's machine


def _compute(
    location: _Location,
    plan: Any,
    item: dict[str, Any],
    start: int,
    collector: Any,
    trusted: list[str],
) -> tuple[Ending, str]:
    """Compute one run of a study as a Ray task.

    Return how the worker ended, and the end of its output.

    `plan` is the content of `plan.json`, `item` has the fields of an `Item`, and `collector` is the
    actor that exchanges files. `start` counts the starts of all runs, so a restarted run has a
    higher one than before. `trusted` are the digests of the user's own files that may run.
    """
    wanted = Item(**item)
    ray.get(collector.admit.remote(wanted.name, start))
    if location.is_visible():
        return _run_worker(Path(location.path), wanted, trusted, lambda: None)
    _remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=f"elites-study-{directories.this_process()}-"))
    try:
        directories.write_json(folder / PLAN, plan)
        directories.write_json(folder / INDEX, {"format": FORMAT, "runs": [item]})
        run = Study(folder).run(wanted).path
        files: Any = ray.get(collector.fetch.remote(wanted.name, start))
        if files:
            write_files(run, files)
        sent = set(files)

        def send() -> None:
            """Send new and changed files of the run to the collector."""
            having = set(sent)
            new = new_files(run, having)
            if new:
                ray.get(collector.store.remote(wanted.name, start, new))
                sent.update(having)  # only after they have arrived

        return _run_worker(folder, wanted, trusted, send)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    """Remove the temporary directories that killed processes of this machine left."""
    for left in Path(tempfile.gettempdir()).glob("elites-study-*"):
        owner = left.name.removeprefix("elites-study-").rpartition("-")[0]
        if directories.is_gone(owner):
            shutil.rmtree(left, ignore_errors=True)


def _run_worker(
    study: Path, item: Item, trusted: list[str], send: Callable[[], None]
) -> tuple[Ending, str]:
    """Run the worker process of one run.

    Return how it ended, and the last 20 kB of its output as text.

    `study` is the directory on this machine, `trusted` the digests of files that may run. `send()`
    is called after every checkpoint and at the end.
    """
    run = Study(study).run(item)
    with tempfile.TemporaryFile() as output:
        process = WorkerProcess(study, item, output, trusted)
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
    """Return the contents of a run's files that are not in `sent`, by path inside the run.

    Adds their paths to `sent`. Checkpoints, snapshots (archives without policies) and kernels never
    change and are returned once. Other files are returned every time.
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
    """Write files into the directory of a run. `files` has their contents by path inside the run.

    A checkpoint gets its final name only when it is complete. Raises a ValueError for a path that
    does not belong to a run.
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
    """Write bytes to a file through a temporary file. Creates the file's folder if necessary."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with directories.replacing(target) as temporary:
        temporary.write_bytes(data)


class _Collector:
    """A Ray actor that reads and writes the study's directory for the other machines.

    A machine that counts as lost may still be computing and sending. Once another machine has
    restarted its run, the collector refuses its files.
    """

    def __init__(self, path: str):
        self.study = Study(Path(path))
        self._newest: dict[str, int] = {}

    def fetch(self, name: str, start: int) -> Files:
        """Return the contents of all files of a run by path inside the run.

        Empty before its first start.
        """
        run = self._run(name, start)
        return new_files(run, set()) if (run / directories.CONFIG).exists() else {}

    def store(self, name: str, start: int, files: Files) -> None:
        """Write files, given by path inside the run, into the directory of a run."""
        write_files(self._run(name, start), files)

    def _run(self, name: str, start: int) -> Path:
        """Return the directory of a run. Raises a ValueError if `admit` refuses the start."""
        self.admit(name, start)
        return self.study.path / "runs" / name

    def admit(self, name: str, start: int) -> None:
        """Raise a ValueError for an unknown run, or for a start number lower than the run's newest.

        A lower number belongs to a machine that counted as lost, whose run was restarted on another
        one.
        """
        if name not in {item.name for item in self.study.items()}:
            raise ValueError(f"{json.dumps(name)} is not a run of this study")
        if start < self._newest.get(name, 0):
            raise ValueError(f"{name} was restarted on another machine")
        self._newest[name] = start
