"""Compare recorded runs of `dcg_me`, `dcrl_me` and the setting of `progress_me`: table and figure.

    python benchmarks/progress.py --output docs/images/progress.png

Reads the tables of docs/results. The runs of `progress_me` are those of the third screening round.
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
TASKS = {  # title, the paper's QD-score after a million evaluations, where the tests are made
    "ant": ("Ant-Omni", 8.7, 38_656),
    "anttrap": ("AntTrap-Omni", 7.2, 38_656),
    "hexapod": ("Hexapod-Omni", 6.5, 33_536),
    "walker": ("Walker-Uni", 9.8, 38_656),
}
FOLDERS = {"ant": "ant_omni", "anttrap": "anttrap_omni", "hexapod": "hexapod_omni",
           "walker": "walker_uni"}  # fmt: skip
COLOURS = {"progress_me": "#009e73", "dcrl_me": "#d55e00", "dcg_me": "#0072b2"}
Curves = dict[int, dict[int, float]]  # by seed: QD-score in 1e5 by evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    runs = {task: read(task) for task in TASKS}
    for task, (title, _, at) in TASKS.items():
        table(title, at, runs[task])
    figure(runs, options.output)


def read(task: str) -> dict[str, Curves]:
    """Return the recorded runs of a task by algorithm."""
    screening = RESULTS / "screening"
    runs = {
        "progress_me": curves([screening / "round_3/confirmation.csv"], f"{task}_confirmation"),
        "dcg_me": curves(
            path
            for path in (RESULTS / FOLDERS[task]).glob("dcg_me_seeds_*.csv")
            if not path.stem.endswith("reach")
        ),
    }
    if task == "ant":
        runs["dcrl_me"] = curves([screening / "round_2/ant_omni_long.csv"], "ant_long_plain")
    return runs


def curves(paths, variant: str = "") -> Curves:
    """Return the QD-scores of all seeds in some tables, or of one variant in them."""
    found: Curves = defaultdict(dict)
    for path in paths:
        with path.open() as file:
            for row in csv.DictReader(file):
                if row.get("variant", "") == variant:
                    score = float(row["qd_score"]) / 1e5
                    found[int(row["seed"])][int(row["evaluations"])] = score
    return found


def table(title: str, at: int, runs: dict[str, Curves]) -> None:
    """Print the scores at a number of evaluations, with rank-sum tests against `progress_me`."""
    scores = {
        name: np.array([curve[at] for curve in found.values() if at in curve])
        for name, found in runs.items()
    }
    for name, values in scores.items():
        p = stats.mannwhitneyu(scores["progress_me"], values).pvalue
        test = "" if name == "progress_me" else f"p = {p:.2g}"
        print(
            f"{title} at {at:,}: {name:12} {np.median(values):5.2f} ({values.min():.2f} to "
            f"{values.max():.2f}), {len(values)} seeds {test}"
        )


def figure(runs: dict[str, dict[str, Curves]], output: Path) -> None:
    """Draw the median and the range of the seeds over the evaluations, a panel for each task."""
    drawing, panels = pyplot.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
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
            paper, color="#555555", ls="--", lw=1, label="paper, DCG-MAP-Elites,\n1,000,000"
        )
        panel.set(title=title, xlabel="thousand evaluations", xlim=(0, 100), ylim=(0, 12))
    panels[0].set_ylabel("QD-score, 1e5")
    panels[2].legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="upper right")
    drawing.savefig(output, dpi=150)


if __name__ == "__main__":
    main()
