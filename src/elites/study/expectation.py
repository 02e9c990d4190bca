"""Say how the runs of a study will be computed on a machine, and how long that will take."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from elites.names import short_name
from elites.study import devices
from elites.study import packing as packings
from elites.study.devices import MPS_CONTROL, Machine
from elites.study.loads import Load
from elites.study.packing import Packing, Pair, Wish
from elites.study.plan import Plan
from elites.study.seconds import OVERHEAD, SHARING, Clock, Estimate
from elites.study.study import Item, first_items
from elites.words import columns, counted, listed

NOTHING_LEFT = Estimate(0.0, "no iteration left")
"""Estimate for a run that has all iterations, but lacks its last evaluation or its model."""


class Expected(NamedTuple):
    """What is expected of one run of a study."""

    item: Item
    together: int  # number of runs that share the device with it, including itself
    iterations: int  # that are left
    estimate: Estimate | None  # of an iteration beside the other runs, or None if unknown

    @property
    def hours(self) -> float | None:
        """Hours of one device that the run will take, or None if they are unknown."""
        if self.estimate is None:
            return None
        return OVERHEAD * self.iterations * self.estimate.seconds / self.together / 3600


@dataclasses.dataclass(frozen=True)
class Expectation:
    """How a study will be computed: the unfinished runs, and which of them share a device."""

    machine: Machine
    packing: Packing
    runs: Sequence[Expected]
    groups: Sequence[Sequence[Item]]
    """Runs that one device computes at the same time."""
    mps_missing: bool = False
    """Whether runs would share the GPU if NVIDIA's Multi-Process Service were installed."""

    @property
    def known(self) -> list[Expected]:
        """The runs whose time is known."""
        return [run for run in self.runs if run.estimate is not None]

    @property
    def hours(self) -> float:
        """Hours until the runs with a known time are done, on all devices of the machine."""
        longest = max((run.together * (run.hours or 0.0) for run in self.runs), default=0.0)
        return max(_device_hours(self.runs) / self._devices, longest)

    @property
    def measured_hours(self) -> float:
        """The part of `hours` that comes from times that were measured, not estimated."""
        exact = [run for run in self.known if run.estimate and run.estimate.measured]
        total = _device_hours(self.runs)
        return self.hours * _device_hours(exact) / total if total else 0.0

    @property
    def _devices(self) -> int:
        """Number of devices that compute runs at the same time."""
        return min(self.packing.devices, self.packing.slots)

    def seconds(self, item: Item) -> float:
        """Return the seconds of a device that an iteration of a run takes.

        For a run whose time is unknown, this is the mean of the others, or 1 if none is known.
        """
        found = [
            (run.item.task, run.item.algorithm, run.estimate.seconds / run.together)
            for run in self.runs
            if run.estimate and run.iterations
        ]
        same = [s for *pair, s in found if pair == [item.task, item.algorithm]]
        return statistics.mean(same or [s for *_, s in found] or [1.0])


def _device_hours(runs: Sequence[Expected]) -> float:
    """Return the hours of one device that the runs with a known time take together."""
    return sum(run.hours or 0.0 for run in runs)


def runs_of(plan: Plan, loads: Mapping[Pair, Load], machine: Machine, wish: Wish) -> list[Item]:
    """Return the runs of a new study: as many seeds in each as the user wants, or as fit."""
    most = {
        pair: wish.seeds_per_run
        or packings.most_seeds(plan.seeds, load.bytes_per_seed, machine.memory)
        for pair, load in loads.items()
    }
    return first_items(plan, most)


