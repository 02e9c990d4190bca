"""Sections and figure of the page on `progress_me`, from the recorded tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elites.runs.drawing import plt, thousands
from elites.study.figures import look
from elites.study.groups import Group, Results
from elites.study.markup import p_text
from elites.study.recorded import Recording
from elites.study.significance import Test
from elites.study.statistics import bonferroni
from results_data import TITLES, Data, code, labels, pair, published, seed_columns, table

NAME = "progress_me"
REFERENCES = {  # algorithms that it is compared with, by task
    "ant_omni": ("dcg_me", "dcrl_me, discount 0.9, lengthscale 0.48"),
    "anttrap_omni": ("dcg_me", "dcrl_me"),
    "hexapod_omni": ("dcg_me", "dcrl_me, discount 0.9"),
    "walker_uni": ("dcg_me", "dcrl_me"),
}
MILLION = (128_000, 256_000, 500_000, 1_000_192)


def results_for(data: Data, task: str) -> Results:
    """Return the results up to the budget that the runs of `progress_me` on a task have."""
    return data.planned if task == "hexapod_omni" else data.short


def with_range(scores: np.ndarray) -> str:
    """Return the median of some QD-scores, in 1e5, with the lowest and the highest, as text."""
    low, middle, high = (f"{x / 1e5:.2f}" for x in np.quantile(scores, (0, 0.5, 1)))
    return f"{middle} ({low} to {high})"


def tests(data: Data) -> str:
    """Return a table of rank-sum tests of `progress_me` against other algorithms."""
    pairs = [
        pair(results_for(data, task), task, NAME, name, "qd_score")
        for task, names in REFERENCES.items()
        for name in names
    ]
    found: Sequence[Test] = [one for one in pairs if one]
    corrected = bonferroni([one.comparison.p for one in found])
    rows = [
        [TITLES[one.task], f"{one.evaluations:,.0f}",
         f"{with_range(one.first)}, {len(one.first)} seeds", code(one.comparison.second),
         f"{with_range(one.second)}, {len(one.second)} seeds", p_text(one.comparison.p), p_text(p)]
        for one, p in zip(found, corrected, strict=True)
    ]  # fmt: skip
    header = ["task", "evaluations", f"`{NAME}`", "compared with", "its QD-score", "p",
              "Bonferroni"]  # fmt: skip
    return table(header, rows)


def passing(data: Data) -> str:
    """Return a table of when seeds of `progress_me` reach the paper's scores, and of the worst."""
    rows = []
    for task, title in TITLES.items():
        own = [r for r in data.recordings if r.task == task and r.label == NAME]
        columns = list(seed_columns(own).values())
        after = [x for x in (_reached(task, *one) for one in columns) if x is not None]
        span = f"{min(after):,.0f} to {max(after):,.0f}" if after else "never"
        ends = _curves(results_for(data, task), task, NAME).curves["qd_score"][-1]
        worst = 100 * (1 - ends.min() / np.median(ends))
        rows.append([title, f"{published(task, 0) / 1e5:.1f}", f"{len(after)} of {len(columns)}",
                     span, f"{worst:.1f} %"])  # fmt: skip
    header = ["task", "the paper's score, 1e5", "seeds that reach it",
              "evaluations until then, first seed to last",
              "worst seed, below the median"]  # fmt: skip
    return table(header, rows)


def _reached(task: str, recording: Recording, column: int) -> float | None:
    """Return after how many evaluations a seed reached the paper's score, or None if it did not.

    `column` is that of the seed in the recorded table.
    """
    rows = np.flatnonzero(recording.metrics["qd_score"][:, column] >= published(task, 0))
    return float(recording.metrics["evaluations"][rows[0], 0]) if len(rows) else None


def million(data: Data) -> str:
    """Return a table of the QD-scores of `progress_me` on Ant-Omni over a million evaluations."""
    curves = _curves(data.full, "ant_omni", NAME).curves
    spent = curves["evaluations"][:, 0]
    scores = [curves["qd_score"][np.searchsorted(spent, at, side="right") - 1] for at in MILLION]
    header = ["evaluations", *(f"{at:,}" for at in MILLION)]
    return table(header, [["QD-score, 1e5", *map(with_range, scores)]])


def _curves(results: Results, task: str, label: str) -> Group:
    """Return the results of an algorithm on a task. Raises a ValueError if there are none."""
    group = results.find(task, label)
    if group is None or not group.curves:
        raise ValueError(f"there are no recorded tables of {label} on {task}")
    return group


def figure(data: Data) -> Any:
    """Draw the median and the range of the seeds over the evaluations, a panel for each task."""
    drawing, panels = plt.subplots(1, 4, figsize=(13, 3.5), layout="constrained")
    for panel, (task, names) in zip(panels, REFERENCES.items(), strict=True):
        for label in (NAME, *names):
            curves = _curves(data.planned, task, label).curves
            spent, scores = curves["evaluations"][:, 0], curves["qd_score"] / 1e5
            name = label.partition(",")[0]  # settings of `dcrl_me` are below the figure
            colour, style = look(name, labels(data))
            panel.plot(spent, np.median(scores, 1), color=colour, linestyle=style, label=name)
            panel.fill_between(spent, scores.min(1), scores.max(1), color=colour, alpha=0.2, lw=0)
        panel.axhline(published(task, 0) / 1e5, color="#555555", ls="--", lw=1,
                      label="paper: DCG-MAP-Elites after 1,000,000")  # fmt: skip
        panel.xaxis.set_major_formatter(thousands)
        panel.set(title=TITLES[task], xlabel="evaluations", xlim=(0, 260_000), ylim=(0, 19))
    panels[0].set_ylabel("QD-score, 1e5")
    drawing.legend(
        *panels[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=4
    )
    return drawing
