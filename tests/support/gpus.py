"""A machine that seems to have an NVIDIA GPU: programs that answer for it and record their calls.

Training still runs on the CPU.
"""

from __future__ import annotations

import os
from pathlib import Path

_SMI = '#!/bin/sh\necho "$FAKE_GPU"\n'
_MPS = """#!/bin/sh
if [ "$1" = -d ]; then
    echo "start $CUDA_MPS_PIPE_DIRECTORY" >> "$FAKE_MPS_CALLS"
    if [ -n "$FAKE_MPS_FAULT" ]; then echo "$FAKE_MPS_FAULT"; exit 1; fi
    touch "$CUDA_MPS_PIPE_DIRECTORY/daemon"
    exit 0
fi
read command
echo "$command $CUDA_MPS_PIPE_DIRECTORY" >> "$FAKE_MPS_CALLS"
case "$command" in
    get_server_list) test -e "${CUDA_MPS_PIPE_DIRECTORY:-/nowhere}/daemon" ;;
    quit) rm "$CUDA_MPS_PIPE_DIRECTORY/daemon" ;;
esac
"""


def install(folder: Path, gpu: str = "NVIDIA H200, 143771", mps: bool = True) -> dict[str, str]:
    """Write the programs to a folder. Returns the environment variables with which they are used.

    `gpu` is what nvidia-smi prints: the name and the mebibytes of the GPU.
    """
    programs = {"nvidia-smi": _SMI} | ({"nvidia-cuda-mps-control": _MPS} if mps else {})
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "calls").touch()
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "0",
        "FAKE_GPU": gpu,
        "FAKE_MPS_CALLS": str(folder / "calls"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def calls(folder: Path) -> list[str]:
    """Return the commands that the service got, without the folder that each is about."""
    return [line.split()[0] for line in (folder / "calls").read_text().splitlines()]
