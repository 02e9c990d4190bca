"""Engines that compute runs: the interface, and local processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from elites.study.study import Item, Study


class Handle(Protocol):
    """A run that an engine is computing."""

    def poll(self) -> int | None:
        """Return the exit code of the run's worker process, or None while the run is computed.

        The exit codes are the constants of the module `worker`.
        """
        ...

    def stop(self) -> None:
        """Tell the worker process of the run to save its state and end."""
        ...


class Engine(Protocol):
    """A place to compute runs of studies. It has slots, each a place for one run at a time."""

    @property
    def slots(self) -> int:
        """Number of runs that the engine computes at the same time."""
        ...

    def start(self, study: Study, item: Item) -> Handle:
        """Start a worker process that computes one run of a study, and return the run's handle."""
        ...


def worker_command(study: Path, item: Item) -> list[str]:
    """Return the command line that starts a worker process for one run of the study at a path.

    The worker must be a child of this process.
    """
    here = str(os.getpid())
    return [sys.executable, "-m", "elites.study.worker", str(study), item.name, here]


class LocalEngine:
    """Engine that computes runs in processes of this machine.

    With several GPUs, each process has one.
    """

    def __init__(self, slots: int | None = None):
        self._gpus = _visible_gpus()
        self.slots = slots or max(len(self._gpus), 1)
        self._free = list(range(self.slots))

    def start(self, study: Study, item: Item) -> Handle:
        """Start a worker process for one run of a study in a free slot. Return the run's handle."""
        slot = self._free.pop(0)
        environment = dict(os.environ)
        if len(self._gpus) > 1:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        study.logs.mkdir(exist_ok=True)
        with open(study.logs / f"{item.name}.log", "ab") as log:
            process = subprocess.Popen(
                worker_command(study.path, item),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C goes to the scheduler, which stops its workers
            )
        return _LocalHandle(process, lambda: self._free.append(slot))


class _LocalHandle:
    """A run that a process of this machine is computing.

    `release` is called once when it has ended.
    """

    def __init__(self, process: subprocess.Popen, release):
        self._process, self._release = process, release

    def poll(self) -> int | None:
        """Return the exit code of the worker process, or None while it runs."""
        code = self._process.poll()
        if code is not None and self._release is not None:
            self._release()
            self._release = None
        return code

    def stop(self) -> None:
        """Send SIGTERM to the worker process, so that it saves its state and ends."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def _visible_gpus() -> list[str]:
    """Return the numbers, as strings, of the NVIDIA GPUs that CUDA_VISIBLE_DEVICES allows.

    Does not load JAX.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [gpu for gpu in chosen.split(",") if gpu and gpu != "-1"]
    try:
        entries = os.listdir("/proc/driver/nvidia/gpus")
    except OSError:
        return []
    return [str(i) for i in range(len(entries))]
