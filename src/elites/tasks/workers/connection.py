"""One worker process, as its parent sees it: start it, send orders, read answers, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from elites.tasks.workers import block as blocks
from elites.tasks.workers.block import Block, Sizes
from elites.tasks.workers.environment import Spec

_MODULE = "elites.tasks.workers.worker"
_MOST = 65536  # bytes read at once: as many as a pipe holds
_KEPT = 4096  # bytes of what a worker has printed
_PATIENCE = 5.0  # seconds that a worker is given to end by itself
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class Connection:
    """A worker process and the channels to it.

    Several orders may not be under way at once: send the next one after the answer.
    """

    def __init__(self, spec: Spec):
        self.row: int | None = None
        """The row that the worker is busy with. It belongs to the pool."""
        self.ready = False
        """Whether the worker has made its environment."""
        self.late = False
        """Whether the worker was killed because its episode took too long."""
        self.block: Block | None = None
        self._sizes: Sizes | None = None  # those of the block
        self._ordered = 0.0  # when the last episode was
        self._printed, self._received = b"", b""
        self.socket, theirs = socket.socketpair()
        self.output, printing = os.pipe()
        waiting, self._lifeline = os.pipe()
        handles = (theirs.fileno(), waiting)
        try:
            with tempfile.TemporaryFile() as file:
                file.write(spec.as_json().encode())
                file.seek(0)
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, *map(str, handles)],
                    pass_fds=handles,
                    stdin=file,
                    stdout=printing,
                    stderr=printing,
                    env=os.environ | _ONE_THREAD | {"PYTHONPATH": _path()},
                    start_new_session=True,  # Ctrl-C is for the parent
                )
        finally:
            theirs.close()
            os.close(printing)
            os.close(waiting)
        for channel in (self.socket.fileno(), self.output):
            os.set_blocking(channel, False)

    def attach(self, sizes: Sizes) -> Block:
        """Return the memory that is shared with the worker, with arrays of these sizes.

        The parameters may have more room than asked for.
        """
        have = self._sizes
        fits = have is not None and have[1:] == sizes[1:] and have.parameters >= sizes.parameters
        if self.block is None or not fits:
            handle = blocks.create(sizes)
            try:
                self.block, self._sizes = blocks.attach(handle, sizes), sizes
                self._send({"block": sizes}, [handle])
            finally:
                os.close(handle)
        return self.block

    def order(self, row: int, **details: Any) -> bool:
        """Order an episode, with the `details` that `worker` reads.

        Returns whether the worker still exists. If it has died before, it is not busy.
        """
        sent = self._send({"row": row, **details})
        self.row, self._ordered = row if sent else None, time.monotonic()
        return sent

    def seconds(self) -> float:
        """Return for how long the worker has been busy with its row. 0 if it has none."""
        return 0.0 if self.row is None else time.monotonic() - self._ordered

    def _send(self, message: dict[str, Any], handles: Sequence[int] = ()) -> bool:
        """Send a message with file descriptors. Returns False if the worker has died."""
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self.socket, [data], handles)
        except (BrokenPipeError, ConnectionResetError):
            return False
        assert sent == len(data)  # orders are far smaller than the socket's buffer
        return True

    def answers(self) -> list[dict[str, Any]] | None:
        """Return the answers that have arrived, without waiting, or None if the worker has died."""
        try:
            data = self.socket.recv(_MOST)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        *lines, self._received = (self._received + data).split(b"\n")
        if not data and not lines:
            return None
        return [json.loads(line) for line in lines]

    def read_output(self) -> bool:
        """Read what the worker has printed, without waiting. Returns False at its end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.output, _MOST)
            self._printed = (self._printed + data)[-_KEPT:]
            return bool(data)
        return True

    def kill(self) -> None:
        """Kill the worker, and the processes that its environment has started."""
        # Both errors say that nothing is left. The second one is that of other systems than Linux.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self, at_once: bool = False) -> None:
        """End the worker and what it has started, and wait for the worker.

        `at_once` does not wait for the end of its episode.
        """
        self.socket.close()
        if at_once:
            os.close(self._lifeline)
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()
        if not at_once:
            os.close(self._lifeline)
        self.kill()
        self.read_output()  # Once: a process in another session may print for ever.
        os.close(self.output)

    def last_words(self) -> str:
        """Return how a worker ended that is closed, and the last lines that it printed."""
        code = self.process.returncode
        how = f"exit status {code}" if code >= 0 else _signal_name(-code)
        lines = self._printed.decode(errors="replace").strip().splitlines()[-3:]
        return how + (f"; its last lines: {' | '.join(lines)}" if lines else "")


def _signal_name(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _path() -> str:
    """Return the folders in which this process looks for modules, for PYTHONPATH."""
    return os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
