"""Find out on which device of this machine the runs of a study are computed. Loads without JAX."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from elites import files
from elites.words import amount, counted

MPS_CONTROL = "nvidia-cuda-mps-control"
"""Program that starts NVIDIA's Multi-Process Service, with which processes share a GPU."""
_TIMEOUT = 30.0  # seconds for nvidia-smi


class Machine(NamedTuple):
    """Devices of a machine: its GPUs, or its CPU if it has none."""

    name: str  # such as "NVIDIA H200", or the model of the CPU and its number of cores
    gpus: tuple[str, ...] = ()  # as texts for CUDA_VISIBLE_DEVICES
    memory: int | None = None  # bytes of a GPU, or None if it is unknown
    mps: bool = False  # whether the program MPS_CONTROL is installed

    @property
    def devices(self) -> int:
        """Number of devices that compute runs independently of each other."""
        return max(len(self.gpus), 1)

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
        return Machine(_cpu())
    found = [_described(gpu) for gpu in gpus]
    sizes = [memory for _, memory in found]
    memory = None if None in sizes else min(size for size in sizes if size is not None)
    return Machine(found[0][0], gpus, memory, shutil.which(MPS_CONTROL) is not None)


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


def _cpu() -> str:
    """Return the model of the CPU and the number of cores that this process may use."""
    cores = counted(len(os.sched_getaffinity(0)), "core")
    try:
        lines = files.read_text(Path("/proc/cpuinfo")).splitlines()
        model = next(line for line in lines if line.startswith("model name")).partition(":")[2]
    except (OSError, StopIteration):
        model = "CPU"
    return f"{model.strip()}, {cores}"
