"""Results of an algorithm on a task, joined from its runs and recorded tables.

`SeedResults` are the results of some seeds: of a run, or of a recorded table. A `Group` has all
results of an algorithm on a task. They may have been computed on different machines, so a seed may
occur several times. It counts once. Seeds of a source that draws other random numbers are other
seeds, even if they have the same number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elites.runs import evaluation
from elites.runs.evaluation import ARCHIVE_METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from elites.study.study import Item, Study

FINAL_METRICS = (
    *ARCHIVE_METRICS,
    *(
        (name, f"{title}, in %" if name.endswith("coverage") else title)
        for name, title in evaluation.COLUMNS
        if name.startswith("actor_") or name == "descriptor_error"
    ),
)
AXES = (
    ("evaluations", "evaluations"),
    ("env_steps", "environment steps"),
    ("seconds", "wall-clock seconds"),
)
Columns = Mapping[str, np.ndarray]
NEAR = 0.01
"""Share of a budget by which a number of evaluations may miss it, and still counts as equal.

Iterations of different algorithms have different numbers of evaluations, and recorded tables are
thinned out.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class SeedResults:
    """Results of some seeds of an algorithm on a task."""

    seeds: Sequence[int]
    curves: Columns
    """Arrays [n, seeds], keyed by metric or axis. Empty before the first iteration."""
    final: Columns | None = None
    """Arrays [seeds] of the final metrics, or None if the seeds are not finished."""
    source: str = ""
    """Name of the source code, if it draws other random numbers than the current one."""

    @property
    def last(self) -> float:
        """Number of evaluations that the seeds have reached, 0 if there are no curves."""
        return float(self.curves["evaluations"][-1, 0]) if len(self.curves) else 0.0

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Source and number of each seed. Two seeds with the same key are the same seed."""
        return [(self.source, seed) for seed in self.seeds]

    def without(self, keys: set[tuple[str, int]]) -> SeedResults | None:
        """Return the part without the seeds that have some `keys`, or None if no seed is left."""
        kept = [i for i, key in enumerate(self.keys) if key not in keys]
        if len(kept) == len(self.seeds):
            return self
        if not kept:
            return None
        final = self.final
        return SeedResults(
            [self.seeds[i] for i in kept],
            {name: values[:, kept] for name, values in self.curves.items()},
            None if final is None else {name: values[kept] for name, values in final.items()},
            self.source,
        )


@dataclasses.dataclass(eq=False)
class Group:
    """Results of one algorithm on one task, or results of another program if `imported`."""

    task: str
    label: str
    imported: bool = False
    seeds: list[int] = dataclasses.field(default_factory=list)
    sources: list[str] = dataclasses.field(default_factory=list)
    """Source of each seed, as in `SeedResults`."""
    planned: Sequence[int] = ()
    """Seeds of the plan. Empty if the plan does not have the algorithm."""
    finished: int = 0
    """Number of seeds whose runs are finished, planned ones and others."""
    missing: list[int] = dataclasses.field(default_factory=list)
    """Planned seeds whose runs are not finished."""
    stopped: list[int] = dataclasses.field(default_factory=list)
    """Seeds that have begun but are not finished, planned ones and others."""
    budgets: set[int] = dataclasses.field(default_factory=set)
    """Budgets of its runs, in evaluations. There are several if some runs were trained longer."""
    curves: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [n, seeds], keyed by metric or axis. The rows are those that every seed has."""
    final: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [finished seeds] of the final values, keyed by metric."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    archive: dict[str, np.ndarray] | None = None
    """Archive without policies of the seed with the highest QD-score, or None if there is none."""
    archive_seed: int | None = None
    archive_evaluations: float | None = None
    """Evaluations after which the archive was stored, or None if that is unknown.

    Recorded archives are those of the end of a run, which may be far beyond the plan's budget.
    """
    runs: list[tuple[Study, Item]] = dataclasses.field(default_factory=list)
    tables: list[Path] = dataclasses.field(default_factory=list)
    """Recorded tables that it was read from."""

    @property
    def tolerance(self) -> float:
        """Share by which a number of evaluations may be missed, 0 unless its tables are thinned."""
        return NEAR if self.tables else 0.0

    def join(self, parts: Sequence[SeedResults]) -> None:
        """Set seeds, curves and final metrics from those of the parts.

        A seed that several parts have counts once. See `distinct` for the choice.
        """
        kept = distinct(parts)
        begun = [part for part in kept if len(part.curves)]
        self.seeds = [seed for part in begun for seed in part.seeds]
        self.sources = [part.source for part in begun for _ in part.seeds]
        self.curves = joined([part.curves for part in begun])
        done = [part for part in kept if part.final is not None]
        self.finished = sum(len(part.seeds) for part in done)
        self.stopped = [seed for part in begun if part.final is None for seed in part.seeds]
        # Seeds of a source that draws other random numbers are not those of the plan.
        have = {key for part in done for key in part.keys}
        self.missing = [seed for seed in self.planned if ("", seed) not in have]
        for name, _ in FINAL_METRICS if done else ():
            # Tables of earlier versions do not have all columns.
            columns = [
                (part.final or {}).get(name, np.full(len(part.seeds), np.nan)) for part in done
            ]
            self.final[name] = np.concatenate(columns).astype(float)