def expect(
    items: Sequence[Item],
    loads: Mapping[Pair, Load],
    machine: Machine,
    clock: Clock,
    wish: Wish,
    done: Callable[[Item], int] = lambda item: 0,
) -> Expectation:
    """Return how unfinished runs of a study will be computed, and how long that will take.

    `loads` and `wish` are as in `runs_of`. `done` gives the iterations that a run already has.
    """
    packing, missing = (
        _on_gpus(items, loads, machine, clock, wish)
        if machine.gpus
        else (_on_cores(items, loads, machine, wish), False)
    )
    groups = packings.groups(items, packing)
    runs = {}
    for group in groups:
        for item in group:
            load, count = loads[item.task, item.algorithm], min(len(group), packing.slots)
            left = max(load.iterations - done(item), 0)
            estimate = clock.together(load.work, item.seeds, count) if left else NOTHING_LEFT
            runs[item.name] = Expected(item, count, left, estimate)
    ordered = [runs[item.name] for item in items]
    return Expectation(machine, packing, ordered, groups, missing)


def device_of_a_run(
    items: Sequence[Item], loads: Mapping[Pair, Load], machine: Machine, wish: Wish
) -> tuple[str, list[int]]:
    """Return the name of the device on which each of these runs is computed, and its cores.

    On a CPU, the name has their number, because a run computes as many seeds at the same time. If
    the cores cannot be divided evenly, it is the smallest number. On GPUs there are no cores.
    """
    if machine.gpus or not machine.cores:
        return machine.name, []
    count = _on_cores(items, loads, machine, wish).devices
    cores = devices.divided(machine.cores, count, count - 1)
    return f"{machine.name}, {len(cores)} for a run", cores


def _on_cores(
    items: Sequence[Item], loads: Mapping[Pair, Load], machine: Machine, wish: Wish
) -> Packing:
    """Return how runs share the cores of a machine: one on each, if they fit in memory together."""
    needed = [loads[item.task, item.algorithm].bytes_per_seed * item.seeds for item in items]
    chosen = packings.runs_on_cores(
        len(items), max(needed, default=0), machine.memory, machine.devices
    )
    return Packing(wish.jobs or wish.side_by_side or chosen)


def _on_gpus(
    items: Sequence[Item],
    loads: Mapping[Pair, Load],
    machine: Machine,
    clock: Clock,
    wish: Wish,
) -> tuple[Packing, bool]:
    """Return how runs share the GPUs, and whether more would if the service were installed."""
    wanted = _together(items, loads, machine, clock, wish)
    missing = not machine.mps and not wish.jobs and max(wanted.values(), default=1) > 1
    if missing:
        wanted = dict.fromkeys(wanted, 1)
    return Packing(machine.devices, wanted, most=wish.jobs), missing


def _together(
    items: Sequence[Item],
    loads: Mapping[Pair, Load],
    machine: Machine,
    clock: Clock,
    wish: Wish,
) -> dict[Pair, int]:
    """Return the number of runs side by side on a GPU, keyed by task and algorithm."""
    found: dict[Pair, int] = {}
    runs = math.ceil(len(items) / machine.devices)
    for item in items:
        load = loads[item.task, item.algorithm]
        needed = load.bytes_per_seed * item.seeds
        if wish.jobs:
            count = math.ceil(wish.jobs / machine.devices)
        elif wish.side_by_side:
            count = packings.most_together(wish.side_by_side, needed, machine.memory)
        else:
            count = packings.choose_together(
                runs, needed, machine.memory, _times(clock, item, load)
            )
        pair = (item.task, item.algorithm)
        found[pair] = min(found.get(pair, count), count)  # runs of one pair may differ in seeds
    return found


def _times(clock: Clock, item: Item, load: Load) -> Callable[[int], float | None]:
    """Return the function from a number of runs side by side to the time of an iteration."""

    def seconds(count: int) -> float | None:
        estimate = clock.together(load.work, item.seeds, count)
        return estimate.seconds if estimate else None

    return seconds


# -------------------------------------------------------------------------------------------- text


