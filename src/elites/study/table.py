"""Show the progress of a study.

On a terminal this is a table that is updated in place. Elsewhere, every change of state is a line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from elites import output
from elites.files import open_file, read_record
from elites.runs.directory import FACTS, METRICS, RunError
from elites.study.study import Item, Study
from elites.words import columns, duration, plain, shortened


class RunProgress(NamedTuple):
    """Progress of one run: its last iteration, its number of iterations, and the time left."""

    iteration: int  # the last one that is finished
    total: int  # iterations of the whole run
    left: float  # seconds, estimated


def read_progress(study: Study, item: Item) -> RunProgress | None:
    """Return the progress of one run of a study, read from the run's files.

    Returns None before the first iteration.
    """
    run = study.run(item)
    with contextlib.suppress(OSError, RunError, ValueError, KeyError, IndexError):
        total = read_record(run / FACTS, {"iterations": int})["iterations"]
        first, last = _ends(run / METRICS)
        done, since = int(last[0]) - int(first[0]), float(last[-1]) - float(first[-1])
        rate = done / since if since > 0 else 0.0
        left = (total - int(last[0])) / rate if rate > 0 else float("inf")
        return RunProgress(int(last[0]), total, left)
    return None


def _ends(path: Path) -> tuple[list[str], list[str]]:
    """Return the cells of the first and the last complete row of a CSV file, as texts.

    Does not read the rows between them.
    """
    with open_file(path) as file:
        file.readline()
        first = file.readline().decode().strip().split(",")
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(size - 4096, 0))
        whole = file.read().split(b"\n")[:-1]  # the last line may be incomplete
    return first, whole[-1].decode().strip().split(",")


class Live:
    """Progress display of a study's runs: a table on a terminal, lines elsewhere."""

    def __init__(self, study: Study, stream: TextIO | None = None, every: float = 1.0):
        self.study, self.stream, self.every = study, stream or sys.stderr, every
        self.terminal = output.is_terminal(self.stream)
        self._lines = 0
        self._shown = float("-inf")
        self._told: dict[str, str] = {}

    def rows(self, items: Sequence[Item], running: set[str]) -> list[list[str]]:
        """Return a row of texts for each run: name, state, and progress or error.

        `running` has the names of the runs that are being computed.
        """
        rows = []
        for item in items:
            state = "running" if item.name in running else self.study.state(item)
            at = read_progress(self.study, item) if state == "running" else None
            detail = ""
            if at is not None:
                detail = f"{at.iteration}/{at.total}, {duration(at.left)} left"
            elif state == "failed":
                detail = item.error
            rows.append([plain(item.name), state, plain(detail)])
        return rows

    def show(self, items: Sequence[Item], running: set[str]) -> None:
        """Show the state of all runs, unless it was shown less than `every` seconds ago.

        `running` has the names of the runs that are being computed.
        """
        now = time.monotonic()
        if now - self._shown < self.every:
            return
        self._shown = now
        rows = self.rows(items, running)
        if not self.terminal:
            for name, state, _ in rows:
                if self._told.get(name, "queued") != state:
                    self.say(f"{name}: {state}")
                self._told[name] = state
            return
        width, height = shutil.get_terminal_size()
        counts = {
            s: sum(row[1] == s for row in rows) for s in ("queued", "running", "done", "failed")
        }
        head = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
        # Running runs come first. The last rows are dropped if the terminal is too small.
        order = {"running": 0, "failed": 1, "queued": 2, "done": 3}
        shown = sorted(rows, key=lambda row: order[row[1]])[: max(height - 3, 1)]
        lines = [head, *columns(shown)]
        fitted = (f"{shortened(line, width - 1)}\n" for line in lines)
        self._write(self._clearing() + "".join(fitted))
        self._lines = len(lines)

    def say(self, text: str) -> None:
        """Print a permanent line of text above the table of runs."""
        self._write(f"{self._clearing()}{plain(text)}\n")

    def close(self, items: Sequence[Item]) -> None:
        """Show the state of all runs a last time, when none is being computed any more."""
        self._shown = float("-inf")
        self.show(items, set())

    def _clearing(self) -> str:
        """Return the control sequence that erases the shown table, or an empty string."""
        lines, self._lines = self._lines, 0
        return f"\x1b[{lines}A\x1b[J" if lines else ""

    def _write(self, text: str) -> None:
        """Write text to the display's stream at once. Ignores a closed stream."""
        output.write(text, self.stream)
