"""Compare recorded runs of `progress_me`, `dcrl_me` and `dcg_me`: tables and a figure.

    python benchmarks/progress.py --output docs/images/progress.png

Reads the recorded tables of these runs in `docs/results`, see `RUNS`, and the tables of
re-evaluations beside them. The page `docs/progress.md` shows the output.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from scipy import stats

matplotlib.use("Agg")
from matplotlib import pyplot

RESULTS = Path(__file__).parent.parent / "docs" / "results"
TASKS = {  # title, the paper's QD-score after a million evaluations, and the budget to reach it in
    "ant_omni": ("Ant-Omni", 8.7, 125_000),
    "anttrap_omni": ("AntTrap-Omni", 7.2, 125_000),
    "hexapod_omni": ("Hexapod-Omni", 6.5, 250_000),
    "walker_uni": ("Walker-Uni", 9.8, 125_000),
}
RUNS = {  # tables of each task, by algorithm
    "ant_omni": {
        "progress_me": "progress_me.seeds_400-407",
        "dcrl_me": "dcrl_me.discount_0.9.lengthscale_0.48.seeds_100-105",
        "dcg_me": "dcg_me.seeds_0-5.1M",
    },
    "anttrap_omni": {
        "progress_me": "progress_me.seeds_400-407",
        "dcrl_me": "dcrl_me.seeds_400-407",
        "dcg_me": "dcg_me.seeds_400-407",
    },
    "hexapod_omni": {
        "progress_me": "progress_me.seeds_400-407",
        "dcrl_me": "dcrl_me.discount_0.9.seeds_100-105",
        "dcg_me": "dcg_me.seeds_0-3",
    },
    "walker_uni": {
        "progress_me": "progress_me.seeds_600-607",
        "dcrl_me": "dcrl_me.seeds_600-607",
        "dcg_me": "dcg_me.seeds_400-407",
    },
}
MILLION = "progress_me.seeds_700-703.1M"
COLOURS = {"progress_me": "#009e73", "dcrl_me": "#d55e00", "dcg_me": "#0072b2"}
Curves = dict[int, dict[int, float]]  # by seed: QD-score in 1e5 by evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True, help="file of the figure")
    parser.add_argument("--evaluations", type=int, default=256_256, help="where tests are made")
    options = parser.parse_args()
    runs = {task: read(task) for task in TASKS}
    for task in TASKS:
        compare(task, runs[task], options.evaluations)
    for task in TASKS:
        print_bar(task, runs[task]["progress_me"])
    for task in TASKS:
        print_actor(task)
    print_million()
    figure(runs, options.output)


def read(task: str) -> dict[str, Curves]:
    """Return the recorded runs of a task by algorithm."""
    return {name: curves(task, table) for name, table in RUNS[task].items()}


def curves(task: str, table: str) -> Curves:
    """Return the QD-scores of a recorded run, in 1e5, by seed and evaluations."""
    found: Curves = defaultdict(dict)
    for row in rows(task, table):
        found[int(row["seed"])][int(row["evaluations"])] = float(row["qd_score"]) / 1e5
    return found


def rows(task: str, table: str) -> list[dict[str, str]]:
    """Return the rows of a recorded table, none if there is no such table."""
    path = RESULTS / task / f"{table}.csv"
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def score(curve: dict[int, float], at: int) -> float:
    """Return the last recorded QD-score of a seed, at most `at` evaluations after the start."""
    return curve[max(x for x in curve if x <= at)]


def compare(task: str, runs: dict[str, Curves], at: int) -> None:
    """Print the QD-scores of each algorithm beside those of `progress_me`, with rank-sum tests.

    They are compared where the other algorithm was stopped, at most `at` evaluations. An archive's
    QD-score never falls. So where `progress_me` was stopped earlier, its score is a lower bound.
    """
    title = TASKS[task][0]
    for name, found in runs.items():
        if name == "progress_me":
            continue
        stopped = min(max(x for x in curve if x <= at) for curve in found.values())
        theirs, ours = (
            np.array([score(curve, stopped) for curve in curves.values()])
            for curves in (found, runs["progress_me"])
        )
        p = stats.mannwhitneyu(ours, theirs, alternative="two-sided").pvalue
        end = min(stopped, min(max(curve) for curve in runs["progress_me"].values()))
        print(
            f"{title} | progress_me at {end:,}: {spread(ours)} | {name} at {stopped:,}: "
            f"{spread(theirs)} | p = {p:.2g}"
        )


def spread(values: np.ndarray) -> str:
    """Return the median, the lowest and the highest of some scores, and their number, as text."""
    return (
        f"{np.median(values):.2f} ({values.min():.2f} to {values.max():.2f}), {len(values)} seeds"
    )


def print_bar(task: str, curves: Curves) -> None:
    """Print when each seed passes the paper's QD-score, and how the worst seed compares."""
    title, paper, budget = TASKS[task]
    first = [min((x for x, y in c.items() if y >= paper), default=None) for c in curves.values()]
    reached = sorted(x for x in first if x is not None)
    within = sum(x <= budget for x in reached)
    last = np.array([curve[max(curve)] for curve in curves.values()])
    span = f"{reached[0]:,} to {reached[-1]:,}" if reached else "never"
    print(
        f"{title}: {within} of {len(curves)} seeds pass {paper} within {budget:,} evaluations "
        f"({span}); worst seed at the end {100 * (1 - last.min() / np.median(last)):.1f} % below "
        "the median"
    )


