"""Recorded results that the results page shows, and what the paper published."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.study import statistics
from elites.study.collect import collect
from elites.study.comparison import values_at
from elites.study.groups import Group, Results
from elites.study.recorded import NEAR, Folder, Recording
from elites.study.report import PUBLISHED
from elites.study.significance import REFERENCE, family_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "results"
EARLY, FULL = 89_856, 1_000_000
"""Budgets beside that of the plan: one that most seeds have reached, and the paper's."""
REQUESTED = (128_000, 256_000, FULL)
"""Budgets with which runs were started. A run that ended elsewhere was stopped."""
TITLES = {
    "ant_omni": "Ant-Omni",
    "anttrap_omni": "AntTrap-Omni",
    "hexapod_omni": "Hexapod-Omni",
    "walker_uni": "Walker-Uni",
}
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


class Data(NamedTuple):
    """Recorded results up to several budgets."""

    recordings: list[Recording]
    early: Results
    planned: Results
    full: Results
    related: Results  # up to the plan's budget, in the order of related.toml
    related_early: Results
    families: dict[str, int]  # numbers of comparisons with `dcg_me` that the plan has, by family


def levels(data: Data) -> list[tuple[Results, int]]:
    """Return the results for each budget, and the budget of the one before.

    Comparisons that have no more evaluations than those before are not repeated.
    """
    planned = max(budget for group in data.planned.groups for budget in group.budgets)
    return [(data.early, 0), (data.planned, EARLY), (data.full, planned)]


def compared(data: Data, task: str) -> list[Group]:
    """Return the groups of the comparison on a task, without those of the related work."""
    related = {g.label for g in data.related.groups if g.planned}
    return [g for g in data.planned.of(task) if g.planned or g.label not in related]


class Pair(NamedTuple):
    """Comparison of two algorithms on a task, after the most evaluations that both have."""

    comparison: statistics.Comparison
    task: str
    evaluations: float
    first: np.ndarray  # [seeds]
    second: np.ndarray


@functools.cache
def read(folder: Path = FOLDER) -> Data:
    """Read all recorded tables of a folder. Raises a ValueError if one is damaged."""
    problems: list[str] = []
    recordings = Folder(folder).read(problems)
    sources = {
        "early": Folder(folder, evaluations=EARLY),
        "planned": Folder(folder),
        "full": Folder(folder, evaluations=FULL),
        "related": Folder(folder, file="related.toml"),
        "related_early": Folder(folder, file="related.toml", evaluations=EARLY),
    }
    results = {name: collect(source) for name, source in sources.items()}
    problems += [text for found in results.values() for text in found.problems]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    others = [name for _, name in Folder(folder).plan().pairs() if name != REFERENCE]
    families = Counter(family_of(REFERENCE, name) for name in others)
    return Data(recordings, families=families, **results)


def published(task: str, index: int) -> float:
    """Return a median that the paper published for DCG-MAP-Elites on a task."""
    return PUBLISHED[task][index]


def last(group: Group) -> int:
    """Return the number of evaluations that the seeds of a group have reached."""
    return int(group.curves["evaluations"][-1, 0])


def reached(group: Group) -> str:
    """Return the number of evaluations of a group as text, and whether its runs were stopped."""
    end = last(group)
    stopped = all(abs(end - budget) > NEAR * budget for budget in REQUESTED)
    return f"{end:,}, stopped" if stopped else f"{end:,}"


def seed_columns(recordings: Iterable[Recording]) -> dict[tuple[str, int], tuple[Recording, int]]:
    """Return the table of each seed and its column there, keyed by source and number of the seed.

    If several tables have a seed, this is the longest one.
    """
    found: dict[tuple[str, int], tuple[Recording, int]] = {}
    for recording in sorted(recordings, key=lambda r: -r.metrics["evaluations"][-1, 0]):
        for i, seed in enumerate(recording.seeds):
            found.setdefault((recording.source, seed), (recording, i))
    return found


def archive_evaluations(data: Data, group: Group) -> float:
    """Return the evaluations of the run whose archive is kept for a group."""
    own = [r for r in data.recordings if r.path in group.tables and r.table("cells").exists()]
    table, _ = next(
        found for (_, seed), found in seed_columns(own).items() if seed == group.archive_seed
    )
    return float(table.metrics["evaluations"][-1, 0])


def reevaluated(data: Data, group: Group, metric: str, budget: float) -> np.ndarray:
    """Return a metric [seeds] of the last re-evaluation of each seed of a group, up to a budget.

    Seeds without a re-evaluation are left out.
    """
    found = []
    columns = seed_columns(r for r in data.recordings if r.path in group.tables)
    for key in zip(group.sources, group.seeds, strict=True):
        table, column = columns[key]
        again = table.reevaluations
        spent = again["evaluations"][:, 0] if metric in again else np.zeros(0)
        rows = np.flatnonzero(spent <= budget * (1 + NEAR))
        if len(rows):
            found.append(again[metric][rows[-1], column])
    return np.array(found)


def pair(results: Results, task: str, first: str, second: str, metric: str) -> Pair | None:
    """Return the comparison of two algorithms on a task, or None if one of them was not run."""
    groups = [results.find(task, label) for label in (first, second)]
    if any(group is None or not group.curves for group in groups):
        return None
    a, b = (group for group in groups if group is not None)
    common = min(last(a), last(b))
    values = {
        label: values_at(group, metric, common * (1 + NEAR))
        for label, group in ((first, a), (second, b))
    }
    x, y = values[first], values[second]
    if x is None or y is None:
        return None
    return Pair(statistics.compare({first: x, second: y}, first, second), task, common, x, y)


def corrected(
    pairs: list[Pair], families: Mapping[str, int] | None = None
) -> list[tuple[Pair, statistics.Corrected]]:
    """Return comparisons of one algorithm by one metric, with corrected p-values.

    `families` has the numbers of planned comparisons, if there are fewer yet.
    """
    reference = pairs[0].comparison.first if pairs else ""
    found = statistics.correct(
        [(p.task, p.comparison) for p in pairs], lambda name: family_of(reference, name), families
    )
    return list(zip(pairs, found, strict=True))


def against(results: Results, reference: str, metric: str, most: float = 0.0) -> list[Pair]:
    """Return the comparisons of an algorithm with all others on all tasks.

    Comparisons after at most `most` evaluations are left out.
    """
    found = [
        pair(results, group.task, reference, group.label, metric)
        for group in results.groups
        if group.label != reference
    ]
    return [p for p in found if p is not None and p.evaluations > most * MORE]
