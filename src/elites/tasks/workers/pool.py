"""Run rows, one episode each, in worker processes.

A free worker gets the next row, so each worker has at most one at a time. If a worker dies, another
one is started, and its row is repeated. The results do not depend on the number of workers, on the
order in which they finish, or on who died.

A process keeps one pool, that of the task which it used last. `ELITES_WORKERS` is the number of
workers. The default is the number of processor cores that this process may use. A worker whose
episode takes longer than `ELITES_EPISODE_SECONDS` is killed. The default is no limit, but the user
is warned if there is no answer for a minute.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from elites import output, words
from elites.tasks.workers.block import Block, Sizes
from elites.tasks.workers.connection import Connection
from elites.tasks.workers.environment import Spec
from elites.tasks.workers.episode import Network, Outcome

VARIABLE = "ELITES_WORKERS"
LIMIT = "ELITES_EPISODE_SECONDS"
TRIES = 3  # deaths of a worker on one row, or at its start, until that is an error
QUIET = 60.0  # seconds without an answer until the user is warned
_TICK = 1.0  # seconds between two looks at the clock, at most


class Row(NamedTuple):
    """One episode: a policy and the seed of its start."""

    network: Network
    parameters: np.ndarray  # [P]
    seed: int
    noise: tuple[float, int] | None = None  # standard deviation and seed of noise on actions


class Plan(NamedTuple):
    """Settings shared by all rows of a run."""

    length: int
    """Largest number of steps."""
    record: bool
    """Write every step to the shared memory."""
    sizes: Sizes


Commit = Callable[[int, Outcome, Block], None]  # (position of the row, results, its steps)


def count() -> int:
    """Return the number of workers. Raises a ValueError if ELITES_WORKERS is no such number."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        usable = getattr(os, "sched_getaffinity", None)  # not on all systems
        return len(usable(0)) if usable else os.cpu_count() or 1
    if not given.isdecimal() or not 1 <= int(given) <= 4096:
        raise ValueError(f"{VARIABLE} must be a whole number from 1 to 4096, got '{given}'")
    return int(given)


def limit() -> float:
    """Return the largest number of seconds of an episode, or infinity if there is no limit.

    Raises a ValueError if ELITES_EPISODE_SECONDS is no such number.
    """
    given = os.environ.get(LIMIT, "")
    try:
        seconds = float(given or math.inf)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ValueError(f"{LIMIT} must be a number of seconds above 0, got '{given}'")
    return seconds