def print_actor(task: str) -> None:
    """Print the re-binned QD-score and the descriptor error of the actors, before distillation and
    after.
    """
    title = TASKS[task][0]
    for kind in ("reevaluations", "distilled"):
        found = rows(task, f"{RUNS[task]['progress_me']}.{kind}")
        if not found:
            continue
        last = max(int(row["iteration"]) for row in found)
        table = [row for row in found if int(row["iteration"]) == last]
        archive, actor, error = (
            np.median([float(row[name]) for row in table])
            for name in ("qd_score", "actor_rebinned_qd_score", "actor_descriptor_error")
        )
        label = "distilled" if kind == "distilled" else "actor"
        print(
            f"{title}: {label} re-binned {actor / 1e5:.2f} of {archive / 1e5:.2f} "
            f"({100 * actor / archive:.0f} %), descriptor error {error:.3g}"
        )


def print_million() -> None:
    """Print the QD-scores of `progress_me` on Ant-Omni over a million evaluations."""
    for at in (128_000, 256_000, 500_000, 1_000_192):
        values = np.array([score(c, at) for c in curves("ant_omni", MILLION).values()])
        print(f"Ant-Omni: progress_me after {at:,} of a million evaluations: {spread(values)}")


def figure(runs: dict[str, dict[str, Curves]], output: Path) -> None:
    """Draw the median and the range of the seeds over the evaluations, a panel for each task."""
    drawing, panels = pyplot.subplots(1, 4, figsize=(13, 3.5), layout="constrained")
    for panel, (task, (title, paper, _)) in zip(panels, TASKS.items(), strict=True):
        for name, found in runs[task].items():
            shared = sorted(set.intersection(*(set(curve) for curve in found.values())))
            values = np.array([[curve[x] for x in shared] for curve in found.values()])
            thousands = np.array(shared) / 1000
            panel.plot(thousands, np.median(values, 0), color=COLOURS[name], label=name)
            panel.fill_between(
                thousands, values.min(0), values.max(0), color=COLOURS[name], alpha=0.2, lw=0
            )
        panel.axhline(
            paper, color="#555555", ls="--", lw=1, label="paper: DCG-MAP-Elites after 1,000,000"
        )
        panel.set(title=title, xlabel="thousand evaluations", xlim=(0, 260), ylim=(0, 19))
    panels[0].set_ylabel("QD-score, 1e5")
    drawing.legend(
        *panels[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=4
    )
    drawing.savefig(output, dpi=150)


if __name__ == "__main__":
    main()
