"""Statistics: against SciPy, against recorded results of statsmodels 0.14, by hand, by property."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from elites.study import statistics

A = [3.1, 2.7, 4.4, 3.9, 5.0, 2.2, 3.3, 4.8]
B = [2.0, 1.4, 2.5, 3.0, 1.9, 2.6, 2.9, 1.1]

finite = st.floats(-100, 100).map(lambda x: round(x, 1))
samples = st.lists(finite, min_size=2, max_size=7)


def by_counting(first, second) -> float:
    """Two-sided p of the rank sum: the share of divisions of the values that are as extreme."""
    both = np.array([*first, *second])
    ranks = stats.rankdata(both)
    middle = len(first) * (len(both) + 1) / 2
    observed = abs(ranks[: len(first)].sum() - middle)
    sums = [sum(c) for c in itertools.combinations(ranks, len(first))]
    return float(np.mean([abs(s - middle) >= observed - 1e-9 for s in sums]))


# ---------------------------------------------------------------------------------------- rank sum


def test_rank_sum_equals_scipy_and_a_count_of_all_divisions():
    p, exact = statistics.rank_sum(A, B)
    assert exact
    assert p == pytest.approx(stats.mannwhitneyu(A, B, method="exact").pvalue)
    assert p == pytest.approx(by_counting(A, B))
    assert p < 0.01


@given(samples, samples)
def test_with_ties_too_all_divisions_are_counted(first, second):
    p, exact = statistics.rank_sum(first, second)
    assert exact
    assert p == pytest.approx(by_counting(first, second))
    assert p >= statistics.smallest_p(first, second) - 1e-12


def test_ties_do_not_make_three_seeds_significant():
    assert statistics.rank_sum([1, 1, 1], [2, 2, 2])[0] == pytest.approx(0.1)


@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
def test_twenty_seeds_equal_scipy(side):
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=20), rng.normal(0.5, 1, 20)
    expected = stats.mannwhitneyu(first, second, alternative=side, method="exact").pvalue
    assert statistics.rank_sum(first, second, side)[0] == pytest.approx(expected)


def test_many_values_are_approximated_with_correction_for_ties():
    rng = np.random.default_rng(4)
    first, second = rng.integers(0, 9, 80), rng.integers(1, 10, 80)
    p, exact = statistics.rank_sum(first, second)
    assert not exact
    assert p == stats.mannwhitneyu(first, second, method="asymptotic").pvalue


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (3, 3), (3, 5), (5, 5), (8, 8)])
def test_complete_separation_reaches_the_smallest_p_and_no_less(n, m):
    p, _ = statistics.rank_sum(np.arange(n), 100.0 + np.arange(m))
    assert p == pytest.approx(statistics.smallest_p(range(n), range(n, n + m)))


def test_too_few_seeds_cannot_be_significant():
    assert statistics.smallest_p([1, 5, 3], [2, 6, 4]) == pytest.approx(0.1)
    assert statistics.smallest_p(range(5), range(5, 10)) == pytest.approx(2 / 252)
    assert statistics.smallest_p([1], [2]) == 1.0
    assert statistics.smallest_p([], [1, 2]) == 1.0
    assert statistics.smallest_p(range(60), range(60)) < 1e-30


def test_ties_change_the_smallest_p():
    """Of the four divisions of 1, 1, 1, 2 into one and three, only the 2 alone is extreme."""
    assert statistics.smallest_p([1], [1, 1, 2]) == pytest.approx(1 / 4)
    assert statistics.rank_sum([2], [1, 1, 1])[0] == pytest.approx(1 / 4)
    assert statistics.smallest_p([1, 1], [1, 1]) == 1.0


@given(samples, samples)
def test_a_p_value_is_one_and_does_not_depend_on_the_order(first, second):
    p, _ = statistics.rank_sum(first, second)
    assert 0 < p <= 1
    assert p == pytest.approx(statistics.rank_sum(second, first)[0])
    assert p == pytest.approx(statistics.rank_sum(first[::-1], second)[0])


def test_equal_values_tell_nothing_apart():
    assert statistics.rank_sum([2.0, 2.0], [2.0, 2.0, 2.0]) == (1.0, True)


def test_seeds_without_a_value_are_left_out():
    holes = [A[0], math.nan, *A[1:], math.inf]
    assert statistics.rank_sum(holes, B) == statistics.rank_sum(A, B)
    assert statistics.summary(holes) == statistics.summary(A)
    p, _ = statistics.rank_sum([math.nan], B)
    assert math.isnan(p)


# -------------------------------------------------------------------------------------- correction

P = [0.01, 0.04, 0.03, 0.005, 0.2, 0.04]


def test_corrections_equal_statsmodels():
    # statsmodels.stats.multitest.multipletests(P, method=...)[1]
    np.testing.assert_allclose(statistics.holm(P), [0.05, 0.12, 0.12, 0.03, 0.2, 0.12])
    np.testing.assert_allclose(statistics.bonferroni(P), [0.06, 0.24, 0.18, 0.03, 1.0, 0.24])


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=10))
def test_holm_is_never_weaker_than_bonferroni_and_keeps_the_order(p):
    holm, bonferroni = statistics.holm(p), statistics.bonferroni(p)
    assert (holm <= bonferroni + 1e-12).all()
    assert (holm >= np.array(p) - 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(holm[order]) >= -1e-12).all()


def test_planned_comparisons_count_before_they_are_made():
    """Correct two p-values of a family of ten as if the other eight were 1."""
    p, planned = [0.001, 0.004], [0.001, 0.004, *8 * [1.0]]
    np.testing.assert_allclose(statistics.bonferroni(p, 10), statistics.bonferroni(planned)[:2])
    np.testing.assert_allclose(statistics.holm(p, 10), statistics.holm(planned)[:2])
    np.testing.assert_allclose(statistics.holm(p, 1), statistics.holm(p))  # more made than planned


def test_what_could_not_be_tested_is_not_counted():
    np.testing.assert_allclose(statistics.bonferroni([0.1, math.nan, 0.2]), [0.2, math.nan, 0.4])
    np.testing.assert_allclose(statistics.holm([0.1, math.nan, 0.2]), [0.2, math.nan, 0.2])


# ------------------------------------------------------------------------------ effects, summaries


def test_superiority_by_hand():
    assert statistics.superiority([1, 2], [0]) == 1.0
    assert statistics.superiority([1, 2], [2]) == 0.25
    assert statistics.superiority(A, B) == pytest.approx(
        stats.mannwhitneyu(A, B).statistic / (len(A) * len(B))
    )


@given(samples, samples)
def test_superiority_of_one_is_inferiority_of_the_other(first, second):
    total = statistics.superiority(first, second) + statistics.superiority(second, first)
    assert total == pytest.approx(1.0)


def test_interquartile_mean():
    assert statistics.interquartile_mean([0, 1, 2, 100]) == pytest.approx(1.5)
    assert statistics.interquartile_mean(A) == pytest.approx(stats.trim_mean(A, 0.25))
    # Of six values a quarter is one and a half: half of the second and of the fifth count.
    assert statistics.interquartile_mean([0, 10, 20, 30, 40, 99]) == pytest.approx(
        (0.5 * 10 + 20 + 30 + 0.5 * 40) / 3
    )
    assert statistics.interquartile_mean([7.0]) == 7.0


def test_quartiles_are_numpys():
    described = statistics.summary(A)
    assert described.seeds == 8
    assert (described.lower, described.median, described.upper) == tuple(
        np.quantile(A, (0.25, 0.5, 0.75))
    )


def test_the_bootstrap_interval_covers_as_often_as_it_says():
    """Of 200 samples of 15 normal numbers the interval holds the true centre 19 in 20 times."""
    rng = np.random.default_rng(1)
    inside = 0
    for i in range(200):
        low, high = statistics.bootstrap_interval(rng.normal(5.0, 2.0, 15), seed=i)
        inside += low <= 5.0 <= high
    assert 170 <= inside <= 198


def test_the_interval_is_the_same_every_time():
    assert statistics.bootstrap_interval(A) == statistics.bootstrap_interval(list(A))


def compared(
    tasks: dict[str, dict[str, list[float]]], family_of=lambda name: "", intended=()
) -> list[statistics.Corrected]:
    """Return the corrected comparisons of the algorithm "a" with all others, on all tasks."""
    pairs = [
        (task, statistics.compare(values, "a", name))
        for task, values in tasks.items()
        for name in values
        if name != "a"
    ]
    return statistics.correct(pairs, family_of, intended)


def test_comparisons_of_one_algorithm_over_all_tasks_are_one_family():
    found = compared({"x": {"a": A, "b": B, "c": [x + 0.05 for x in A]}, "y": {"b": B, "a": A}})
    assert [(e.task, *e.comparison[:2]) for e in found] == [
        ("x", "a", "b"),
        ("x", "a", "c"),
        ("y", "a", "b"),
    ]
    assert [entry.family for entry in found] == [3, 3, 3]
    for entry in found:
        assert entry.bonferroni == pytest.approx(min(3 * entry.comparison.p, 1.0))
        assert entry.comparison.smallest == pytest.approx(2 / math.comb(16, 8))
    p = [entry.comparison.p for entry in found]
    np.testing.assert_allclose([entry.holm for entry in found], statistics.holm(p))
    assert found[0].comparison.superiority > 0.9


def test_what_cannot_be_compared_is_not_in_the_family():
    one, nothing = compared({"x": {"a": A, "b": B}, "z": {"a": A, "b": [math.nan]}})
    assert one.bonferroni == one.comparison.p
    assert [one.family, nothing.family] == [1, 1]
    assert math.isnan(nothing.bonferroni)


def test_intended_comparisons_and_those_beyond_the_plan_count_once_each():
    intended = {("x", "b"), ("x", "c"), ("y", "b")}  # of which only one is made, and another one
    found = compared({"x": {"a": A, "b": B, "z": B}}, intended=intended)
    assert [entry.family for entry in found] == [4, 4]
    assert found[0].bonferroni == pytest.approx(4 * found[0].comparison.p)


def test_families_are_corrected_apart():
    found = compared(
        {"x": {"a": A, "b": B, "c": B, "d": B}, "y": {"a": A, "b": B}},
        lambda name: "two" if name == "d" else "one",
    )
    assert [(e.comparison.second, e.kind, e.family) for e in found] == [
        ("b", "one", 3),
        ("c", "one", 3),
        ("d", "two", 1),
        ("b", "one", 3),
    ]
    p = found[0].comparison.p
    assert [e.bonferroni for e in found] == pytest.approx([3 * p, 3 * p, p, 3 * p])
