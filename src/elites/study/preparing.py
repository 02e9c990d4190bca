"""Prepare a study on this machine: choose its runs and how they share it. Loads JAX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from elites.study import expectation, loads, measuring, seconds
from elites.study.devices import MPS_CONTROL, Machine
from elites.study.expectation import Expectation
from elites.study.packing import Wish
from elites.study.plan import Part, Plan
from elites.study.seconds import Clock
from elites.study.study import Item, Study, refuse_strange_items, split
from elites.study.table import read_progress


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The runs of a study, and what is expected of those that are not done."""

    runs: Sequence[Item]
    iterations: dict[tuple[str, str], int]
    """Iterations of a whole run, keyed by task and algorithm."""
    expected: Expectation

    def work(self, item: Item) -> tuple[int, float]:
        """Return the iterations of a run and the seconds that each is expected to take."""
        return self.iterations[item.task, item.algorithm], self.expected.seconds(item)


def prepare(
    path: Path,
    plan: Plan,
    part: Part,
    machine: Machine,
    wish: Wish,
    measure: bool = False,
    say: Callable[[str], object] = print,
) -> Prepared:
    """Choose the runs of a study that may exist already at a path, and how they share a machine.

    Of a plan, only the runs of a part are expected to be computed, see `plan.part`.

    With `measure`, the time of runs that were never measured on this machine is measured first, and
    `say` is called with a line about each. Writes nothing to the path. Raises a ValueError if the
    user wants other runs than those of an existing study, or more than the machine can do.
    """
    refuse(path, machine, wish)
    study, found = Study(path), loads.of(plan)
    runs = expectation.runs_of(plan, found, machine, wish)
    if study.has_index():
        refuse_strange_items(study, plan)
        runs = study.items()
    runs = split(study, runs, part)
    chosen = [item for item in runs if part.has(item.task, item.algorithm, item.seed_numbers)]
    open_runs = [item for item in chosen if not study.is_done(item, plan.keep_elites > 0)]
    device, cores = expectation.device_of_a_run(open_runs, found, machine, wish)
    clock = Clock(device, seconds.measurements())
    if measure:
        untrained = [item for item in open_runs if not study.is_trained(item)]
        missing = measuring.unmeasured(untrained, found, clock)
        measuring.measure(missing, plan, found, device, cores, say)
        clock = Clock(device, seconds.measurements())
    expected = expectation.expect(open_runs, found, machine, clock, wish, _iterations_done(study))
    iterations = {pair: load.iterations for pair, load in found.items()}
    return Prepared(runs, iterations, expected)


def refuse(path: Path, machine: Machine, wish: Wish) -> None:
    """Raise a ValueError if --seeds-per-run or --side-by-side cannot be used here.

    The first is for new studies. On a GPU, the second needs NVIDIA's Multi-Process Service.
    """
    refuse_other_runs(Study(path), wish.seeds_per_run)
    if machine.gpus and (wish.side_by_side or 1) > 1 and not machine.mps:
        raise ValueError(
            f"--side-by-side needs NVIDIA's Multi-Process Service, but {MPS_CONTROL} is not on the "
            "PATH. Leave the option out to compute one run after another"
        )


def refuse_other_runs(study: Study, seeds_per_run: int | None) -> None:
    """Raise a ValueError if the user gives the seeds of a run for a study that has its runs."""
    if seeds_per_run and study.has_index():
        raise ValueError(
            f"{study.path} has its runs already. --seeds-per-run is for a new study: leave it out, "
            "or choose another --output"
        )


def _iterations_done(study: Study) -> Callable[[Item], int]:
    """Return the function from a run of a study to the number of its finished iterations."""

    def done(item: Item) -> int:
        at = read_progress(study, item)
        return at.iteration if at else 0

    return done
