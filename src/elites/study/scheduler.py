"""Run the unfinished runs of a study: start workers, monitor them, retry or split failed runs.

- A run that fails is retried once, from its last checkpoint, and then reported as failed. The other
  runs continue. Starting the study again retries failed runs.
- A run that does not fit in memory is split into two runs with half of the seeds each.
- A run whose machine is lost is restarted on another one.
- If the study keeps models, a second worker keeps that of a run when the first has trained it.
- When the time that the user gave is over, the running workers save their state. If the study
  keeps models, second workers keep those of the unfinished runs. Then the scheduler ends.
- After a signal or an error of the scheduler itself, the running workers save their state, and the
  scheduler ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
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
from elites.study.worker import Ending, Work
from elites.words import counted, duration, one_line

MAX_RESTARTS = 5  # of a run whose machine was lost; then it counts as failed
LOCK_TIMEOUT = 60.0  # seconds to wait for another process that holds the lock of a run


class Result(NamedTuple):
    """Outcome of one session of `elites study`."""

    done: int  # number of runs
    failed: list[Item]
    stopped: bool  # by a signal or because the time was over, with runs unfinished


class Running(NamedTuple):
    """A run that a worker is computing."""

    item: Item
    work: Work
    handle: Handle


class Scheduler:
    """Computes the unfinished runs of a study on an engine (this machine or a cluster)."""

    def __init__(
        self,
        study: Study,
        engine: Engine,
        live: Live,
        part: Part | None = None,
        stop_after: float | None = None,
        pause: float = 0.2,
    ):
        """Prepare to compute the unfinished runs of a part of a study, or of all of it.

        `stop_after` is the time in seconds after which running runs are stopped, and `pause` that
        between two looks at the workers.
        """
        self.study, self.engine, self.live, self.pause = study, engine, live, pause
        self.part = part or Part()
        self._stop_after = math.inf if stop_after is None else stop_after
        self._start_time = time.monotonic()
        # Starting a study again retries failed runs: the user may have fixed the cause.
        self.items = [
            dataclasses.replace(item, attempts=0) if item.attempts else item
            for item in study.items()
        ]
        study.write_items(self.items)
        states = {item.name: study.state(item) for item in self.chosen}
        self.queue = deque(item for item in self.chosen if states[item.name] == "queued")
        for item in self.chosen:
            if study.keeps_elites and states[item.name] == "done":
                study.remove_models_of(item, other_than=study.model(item))  # a kill left them
        self.running: dict[str, Running] = {}
        self._is_interrupted = self._time_is_over = False
        self._told: set[str] = set()  # runs whose workers were told to stop
        self._restarts: dict[str, int] = {}  # after the loss of a machine
        self._locked_since: dict[str, float] = {}  # runs that another process has locked

    @property
    def chosen(self) -> list[Item]:
        """The runs that this session computes: those of the part of the plan."""
        return [i for i in self.items if self.part.has(i.task, i.algorithm, i.seed_numbers)]

    def run(self, signals: Signals) -> Result:
        """Compute the queued runs until all are done or failed, or the session is stopped.

        A signal stops it, and so does the end of the time that the user gave. Returns the number of
        runs that are done, the runs that failed, and whether the session was stopped. If an error
        is raised, all workers have ended before.
        """
        try:
            self._compute(signals)
        except BaseException as error:
            # Workers end at once when this process does, and would lose what they have not saved.
            self._stop_workers(error)
            raise
        states = {item.name: self.study.state(item) for item in self.chosen}
        failed = [item for item in self.chosen if states[item.name] == "failed"]
        done = sum(state == "done" for state in states.values())
        self.live.close(self.chosen)
        stopped = self._is_interrupted or self._time_is_over
        return Result(done, failed, stopped and done + len(failed) < len(states))

    def _compute(self, signals: Signals) -> None:
        """Start and monitor workers until no run is queued or running."""
        while self.queue or self.running:
            self._stop_if_due(signals)
            while (item := self._next()) is not None:
                self.queue.remove(item)
                self._start(item)
            for name, running in list(self.running.items()):
                ending = running.handle.poll()
                if ending is not None:
                    del self.running[name]
                    self._handle_exit(running, ending)
            self.live.show(self.chosen, {name: r.work for name, r in self.running.items()})
            if self.running:
                time.sleep(self.pause)

    def _stop_if_due(self, signals: Signals) -> None:
        """Stop all workers after a signal, and those that train a run when the time is over.

        No other run starts then.
        """
        if signals.received and not self._is_interrupted:
            self._is_interrupted = True
            self.queue.clear()
            for name in self.running:
                self._stop_once(name)
        late = time.monotonic() - self._start_time >= self._stop_after
        if late and not (self._time_is_over or self._is_interrupted):
            self._time_is_over = True
            self.queue.clear()
            self.live.say(f"stopping after {duration(self._stop_after)}: running runs save and end")
            for name, running in self.running.items():
                if running.work == "train":
                    self._stop_once(name)

    def _start(self, item: Item, work: Work | None = None) -> None:
        """Start a worker for a run. By default it trains the run, or keeps its model if trained."""
        if work is None:
            keeps = self.study.keeps_elites and self.study.is_trained(item)
            work = "keep" if keeps else "train"
        self._told.discard(item.name)
        if work == "train" and not self.study.run(item).exists():
            for model in self.study.set_aside_models_of(item):
                self.live.say(
                    f"{item.name}: its directory was deleted, so its model is now {model}"
                )
        handle = self.engine.start(self.study, item, work)
        self.running[item.name] = Running(item, work, handle)

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
            for name, running in list(self.running.items()):
                try:
                    ended = running.handle.poll() is not None
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
            self.running[name].handle.stop()

    def _handle_exit(self, running: Running, ending: Ending) -> None:
        """Decide what to do with a run whose worker has ended.

        The run is done, or it is queued again, split into two runs, or reported as failed. After a
        signal, the run continues in a later session. So it does when the time is over, but its
        model is kept first.
        """
        item, code = running.item, ending.code
        if code != worker.IN_USE:
            self._locked_since.pop(item.name, None)
        if self._is_interrupted or (code == worker.DONE and self.study.state(item) == "done"):
            return  # a worker that was told to stop may end in any way; the run continues later
        if code == worker.TRAINED:  # the next worker takes the place of this one
            self._start(item)
            return
        if self._time_is_over:
            self._handle_late_exit(running, ending)
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

    def _handle_late_exit(self, running: Running, ending: Ending) -> None:
        """Keep the model of an unfinished run that was stopped because the time is over.

        The run continues in a later session. So does one whose model could not be kept.
        """
        item = running.item
        trains = running.work == "train"
        is_abrupt = trains and not ending.reported  # told to stop while it was still loading
        if ending.code not in (worker.DONE, worker.STOPPED) and not is_abrupt:
            what = "ended with an error" if trains else "has no model"
            self.live.say(f"{item.name} {what}: {self._error_message(item, ending)}")
        if trains and self.study.keeps_elites and self._has_saved(item):
            self._start(item, "keep")

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
    study: Study,
    engine: Engine,
    live: Live,
    part: Part | None = None,
    stop_after: float | None = None,
) -> Result:
    """Compute the unfinished runs of a study on an engine, and return the `Result`.

    If `part` is given, only the runs of that part of the plan are computed and counted. If
    `stop_after` is given, running runs save and end after so many seconds. They do so after a first
    signal, too. A second signal ends the process at once.
    """
    with Signals("when the running runs have saved") as signals:
        return Scheduler(study, engine, live, part, stop_after).run(signals)
