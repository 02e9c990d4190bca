"""Recorded results that the results page shows, and what the paper published."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.study.collect import collect
from elites.study.groups import NEAR, Group, Results
from elites.study.recorded import Folder, Recording
from elites.study.report import PUBLISHED
from elites.study.significance import REFERENCE, Test, intended_comparisons, tested

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "results"
STRONGEST = "pga_me"
"""The strongest baseline of the paper, with which the related work is compared."""
EARLY, SHORT, FULL = 89_856, 128_000, 1_000_000
"""Budgets beside that of the plan.

These are one that most seeds have reached, that of the preset `short`, and the paper's.
"""
TITLES = {
    "ant_omni": "Ant-Omni",
    "anttrap_omni": "AntTrap-Omni",
    "hexapod_omni": "Hexapod-Omni",
    "walker_uni": "Walker-Uni",
}
ANTS = ("ant_omni", "anttrap_omni")
PAPER_METRICS = (  # title, metric, index in PUBLISHED, divisor
    ("QD-score of the archive, 1e5", "qd_score", 0, 1e5),
    ("coverage, %", "coverage", None, 0.01),
    ("maximum fitness", "max_fitness", None, 1.0),
    ("QD-score of the distilled policy, 1e5", "actor_qd_score", 1, 1e5),
    ("descriptor error of the archive", "descriptor_error", 2, 1.0),
    ("descriptor error of the policy", "actor_descriptor_error", 3, 1.0),
)
RELEASED = (  # one seed of the code released with the paper: QD-score in 1e5, coverage in %
    ("ant_omni", "dcg_me", 400, 3.7, 40),
    ("ant_omni", "pga_me", 250, 1.1, 15),
    ("anttrap_omni", "dcg_me", 140, 1.08, 14),
    ("hexapod_omni", "dcg_me", 150, 1.5, 27),
    ("walker_uni", "dcg_me", 130, 6.9, 74),
)


MISSING = "not run yet"
MORE = 1.1
"""Factor of evaluations above a smaller budget from which on algorithms are compared again."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(label: str) -> str:
    """Return the label of an algorithm with its name as code: `dcrl_me`, discount 0.9."""
    name, comma, settings = label.partition(",")
    return f"`{name}`{comma}{settings}"


class Data(NamedTuple):
    """Recorded results up to several budgets."""

    recordings: list[Recording]
    early: Results
    short: Results
    planned: Results
    full: Results
    related: Results  # up to the plan's budget, in the order of related.toml
    related_early: Results
    intended: set[tuple[str, str]]  # comparisons with `dcg_me` that p-values are corrected for
    related_intended: set[tuple[str, str]]  # the same with `pga_me`, for the related work


def levels(data: Data) -> list[tuple[Results, int]]:
    """Return the results for each budget, and the budget of the one before.

    Comparisons that have no more evaluations than those before are not repeated.
    """
    return [(data.early, 0), (data.planned, EARLY), (data.full, planned_budget(data))]


def planned_budget(data: Data) -> int:
    """Return the largest budget of the plan, in evaluations."""
    return max(budget for group in data.planned.groups for budget in group.budgets)


def compared(data: Data, task: str) -> list[Group]:
    """Return the groups of the comparison on a task, without those of the related work."""
    related = {g.label for g in data.related.groups if g.planned}
    return [g for g in data.planned.of(task) if g.planned or g.label not in related]


def labels(data: Data) -> list[str]:
    """Return the labels of the comparison, in the order that gives each its colour in figures."""
    found = [group for task in TITLES for group in compared(data, task)]
    return list(dict.fromkeys(group.label for group in sorted(found, key=lambda g: not g.planned)))


@functools.cache
def read(folder: Path = FOLDER) -> Data:
    """Read all recorded tables of a folder. Raises a ValueError if one is damaged."""
    problems: list[str] = []
    recordings = Folder(folder).read(problems)
    sources = {
        "early": Folder(folder, evaluations=EARLY),
        "short": Folder(folder, evaluations=SHORT),
        "planned": Folder(folder),
        "full": Folder(folder, evaluations=FULL),
        "related": Folder(folder, file="related.toml"),
        "related_early": Folder(folder, file="related.toml", evaluations=EARLY),
    }
    results = {name: collect(source) for name, source in sources.items()}
    problems += [text for found in results.values() for text in found.problems]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    plan, related = Folder(folder).plan(), sources["related"].plan()
    planned = intended_comparisons(plan, results["planned"], REFERENCE)
    also = intended_comparisons(related, Results([], []), REFERENCE)
    strongest = Results([g for g in results["related"].groups if g.planned], [])
    return Data(
        recordings,
        intended=planned | also,
        related_intended=intended_comparisons(related, strongest, STRONGEST),
        **results,
    )


