"""Statistics over seeds: the paper's tests, with effect sizes and bootstrap intervals.

The paper compares algorithms by the Wilcoxon rank-sum test with Bonferroni's correction. For one
metric, the comparisons of one algorithm with every other over all tasks are a family, or several
families if there are algorithms for different questions. The correction multiplies by the size of
the family. Each comparison also has

- Holm's correction, which is never less powerful,
- the smallest p-value that its numbers of seeds, and ties among them, allow,
- an effect size.

The paper reports medians and quartiles. The interquartile mean with its bootstrap interval makes
better use of few seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

RESAMPLES = 5000
Values = Sequence[float] | np.ndarray


class Summary(NamedTuple):
    """Summary of one metric of one algorithm over its seeds."""

    seeds: int
    median: float
    lower: float  # first quartile
    upper: float  # third quartile
    interquartile_mean: float
    interval: tuple[float, float]  # 95 % bootstrap interval of the interquartile mean


class Comparison(NamedTuple):
    """Result of comparing two algorithms by one metric on one task."""

    first: str
    second: str
    p: float  # of the two-sided rank-sum test
    smallest: float  # the smallest p that these seeds could have given, see `smallest_p`
    superiority: float  # probability that a seed of the first is above one of the second
    exact: bool  # whether p is exact; otherwise it is a normal approximation


class Corrected(NamedTuple):
    """Comparison of the reference with another algorithm, with corrected p-values.

    The correction is for all comparisons of the reference in the same family by the same metric,
    over all tasks.
    """

    task: str
    comparison: Comparison
    bonferroni: float
    holm: float
    family: int  # number of comparisons corrected for
    kind: str = ""  # name of the family

    @property
    def least(self) -> float:
        """Smallest p-value that these seeds could have given, after Bonferroni's correction."""
        return min(1.0, self.family * self.comparison.smallest)


def _finite(values: Values) -> np.ndarray:
    """Return the finite values as an array of 64-bit floats."""
    values = np.asarray(values, np.float64)
    return values[np.isfinite(values)]


# ------------------------------------------------------------------------------------- describing


def summary(values: Values) -> Summary:
    """Return a summary of a metric over seeds: median, quartiles, interquartile mean and others.

    `values` has one value for each seed. Values that are not finite are left out. The summary of no
    values is NaN.
    """
    values = _finite(values)
    if not len(values):
        nan = math.nan
        return Summary(0, nan, nan, nan, nan, (nan, nan))
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
    return Summary(
        len(values), float(median), float(lower), float(upper), interquartile_mean(values),
        bootstrap_interval(values),
    )  # fmt: skip


def interquartile_mean(values: Values) -> float:
    """Return the mean of the middle half of the values.

    If a quarter is not a whole number of values, the value at its edge counts in part.
    """
    return float(_interquartile_means(_finite(values)[None])[0])


def _interquartile_means(rows: np.ndarray) -> np.ndarray:
    """Return the interquartile means [m] of the rows of an array [m, n]."""
    edges = np.arange(rows.shape[1] + 1) / rows.shape[1]
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return np.sort(rows, axis=1) @ (weights / weights.sum())