@dataclasses.dataclass
class Results:
    """Results of a study: a `Group` for each algorithm on each task, and a list of problems."""

    groups: list[Group]
    problems: list[str]
    """Messages about results that are missing or could not be read."""

    @property
    def tasks(self) -> list[str]:
        """Short names of the tasks that have results, without duplicates."""
        return tasks_of(self.groups)

    @property
    def labels(self) -> list[str]:
        """Names of the algorithms and programs that have results, without duplicates."""
        return list(dict.fromkeys(group.label for group in self.groups))

    def of(self, task: str) -> list[Group]:
        """Return the groups of a task, one for each algorithm and each imported program."""
        return [group for group in self.groups if group.task == task]

    def find(self, task: str, label: str) -> Group | None:
        """Return the group of an algorithm on a task, or None if there are no results of it."""
        return next((g for g in self.of(task) if g.label == label), None)

    @property
    def unfinished(self) -> list[Group]:
        """Groups of which planned seeds or others that have begun are not finished."""
        return [group for group in self.groups if group.missing or group.stopped]

    def tabled(self, task: str) -> list[Group]:
        """Return the groups of a task for its table, which compares them after one budget.

        An algorithm outside the plan that was stopped early would shorten all others, so it is left
        out.
        """
        groups = self.of(task)
        return [g for g in groups if g.planned or not g.stopped] or groups


def tasks_of(groups: Sequence[Group]) -> list[str]:
    """Return the short names of the groups' tasks, in their order and without duplicates."""
    return list(dict.fromkeys(group.task for group in groups))


def distinct(parts: Sequence[SeedResults]) -> list[SeedResults]:
    """Return parts in which every seed occurs once, in the order of `parts`.

    A seed that several parts have is taken from a finished one if there is one, and otherwise from
    the one with the most evaluations. Among equals, the first one counts.
    """
    order = sorted(
        range(len(parts)), key=lambda i: (parts[i].final is None, -parts[i].last)
    )  # stable
    taken: set[tuple[str, int]] = set()
    kept: dict[int, SeedResults] = {}
    for i in order:
        part = parts[i].without(taken)
        if part is not None:
            kept[i] = part
            taken |= set(part.keys)
    return [kept[i] for i in sorted(kept)]


def joined(tables: Sequence[Columns]) -> dict[str, np.ndarray]:
    """Join the metrics of several runs, and return columns [n, seeds] keyed by name.

    `tables` has the columns of each run. Runs may be at different iterations or lack some, so only
    rows whose number of evaluations occurs in all runs are kept. Returns an empty dictionary if no
    row is left.
    """
    if not tables:
        return {}
    spent = [table["evaluations"][:, 0] for table in tables]
    common = functools.reduce(np.intersect1d, spent)
    if not len(common):
        return {}
    rows = [np.isin(x, common) for x in spent]
    return {
        name: np.concatenate(
            [table[name][kept] for table, kept in zip(tables, rows, strict=True)], axis=1
        )
        for name in tables[0]
        if all(name in table for table in tables)
    }
