"""Choose how the runs of a study share a GPU, or the cores of a machine without one.

On a GPU, seeds of one run come first, then runs side by side. A batch of seeds uses a GPU best, so
a run gets all seeds of a task and an algorithm that fit in memory. Runs are put side by side only
where that is expected to save time. A run that may be one of N side by side gets 1/N of a GPU, and
1/N of its memory. Runs start as long as these shares add up to at most one.

On a CPU, a seed with a simulator in JAX is hardly faster on several cores than on one. So each core
is a device that computes one run at a time. If there are fewer runs than cores, each gets several,
and computes its seeds at the same time. How seeds are divided depends on the memory alone. Loads
without JAX.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from elites.study.study import Item

MOST_TOGETHER = 4  # runs side by side on a GPU; more have not been tried
_WORTH_IT = 1.2  # throughput that runs side by side must have, over one after another
_AS_GOOD = 1.05  # throughput of more runs that must be gained to prefer them to fewer
_USABLE = 0.9  # share of a GPU's memory that runs side by side get
_ALONE = 0.75  # share that JAX gives to a process alone
_MARGIN = 2.0
"""Peak memory of a run over the size of its arrays. Measured were 1.25 to 1.9 on an NVIDIA H200."""

_PROCESS = 10**9
"""Bytes that a run on a CPU needs beside its arrays. Measured were 0.6 to 0.7 GB."""

Pair = tuple[str, str]  # task and algorithm


class Wish(NamedTuple):
    """Options of the user that replace what would be chosen."""

    seeds_per_run: int | None = None
    side_by_side: int | None = None
    jobs: int | None = None


@dataclasses.dataclass(frozen=True)
class Packing:
    """How many runs of each task and algorithm share a device, on each of several devices."""

    devices: int = 1
    together: Mapping[Pair, int] = dataclasses.field(default_factory=dict)
    """Number of runs side by side, keyed by task and algorithm."""
    otherwise: int = 1
    """Number of runs side by side of all other tasks and algorithms."""
    most: int | None = None
    """Largest number of runs at a time on all devices. None means no limit but the shares."""

    def count(self, item: Item) -> int:
        """Return how many runs such as this one share a device."""
        return self.together.get((item.task, item.algorithm), self.otherwise)

    def admits(self, running: Sequence[Item], item: Item) -> bool:
        """Return whether a run may start on a device beside those that are running there."""
        return sum(Fraction(1, self.count(each)) for each in (*running, item)) <= 1

    @property
    def slots(self) -> int:
        """Largest number of runs that are computed at the same time on all devices."""
        full = self.devices * max(self.together.values(), default=self.otherwise)
        return min(full, self.most) if self.most else full

    @property
    def shared(self) -> bool:
        """Whether any device computes several runs at a time."""
        return max(self.together.values(), default=self.otherwise) > 1


def memory_fraction(together: int) -> float:
    """Return the share of a GPU's memory that each of several runs side by side gets."""
    return _ALONE if together == 1 else _USABLE / together


def fits(needed: int, memory: int, together: int) -> bool:
    """Return whether runs whose arrays have `needed` bytes fit side by side into a GPU's memory."""
    return _MARGIN * needed <= memory_fraction(together) * memory


def most_seeds(seeds: int, bytes_per_seed: int, memory: int | None) -> int:
    """Return how many of the seeds of a task and an algorithm are computed in one run.

    These are all of them if they fit in memory. Otherwise the seeds are divided into as few runs as
    possible, of about the same size. A single seed is never refused here.
    """
    if memory is None:
        return seeds
    parts = 1
    while parts < seeds and not fits(math.ceil(seeds / parts) * bytes_per_seed, memory, 1):
        parts += 1
    return math.ceil(seeds / parts)


def divided(seeds: range, most: int) -> list[range]:
    """Return seeds divided into as few ranges as possible of at most `most` and similar size."""
    parts = math.ceil(len(seeds) / most)
    bounds = [seeds.start + len(seeds) * i // parts for i in range(parts + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds)]


def runs_on_cores(runs: int, needed: int, memory: int | None, cores: int) -> int:
    """Return how many of several runs a machine without a GPU computes at the same time.

    `needed` are the bytes of the arrays of the largest run, and `memory` those of the machine.
    """
    most = min(runs, cores)
    if memory is not None:
        most = min(most, int(_USABLE * memory / (_MARGIN * needed + _PROCESS)))
    return max(most, 1)


def choose_together(
    runs: int,
    needed: int,
    memory: int | None,
    seconds: Callable[[int], float | None],
) -> int:
    """Return how many of several like runs to put side by side on a GPU.

    `runs` is the number of runs that there are, and `needed` the bytes of each. `seconds` gives the
    time of an iteration for a number of runs side by side, or None if it is unknown. Without a
    known time or a known amount of memory, runs are computed one after another.
    """
    alone = seconds(1)
    best, gain = 1, 1.0
    if alone is None or memory is None:
        return best
    for count in range(2, min(runs, MOST_TOGETHER) + 1):
        each = seconds(count)
        if each is None or not fits(needed, memory, count):
            break
        throughput = count * alone / each
        if throughput >= _WORTH_IT and throughput >= _AS_GOOD * gain:
            best, gain = count, throughput
    return best


def most_together(wanted: int, needed: int, memory: int | None) -> int:
    """Return the number of runs side by side that the user wants, or as many as fit in memory."""
    if memory is None:
        return wanted
    return next((count for count in range(wanted, 1, -1) if fits(needed, memory, count)), 1)


def groups(items: Sequence[Item], packing: Packing) -> list[list[Item]]:
    """Return the runs in groups that one device computes at the same time.

    This is how runs would start if those of a group ended together.
    """
    waiting, found = list(items), []
    while waiting:
        group: list[Item] = []
        for item in list(waiting):
            if packing.admits(group, item):
                group.append(item)
                waiting.remove(item)
        found.append(group)
    return found
