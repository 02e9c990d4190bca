"""Runs of a study on a Ray cluster, where it outgrows one machine.

Each run is a Ray task that asks for its CPUs and GPUs and starts the worker process of
`worker.py` where Ray puts it. If that machine sees the study's directory, the run is computed in
place. If not, it is computed in a directory of its own: files that are there already are fetched
first, new ones are sent back with every checkpoint and at the end.

A machine that is lost takes its task with it; the run is started again elsewhere and goes on from
the last checkpoint that arrived.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory
from elites.runs.sharing import belongs_to_a_run
from elites.study import worker
from elites.study.engines import worker_command
from elites.study.study import FORMAT, INDEX, PLAN, Item, Study

Files = dict[str, bytes]  # by path inside the run
TOKEN = ".study-is-here"  # tells a machine that it sees the same directory


class RayEngine:
    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, in_place: bool = True
    ):
        """Join the cluster at an address, or start one on this machine.

        `cpus` and `gpus` are what each run asks for. With `in_place` False files are always sent,
        even if machines share the directory.
        """
        if not ray.is_initialized():
            _refuse_unreachable(address)
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RayError, ValueError) as error:
                raise ValueError(f"no Ray cluster at '{address}': {error}") from None
        self._cpus, self._gpus, self._in_place = cpus, gpus, in_place
        _refuse_impossible(cpus, gpus)
        self._collector: Any = None
        self._starts = 0

    @property
    def places(self) -> int:
        """As many runs as the machines of the moment have room for; one, to wait for a machine."""
        have = ray.cluster_resources()
        room = [have.get("CPU", 0) / self._cpus] if self._cpus else []
        room += [have.get("GPU", 0) / self._gpus] if self._gpus else []
        return max(int(min(room, default=1)), 1)

    def start(self, study: Study, item: Item) -> RayHandle:
        study.logs.mkdir(exist_ok=True)
        token = study.path / TOKEN
        if not token.exists():
            directories.write_text(token, secrets.token_hex(16))
        if self._collector is None:
            # Beside this process, which has the directory.
            here = NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            actor = ray.remote(num_cpus=0, max_restarts=-1)(_Collector)
            actor = actor.options(scheduling_strategy=here)
            self._collector = actor.remote(str(study.path.resolve()))
        place = _Place(str(study.path.resolve()), token.read_text(), self._in_place)
        task = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=0)(_compute)
        plan = directories.read_json(study.path / PLAN)
        self._starts += 1
        reference = task.remote(place, plan, vars(item), self._starts, self._collector)
        return RayHandle(reference, study.logs / f"{item.name}.log")


def _refuse_unreachable(address: str | None) -> None:
    """Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        raise ValueError(f"no Ray cluster at '{address}': {error}") from None


def _refuse_impossible(cpus: float, gpus: float) -> None:
    """Ray would wait for ever for a machine that nobody has."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = {kind: max((m.get(kind, 0) for m in machines), default=0) for kind in ("CPU", "GPU")}
    if not any(m.get("CPU", 0) >= cpus and m.get("GPU", 0) >= gpus for m in machines):
        raise ValueError(
            f"no machine of the cluster has {cpus:g} CPUs and {gpus:g} GPUs; the most are "
            f"{most['CPU']:g} CPUs and {most['GPU']:g} GPUs. Lower --cpus or --gpus"
        )


class RayHandle:
    def __init__(self, reference: Any, log: Path):
        self._reference, self._log = reference, log

    def poll(self) -> int | None:
        ready, _ = ray.wait([self._reference], timeout=0)
        if not ready:
            return None
        try:
            code, said = ray.get(self._reference)
        except RayError as error:
            own = own_failure(error)
            if own is None:
                code, said = worker.LOST, f"elites: lost: {type(error).__name__}\n"
            else:
                code, said = worker.FAILED, f"{error}\nelites: {type(own).__name__}: {own}\n"
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(said)
        return code

    def stop(self) -> None:
        ray.cancel(self._reference, force=False)


def own_failure(error: RayError) -> BaseException | None:
    """What the task itself raised; None if the cluster failed it.

    That is so when its machine or process is gone, and when a call of its own back to here could
    not be answered.
    """
    if not isinstance(error, RayTaskError):
        return None
    cause = error.cause
    return own_failure(cause) if isinstance(cause, RayError) else cause


class _Place(NamedTuple):
    """Where a study is, and how to recognise it."""

    path: str
    token: str
    in_place: bool

    def is_here(self) -> bool:
        if not self.in_place:
            return False
        with contextlib.suppress(OSError):
            return (Path(self.path) / TOKEN).read_text() == self.token
        return False


# ------------------------------------------------------------------------- on the other machine


def _compute(place: _Place, plan: Any, item: dict[str, Any], start: int, collector: Any):
    """A Ray task: the exit code of the worker, and the end of what it printed.

    `start` counts the starts of all runs: that of a run which was lost before is higher.
    """
    wanted = Item(**item)
    ray.get(collector.admit.remote(wanted.name, start))
    if place.is_here():
        return _watch(Path(place.path), wanted, lambda: None)
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"elites-study-{directories.this_process()}-"))
    try:
        directories.write_json(folder / PLAN, plan)
        directories.write_json(folder / INDEX, {"format": FORMAT, "runs": [item]})
        run = Study(folder).run(wanted).path
        files: Any = ray.get(collector.fetch.remote(wanted.name, start))
        if files:
            put(run, files)
        sent = set(files)

        def send() -> None:
            having = set(sent)
            new = new_files(run, having)
            if new:
                ray.get(collector.store.remote(wanted.name, start, new))
                sent.update(having)  # not before they have arrived

        return _watch(folder, wanted, send)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove the runs that processes which were killed here have left behind."""
    for left in Path(tempfile.gettempdir()).glob("elites-study-*"):
        owner = left.name.removeprefix("elites-study-").rpartition("-")[0]
        if directories.is_gone(owner):
            shutil.rmtree(left, ignore_errors=True)


