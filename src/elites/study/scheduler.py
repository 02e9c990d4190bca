"""Work off what is missing of a study: start, watch, try again, split, go on.

A run that fails is tried once more, from its last checkpoint, then reported; the others go on. A
study that is started again tries such a run again. One that does not fit in memory is split by
seeds. A signal lets all running ones save, then ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from typing import NamedTuple

from elites.runs.signals import Signals
from elites.study import worker
from elites.study.engines import Engine, Handle
from elites.study.study import ATTEMPTS, Item, Study
from elites.study.table import Live

LOSSES = 5  # machines that a run may lose before it counts as failed
PATIENCE = 60.0  # seconds to wait for a process that still holds a run


class Result(NamedTuple):
    done: int
    failed: list[Item]
    stopped: bool


class Scheduler:
    def __init__(self, study: Study, engine: Engine, live: Live, pause: float = 0.2):
        self.study, self.engine, self.live, self.pause = study, engine, live, pause
        # Started again, a study tries again what failed: what was wrong may have been mended.
        self.items = [
            dataclasses.replace(item, attempts=0) if item.attempts else item
            for item in study.items()
        ]
        study.write_items(self.items)
        self.queue = deque(item for item in self.items if study.state(item) == "queued")
        self.running: dict[str, tuple[Item, Handle]] = {}
        self._lost: dict[str, int] = {}
        self._held: dict[str, float] = {}  # since when another process holds a run

    def work(self, signals: Signals) -> Result:
        asked_to_stop = False
        while self.queue or self.running:
            if signals.received and not asked_to_stop:
                asked_to_stop = True
                self.queue.clear()
                for _, handle in self.running.values():
                    handle.stop()
            while self.queue and len(self.running) < self.engine.places:
                item = self.queue.popleft()
                self.running[item.name] = (item, self.engine.start(self.study, item))
            for name, (item, handle) in list(self.running.items()):
                code = handle.poll()
                if code is not None:
                    del self.running[name]
                    self._settle(item, code, asked_to_stop)
            self.live.show(self.items, set(self.running))
            if self.running:
                time.sleep(self.pause)
        states = {item.name: self.study.state(item) for item in self.items}
        failed = [item for item in self.items if states[item.name] == "failed"]
        done = sum(state == "done" for state in states.values())
        self.live.close(self.items)
        return Result(done, failed, asked_to_stop and done + len(failed) < len(self.items))

    def _settle(self, item: Item, code: int, stopping: bool) -> None:
        if code != worker.IN_USE:
            self._held.pop(item.name, None)
        if stopping or (code == worker.DONE and self.study.state(item) == "done"):
            return  # what was asked to stop may do so in any way, and goes on another time
        if code == worker.STOPPED:  # told so by somebody else: it can go on
            self.queue.append(item)
            return
        if code == worker.TOO_LARGE and item.seeds > 1 and not self._has_saved(item):
            self.live.say(f"{item.name} does not fit in memory: split in two")
            self._replace(item, *item.halves())
            return
        if code == worker.LOST:
            self._lost[item.name] = self._lost.get(item.name, 0) + 1
            if self._lost[item.name] <= LOSSES:
                self.live.say(f"{item.name} was lost with its machine: goes on elsewhere")
                self.queue.append(item)
                return
        if code == worker.IN_USE:
            since = self._held.setdefault(item.name, time.monotonic())
            if time.monotonic() - since < PATIENCE:
                self.queue.append(item)
                time.sleep(self.pause)
                return
        self._held.pop(item.name, None)
        tried = dataclasses.replace(
            item, attempts=item.attempts + 1, error=self._last_words(item, code)
        )
        again = tried.attempts < ATTEMPTS
        self.live.say(f"{item.name} failed: {tried.error}{'; trying again' if again else ''}")
        self._replace(item, tried, queued=again)

    def _replace(self, item: Item, *others: Item, queued: bool = True) -> None:
        """In the index, and in front of the queue."""
        place = self.items.index(item)
        self.items[place : place + 1] = others
        self.study.write_items(self.items)
        if queued:
            self.queue.extendleft(reversed(others))

    def _has_saved(self, item: Item) -> bool:
        checkpoints = self.study.run(item).checkpoints
        return checkpoints.is_dir() and any(checkpoints.iterdir())

    def _last_words(self, item: Item, code: int) -> str:
        path = self.study.logs / f"{item.name}.log"
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        for line in reversed(lines):
            if line.startswith("elites: ") and "warning" not in line:
                return line.removeprefix("elites: ")
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{how}{f': {lines[-1]}' if lines else ''}; see {path}"


def work_off(study: Study, engine: Engine, live: Live, pause: float = 0.2) -> Result:
    with Signals("when the running ones have saved") as signals:
        return Scheduler(study, engine, live, pause).work(signals)
