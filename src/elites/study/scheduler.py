"""Run the unfinished runs of a study: start workers, monitor them, retry or split failed runs.

- A run that fails is retried once, from its last checkpoint, and then reported as failed. The other
  runs continue. Starting the study again retries failed runs.
- A run that does not fit in memory is split into two runs with half of the seeds each.
- A run whose machine is lost is restarted on another one.
- If the study keeps models, a second worker keeps that of a run when the first has trained it.
- After a signal or an error of the scheduler itself, the running workers save their state, and the
  scheduler ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from typing import NamedTuple

from elites.runs import checkpoint as checkpoints
from elites.runs.signals import Signals
from elites.study import worker
from elites.study.engines import Engine, Handle
from elites.study.plan import Part
from elites.study.study import ATTEMPTS, Item, Study
from elites.study.table import Live
from elites.study.worker import Ending
from elites.words import counted, one_line

MAX_RESTARTS = 5  # of a run whose machine was lost; then it counts as failed
LOCK_TIMEOUT = 60.0  # seconds to wait for another process that holds the lock of a run


class Result(NamedTuple):
    """Outcome of one session of `elites study`."""

    done: int  # number of runs
    failed: list[Item]
    stopped: bool  # by a signal, with runs unfinished


class Scheduler:
    """Computes the unfinished runs of a study on an engine (this machine or a cluster)."""

    def __init__(
        self, study: Study, engine: Engine, live: Live, pause: float = 0.2, part: Part | None = None
    ):
        self.study, self.engine, self.live, self.pause = study, engine, live, pause
        self.part = part or Part()
        # Starting a study again retries failed runs: the user may have fixed the cause.
        self.items = [
            dataclasses.replace(item, attempts=0) if item.attempts else item
            for item in study.items()
        ]
        study.write_items(self.items)
        self.queue = deque(item for item in self.chosen if study.state(item) == "queued")
        self.running: dict[str, tuple[Item, Handle]] = {}
        self._told: set[str] = set()  # runs whose workers were told to stop
        self._restarts: dict[str, int] = {}  # after the loss of a machine
        self._locked_since: dict[str, float] = {}  # runs that another process has locked

    @property
    def chosen(self) -> list[Item]:
        """The runs that this session computes: those of the part of the plan."""
        return [i for i in self.items if self.part.has(i.task, i.algorithm, i.seed_numbers)]

    def run(self, signals: Signals) -> Result:
        """Compute the queued runs until all are done or failed, or until a signal arrives.

        Returns the number of runs that are done, the runs that failed, and whether a signal stopped
        the session. If an error is raised, all workers have ended before.
        """
        try:
            asked_to_stop = self._work(signals)
        except BaseException as error:
            # Workers end at once when this process does, and would lose what they have not saved.
            self._stop_workers(error)
            raise
        states = {item.name: self.study.state(item) for item in self.chosen}
        failed = [item for item in self.chosen if states[item.name] == "failed"]
        done = sum(state == "done" for state in states.values())
        self.live.close(self.chosen)
        return Result(done, failed, asked_to_stop and done + len(failed) < len(states))

    def _work(self, signals: Signals) -> bool:
        """Start and monitor workers until no run is queued or running.

        Returns whether a signal has stopped the session.
        """
        asked_to_stop = False
        while self.queue or self.running:
            if signals.received and not asked_to_stop:
                asked_to_stop = True
                self.queue.clear()
                for name in self.running:
                    self._stop_once(name)
            while (item := self._next()) is not None:
                self.queue.remove(item)
                self._start(item)
            for name, (item, handle) in list(self.running.items()):
                ending = handle.poll()
                if ending is not None:
                    del self.running[name]
                    self._handle_exit(item, ending, asked_to_stop)
            self.live.show(self.chosen, set(self.running))
            if self.running:
                time.sleep(self.pause)
        return asked_to_stop

    def _start(self, item: Item) -> None:
        """Start a worker for a run."""
        self.running[item.name] = (item, self.engine.start(self.study, item))

    def _next(self) -> Item | None:
        """Return the first queued run that the engine has room for, or None if there is none."""
        if len(self.running) >= self.engine.slots:
            return None
        return next((item for item in self.queue if self.engine.has_room(item)), None)

    def _stop_workers(self, error: BaseException) -> None:
        """Tell the running workers to save their state, and wait until they have ended.

        `error` is the reason, for the message. A worker whose state cannot be read is not waited
        for.
        """
        if self.running:
            runs = counted(len(self.running), "run")
            self.live.say(f"{one_line(error)}: stopping {runs}, which first save their state")
        for name in self.running:
            with contextlib.suppress(Exception):
                self._stop_once(name)
        while self.running:
            for name, (_, handle) in list(self.running.items()):
                try:
                    ended = handle.poll() is not None
                except Exception:
                    ended = True
                if ended:
                    del self.running[name]
            time.sleep(self.pause)

    def _stop_once(self, name: str) -> None:
        """Tell the worker of a run to save its state and end, unless it was told so before.

        Told twice, a worker ends at once and does not save.
        """
        if name not in self._told:
            self._told.add(name)
            self.running[name][1].stop()

    def _handle_exit(self, item: Item, ending: Ending, stopping: bool) -> None:
        """Decide what to do with a run whose worker has ended.

        The run is done, or it is queued again, split into two runs, or reported as failed. If
        `stopping` is true, because a signal has stopped the session, nothing is done. The run then
        continues in a later session.
        """
        code = ending.code
        if code != worker.IN_USE:
            self._locked_since.pop(item.name, None)
        if stopping or (code == worker.DONE and self.study.state(item) == "done"):
            return  # a worker that was told to stop may end in any way; the run continues later
        if code == worker.TRAINED:  # the next worker takes the place of this one
            self._start(item)
            return
        if code == worker.STOPPED:  # by someone else's signal: the run can continue
            self.queue.append(item)
            return
        if code == worker.TOO_LARGE and item.seeds > 1 and not self._has_saved(item):
            self.live.say(f"{item.name} does not fit in memory: split in two")
            self._replace(item, *item.halves())
            return
        if code == worker.LOST:
            self._restarts[item.name] = self._restarts.get(item.name, 0) + 1
            if self._restarts[item.name] <= MAX_RESTARTS:
                self.live.say(f"{item.name}: lost its machine; restarting on another")
                self.queue.append(item)
                return
        if code == worker.IN_USE:
            since = self._locked_since.setdefault(item.name, time.monotonic())
            if time.monotonic() - since < LOCK_TIMEOUT:
                self.queue.append(item)
                time.sleep(self.pause)
                return
        self._locked_since.pop(item.name, None)
        tried = dataclasses.replace(
            item, attempts=item.attempts + 1, error=self._error_message(item, ending)
        )
        again = tried.attempts < ATTEMPTS
        self.live.say(f"{item.name} failed: {tried.error}{'; trying again' if again else ''}")
        self._replace(item, tried, queued=again)

    def _replace(self, item: Item, *others: Item, queued: bool = True) -> None:
        """Replace a run in the study's index by the runs `others`.

        If `queued` is true, these are also put at the front of the queue.
        """
        place = self.items.index(item)
        self.items[place : place + 1] = others
        self.study.write_items(self.items)
        if queued:
            self.queue.extendleft(reversed(others))

    def _has_saved(self, item: Item) -> bool:
        """Return whether a run has a complete checkpoint."""
        return bool(checkpoints.complete(self.study.run(item).checkpoints))

    def _error_message(self, item: Item, ending: Ending) -> str:
        """Return why a run failed, as text: what its worker reported, or how the worker ended."""
        reason = ending.reason or f"ended with exit code {ending.code}, but is not finished"
        log = self.study.logs / f"{item.name}.log"
        return reason if ending.reported and ending.reason else f"{reason}; see {log}"


def run_unfinished(
    study: Study, engine: Engine, live: Live, pause: float = 0.2, part: Part | None = None
) -> Result:
    """Compute the unfinished runs of a study on an engine, and return the `Result`.

    If `part` is given, only the runs of that part of the plan are computed and counted.
    After a first signal, the runs in progress save their state and the session ends. A second
    signal ends the process at once.
    """
    with Signals("when the running runs have saved") as signals:
        return Scheduler(study, engine, live, pause, part).run(signals)
