"""Engines that compute runs: the interface, and local processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from elites import trust
from elites.study import devices
from elites.study.packing import Packing, memory_fraction
from elites.study.study import Item, Study
from elites.study.worker import Ending, Work, read_ending
from elites.writing import open_to_append

MEMORY_SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""Variables for the share of a GPU's memory that a process reserves, the second with an old name.

JAX refuses to start if both are set.
"""


class Handle(Protocol):
    """A run that an engine is computing."""

    def poll(self) -> Ending | None:
        """Return how the run's worker process ended, or None while it is running."""
        ...

    def stop(self) -> None:
        """Tell the worker process of the run to save its state and end."""
        ...


class Engine(Protocol):
    """A place to compute runs of studies, such as this machine or a cluster.

    It has a number of slots, each of which computes one run at a time.
    """

    @property
    def slots(self) -> int:
        """Number of runs that the engine can compute at the same time."""
        ...

    def has_room(self, item: Item) -> bool:
        """Return whether a run could start now, if fewer than `slots` runs are computed."""
        ...

    def start(self, study: Study, item: Item, work: Work) -> Handle:
        """Start a worker process for one run of a study, and return its handle."""
        ...


class WorkerProcess:
    """Worker process of one run, and the pipe through which it reports how it ended."""

    def __init__(
        self,
        study: Path,
        item: Item,
        work: Work,
        output: IO[bytes],
        trusted: Sequence[str],
        environment: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        original: Path | None = None,
    ):
        """Start a worker process for one run of the study at a path.

        The process writes its output to the open file `output`. `trusted` are the digests of the
        user's own Python files that it may execute. It uses these cores only, if any are given.
        `original` is the path of the study that the user knows, if this one is a copy.
        """
        self._report, pipe = os.pipe()
        command = [sys.executable, *import_options(), "-m", "elites.study.worker"]
        command += [str(study), item.name, work, str(original or study)]
        try:
            self.process = subprocess.Popen(
                [*command, str(os.getpid()), str(pipe), *trusted],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(pipe,),
                start_new_session=True,  # Ctrl-C goes to the scheduler, which stops its workers
            )
        except BaseException:
            os.close(self._report)
            raise
        finally:
            os.close(pipe)
        self._ending: Ending | None = None
        devices.restrict(self.process.pid, cores)

    def poll(self) -> Ending | None:
        """Return how the process ended, or None while it runs."""
        status = self.process.poll()
        if status is not None and self._ending is None:
            report = b""
            os.set_blocking(self._report, False)  # a process that outlives the worker may hold it
            with contextlib.suppress(BlockingIOError):
                report = os.read(self._report, 65536)
            os.close(self._report)
            self._ending = read_ending(report, status)
        return self._ending

    def stop(self) -> None:
        """Send SIGTERM to the process, so that it saves its state and ends."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process if it is still running, and wait for its end."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class LocalEngine:
    """Engine that computes runs in processes of this machine.

    If there are several GPUs, each process uses one of them. A `Packing` says which runs may share
    a GPU. Without GPUs, the processes divide the cores among them.
    """

    def __init__(
        self,
        packing: Packing | None = None,
        gpus: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
    ):
        """Compute runs on GPUs, or on the CPU if there are none.

        `gpus` are texts for CUDA_VISIBLE_DEVICES, and `environment` is added to that of workers.
        `cores` are the numbers of the cores to divide. Without them, workers use any.
        """
        self._packing, self._gpus = packing or Packing(max(len(gpus), 1)), gpus
        self._environment, self._cores = dict(environment or {}), cores
        self._running: list[list[Item]] = [[] for _ in range(self._packing.devices)]

    @property
    def slots(self) -> int:
        """Number of runs that the engine can compute at the same time."""
        return self._packing.slots

    def has_room(self, item: Item) -> bool:
        """Return whether there is a device on which a run may start beside those running there."""
        return self._device_for(item) is not None

    def start(self, study: Study, item: Item, work: Work) -> Handle:
        """Start a worker process for one run of a study, and return its handle.

        The run must have room, see `has_room`.
        """
        device = self._device_for(item)
        assert device is not None
        study.logs.mkdir(exist_ok=True)
        trusted = trust.trusted_digests(item.task, item.algorithm)
        environment = self._environment_on(device, item)
        with open_to_append(study.logs / f"{item.name}.log") as log:
            cores = devices.divided(self._cores, self._packing.devices, device)
            process = WorkerProcess(study.path, item, work, log, trusted, environment, cores)
        self._running[device].append(item)
        return _LocalHandle(process, lambda: self._running[device].remove(item))

    def _device_for(self, item: Item) -> int | None:
        """Return the device with the fewest runs that a run may join, or None if there is none."""
        free = [i for i, runs in enumerate(self._running) if self._packing.admits(runs, item)]
        return min(free, key=lambda i: len(self._running[i]), default=None)

    def _environment_on(self, device: int, item: Item) -> dict[str, str]:
        """Return the environment of a worker that computes a run on a device."""
        environment = {**os.environ, **self._environment}
        if len(self._gpus) > 1:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[device]
        together = self._packing.count(item)
        chosen = any(name in environment for name in MEMORY_SHARES)
        if self._gpus and together > 1 and not chosen:
            # A process would otherwise reserve three quarters of the memory for itself.
            environment[MEMORY_SHARES[0]] = f"{memory_fraction(together):.3f}"
        return environment


class _LocalHandle:
    """A run that a process of this machine is computing.

    `release` is called once, when the process has ended.
    """

    def __init__(self, process: WorkerProcess, release: Callable[[], None]):
        self._process, self._release = process, release
        self._released = False

    def poll(self) -> Ending | None:
        """Return how the worker process ended, or None while it runs."""
        ending = self._process.poll()
        if ending is not None and not self._released:
            self._released = True
            self._release()
        return ending

    def stop(self) -> None:
        """Tell the worker process to save its state and end."""
        self._process.stop()


def import_options() -> list[str]:
    """Return Python options that make a worker import from the same folders as this process.

    Without -P, `python -m` imports from the current folder first, so that a file tyro.py there
    would run in place of the package. The command `elites` does not import from there.
    """
    here = os.getcwd()
    return [] if any(os.path.abspath(folder) == here for folder in sys.path) else ["-P"]
