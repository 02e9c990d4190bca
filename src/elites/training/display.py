"""Show the progress of training: one changing line on a terminal or in a notebook.

Elsewhere, in a log file for example, plain lines are printed at intervals.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from elites import output
from elites.tasks.axes import Axis
from elites.words import duration, plain

_LINES_EVERY = 15.0  # seconds between two plain lines
_FIELDS = ("count", "left", "qd_score", "coverage", "bar", "evaluations", "speed")
"""Fields of the progress line, the most important first. A narrow terminal shows the first few."""


def notes_on_axes(axes: Sequence[Axis], constant: Sequence[int]) -> list[str]:
    """Return a sentence for each descriptor axis that is constant over the initial policies.

    `constant` are the indices of these axes.
    """
    return [
        f"the descriptor axis '{axes[i].name}' has the same value for all initial policies: check "
        "that it is the right one"
        for i in constant
    ]


class Display:
    """Progress display of a training run of `total` iterations.

    `start` is the iteration at which the run starts or resumes.
    """

    def __init__(self, total: int, start: int = 0, stream: TextIO | None = None):
        self.total, self.first = total, start
        self.stream = stream or sys.stderr
        self.terminal = can_overwrite(self.stream)
        self._begun = time.perf_counter()
        self._printed = float("-inf")
        self._shown = 0  # characters of the changing line; 0 if there is none

    def say(self, text: str) -> None:
        """Print a permanent line of text above the changing progress line."""
        self._write(f"{self._clearing()}{plain(text)}\n")

    @contextlib.contextmanager
    def compiling(self, report: bool = True) -> Iterator[None]:
        """Return a context manager that shows how long the compiler has been running.

        If `report` is True, the total time is printed at the end.
        """
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
            if report:
                self.say("compiling")
            yield
        if report:
            self.say(f"compiled in {time.perf_counter() - begun:.1f} s")
        self._begun = time.perf_counter()

    def update(self, iteration: int, evaluations: float, qd_score: float, coverage: float) -> None:
        """Show the metrics of an iteration. Calls soon after the last one are ignored."""
        now = time.perf_counter()
        every = 0.1 if self.terminal else _LINES_EVERY
        if now - self._printed < every and iteration < self.total:
            return
        self._printed = now
        rate = (iteration - self.first) / max(now - self._begun, 1e-9)
        left = (self.total - iteration) / rate if rate > 0 else float("inf")
        fields = {
            "bar": _bar(iteration / self.total),
            "count": f"{iteration}/{self.total}",
            "speed": _speed(rate),
            "evaluations": f"{evaluations:,.0f} evaluations",
            "qd_score": f"QD-score {qd_score:,.0f}",
            "coverage": f"coverage {100 * coverage:.1f} %",
            "left": f"{duration(left)} left",
        }
        if self.terminal:
            self._show(_fitted(fields, self._width()))
        else:
            del fields["bar"]
            self.say("  ".join(fields.values()))

    def count(self, number: int, what: str) -> None:
        """Show on a terminal how many of the `total` parts of some work are done: "round 3/16"."""
        if self.terminal:
            self._show(f"{_bar(number / self.total)}  {what} {number}/{self.total}")

    def close(self) -> None:
        """End the progress display and leave its last line visible."""
        if self._shown:
            self._write("\n")
            self._shown = 0

    def _show(self, text: str) -> None:
        text = text if len(text) <= self._width() else ""
        if _notebook(self.stream):  # cannot erase a line, so the rest is overwritten
            self._write(f"\r{text.ljust(self._shown)}")
        else:
            self._write(f"\r\x1b[K{text}")
        self._shown = len(text)

    def _width(self) -> int:
        """Return the number of characters that fit on the progress line.

        It is one less than the columns of the terminal, and 120 in a notebook.
        """
        if _notebook(self.stream):
            return 120
        columns = 0
        with contextlib.suppress(OSError, ValueError):  # the stream is no terminal of the system
            columns = os.get_terminal_size(self.stream.fileno()).columns
        return (columns or shutil.get_terminal_size().columns) - 1

    def _clearing(self) -> str:
        shown, self._shown = self._shown, 0
        if shown and _notebook(self.stream):
            return f"\r{' ' * shown}\r"
        return "\r\x1b[K" if shown else ""

    def _write(self, text: str) -> None:
        output.write(text, self.stream)


def can_overwrite(stream: TextIO) -> bool:
    """Return whether lines on a stream can be overwritten: on a terminal or in a notebook."""
    return output.is_terminal(stream) or _notebook(stream)


def _notebook(stream: TextIO) -> bool:
    return type(stream).__module__.startswith("ipykernel")


def _fitted(fields: dict[str, str], width: int) -> str:
    """Return the texts of the fields as one line of at most `width` characters.

    The least important fields are left out until the line fits. It is "" if none fits.
    """
    for count in range(len(_FIELDS), 0, -1):
        line = "  ".join(text for name, text in fields.items() if name in _FIELDS[:count])
        if len(line) <= width:
            return line
    return ""


def _bar(share: float, width: int = 10) -> str:
    full = int(share * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def _speed(rate: float) -> str:
    return f"{rate:.1f} iterations/s" if rate >= 1 else f"{1 / max(rate, 1e-9):.1f} s/iteration"
