"""Handle Ctrl-C and SIGTERM from the first line of a process to its last.

- `end_on_signals`: a signal ends a command, which prints "interrupted" (exit code 130 or 143).
- `Signals`: while a run is trained, a signal lets it save and stop (exit code 3).
- `exit_on_signals`: at the end of a command, a signal no longer changes the exit code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal has ended a command that had nothing to save yet."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number
        """Exit code of the process."""


def end_on_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process by raising `Interrupted` in the main thread.

    While a module is being imported, a signal ends the process at once, because C code that imports
    a module may swallow an exception or turn it into an ImportError. A second signal always ends
    the process at once.
    """
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if received or _is_importing(frame):
            _tell(b"elites: interrupted\n")
            os._exit(128 + number)
        received.append(number)
        raise Interrupted(number)

    _handle(end)


def exit_on_signals(code: int) -> None:
    """Let Ctrl-C and SIGTERM end this process at once, with the exit code `code`.

    Used at the end of a command, when its exit code is already known.
    """
    _handle(lambda number, frame: os._exit(code))


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    """Install a handler for Ctrl-C and SIGTERM. Signals that this process ignores stay ignored."""
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


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
    """

    def __init__(self, when: str = "after this iteration"):
        """Set `when`, which tells the user when the process stops after a first signal."""
        self.received: signal.Signals | None = None
        self.when = when

    def __enter__(self) -> Signals:
        """Install the signal handlers, start the thread, and return this object."""
        self._old = {}
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

    def __exit__(self, *_) -> None:
        """Restore the previous signal handlers and end the thread."""
        if self._old:
            for number, handler in self._old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._write)


def _tell(message: bytes) -> None:
    """Write a message to standard error. Can be called from any thread."""
    with contextlib.suppress(OSError):
        os.write(2, message)
