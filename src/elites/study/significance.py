"""Statistical tests of a report, as HTML, and the families that p-values are corrected for."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from elites.names import short_name
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study import statistics
from elites.study.comparison import comparison_point
from elites.study.groups import Group, Results
from elites.study.markup import escaped, p_text, table
from elites.study.plan import ABLATIONS, BASELINES, Plan
from elites.words import counted, listed

REFERENCE = "dcg_me"
LEVEL = 0.05  # of significance
PAPER, OTHERS = "the algorithms of the paper", "the other algorithms"


def family_of(reference: str, name: str) -> str:
    """Return the family of the comparison of the reference with another algorithm.

    The paper's comparisons of DCG-MAP-Elites with its baselines and ablations are one family. Its
    comparisons with all other algorithms answer another question, so they are a second one. If the
    reference is another algorithm, there is one family.
    """
    paper = reference == REFERENCE and name in (*BASELINES, *ABLATIONS)
    return PAPER if paper else OTHERS


class Test(NamedTuple):
    """Rank-sum test of two algorithms on a task by one metric."""

    task: str
    comparison: statistics.Comparison
    evaluations: float | None  # after which they are compared, or None at the end of training
    first: np.ndarray  # [seeds] values of the first algorithm
    second: np.ndarray  # [seeds] values of the second algorithm

    @property
    def after(self) -> str:
        """Number of evaluations after which the algorithms are compared, as text."""
        return "the end" if self.evaluations is None else f"{self.evaluations:,.0f}"


def tested(first: Group, second: Group, metric: str) -> Test | None:
    """Return the test of two algorithms on a task, or None if one of them has no values.

    They are compared after the most evaluations that both have, so an algorithm that was stopped
    early does not shorten the comparisons of the others.
    """
    point = comparison_point([first, second])
    values = {} if point is None else point.values.get(metric, {})
    if point is None or first.label not in values or second.label not in values:
        return None
    comparison = statistics.compare(values, first.label, second.label)
    return Test(
        first.task, comparison, point.evaluations, values[first.label], values[second.label]
    )


def intended_comparisons(plan: Plan, results: Results, reference: str) -> set[tuple[str, str]]:
    """Return the task and the algorithm of each comparison with the reference.

    These are the comparisons that the plan has, and those that can be made beyond it. P-values are
    corrected for all of them, at whatever number of evaluations they are tested.
    """
    planned = {(short_name(task), short_name(name)) for task, name in plan.pairs()}
    begun = {(group.task, group.label) for group in results.groups if group.curves}
    return {(task, name) for task, name in planned | begun if name != reference}


class Tests:
    """Rank-sum tests of the reference algorithm against every other algorithm, over all tasks.

    The reference is DCG-MAP-Elites, as in the paper. If the plan does not have it, the reference is
    the plan's first algorithm.
    """

    def __init__(self, plan: Plan, results: Results):
        names = [short_name(algorithm) for _, algorithm in plan.pairs()]
        self.reference = REFERENCE if REFERENCE in names else names[0]
        self._results = results
        self._intended = intended_comparisons(plan, results, self.reference)
        self._families = {metric: self._tested(metric) for metric, _ in ARCHIVE_METRICS}

    def _tested(self, metric: str) -> list[tuple[Test, statistics.Corrected]]:
        """Return the tests of the reference against all others by one metric, corrected."""
        found = []
        for task in self._results.tasks:
            groups = self._results.of(task)
            reference = [group for group in groups if group.label == self.reference]
            found += [tested(a, b, metric) for a in reference for b in groups if b is not a]
        return corrected([test for test in found if test is not None], self._intended)

    def section(self, task: str) -> str:
        """Return the HTML of the tests on one task.

        Returns an empty string if the task has only one algorithm.
        """
        parts = [self._metric(task, metric, title) for metric, title in ARCHIVE_METRICS]
        if not any(parts):
            return ""
        name = escaped(self.reference)
        why = "" if self.reference == REFERENCE else ", the first algorithm of the plan,"
        return (
            f"<h3>Rank-sum tests</h3><p>Two-sided p-values of Wilcoxon's "
            f"rank-sum test: {name}{why} against each other algorithm, after the most evaluations "
            f"that both have. Bonferroni and Holm correct for all planned comparisons of {name} in "
            f"a family by the same metric, over all tasks. “{name} above” is the probability that "
            f"a seed of {name} has a higher value than one of the other algorithm. Ties count "
            f"half.</p>{''.join(parts)}"
        )

    def _metric(self, task: str, metric: str, title: str) -> str:
        """Return the HTML of the tests of one metric on one task.

        Returns an empty string if there are no comparisons.
        """
        found = [entry for entry in self._families[metric] if entry[0].task == task]
        groups = [g for g in self._results.of(task) if g.label != self.reference]
        others = [tested(a, b, metric) for a, b in itertools.combinations(groups, 2)]
        uncorrected = [test for test in others if test is not None]
        if not found and not uncorrected:
            return ""
        parts = [f"<h4>{escaped(title)}</h4>"]
        if found:
            header = [f"{self.reference} against", "p", "Bonferroni", "Holm", "smallest p possible",
                      f"{self.reference} above", "p is", "after"]  # fmt: skip
            rows = [
                [c.second, p_text(c.p), p_text(t.bonferroni), p_text(t.holm), p_text(c.smallest),
                 f"{c.superiority:.2f}", "exact" if c.exact else "approximate", test.after]
                for test, t in found
                for c in [t.comparison]
            ]  # fmt: skip
            parts += [*self._family_notes(metric), table(header, rows)]
            parts += _too_few([entry for _, entry in found])
        if uncorrected:
            header = ["first", "second", "p", "smallest p possible", "first above second", "p is",
                      "after"]  # fmt: skip
            rows = [
                [c.first, c.second, p_text(c.p), p_text(c.smallest), f"{c.superiority:.2f}",
                 "exact" if c.exact else "approximate", test.after]
                for test in uncorrected
                for c in [test.comparison]
            ]  # fmt: skip
            parts.append(
                f"<details><summary>Other pairs, not corrected</summary>"
                f"{table(header, rows, words=True)}</details>"
            )
        return "".join(parts)

    def _family_notes(self, metric: str) -> list[str]:
        """Return the HTML of notes on how many comparisons the p-values are corrected for."""
        found = [entry for _, entry in self._families[metric]]
        kinds = list(dict.fromkeys(entry.kind for entry in found))
        notes = []
        for kind in kinds:
            mine = [entry for entry in found if entry.kind == kind]
            tasks = counted(len({entry.task for entry in mine}), "task")
            against = "the others" if len(kinds) == 1 else kind
            size = mine[0].family
            made = "" if len(mine) == size else f", of which {len(mine)} can be made so far"
            notes.append(
                f"<p>Corrected for {counted(size, 'comparison')}{made}: "
                f"{escaped(self.reference)} against {against} on {tasks}.</p>"
            )
        return notes


def corrected(
    tests: Sequence[Test], intended: Collection[tuple[str, str]]
) -> list[tuple[Test, statistics.Corrected]]:
    """Return tests of one algorithm against others by one metric, with their corrected p-values.

    `intended` has all comparisons to correct for, as `intended_comparisons` returns them.
    """
    reference = tests[0].comparison.first if tests else ""
    found = statistics.correct(
        [(test.task, test.comparison) for test in tests],
        lambda name: family_of(reference, name),
        intended,
    )
    return list(zip(tests, found, strict=True))


def _too_few(found: Sequence[statistics.Corrected]) -> list[str]:
    """Return the HTML of a note on the comparisons that cannot be significant with so few seeds.

    `found` are the corrected comparisons of one metric on one task. Returns an empty list if there
    are no such comparisons.
    """
    few = [entry for entry in found if entry.least > LEVEL]
    if not few:
        return []
    names = escaped(listed([entry.comparison.second for entry in few]))
    who = "" if len(few) == len(found) else f" about {names}"
    least = min(entry.least for entry in few)
    return [
        f"<p><strong>Too few seeds to tell</strong>{who}: after Bonferroni's correction, "
        f"p can be no smaller than {p_text(least)}.</p>"
    ]
