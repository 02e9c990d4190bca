"""Choose the point at which a report compares the algorithms of a task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study.groups import FINAL_METRICS, Group


@dataclasses.dataclass(frozen=True)
class Point:
    """Comparison point of a task: the metrics of its algorithms after equally many evaluations."""

    text: str
    """Words for headings, such as "at the end"."""
    values: dict[str, dict[str, np.ndarray]]
    """Arrays [seeds], keyed by metric and then by label."""
    evaluations: float | None = None
    """Number of evaluations, or None at the end of training."""


def comparison_point(groups: Sequence[Group]) -> Point | None:
    """Choose after how many evaluations to compare algorithms on a task, and return their metrics.

    They are compared at the end of training if all seeds are finished and have the same budget.
    Otherwise they are compared after the largest number of evaluations that all runs have reached.
    Budgets differ if some runs were trained longer, or if there are imported results. `groups` has
    the results of each algorithm. Returns None if no run has begun.
    """
    one_budget = len({budget for group in groups for budget in group.budgets}) == 1
    if one_budget and all(
        not g.imported and g.finished and not g.missing and not g.stopped for g in groups
    ):
        values = {
            metric: {
                g.label: g.final[metric]
                for g in groups
                if has_values(g.final.get(metric, np.zeros(0)))
            }
            for metric, _ in FINAL_METRICS
        }
        return Point("at the end", values)
    begun = [group for group in groups if group.curves]
    if not begun:
        return None
    common = _common_evaluations(begun)
    values = {
        metric: {
            g.label: v
            for g in begun
            if (v := values_at(g, metric, common * (1 + g.tolerance))) is not None
        }
        for metric, _ in ARCHIVE_METRICS
    }
    text = f"after {common:,.0f} evaluations, which all of them have reached"
    return Point(text, values, common)


def _common_evaluations(groups: Sequence[Group]) -> float:
    """Return the largest number of evaluations at which every group has metrics.

    A group holds the results of one algorithm on one task. Its metrics may have gaps.
    """
    last = min(float(group.curves["evaluations"][-1, 0]) for group in groups)
    own = [(g.curves["evaluations"][:, 0], g.facts) for g in groups if not g.imported]
    for x in sorted({x for spent, _ in own for x in spent.tolist() if x <= last}, reverse=True):
        before = [(spent[spent <= x], facts) for spent, facts in own]
        if all(
            x - s[-1] < f.get("evaluations_per_iteration", math.inf) for s, f in before if len(s)
        ):
            return x
    return last


def values_at(group: Group, metric: str, evaluations: float) -> np.ndarray | None:
    """Return a metric [seeds] of a group after a number of evaluations, or None if unknown.

    For runs of the study, this is the value of the last iteration up to that number. Imported
    curves are interpolated, because they may have few points.
    """
    spent = group.curves["evaluations"][:, 0]
    if metric not in group.curves or spent[0] > evaluations:
        return None
    if group.imported:
        columns = group.curves[metric].T
        return np.array([np.interp(evaluations, spent, column) for column in columns])
    return group.curves[metric][np.searchsorted(spent, evaluations, side="right") - 1]


def has_values(values: np.ndarray) -> bool:
    """Return whether an array has at least one finite number."""
    return len(values) > 0 and bool(np.isfinite(values).any())