def table(expected: Expectation) -> list[str]:
    """Return the expected time of each run and of each task, as lines of text.

    Returns no lines if there is nothing left to compute.
    """
    if not expected.runs:
        return []
    head = ("task", "algorithm", "seeds", "at once", "s/iteration", "", "iterations", "hours")
    rows: list[Sequence[str]] = [head]
    for task in dict.fromkeys(run.item.task for run in expected.runs):
        of_task = [run for run in expected.runs if run.item.task == task]
        rows += [_row(run) for run in of_task]
        if len(of_task) > 1:
            rows.append((short_name(task), "all", "", "", "", "", "", _total(of_task)))
    return columns(rows, right=(2, 3, 4, 6, 7))


def _total(runs: Sequence[Expected]) -> str:
    """Return the hours of several runs as text, with a ">" if some of them are unknown."""
    known = [run.hours for run in runs if run.hours is not None]
    if not known:
        return "?"
    return f"{'> ' if len(known) < len(runs) else ''}{sum(known):.2f}"


def _row(run: Expected) -> Sequence[str]:
    """Return the row of a run in the table of expected times, as texts."""
    item, estimate = run.item, run.estimate
    return (
        short_name(item.task),
        short_name(item.algorithm),
        str(item.seeds),
        str(run.together),
        f"{estimate.seconds:.3f}" if estimate else "?",
        estimate.basis if estimate else "not measured",
        str(run.iterations),
        f"{run.hours:.2f}" if run.hours is not None else "?",
    )


def summary(expected: Expectation, measure: str) -> list[str]:
    """Return how many hours the study will take and which runs share a device, as lines of text.

    `measure` is the command line that measures what is unknown.
    """
    runs, machine = counted(len(expected.runs), "run"), expected.machine
    lines = [f"{runs} on {machine}: {_hours(expected)}"]
    for group in dict.fromkeys(tuple(item.name for item in g) for g in expected.groups):
        if len(group) > 1:
            lines.append(f"side by side: {listed(group)}")
    lines += _cores(expected)
    if expected.mps_missing:
        lines.append(
            f"{MPS_CONTROL} is not installed, so runs on the GPU are computed one after another"
        )
    unknown = len(expected.runs) - len(expected.known)
    if unknown:
        lines.append(
            f"the time of {counted(unknown, 'run')} is unknown: nothing like it was measured on "
            f"this device. Measure with: {measure}"
        )
    return lines


def _cores(expected: Expectation) -> list[str]:
    """Return how many runs share the cores of a machine without a GPU, as lines of text."""
    at_once = min(expected.packing.devices, len(expected.runs))
    if not expected.machine.cores or at_once < 2:
        return []
    return [f"{at_once} runs at a time, each on cores of its own"]


def _hours(expected: Expectation) -> str:
    """Return the hours of a study as text, and how much of them was measured."""
    if not expected.known:
        return "hours unknown" if expected.runs else "nothing left to compute"
    sign = "about" if len(expected.known) == len(expected.runs) else "more than"
    measured, hours = expected.measured_hours, expected.hours
    return (
        f"{sign} {hours:.2f} hours, {measured:.2f} of them from seconds measured for the same "
        f"runs, {hours - measured:.2f} from estimates"
    )


def notes(expected: Expectation) -> list[str]:
    """Return lines that explain the words of the table of expected times, as far as it has them."""
    bases = "\n".join(run.estimate.basis for run in expected.known if run.estimate)
    explained = {
        "measured$": "measured: seconds of the same task, algorithm and seeds on such a device",
        "less": "measured, less N %: seconds of whole runs of this kind, without a share that is "
        "estimated for checkpoints and re-evaluations",
        "seed": "from N seeds: estimated from other numbers of seeds of this task and algorithm",
        "stages": "from stages: never measured; the sum of stages that were measured separately",
        "as one": f"N runs as one: estimated as {SHARING} times one run with the seeds of all",
    }
    lines = [text for word, text in explained.items() if re.search(word, bases, re.MULTILINE)]
    if expected.known:
        lines.append(
            f"hours include {100 * (OVERHEAD - 1):.0f} % for metrics, checkpoints and "
            "re-evaluations, but not the time to compile"
        )
    return lines
