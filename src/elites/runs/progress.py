"""What the terminal shows of a run: one line that changes, or plain lines where there is none."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from elites.runs.words import duration

_LINES_EVERY = 15.0  # seconds between two lines where nothing can be overwritten


class Progress:
    def __init__(self, total: int, start: int = 0, stream: TextIO | None = None):
        self.total, self.first = total, start
        self.stream = stream or sys.stderr
        self.terminal = self.stream.isatty()
        self._begun = time.perf_counter()
        self._printed = float("-inf")
        self._open = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{self._clearing()}{text}\n")

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Show that, and for how long, the compiler is at work."""
        begun = time.perf_counter()
        over = threading.Event()

        def tick() -> None:
            while not over.wait(0.5):
                self._show(f"compiling {time.perf_counter() - begun:.0f} s")

        if self.terminal:
            ticker = threading.Thread(target=tick, daemon=True)
            ticker.start()
            try:
                yield
            finally:
                over.set()
                ticker.join()
        else:
            self.say("compiling")
            yield
        self.say(f"compiled in {time.perf_counter() - begun:.1f} s")
        self._begun = time.perf_counter()

    def update(self, iteration: int, evaluations: float, qd_score: float, coverage: float) -> None:
        now = time.perf_counter()
        every = 0.1 if self.terminal else _LINES_EVERY
        if now - self._printed < every and iteration < self.total:
            return
        self._printed = now
        rate = (iteration - self.first) / max(now - self._begun, 1e-9)
        left = (self.total - iteration) / rate if rate > 0 else float("inf")
        facts = (
            f"{iteration}/{self.total}  {_speed(rate)}  {evaluations:,.0f} evaluations  "
            f"QD-score {qd_score:,.0f}  coverage {100 * coverage:.1f} %  {duration(left)} left"
        )
        if self.terminal:
            self._show(f"{_bar(iteration / self.total)} {facts}")
        else:
            self.say(facts)

    def close(self) -> None:
        """Leave the last state of the bar where it is."""
        if self._open:
            self._write("\n")
            self._open = False

    def _show(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{text[:width]}")
        self._open = True

    def _clearing(self) -> str:
        was_open, self._open = self._open, False
        return "\r\x1b[K" if was_open else ""

    def _write(self, text: str) -> None:
        # Training goes on when nobody reads any more: a closed terminal, a pipe into `head`.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()


def _bar(share: float, width: int = 20) -> str:
    full = int(share * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def _speed(rate: float) -> str:
    return f"{rate:.1f} iterations/s" if rate >= 1 else f"{1 / max(rate, 1e-9):.1f} s/iteration"
