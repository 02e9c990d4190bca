"""Where runs are computed: what every such place offers, and processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from elites.study.study import Item, Study


class Handle(Protocol):
    """A run that is being computed."""

    def poll(self) -> int | None:
        """Its exit code, one of `worker`'s; None while it goes on."""
        ...

    def stop(self) -> None:
        """Ask it to save and end."""
        ...


class Engine(Protocol):
    @property
    def places(self) -> int:
        """Runs at a time."""
        ...

    def start(self, study: Study, item: Item) -> Handle: ...


def worker_command(study: Path, item: Item) -> list[str]:
    """What computes a run, as a child of this process."""
    here = str(os.getpid())
    return [sys.executable, "-m", "elites.study.worker", str(study), item.name, here]


class LocalEngine:
    """Processes of this machine; with several GPUs, one process for each."""

    def __init__(self, places: int | None = None):
        self._gpus = _visible_gpus()
        self.places = places or max(len(self._gpus), 1)
        self._free = list(range(self.places))

    def start(self, study: Study, item: Item) -> Handle:
        place = self._free.pop(0)
        environment = dict(os.environ)
        if len(self._gpus) > 1:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[place % len(self._gpus)]
        study.logs.mkdir(exist_ok=True)
        with open(study.logs / f"{item.name}.log", "ab") as log:
            process = subprocess.Popen(
                worker_command(study.path, item),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the scheduler, which tells them once
            )
        return _LocalHandle(process, lambda: self._free.append(place))


class _LocalHandle:
    def __init__(self, process: subprocess.Popen, release):
        self._process, self._release = process, release

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None and self._release is not None:
            self._release()
            self._release = None
        return code

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def _visible_gpus() -> list[str]:
    """NVIDIA GPUs by number, without loading JAX; those that CUDA_VISIBLE_DEVICES leaves."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [gpu for gpu in chosen.split(",") if gpu and gpu != "-1"]
    try:
        entries = os.listdir("/proc/driver/nvidia/gpus")
    except OSError:
        return []
    return [str(i) for i in range(len(entries))]