def _watch(study: Path, item: Item, send) -> tuple[int, str]:
    """Run the worker; send files after every checkpoint and at the end."""
    run = Study(study).run(item)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            worker_command(study, item),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        last = None
        try:
            while process.poll() is None:
                newest = [path.name for path in checkpoints.complete(run.checkpoints)][-1:]
                if newest and newest != last:
                    last = newest
                    send()
                time.sleep(0.2)
        except KeyboardInterrupt:  # Ray's way to cancel a task
            process.send_signal(signal.SIGTERM)
            process.wait()
        finally:
            if process.poll() is None:  # its files cannot be sent: it would compute for nobody
                process.kill()
                process.wait()
        send()
        output.seek(0, os.SEEK_END)
        output.seek(max(output.tell() - 20_000, 0))
        return process.returncode, output.read().decode(errors="replace")


# --------------------------------------------------------------------------------- sending files


def new_files(run: Path, sent: set[str]) -> Files:
    """What has come since: checkpoints and snapshots once, tables that grow every time."""
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
        with contextlib.suppress(FileNotFoundError):  # an old checkpoint, removed meanwhile
            files[name] = (run / name).read_bytes()
            sent.add(name)
    return files


def put(run: Path, files: Files) -> None:
    """Write files of a run, such that a checkpoint has its name only when it is whole."""
    by_checkpoint: dict[str, Files] = {}
    for name, data in files.items():
        parts = name.split("/")
        if not belongs_to_a_run(name):
            raise ValueError(f"'{name}' is no file of a run")
        if parts[0] == "checkpoints":
            by_checkpoint.setdefault(parts[1], {})[parts[2]] = data
        elif name != directories.SUMMARY:
            _put_file(run / name, data)
    for number, parts in sorted(by_checkpoint.items()):
        if set(parts) == set(checkpoints.FILES):
            checkpoints.receive(run / "checkpoints", int(number), parts)
    if directories.SUMMARY in files:  # last of all: it says that the run is done
        _put_file(run / directories.SUMMARY, files[directories.SUMMARY])


def _put_file(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with directories.replacing(target) as temporary:
        temporary.write_bytes(data)


class _Collector:
    """An actor beside the study's directory, through which other machines read and write it.

    A machine that was given up may still compute and send; once its run has been begun by another,
    it is turned away.
    """

    def __init__(self, path: str):
        self.study = Study(Path(path))
        self._newest: dict[str, int] = {}

    def fetch(self, name: str, start: int) -> Files:
        run = self._run(name, start)
        return new_files(run, set()) if (run / directories.CONFIG).exists() else {}

    def store(self, name: str, start: int, files: Files) -> None:
        put(self._run(name, start), files)

    def _run(self, name: str, start: int) -> Path:
        self.admit(name, start)
        return self.study.path / "runs" / name

    def admit(self, name: str, start: int) -> None:
        if name not in {item.name for item in self.study.items()}:
            raise ValueError(f"{json.dumps(name)} is no run of this study")
        if start < self._newest.get(name, 0):
            raise ValueError(f"{name} goes on elsewhere: this machine was given up")
        self._newest[name] = start
