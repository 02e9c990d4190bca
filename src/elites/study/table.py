"""What the terminal shows of a study: a table that changes, or a line for every change."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from elites.runs.directory import METRICS, RESOLVED, RunError, read_json
from elites.runs.words import columns, duration
from elites.study.study import Item, Study


class Standing(NamedTuple):
    iteration: int
    total: int
    left: float  # seconds


def standing(study: Study, item: Item) -> Standing | None:
    """How far a run is, from its files; None before its first iteration."""
    run = study.run(item)
    with contextlib.suppress(OSError, RunError, ValueError, KeyError, IndexError):
        total = int(read_json(run / RESOLVED)["iterations"])
        first, last = _ends(run / METRICS)
        done, since = int(last[0]) - int(first[0]), float(last[-1]) - float(first[-1])
        rate = done / since if since > 0 else 0.0
        left = (total - int(last[0])) / rate if rate > 0 else float("inf")
        return Standing(int(last[0]), total, left)
    return None


def _ends(path: Path) -> tuple[list[str], list[str]]:
    """First and last complete row of a table of metrics, without reading what is between."""
    with open(path, "rb") as file:
        file.readline()
        first = file.readline().decode().strip().split(",")
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(size - 4096, 0))
        whole = file.read().split(b"\n")[:-1]  # behind the last line break is half a line
    return first, whole[-1].decode().strip().split(",")


class Live:
    def __init__(self, study: Study, stream: TextIO | None = None, every: float = 1.0):
        self.study, self.stream, self.every = study, stream or sys.stderr, every
        self.terminal = self.stream.isatty()
        self._lines = 0
        self._shown = float("-inf")
        self._told: dict[str, str] = {}

    def rows(self, items: Sequence[Item], running: set[str]) -> list[list[str]]:
        rows = []
        for item in items:
            state = "running" if item.name in running else self.study.state(item)
            at = standing(self.study, item) if state == "running" else None
            detail = ""
            if at is not None:
                detail = f"{at.iteration}/{at.total}, {duration(at.left)} left"
            elif state == "failed":
                detail = item.error
            rows.append([item.name, state, detail])
        return rows

    def show(self, items: Sequence[Item], running: set[str]) -> None:
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
        # What fits: those that are at work first, then what comes next.
        order = {"running": 0, "failed": 1, "queued": 2, "done": 3}
        shown = sorted(rows, key=lambda row: order[row[1]])[: max(height - 3, 1)]
        lines = [head, *columns(shown)]
        self._write(self._clearing() + "".join(f"{line[: width - 1]}\n" for line in lines))
        self._lines = len(lines)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{self._clearing()}{text}\n")

    def close(self, items: Sequence[Item]) -> None:
        self._shown = float("-inf")
        self.show(items, set())

    def _clearing(self) -> str:
        lines, self._lines = self._lines, 0
        return f"\x1b[{lines}A\x1b[J" if lines else ""

    def _write(self, text: str) -> None:
        # The study goes on when nobody reads any more.
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()
