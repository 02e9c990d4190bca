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
    """A signal has ended a command before there was anything to save."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number
        """Exit code of the process."""


def end_on_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process: the handler raises `Interrupted`.

    While a module is imported, the handler ends the process at once. An exception would not always
    get through: code in C that imports a module may drop it, or turn it into an ImportError. The
    second signal ends the process at once, too.
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
    """Let Ctrl-C and SIGTERM end this process at once, with the exit code that it has anyway."""
    _handle(lambda number, frame: os._exit(code))


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    """Install a handler of Ctrl-C and SIGTERM, except for signals that the parent ignores."""
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a stack frame belongs to the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class Signals:
    """Handles Ctrl-C, SIGTERM and a closed terminal inside a `with` block.

    The first signal sets `received`, which ends the training loop. The second ends the process. A
    thread receives the signals through a pipe, because Python's own handlers wait for the main
    thread, which may be inside the compiler for minutes.
    """

    def __init__(self, when: str = "after this iteration"):
        """Set the words that say when the process stops after the first signal."""
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
        """Receive signals from a pipe until it is closed. The second signal ends the process."""
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
        """Restore the previous signal handlers."""
        if self._old:
            for number, handler in self._old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._write)


def _tell(message: bytes) -> None:
    """Write a message to standard error. Any thread may call this function."""
    with contextlib.suppress(OSError):
        os.write(2, message)