def bootstrap_interval(values: Values, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the lower and upper bound of a confidence interval of the interquartile mean.

    It is the percentile bootstrap interval over seeds, at the confidence level `level`. The random
    generator has a fixed seed, so the same values always give the same interval.
    """
    values = _finite(values)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    means = _interquartile_means(values[drawn])
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    return float(low), float(high)


# -------------------------------------------------------------------------------------- comparing


def rank_sum(
    first: Values,
    second: Values,
    side: Literal["two-sided", "greater", "less"] = "two-sided",
) -> tuple[float, bool]:
    """Return the p-value of the Wilcoxon rank-sum test (Mann-Whitney U), and whether it is exact.

    Up to 100 values, the test is exact: it counts all divisions of the ranks, and tied values share
    their mean rank. For more values, it uses the normal approximation, corrected for ties.
    """
    first, second = _finite(first), _finite(second)
    if not len(first) or not len(second):
        return math.nan, True
    if len(first) + len(second) > 100:
        result = stats.mannwhitneyu(first, second, alternative=side, method="asymptotic")
        return float(min(result.pvalue, 1.0)), False
    found = _Ranks.of(first, second)
    extreme = {
        "two-sided": found.distances >= abs(found.observed - found.middle),
        "greater": found.sums >= found.observed,
        "less": found.sums <= found.observed,
    }[side]
    return float(found.counts[extreme].sum() / found.counts.sum()), True


class _Ranks(NamedTuple):
    """Distribution of the rank sum of a sample, over all divisions of the ranks of two samples.

    Ranks are doubled, so that they are whole numbers even if tied values share a mean rank.
    """

    observed: int  # rank sum of the first sample
    middle: int  # mean of the distribution
    counts: np.ndarray  # [n] number of divisions with each sum

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray) -> _Ranks:
        """Return the distribution for two samples of finite values."""
        ranks = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(int)
        observed = int(ranks[: len(first)].sum())
        return cls(observed, len(first) * (len(ranks) + 1), _counts_of_sums(ranks, len(first)))

    @property
    def sums(self) -> np.ndarray:
        """All sums [n] up to the largest one."""
        return np.arange(len(self.counts))

    @property
    def distances(self) -> np.ndarray:
        """Distances [n] of the sums from their mean."""
        return np.abs(self.sums - self.middle)


def _counts_of_sums(ranks: np.ndarray, size: int) -> np.ndarray:
    """Return an array in which entry s is the number of ways to choose `size` ranks with sum s."""
    table = np.zeros((size + 1, int(ranks.sum()) + 1))
    table[0, 0] = 1.0
    for rank in ranks:
        for chosen in range(size, 0, -1):
            table[chosen, rank:] += table[chosen - 1, : table.shape[1] - rank]
    return table[size]


def smallest_p(first: Values, second: Values) -> float:
    """Return the smallest two-sided rank-sum p-value that values like these could have given.

    It is that of the division of all values into samples of the same sizes that is most extreme.
    Without ties it depends on the sizes alone. Returns 1 if a sample has no finite values.
    """
    first, second = _finite(first), _finite(second)
    if not len(first) or not len(second):
        return 1.0
    if len(first) + len(second) > 100:  # far below any level of significance
        return min(1.0, 2.0 / math.comb(len(first) + len(second), len(first)))
    found = _Ranks.of(first, second)
    possible = found.counts > 0
    extreme = possible & (found.distances == found.distances[possible].max())
    return float(found.counts[extreme].sum() / found.counts.sum())


def superiority(first: Values, second: Values) -> float:
    """Return the probability that a value of `first` is greater than a value of `second`.

    Ties count half. This is the effect size A of Vargha and Delaney. Returns NaN if `first` or
    `second` has no finite values.
    """
    first, second = _finite(first), _finite(second)
    if not len(first) or not len(second):
        return math.nan
    above = (first[:, None] > second[None]).mean()
    return float(above + 0.5 * (first[:, None] == second[None]).mean())


def bonferroni(p: Values, family: int = 0) -> np.ndarray:
    """Return p-values after Bonferroni's correction: each multiplied by their number, at most 1.

    A p-value of NaN stays NaN and does not count. `family` is the number of planned comparisons, if
    more are planned than there are p-values.
    """
    p = np.asarray(p, np.float64)
    return np.minimum(p * max(np.count_nonzero(~np.isnan(p)), family), 1.0)


def holm(p: Values, family: int = 0) -> np.ndarray:
    """Return p-values after Holm's step-down correction, each at most 1.

    The smallest of n p-values is multiplied by n, the next one by n - 1, and so on. A p-value of
    NaN stays NaN and does not count. `family` is the number of planned comparisons, if more are
    planned than there are p-values. It then takes the place of n.
    """
    p = np.asarray(p, np.float64)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected = np.full_like(p, np.nan)
    factors = max(len(order), family) - np.arange(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return corrected


def compare(values: Mapping[str, Values], first: str, second: str) -> Comparison:
    """Return the comparison of two algorithms by one metric on one task.

    `values` maps the names of algorithms to the metric's values over seeds.
    """
    a, b = values[first], values[second]
    p, exact = rank_sum(a, b)
    return Comparison(first, second, p, smallest_p(a, b), superiority(a, b), exact)


def correct(
    found: Sequence[tuple[str, Comparison]],
    family_of: Callable[[str], str] = lambda name: "",
    intended: Collection[tuple[str, str]] = (),
) -> list[Corrected]:
    """Return comparisons by one metric, pairs of task and comparison, with corrected p-values.

    The p-values are corrected for all comparisons of a family, over all tasks together.
    `family_of` returns the name of the family for the second algorithm of a comparison. A
    comparison without values on one side is not counted.

    `intended` are the tasks and second algorithms of all comparisons that are to be made, now or
    later. They count too, so that p-values do not grow as these results arrive.
    """
    kinds = [family_of(comparison.second) for _, comparison in found]
    made = {(task, c.second) for task, c in found if not math.isnan(c.p)}
    sizes = Counter(family_of(name) for _, name in made | set(intended))
    corrected: dict[int, Corrected] = {}
    for kind in dict.fromkeys(kinds):
        places = [i for i, other in enumerate(kinds) if other == kind]
        p = [found[i][1].p for i in places]
        size = sizes[kind]
        for i, by_bonferroni, by_holm in zip(
            places, bonferroni(p, size), holm(p, size), strict=True
        ):
            corrected[i] = Corrected(*found[i], float(by_bonferroni), float(by_holm), size, kind)
    return [corrected[i] for i in range(len(found))]
