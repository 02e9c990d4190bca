"""Handle Ctrl-C and SIGTERM from the first line of a process to its last.

- `end_on_signals`: a signal ends a command, which prints "interrupted" (exit code 130 or 143).
- `Signals`: while a run is trained, a signal lets it save and stop (exit code 3). After that, a
  first signal is too late: the command prints its last lines and keeps its exit code.
- `ignore_signals`: at the end of a command, signals are ignored, so that the exit code is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal has ended a command that had nothing to save yet."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number
        """Exit code of the process."""


class _Stage:
    """How far the command of this process is, which decides what `_end` does with a signal."""

    received: int = 0
    """Number of signals that `_end` has counted."""
    is_saved: bool = False
    """Whether the work of a `Signals` block is done, and the command only reports it."""
    is_over: bool = False
    """Whether the command has ended, and its exit code is known."""


def end_on_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process by raising `Interrupted` in the main thread.

    While a module is being imported, a signal ends the process at once, because C code that imports
    a module may swallow an exception or turn it into an ImportError. A second signal always ends
    the process at once. Signals that this process ignores stay ignored.
    """
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def ignore_signals() -> None:
    """Ignore Ctrl-C and SIGTERM for the rest of this process, if `end_on_signals` handles them.

    Used at the end of a command, whose exit code no longer changes. A Python function would not
    do as handler: Python removes it when it exits, and a signal would then kill the process.
    """
    _Stage.is_over = True  # `signal.signal` may still call `_end` for a signal that came before
    for number in _ENDING:
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    """Handle a signal: raise `Interrupted`, end the process at once, or return if it is too late.

    `frame` is the stack frame that the signal has interrupted.
    """
    if _Stage.is_over:
        return
    _Stage.received += 1
    is_first = _Stage.received == 1
    if is_first and _Stage.is_saved:
        return
    if not is_first or _is_importing(frame):
        _tell(b"elites: interrupted\n")
        os._exit(128 + number)
    raise Interrupted(number)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a stack frame, or one of its callers, is importing a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class Signals:
    """Handles Ctrl-C, SIGTERM and a closed terminal inside a `with` block.

    The first signal sets `received`, which makes the training loop stop. The second ends the
    process. The signals are handled in a thread, which reads them from a pipe, because Python's own
    handlers wait for the main thread, which may be inside the compiler for minutes.

    When the block has ended without an error, its work is saved. If `end_on_signals` handles
    signals outside of the block, a first signal after it has no effect.
    """

    def __init__(self, when: str = "after this iteration"):
        """Set `when`, which tells the user when the process stops after a first signal."""
        self.received: signal.Signals | None = None
        self.when = when

    def __enter__(self) -> Signals:
        """Install the signal handlers, start the thread, and return this object."""
        self._old = {}
        _Stage.is_saved = False
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may set handlers
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _STOPPING:
            # Under nohup, a run continues after its terminal closes.
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._old[number] = signal.signal(number, lambda number, frame: None)
        threading.Thread(target=self._listen, args=(self._read,), daemon=True).start()
        return self

    def check(self) -> None:
        """Raise `Interrupted` if a signal has been received."""
        if self.received is not None:
            raise Interrupted(self.received)

    def _listen(self, pipe: int) -> None:
        """Read signals from a pipe until it is closed. Ends the process at the second signal."""
        while data := os.read(pipe, 1):
            number = signal.Signals(data[0])
            if number not in _STOPPING:
                continue
            if self.received is not None:
                _tell(b"\nelites: left at once; saved checkpoints are intact\n")
                os._exit(128 + number)
            self.received = number
            _tell(f"\nelites: stopping {self.when}; once more to leave at once\n".encode())
        os.close(pipe)

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        """Restore the previous signal handlers and end the thread."""
        if self._old:
            _Stage.is_saved = kind is None
            for number, handler in self._old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._write)


def _tell(message: bytes) -> None:
    """Write a message to standard error. Can be called from any thread."""
    with contextlib.suppress(OSError):
        os.write(2, message)
