"""Show the progress of a study.

On a terminal, this is a table that is updated in place. Elsewhere, a line is printed for every
change of a run's state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from elites import output
from elites.files import open_file, read_record
from elites.runs.directory import FACTS, METRICS, RunError
from elites.study.study import Item, Study
from elites.study.worker import Work
from elites.words import columns, duration, plain, shortened


class RunProgress(NamedTuple):
    """Progress of one run: its last iteration, its number of iterations, and the time left."""

    iteration: int  # the last one that is finished
    total: int  # iterations of the whole run
    left: float  # seconds, estimated


def read_progress(study: Study, item: Item) -> RunProgress | None:
    """Read the progress of one run of a study from the run's files and return it.

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


class Whole:
    """Progress of all runs of a study together, and the time left.

    The work of a run is its iterations times the expected seconds of each. The time left follows
    from the work that was done since this object was made, and how long that took.
    """

    def __init__(
        self, study: Study, work: Callable[[Item], tuple[int, float] | None] = lambda item: None
    ):
        """Prepare for a study. `work` gives the iterations and expected seconds of a run.

        Without it, the iterations of a run are known once it has begun, and count alike.
        """
        self.study, self._work = study, work
        self._start: tuple[float, float] | None = None  # time and work done, before work was done

    def text(self, items: Sequence[Item]) -> str:
        """Return the progress over all runs as text: "41 % done, about 2 h 5 min left".

        Returns "" while the work of a run is unknown.
        """
        amounts = [self._amount(item) for item in items]
        known = [amount for amount in amounts if amount is not None]
        if not known or len(known) < len(amounts):
            return ""
        done, total = (sum(column) for column in zip(*known, strict=True))
        left = self._left(done, total)
        share = f"{100 * done / total:.0f} % done" if total else ""
        return f"{share}, about {duration(left)} left" if left else share

    def _amount(self, item: Item) -> tuple[float, float] | None:
        """Return the work that is done of a run, and its whole work. None if it is unknown."""
        state, known = self.study.state(item), self._work(item)
        if state == "failed":
            return 0.0, 0.0
        at = None if known and state == "done" else read_progress(self.study, item)
        total, seconds = known or (at.total if at else 0, 1.0)
        if not total:
            return None
        done = total if state == "done" else min(at.iteration, total) if at else 0
        return done * seconds, total * seconds

    def _left(self, done: float, total: float) -> float | None:
        """Return the seconds until all work is done, or None before anything was done.

        The clock starts with the first work, because runs have to compile before.
        """
        now = time.monotonic()
        if self._start is None or done <= self._start[1]:
            self._start = (now, done)
        since, before = self._start
        return (total - done) * (now - since) / (done - before) if done > before else None


def _ends(path: Path) -> tuple[list[str], list[str]]:
    """Return the cells of the first and of the last complete row of a CSV file, as texts.

    Reads only the beginning and the end of the file.
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

    def __init__(
        self,
        study: Study,
        stream: TextIO | None = None,
        every: float = 1.0,
        whole: Whole | None = None,
    ):
        self.study, self.stream, self.every = study, stream or sys.stderr, every
        self.whole = whole or Whole(study)
        self.terminal = output.is_terminal(self.stream)
        self._lines = 0
        self._shown = float("-inf")
        self._told: dict[str, str] = {}

    def rows(self, items: Sequence[Item], running: Mapping[str, Work]) -> list[list[str]]:
        """Return a row of texts for each run: its name, its state, and its progress or error.

        `running` has what workers do at the moment, keyed by the name of the run.
        """
        rows = []
        for item in items:
            state = "running" if item.name in running else self.study.state(item)
            at = read_progress(self.study, item) if state == "running" else None
            detail = ""
            if running.get(item.name) == "keep":
                detail = "writing its model"
            elif at is not None:
                detail = f"{at.iteration}/{at.total}, {duration(at.left)} left"
            elif state == "failed":
                detail = item.error
            rows.append([plain(item.name), state, plain(detail)])
        return rows

    def show(self, items: Sequence[Item], running: Mapping[str, Work]) -> None:
        """Show the state of all runs, unless it was shown less than `every` seconds ago.

        `running` has what workers do at the moment, keyed by the name of the run.
        """
        now = time.monotonic()
        if now - self._shown < self.every:
            return
        self._shown = now
        rows = self.rows(items, running)
        whole = self.whole.text(items)
        if not self.terminal:
            for name, state, _ in rows:
                if self._told.get(name, "queued") != state:
                    self.say(f"{name}: {state}{f' ({whole})' if whole else ''}")
                self._told[name] = state
            return
        width, height = shutil.get_terminal_size()
        counts = {
            s: sum(row[1] == s for row in rows) for s in ("queued", "running", "done", "failed")
        }
        head = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
        head += f"; {whole}" if whole else ""
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
        """Show the state of all runs a last time, after all workers have ended."""
        self._shown = float("-inf")
        self.show(items, {})

    def _clearing(self) -> str:
        """Return the control sequence that erases the table, or "" if no table is shown."""
        lines, self._lines = self._lines, 0
        return f"\x1b[{lines}A\x1b[J" if lines else ""

    def _write(self, text: str) -> None:
        """Write text to the display's stream and flush it. Does nothing if the stream is closed."""
        output.write(text, self.stream)
