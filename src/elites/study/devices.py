"""Find out on which devices of this machine the runs of a study are computed. Loads without JAX."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from elites import files
from elites.words import amount, counted

MPS_CONTROL = "nvidia-cuda-mps-control"
"""Program that starts NVIDIA's Multi-Process Service, with which processes share a GPU."""
_TIMEOUT = 30.0  # seconds for nvidia-smi
_MEMORY_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
"""Files with the limit of a control group, of the second and of the first version."""


class Machine(NamedTuple):
    """Devices of a machine: its GPUs, or the cores of its CPU if it has none."""

    name: str  # such as "NVIDIA H200", or the model of the CPU and its number of cores
    gpus: tuple[str, ...] = ()  # as texts for CUDA_VISIBLE_DEVICES
    memory: int | None = None  # bytes of a GPU, or of the machine without one; None if unknown
    mps: bool = False  # whether the program MPS_CONTROL is installed
    cores: tuple[int, ...] = ()  # numbers of the cores to compute on, if there are no GPUs

    @property
    def devices(self) -> int:
        """Number of devices that compute runs independently of each other."""
        return max(len(self.gpus), len(self.cores), 1)

    def __str__(self) -> str:
        """Return the device as text: "NVIDIA H200 (2 GPUs of 151 GB)"."""
        if not self.gpus:
            return self.name
        memory = f" of {amount(self.memory)}" if self.memory else ""
        return f"{self.name} ({counted(len(self.gpus), 'GPU')}{memory})"


def find() -> Machine:
    """Return the devices of this machine that this process may use.

    If the GPUs differ, the name is that of the first one, and the memory that of the smallest.
    """
    gpus = _visible_gpus()
    if not gpus:
        cores = _cores()
        return Machine(_cpu(len(cores)), memory=_memory(), cores=cores)
    found = [_described(gpu) for gpu in gpus]
    sizes = [memory for _, memory in found]
    memory = None if None in sizes else min(size for size in sizes if size is not None)
    return Machine(found[0][0], gpus, memory, shutil.which(MPS_CONTROL) is not None)


def divided(cores: Sequence[int], devices: int, device: int) -> list[int]:
    """Return the cores that runs on a device get, if the cores are divided among several devices.

    Each gets an equal part of all, or one core if there are too few. `device` counts from 0.
    """
    if not cores:
        return []
    return list(cores[device::devices]) or [cores[device % len(cores)]]


def restrict(process: int, cores: Collection[int]) -> None:
    """Let a process compute on these cores alone, if any are given. 0 stands for this process."""
    if cores and hasattr(os, "sched_setaffinity"):  # not on all systems
        with contextlib.suppress(OSError):  # it has ended, or the cores were taken away
            os.sched_setaffinity(process, cores)


def _visible_gpus() -> tuple[str, ...]:
    """Return the NVIDIA GPUs that this process may use, as texts for CUDA_VISIBLE_DEVICES."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(gpu for gpu in chosen.split(",") if gpu and gpu != "-1")
    try:
        entries = os.listdir("/proc/driver/nvidia/gpus")
    except OSError:
        return ()
    return tuple(str(i) for i in range(len(entries)))


def _described(gpu: str) -> tuple[str, int | None]:
    """Return the name of a GPU and its bytes of memory, as nvidia-smi reports them.

    The name is "unknown GPU" and the memory None if nvidia-smi does not say.
    """
    query = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits", "-i", gpu)
    try:
        done = subprocess.run(
            ["nvidia-smi", *query], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT, check=True,
        )  # fmt: skip
        name, _, mebibytes = done.stdout.splitlines()[0].rpartition(",")
        return name.strip(), int(mebibytes) * 2**20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return "unknown GPU", None


def _cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on all systems
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _cpu(cores: int) -> str:
    """Return the model of the CPU and its number of cores as text."""
    try:
        lines = files.read_text(Path("/proc/cpuinfo")).splitlines()
        model = next(line for line in lines if line.startswith("model name")).partition(":")[2]
    except (OSError, StopIteration):
        model = "CPU"
    return f"{model.strip()}, {counted(cores, 'core')}"


def _memory() -> int | None:
    """Return the bytes of memory that this process may use, or None if they are unknown.

    In a container, the limit of its control group counts, not the memory of the machine.
    """
    try:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):
        return None
    for path in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or the text "max"
            found.append(int(files.read_text(Path(path))))
    return min(found)
