"""Tests of a report: where two algorithms are compared, and for what p-values are corrected."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from elites.study import significance
from elites.study.groups import Group, Results
from elites.study.plan import Plan

PLAN = Plan(("point_omni", "arm_reach"), ("dcg_me", "pga_me", "me"), seeds=20, preset="smoke")


def group(
    label: str, spent: list[int], seeds: int = 8, score: float = 0.0, tables: tuple[str, ...] = ()
) -> Group:
    """Return an unfinished group on Point-Omni.

    The QD-score of a seed is `score`, plus its number, plus its evaluations.
    """
    evaluations = np.repeat(np.array(spent, float)[:, None], seeds, axis=1)
    values = score + np.arange(seeds) / 100 + evaluations
    curves = {"evaluations": evaluations, "qd_score": values}
    return Group("point_omni", label, seeds=list(range(seeds)), planned=range(20), budgets={1000},
                 curves=curves, tables=[Path(name) for name in tables])  # fmt: skip


def test_recorded_tables_are_compared_within_a_hundredth():
    """The rows of thinned tables do not match: 1,000 evaluations count as those after 995."""
    rows = ([900, 1000], [895, 995])
    first, second = (group(n, r, tables=("t",)) for n, r in zip("ab", rows, strict=True))
    found = significance.tested(first, second, "qd_score")
    assert found is not None
    assert (found.evaluations, found.after) == (995, "995")
    assert found.first[0] == 1000
    assert found.second[0] == 995
    # A row that is more than a hundredth later does not count.
    found = significance.tested(first, group("b", [800, 980], tables=("t",)), "qd_score")
    assert found is not None
    assert (found.first[0], found.second[0]) == (900, 980)


def test_runs_of_a_study_are_compared_without_tolerance():
    found = significance.tested(group("a", [900, 1000]), group("b", [895, 995]), "qd_score")
    assert found is not None
    assert found.first[0] == 900


def test_algorithms_without_a_value_are_not_tested():
    empty = Group("point_omni", "b", planned=range(20))
    assert significance.tested(group("a", [900]), empty, "qd_score") is None
    assert significance.tested(group("a", [900]), group("b", [900]), "coverage") is None


def test_an_algorithm_outside_the_plan_that_was_stopped_early_is_compared_where_it_stopped():
    """The other algorithm is finished, so its final values are known, but those of this are not."""
    finished = group("a", [500, 1000])
    finished.planned, finished.finished = range(8), 8
    finished.final = {"qd_score": finished.curves["qd_score"][-1]}
    stopped = group("a, discount 0.9", [500])
    stopped.planned, stopped.stopped = (), list(range(8))
    found = significance.tested(finished, stopped, "qd_score")
    assert found is not None
    assert found.evaluations == 500
    assert found.first[0] == finished.curves["qd_score"][0, 0]
    # Once it is finished as well, both are compared at the end.
    stopped.finished, stopped.final = 8, {"qd_score": stopped.curves["qd_score"][-1]}
    stopped.stopped = []
    found = significance.tested(finished, stopped, "qd_score")
    assert found is not None
    assert found.evaluations is None


def test_planned_comparisons_and_those_beyond_the_plan_are_intended():
    groups = [group("dcg_me", [100]), group("pga_me", [100]), group("me, discount 0.9", [100])]
    nothing = Group("point_omni", "qd_pg")  # it has no results and is not planned
    found = significance.intended_comparisons(PLAN, Results([*groups, nothing], []), "dcg_me")
    assert found == {
        ("point_omni", "pga_me"),
        ("point_omni", "me"),
        ("arm_reach", "pga_me"),
        ("arm_reach", "me"),
        ("point_omni", "me, discount 0.9"),
    }


def test_the_correction_is_the_same_for_all_numbers_of_evaluations():
    """One comparison of a family of four is made, here and with more evaluations."""
    intended = significance.intended_comparisons(PLAN, Results([], []), "dcg_me")
    for last in (100, 1000):
        test = significance.tested(
            group("dcg_me", [last], score=50), group("pga_me", [last]), "qd_score"
        )
        assert test is not None
        ((_, entry),) = significance.corrected([test], intended)
        assert entry.family == 4
        assert entry.bonferroni == pytest.approx(4 * 2 / math.comb(16, 8))


def test_the_report_names_the_comparisons_that_have_too_few_seeds():
    plan = Plan(("point_omni",), ("dcg_me", "pga_me", "me"), seeds=20, preset="smoke")
    groups = [group("dcg_me", [100], score=50), group("pga_me", [100]), group("me", [100], seeds=2)]
    text = significance.Tests(plan, Results(groups, [])).section("point_omni")
    least = 2 * 2 / math.comb(10, 2)  # two comparisons, eight and two seeds
    assert (
        "<strong>Too few seeds to tell</strong> about me: after Bonferroni's correction, p can be "
        f"no smaller than {least:.4f}." in text
    )
    enough = significance.Tests(plan, Results(groups[:2], [])).section("point_omni")
    assert "Too few seeds" not in enough