def published(task: str, index: int) -> float:
    """Return a median that the paper published for DCG-MAP-Elites on a task."""
    return PUBLISHED[task][index]


def last(group: Group) -> int:
    """Return the number of evaluations that the seeds of a group have reached."""
    return int(group.curves["evaluations"][-1, 0])


def reached(group: Group, budget: int) -> str:
    """Return the number of evaluations of a group as text, and the budget if it has fewer."""
    end = last(group)
    return f"{end:,}" if end >= budget * (1 - NEAR) else f"{end:,} of {budget:,}"


def seed_columns(recordings: Iterable[Recording]) -> dict[tuple[str, int], tuple[Recording, int]]:
    """Return the table of each seed and its column there, keyed by source and number of the seed.

    If several tables have a seed, this is the longest one.
    """
    found: dict[tuple[str, int], tuple[Recording, int]] = {}
    for recording in sorted(recordings, key=lambda r: -r.metrics["evaluations"][-1, 0]):
        for i, seed in enumerate(recording.seeds):
            found.setdefault((recording.source, seed), (recording, i))
    return found


def reevaluated(data: Data, group: Group, metric: str, budget: float) -> np.ndarray:
    """Return a metric [seeds] of the last re-evaluation of a group, up to a budget.

    It has all recorded seeds that were re-evaluated then, also those whose curves end too early to
    be in the group. Seeds without a re-evaluation are left out.
    """
    found = _reevaluations(data, group, budget)
    return np.array([table.reevaluations[metric][row, column] for table, row, column in found
                     if metric in table.reevaluations])  # fmt: skip


def evaluated(data: Data, group: Group, budget: float) -> float | None:
    """Return the evaluations of a group at its last re-evaluation up to a budget.

    That is the last one which all of its seeds have, as far as they were re-evaluated. Returns None
    if none was.
    """
    columns = seed_columns(r for r in data.recordings if r.path in group.tables)
    spent = [_spent(columns[key][0]) for key in zip(group.sources, group.seeds, strict=True)]
    before = [times[times <= budget * (1 + NEAR)] for times in spent]
    return min((float(times[-1]) for times in before if len(times)), default=None)


def _reevaluations(data: Data, group: Group, budget: float) -> list[tuple[Recording, int, int]]:
    """Return the table, row and column of each seed at the last re-evaluation of a group."""
    at = evaluated(data, group, budget)
    if at is None:
        return []
    found = []
    columns = seed_columns(r for r in data.recordings if r.path in group.tables)
    for table, column in columns.values():
        rows = np.flatnonzero(np.abs(_spent(table) - at) <= NEAR * at)
        if len(rows):
            found.append((table, int(rows[-1]), column))
    return found


def _spent(recording: Recording) -> np.ndarray:
    """Return the evaluations at each re-evaluation in a table, an array [n]."""
    return recording.reevaluations.get("evaluations", np.zeros((0, 1)))[:, 0]


def check_sentence(holds: bool, sentence: str) -> None:
    """Raise a ValueError if the tables no longer support a sentence of the page.

    The numbers in such sentences are computed, but the words were written for earlier tables.
    """
    if not holds:
        raise ValueError(
            f"the tables do not support the sentence '{sentence}' any more. Rewrite it in "
            "benchmarks/results_*.py, then run this script again"
        )


def existing_pair(results: Results, task: str, first: str, second: str, metric: str) -> Test:
    """Return the test of two algorithms on a task. Raises a ValueError if one was not run."""
    found = pair(results, task, first, second, metric)
    if found is None:
        raise ValueError(f"there are no recorded tables of {first} and {second} on {task}")
    return found


def pair(results: Results, task: str, first: str, second: str, metric: str) -> Test | None:
    """Return the test of two algorithms on a task, or None if one of them was not run."""
    a, b = (results.find(task, label) for label in (first, second))
    if a is None or b is None or not a.curves or not b.curves:
        return None
    found = tested(a, b, metric)
    return found and found._replace(evaluations=found.evaluations or min(last(a), last(b)))


def against(results: Results, reference: str, metric: str, most: float = 0.0) -> list[Test]:
    """Return the tests of an algorithm against all others on all tasks.

    Tests after at most `most` evaluations are left out.
    """
    found = [
        pair(results, group.task, reference, group.label, metric)
        for group in results.groups
        if group.label != reference
    ]
    return [test for test in found if test and (test.evaluations or 0) > most * MORE]
