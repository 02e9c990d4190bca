"""Stop a run on a signal, even while the compiler occupies the main thread."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Handles Ctrl-C, SIGTERM and a closed terminal inside a `with` block.

    The first signal sets `received`, which ends the training loop. The second ends the process. A
    thread receives the signals through a pipe, because Python's own handlers wait for the main
    thread, which may be inside the compiler for minutes.
    """

    def __init__(self, when: str = "after this iteration"):
        """Set the words that say when the process stops after the first signal."""
        self.received: signal.Signals | None = None
        self._when = when

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
            _tell(f"\nelites: stopping {self._when}; once more to leave at once\n".encode())
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
