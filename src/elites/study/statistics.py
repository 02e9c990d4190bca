"""Statistics over seeds: the paper's tests, and what an honest reader asks for beside them.

The paper compares algorithms by the Wilcoxon rank-sum test with Bonferroni's correction. Beside the
p-values stand Holm's correction, which is never weaker; the smallest p-value that so few seeds can
reach at all; and an effect size, for a p-value does not say how much. Medians and quartiles are the
paper's; the interquartile mean with its bootstrap interval uses more of few seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

RESAMPLES = 5000


class Summary(NamedTuple):
    """One metric of one algorithm over its seeds."""

    seeds: int
    median: float
    lower: float  # quartiles
    upper: float
    interquartile_mean: float
    interval: tuple[float, float]  # of that mean: 95 %, by bootstrap


class Comparison(NamedTuple):
    """Two algorithms compared by one metric."""

    first: str
    second: str
    p: float  # two-sided rank-sum
    bonferroni: float
    holm: float
    smallest: float  # p that these numbers of seeds can reach at all
    superiority: float  # how often a seed of the first beats one of the second; ties count half
    exact: bool  # whether p was counted, not approximated


def _finite(values: Sequence[float] | np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64)
    return values[np.isfinite(values)]


# ------------------------------------------------------------------------------------- describing


def summary(values: Sequence[float] | np.ndarray) -> Summary:
    """Of values of any number of seeds; those that are not finite are left out."""
    values = _finite(values)
    if not len(values):
        nan = math.nan
        return Summary(0, nan, nan, nan, nan, (nan, nan))
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
    return Summary(
        len(values), float(median), float(lower), float(upper), interquartile_mean(values),
        bootstrap_interval(values),
    )  # fmt: skip


def interquartile_mean(values: Sequence[float] | np.ndarray) -> float:
    """The mean without the lowest and the highest quarter.

    A quarter that is not a whole number of values leaves out a part of one, so that no seed's
    weight jumps when another is added.
    """
    return float(_interquartile_means(_finite(values)[None])[0])


def _interquartile_means(rows: np.ndarray) -> np.ndarray:
    """Of each row [., n]."""
    edges = np.arange(rows.shape[1] + 1) / rows.shape[1]
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return np.sort(rows, axis=1) @ (weights / weights.sum())


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentiles of the interquartile mean over resampled seeds; always the same resamples."""
    values = _finite(values)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    means = _interquartile_means(values[drawn])
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


# -------------------------------------------------------------------------------------- comparing


def rank_sum(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    side: Literal["two-sided", "greater", "less"] = "two-sided",
) -> tuple[float, bool]:
    """The p-value of Wilcoxon's rank-sum test (Mann and Whitney's U), and whether it is exact.

    Up to a hundred values all divisions of their ranks are counted, ties sharing ranks; beyond, the
    normal approximation, corrected for ties.
    """
    first, second = _finite(first), _finite(second)
    if not len(first) or not len(second):
        return math.nan, True
    if len(first) + len(second) > 100:
        result = stats.mannwhitneyu(first, second, alternative=side, method="asymptotic")
        return float(min(result.pvalue, 1.0)), False
    # Twice the rank is whole, also where ties share the mean of their ranks.
    ranks = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(int)
    observed = int(ranks[: len(first)].sum())
    counts = _counts_of_sums(ranks, len(first))
    sums = np.arange(len(counts))
    middle = len(first) * (len(ranks) + 1)
    extreme = {
        "two-sided": np.abs(sums - middle) >= abs(observed - middle),
        "greater": sums >= observed,
        "less": sums <= observed,
    }[side]
    return float(counts[extreme].sum() / counts.sum()), True


def _counts_of_sums(ranks: np.ndarray, size: int) -> np.ndarray:
    """How many choices of `size` of the ranks have each sum."""
    table = np.zeros((size + 1, int(ranks.sum()) + 1))
    table[0, 0] = 1.0
    for rank in ranks:
        for chosen in range(size, 0, -1):
            table[chosen, rank:] += table[chosen - 1, : table.shape[1] - rank]
    return table[size]


def smallest_p(first: int, second: int) -> float:
    """The smallest two-sided p-value that samples of these sizes can give."""
    if min(first, second) < 1:
        return 1.0
    return min(1.0, 2.0 / math.comb(first + second, first))


def superiority(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """How probably a seed of the first is better, ties counted half (Vargha and Delaney's A)."""
    first, second = _finite(first), _finite(second)
    if not len(first) or not len(second):
        return math.nan
    above = (first[:, None] > second[None]).mean()
    return float(above + 0.5 * (first[:, None] == second[None]).mean())


def bonferroni(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Each p-value times their number."""
    p = np.asarray(p, np.float64)
    return np.minimum(p * np.count_nonzero(~np.isnan(p)), 1.0)


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down correction: the smallest times their number, the next times one less..."""
    p = np.asarray(p, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected = np.full_like(p, np.nan)
    factors = len(order) - np.arange(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected


def compare(values: Mapping[str, Sequence[float] | np.ndarray]) -> list[Comparison]:
    """Every pair of algorithms; one family for the corrections."""
    pairs = list(itertools.combinations(values, 2))
    tests = [rank_sum(values[a], values[b]) for a, b in pairs]
    p = [p for p, _ in tests]
    return [
        Comparison(
            a, b, p[i], float(by_bonferroni), float(by_holm),
            smallest_p(len(_finite(values[a])), len(_finite(values[b]))),
            superiority(values[a], values[b]), tests[i][1],
        )
        for i, ((a, b), by_bonferroni, by_holm) in enumerate(
            zip(pairs, bonferroni(p), holm(p), strict=True)
        )
    ]  # fmt: skip
