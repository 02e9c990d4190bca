"""Start NVIDIA's Multi-Process Service (MPS) for the runs of a study, and end it with the study.

Processes that share a GPU without this service take turns. With it, their kernels run at the same
time. `serving` starts the service in a keeper process:

    python -m elites.study.mps

The keeper ends the service when its standard input is closed, so also after the study was killed. A
service that another program has started is used and left alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elites import files
from elites.study.devices import MPS_CONTROL
from elites.study.engines import import_options
from elites.words import plain

_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_TIMEOUT = 60.0  # seconds for a command of the service
_WORKERS_END = 1.0  # seconds in which workers end whose study was killed
_END = b"end"


@contextlib.contextmanager
def serving(say: Callable[[str], object]) -> Iterator[Mapping[str, str] | None]:
    """Provide the service inside the `with` block. Yields what to add to workers' environment.

    Yields None if the service cannot be started, after calling `say` with the reason.
    """
    if _is_running():
        say("runs share the GPU by the Multi-Process Service that is running already")
        yield {}
        return
    keeper = subprocess.Popen(
        [sys.executable, *import_options(), "-m", "elites.study.mps"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the study, which ends the service after its runs
    )
    assert keeper.stdin is not None and keeper.stdout is not None  # noqa: PT018
    try:
        yield _started(keeper.stdout.readline(), say)
    finally:
        with contextlib.suppress(OSError):  # the keeper has ended already
            keeper.stdin.write(_END)
            keeper.stdin.close()
        keeper.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(2 * _TIMEOUT)


def _started(answer: bytes, say: Callable[[str], object]) -> Mapping[str, str] | None:
    """Return the environment in a keeper's answer, or None if the service could not be started."""
    found: dict[str, Any] = {"error": "its keeper process ended"}
    with contextlib.suppress(ValueError):
        found = json.loads(answer)
    if "error" not in found:
        return found["environment"]
    say(f"{MPS_CONTROL} cannot be started, so runs are computed one after another: "
        f"{plain(found['error'], 300)}")  # fmt: skip
    return None


def _is_running() -> bool:
    """Return whether a service is running that processes with this environment would use."""
    try:
        return _command("get_server_list", os.environ).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _command(text: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Send a command to the service that belongs to an environment, and return the result."""
    return subprocess.run(
        [MPS_CONTROL], input=f"{text}\n".encode(), env=environment, timeout=_TIMEOUT, check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------- keeper


def main() -> int:
    """Start the service, print its environment, and end it when standard input is closed."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="elites-mps-"))
    own = {_PIPES: str(folder), _LOGS: str(folder)}
    # The service must see all GPUs: those that a worker may use are chosen by its own environment.
    environment = {**os.environ, **own}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    started = False
    try:
        error = _start(folder, environment)
        started = not error
        print(json.dumps({"error": error} if error else {"environment": own}), flush=True)
        if started and sys.stdin.buffer.read() != _END:
            time.sleep(_WORKERS_END)
    finally:
        if started:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _command("quit", environment)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _start(folder: Path, environment: Mapping[str, str]) -> str:
    """Start the service in the background. Returns what went wrong, or "" if it runs."""
    log = folder / "start.log"
    try:
        with log.open("xb") as output:  # a file: the service would keep a pipe open
            done = subprocess.run(
                [MPS_CONTROL, "-d"], env=environment, timeout=_TIMEOUT, check=False,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        if done.returncode == 0:
            return ""
        return files.read_text(log).strip() or f"it ended with exit code {done.returncode}"
    except (OSError, subprocess.SubprocessError, files.RunError) as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