class Pool:
    """Workers of one environment. `name` is that of the task, for messages."""

    def __init__(self, name: str, spec: Spec):
        self.name, self.spec = name, spec
        self._workers: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        self._facts: dict[str, Any] | None = None
        self._failed_starts = 0  # one after the other
        self._heard = 0.0  # when the last answer came
        self._has_warned = False

    def facts(self) -> dict[str, Any]:
        """Return what a worker reports of its environment. Starts one if there is none."""
        if self._facts is None:
            self.run([], None, lambda *_: None)
        assert self._facts is not None
        return self._facts

    def run(self, rows: Sequence[Row], plan: Plan | None, commit: Commit) -> None:
        """Run all rows, and call `commit` with the results of each as it ends.

        Raises a ValueError if the environment raises an error, or if its process dies or takes too
        long three times on the same row. No worker is left then.
        """
        waiting, deaths = collections.deque(range(len(rows))), collections.Counter()
        self._heard, longest = time.monotonic(), limit()
        try:
            self._start(min(count(), len(rows)) or 1)
            while waiting or self._facts is None or self._busy():
                for worker in self._workers:
                    if waiting and plan and worker.ready and worker.row is None:
                        position = waiting.popleft()
                        if not _order(worker, position, rows[position], plan):
                            waiting.appendleft(position)
                for worker in self._events(min(_TICK, longest)):
                    row = worker.row
                    if not self._receive(worker, commit):
                        self._replace(worker, deaths)
                        waiting.extendleft([] if row is None else [row])
                self._look_at_clock(longest, len(waiting))
        except BaseException:
            self.close(at_once=True)
            raise

    def close(self, at_once: bool = False) -> None:
        """End all workers. `at_once` does not wait for the ends of their episodes."""
        while self._workers:
            self._end(self._workers[-1], at_once)
        self._selector.close()

    def _busy(self) -> list[Connection]:
        return [worker for worker in self._workers if worker.row is not None]

    def _start(self, workers: int) -> None:
        """Start workers until there are as many as asked for."""
        while len(self._workers) > count():
            self._end(self._workers[-1])
        while len(self._workers) < workers:
            worker = Connection(self.spec)
            self._workers.append(worker)
            self._selector.register(worker.socket, selectors.EVENT_READ, (worker, True))
            self._selector.register(worker.output, selectors.EVENT_READ, (worker, False))

    def _end(self, worker: Connection, at_once: bool = False) -> None:
        """End one worker and forget it."""
        self._workers.remove(worker)
        for channel in (worker.socket, worker.output):
            if channel in self._selector.get_map():
                self._selector.unregister(channel)
        worker.close(at_once)

    def _events(self, seconds: float) -> list[Connection]:
        """Wait until something happens, for at most so many seconds.

        Returns the workers that have answered or died.
        """
        found = []
        for key, _ in self._selector.select(seconds):
            worker, is_answer = key.data
            if is_answer:
                found.append(worker)
            elif not worker.read_output():
                self._selector.unregister(key.fileobj)
        return found

    def _receive(self, worker: Connection, commit: Commit) -> bool:
        """Handle the answers of a worker. Returns False if it has died."""
        answers = worker.answers()
        for answer in answers or []:
            self._heard = time.monotonic()
            if "ready" in answer:
                worker.ready, self._facts, self._failed_starts = True, answer["ready"], 0
            elif "row" in answer:
                assert worker.block is not None
                commit(answer["row"], Outcome(*answer["outcome"]), worker.block)
                worker.row = None
            else:
                raise ValueError(f"task '{self.name}': {answer['error']}")
        return answers is not None

    def _look_at_clock(self, longest: float, waiting: int) -> None:
        """Kill workers whose episodes take too long. Warns once if there was no answer for long.

        `longest` is in seconds, and `waiting` is the number of rows that no worker has yet.
        """
        for worker in self._busy():
            if worker.seconds() > longest:
                worker.late = True
                worker.kill()
        if self._has_warned or time.monotonic() - self._heard < QUIET:
            return
        self._has_warned = True
        rows = waiting + len(self._busy())
        what = words.counted(rows, "episode") if rows else "the environment to be made"
        output.warn(
            f"task '{self.name}': no answer for {QUIET:g} seconds, still waiting for {what}. "
            f"A step of the environment may hang. {LIMIT}=SECONDS limits the time of an episode"
        )

    def _replace(self, worker: Connection, deaths: collections.Counter[int]) -> None:
        """Start another worker in place of one that has died.

        `deaths` counts how many died on each row. Raises a ValueError for the third one on the same
        row, and for the third one in a row that dies at its start.
        """
        self._end(worker)
        when = "in the same episode"
        if worker.row is not None:
            deaths[worker.row] += 1
            number = deaths[worker.row]
        elif worker.ready:
            number = 0
        else:
            self._failed_starts += 1
            number, when = self._failed_starts, "while making the environment"
        if number >= TRIES:
            how = f"took longer than {LIMIT}={limit():g}" if worker.late else worker.last_words()
            raise ValueError(f"task '{self.name}': its process ended {TRIES} times {when} ({how})")
        self._start(len(self._workers) + 1)


def _order(worker: Connection, position: int, row: Row, plan: Plan) -> bool:
    """Give a row to a worker. Returns False if the worker has died."""
    block = worker.attach(plan.sizes)
    block.parameters[: len(row.parameters)] = row.parameters
    return worker.order(
        position,
        network=row.network._asdict(),
        seed=row.seed,
        noise=row.noise,
        length=plan.length,
        record=plan.record,
    )


# ------------------------------------------------------------------------------ one for the process

_lock = threading.RLock()
_pools: list[Pool] = []  # at most one


@contextlib.contextmanager
def shared(name: str, spec: Spec) -> Iterator[Pool]:
    """Return a context manager with the pool of an environment, for one thread at a time.

    The pool stays open until this process uses another environment or ends.
    """
    with _lock:
        if _pools and _pools[0].spec != spec:
            _pools.pop().close()
        if not _pools:
            _pools.append(Pool(name, spec))
        try:
            yield _pools[0]
        except BaseException:
            close()
            raise


@atexit.register
def close() -> None:
    """End all workers of this process."""
    with _lock:
        while _pools:
            _pools.pop().close(at_once=True)
