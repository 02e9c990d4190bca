"""Statistical tests of a report, as HTML, and the families that p-values are corrected for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from elites.names import short_name
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study import statistics
from elites.study.comparison import Point
from elites.study.markup import escaped, p_text, table
from elites.study.plan import ABLATIONS, BASELINES, Plan
from elites.words import counted

REFERENCE = "dcg_me"
PAPER, OTHERS = "the algorithms of the paper", "the other algorithms"


def family_of(reference: str, name: str) -> str:
    """Return the family of the comparison of the reference with another algorithm.

    The paper's comparisons of DCG-MAP-Elites with its baselines and ablations are one family. Its
    comparisons with all other algorithms answer another question, so they are a second one. If the
    reference is another algorithm, there is one family.
    """
    paper = reference == REFERENCE and name in (*BASELINES, *ABLATIONS)
    return PAPER if paper else OTHERS


class Tests:
    """Rank-sum tests of the reference algorithm against every other algorithm, over all tasks.

    The reference is DCG-MAP-Elites, as in the paper. If the plan does not have it, the reference is
    the plan's first algorithm.
    """

    def __init__(self, plan: Plan, points: dict[str, Point]):
        first = short_name(plan.algorithms[0])
        self.reference = REFERENCE if REFERENCE in plan.algorithms else first
        self._families = {
            metric: statistics.compare_with(
                self.reference,
                {task: point.values.get(metric, {}) for task, point in points.items()},
                lambda name: family_of(self.reference, name),
            )
            for metric, _ in ARCHIVE_METRICS
        }

    def section(self, task: str, point: Point) -> str:
        """Return the HTML of the tests on one task.

        Returns an empty string if the task has only one algorithm.
        """
        parts = [
            self._metric(task, title, self._families[metric], point.values.get(metric, {}))
            for metric, title in ARCHIVE_METRICS
        ]
        if not any(parts):
            return ""
        name = escaped(self.reference)
        why = "" if self.reference == REFERENCE else ", the first algorithm of the plan,"
        return (
            f"<h3>Rank-sum tests {escaped(point.text)}</h3><p>Two-sided p-values of Wilcoxon's "
            f"rank-sum test: {name}{why} against each other algorithm. Bonferroni and Holm correct "
            f"for all comparisons of {name} in a family by the same metric, over all tasks. "
            f"“{name} above” is the probability that a seed of {name} has a higher value than one "
            f"of the other algorithm. Ties count half.</p>{''.join(parts)}"
        )

    def _metric(
        self,
        task: str,
        title: str,
        family: dict[str, list[statistics.Corrected]],
        values: dict[str, np.ndarray],
    ) -> str:
        """Return the HTML of the tests of one metric on one task.

        `family` has the corrected comparisons, keyed by task, and `values` the metric [seeds],
        keyed by algorithm. Returns an empty string if there are no comparisons.
        """
        found, others = family[task], statistics.compare_others(self.reference, values)
        if not found and not others:
            return ""
        parts = [f"<h4>{escaped(title)}</h4>"]
        if found:
            header = [f"{self.reference} against", "p", "Bonferroni", "Holm", "smallest p possible",
                      f"{self.reference} above", "p is"]  # fmt: skip
            rows = [
                [c.second, p_text(c.p), p_text(t.bonferroni), p_text(t.holm), p_text(c.smallest),
                 f"{c.superiority:.2f}", "exact" if c.exact else "approximate"]
                for t in found
                for c in [t.comparison]
            ]  # fmt: skip
            parts += [*self._family_notes(family), table(header, rows), *_too_few(found)]
        if others:
            header = ["first", "second", "p", "smallest p possible", "first above second", "p is"]
            rows = [
                [c.first, c.second, p_text(c.p), p_text(c.smallest), f"{c.superiority:.2f}",
                 "exact" if c.exact else "approximate"]
                for c in others
            ]  # fmt: skip
            parts.append(
                f"<details><summary>Other pairs, not corrected</summary>"
                f"{table(header, rows, words=True)}</details>"
            )
        return "".join(parts)

    def _family_notes(self, families: dict[str, list[statistics.Corrected]]) -> list[str]:
        """Return the HTML of notes on how many comparisons the p-values are corrected for."""
        found = [entry for entries in families.values() for entry in entries]
        kinds = list(dict.fromkeys(entry.kind for entry in found))
        notes = []
        for kind in kinds:
            mine = [entry for entry in found if entry.kind == kind]
            tasks = counted(len({entry.task for entry in mine}), "task")
            against = "the others" if len(kinds) == 1 else kind
            notes.append(
                f"<p>Corrected for {counted(mine[0].family, 'comparison')}: "
                f"{escaped(self.reference)} against {against} on {tasks}.</p>"
            )
        return notes


def _too_few(found: Sequence[statistics.Corrected]) -> list[str]:
    """Return the HTML of warnings if no test of a family can be significant with so few seeds.

    `found` are the corrected comparisons of one metric on one task.
    """
    warnings = []
    for kind in dict.fromkeys(entry.kind for entry in found):
        mine = [entry for entry in found if entry.kind == kind]
        least = max(entry.comparison.smallest for entry in mine)
        corrected = min(least * mine[0].family, 1.0)
        if corrected > 0.05:
            warnings.append(
                "<p><strong>Too few seeds to tell:</strong> the smallest possible p-value is "
                f"{p_text(least)}, or {p_text(corrected)} after correction.</p>"
            )
    return warnings
