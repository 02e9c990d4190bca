"""Start a study: on this machine, whose GPUs its runs may share, or on a Ray cluster. Loads JAX."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elites.output import say
from elites.runs import lock
from elites.study import devices, expectation, mps, preparing, scheduler
from elites.study.engines import Engine, LocalEngine
from elites.study.packing import Packing, Wish
from elites.study.plan import Part, Plan
from elites.study.preparing import Prepared
from elites.study.scheduler import Result
from elites.study.study import Study, first_items, open_study, split_for
from elites.study.table import Live, Whole


class Cluster(NamedTuple):
    """A Ray cluster, and the resources that each run gets there."""

    address: str | None
    cpus: float
    gpus: float


class Session(NamedTuple):
    """What one call of `elites study` computes: the unfinished runs of a part of a study."""

    path: Path
    plan: Plan
    part: Part
    stop_after: float | None
    """Time in seconds after which running runs are stopped. None means no limit."""

    def compute(self, study: Study, engine: Engine, live: Live) -> Result:
        """Compute the unfinished runs on an engine, and return the result."""
        return scheduler.run_unfinished(
            study, engine, live, part=self.part, stop_after=self.stop_after
        )


def on_ray(session: Session, cluster: Cluster, seeds_per_run: int | None) -> Result:
    """Compute the unfinished runs of a session on a Ray cluster, and return the result."""
    path, plan = session.path, session.plan
    most = dict.fromkeys(plan.pairs(), seeds_per_run or plan.seeds)
    preparing.refuse_other_runs(Study(path), seeds_per_run)
    with lock.locked(path):
        study = open_study(path, plan, first_items(plan, most))
        split_for(study, session.part)
        live = Live(study)
        from elites.study.on_ray import RayEngine

        engine = RayEngine(*cluster)
        live.say(engine.text)
        return session.compute(study, engine, live)


@dataclasses.dataclass(frozen=True)
class Local:
    """A session of a study on this machine."""

    session: Session
    wish: Wish
    measure: bool
    """Whether to measure the time of runs first, where it is not known."""
    command: str
    """Command line that measures it, for messages."""

    def described(self) -> list[str]:
        """Return how long each run would take and which would share a GPU, as lines of text."""
        expected = self._prepared().expected
        lines = expectation.summary(expected, self.command)
        return [*expectation.table(expected), *lines, *expectation.notes(expected)]

    def run(self) -> Result:
        """Compute the unfinished runs, and return the result."""
        path = self.session.path
        preparing.refuse(path, devices.find(), self.wish)  # before the lock, which is a file
        with lock.locked(path):
            prepared = self._prepared()
            study = open_study(path, self.session.plan, prepared.runs)
            split_for(study, self.session.part)
            live = Live(study, whole=Whole(study, prepared.work))
            expected = prepared.expected
            if expected.runs:
                for line in expectation.summary(expected, self.command):
                    live.say(line)
            with _engine(expected.machine, expected.packing, live) as engine:
                return self.session.compute(study, engine, live)

    def _prepared(self) -> Prepared:
        """Choose the runs of the study and how they share GPUs, after measuring if asked to."""
        path, plan, part, _ = self.session
        return preparing.prepare(path, plan, part, devices.find(), self.wish, self.measure, say)


@contextlib.contextmanager
def _engine(machine: devices.Machine, packing: Packing, live: Live) -> Iterator[LocalEngine]:
    """Yield the engine that computes runs on this machine. Runs share a GPU by MPS."""
    if not (machine.gpus and machine.mps and packing.shared):
        yield LocalEngine(packing, machine.gpus, cores=machine.cores)
        return
    with mps.serving(live.say) as environment:
        if environment is None:
            packing = dataclasses.replace(packing, together={}, most=None)
        yield LocalEngine(packing, machine.gpus, environment)
