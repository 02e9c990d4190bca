"""Sections of the results page on the offspring that enter the archive, by variation."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import elites
from elites.study.groups import NEAR
from elites.study.recorded import Recording
from results_data import (
    EARLY,
    STRONGEST,
    TITLES,
    Data,
    check_sentence,
    code,
    compared,
    planned_budget,
    seed_columns,
    table,
)

KINDS = {"GA": ("ga",), "PG": ("pg",), "actor": ("greedy", "injection")}
"""Endings of the names of variations, by the title of their column."""
TASK = "walker_uni"
LATE_AFTER = 120
"""Iteration after which an addition of the greedy actor counts as late."""

Columns = list[tuple[Recording, int]]
"""Tables, each with the column of one seed."""


def additions(data: Data) -> str:
    """Return a table of the share of offspring that enter the archive, by kind of variation.

    It has all algorithms of the comparison with GA offspring and runs of `EARLY` evaluations.
    "Later" is from there to the budget of the plan, or to the end of an algorithm's longest runs.
    """
    rows = []
    for task, title in TITLES.items():
        for label in (group.label for group in compared(data, task)):
            columns = columns_of(data, task, label)
            first, end = lasting(columns, EARLY), last_evaluations(data, columns)
            if not any(_names(recording, "GA") for recording, _ in first):
                continue
            later = lasting(columns, end) if end > EARLY * (1 + NEAR) else []
            rows.append(
                [title, code(label), *_texts(first, 0, EARLY),
                 *_texts(later, EARLY, end), f"{end:,.0f}" if later else ""]
            )  # fmt: skip
    header = ["task", "algorithm", "seeds", *KINDS, "later: seeds",
              *(f"later: {kind}" for kind in KINDS), "until"]  # fmt: skip
    return table(header, rows)


def columns_of(data: Data, task: str, label: str) -> Columns:
    """Return the longest table of each seed of an algorithm on a task, and the seed's column."""
    own = [r for r in data.recordings if r.task == task and r.label == label]
    return list(seed_columns(own).values())


def last_evaluations(data: Data, columns: Columns) -> float:
    """Return the evaluations of the longest of some runs, at most the budget of the plan."""
    return min(planned_budget(data), max((recording.last for recording, _ in columns), default=0.0))


def lasting(columns: Columns, evaluations: float) -> Columns:
    """Return the seeds whose runs have at least so many evaluations, but for a few."""
    return [one for one in columns if one[0].last >= evaluations * (1 - NEAR)]


def _texts(columns: Columns, after: float, until: float) -> list[str]:
    """Return the number of seeds, and their share of additions for each kind, as text."""
    if not columns:
        return [""] * (1 + len(KINDS))
    shares = (share(columns, kind, after, until) for kind in KINDS)
    return [str(len(columns)), *("" if x is None else f"{100 * x:.2g} %" for x in shares)]


def share(columns: Columns, kind: str, after: float, until: float) -> float | None:
    """Return the share of a kind's offspring that are added, or None without this kind.

    It is the mean over seeds and over iterations between two numbers of evaluations. Only every
    tenth iteration counts, because long tables have no others.
    """
    found = []
    for recording, column in columns:
        spent, iteration = (recording.metrics[name][:, column]
                            for name in ("evaluations", "iteration"))  # fmt: skip
        rows = (spent > after) & (spent <= until * (1 + NEAR)) & (iteration % 10 == 0)
        if names := _names(recording, kind):
            added = sum(recording.metrics[name][rows, column].mean() for name in names)
            made = offspring(recording.task, recording.label.partition(",")[0])
            found.append(added / sum(made[name.removeprefix("added.")] for name in names))
    return float(np.mean(found)) if found else None


@functools.cache
def offspring(task: str, name: str) -> Mapping[str, int]:
    """Return how many offspring each variation of an algorithm makes in an iteration."""
    return elites.build(task, name).offspring


def _names(recording: Recording, kind: str) -> list[str]:
    """Return the columns of a table that count the additions of a kind of variation."""
    return [name for name in recording.metrics
            if name.startswith("added.") and name.endswith(KINDS[kind])]  # fmt: skip


class Seed(NamedTuple):
    """A seed of `pga_me`: how often its greedy actor was added late, and what it reached."""

    seed: int
    recorded: int
    """Number of recorded iterations after `LATE_AFTER`."""
    late: int
    """Number of these in which the greedy actor was added."""
    last: int
    """Last recorded iteration in which it was added."""
    fitness: float
    score: float


def greedy_seeds(data: Data) -> list[Seed]:
    """Return the seeds of `pga_me` on Walker-Uni, in the order of their QD-scores.

    Iterations beyond the budget of the plan do not count.
    """
    found, end = [], planned_budget(data) * (1 + NEAR)
    for recording, column in columns_of(data, TASK, STRONGEST):
        within = recording.metrics["evaluations"][:, column] <= end
        metrics = {name: values[within, column] for name, values in recording.metrics.items()}
        added, after = metrics["added.greedy"] > 0, metrics["iteration"] > LATE_AFTER
        found.append(
            Seed(int(metrics["seed"][0]), int(after.sum()), int((added & after).sum()),
                 int(metrics["iteration"][added].max(initial=0)), metrics["max_fitness"][-1],
                 metrics["qd_score"][-1])
        )  # fmt: skip
    return sorted(found, key=lambda seed: seed.score)


def greedy(data: Data) -> str:
    """Return how seeds of `pga_me` on Walker-Uni differ with late additions of its greedy actor."""
    seeds = greedy_seeds(data)
    rows = [
        [str(one.seed), f"{one.late} of {one.recorded}", str(one.last), f"{one.fitness:,.0f}",
         f"{one.score / 1e5:.2f}"]
        for one in seeds
    ]  # fmt: skip
    header = ["seed", f"iterations after {LATE_AFTER} with an addition", "the last one",
              "maximum fitness", "QD-score, 1e5"]  # fmt: skip
    return f"{table(header, rows)}\n\n{_conclusion(data, seeds)}"


def _conclusion(data: Data, seeds: list[Seed]) -> str:
    """Return how the seeds with and without late additions compare with `dcg_me`."""
    late, never = ([one for one in seeds if bool(one.late) is added] for added in (True, False))
    apart = min(one.score for one in late) > max(one.score for one in never)
    check_sentence(apart, "each seed with a late addition is above each of the others")
    conditioned = data.planned.find(TASK, "dcg_me")
    if conditioned is None:
        raise ValueError(f"there are no recorded tables of dcg_me on {TASK}")

    def medians(scores: Sequence[float] | np.ndarray, fitness: Sequence[float] | np.ndarray) -> str:
        return (f"a median QD-score of {np.median(scores) / 1e5:.1f}e5 and a median of "
                f"{np.median(fitness):,.0f} in maximum fitness")  # fmt: skip

    ours, others = (medians([s.score for s in group], [s.fitness for s in group])
                    for group in (late, never))  # fmt: skip
    curves = conditioned.curves
    text = (
        f"In {len(late)} seeds an addition after iteration {LATE_AFTER} was recorded. They have "
        f"{ours}. The other {len(never)} have {others}, and `dcg_me` has "
        f"{medians(curves['qd_score'][-1], curves['max_fitness'][-1])}. Each of the {len(late)} is "
        f"above each of the {len(never)}. The split was chosen when the runs had ended, so there "
        "is no test."
    )
    return textwrap.fill(text, 110, break_on_hyphens=False)
