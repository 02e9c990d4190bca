"""What recorded runs learned: a table, a test of significance, and a figure.

    python benchmarks/learning.py docs/results/ant_omni --output docs/images/learning_ant_omni.png

A folder holds metrics as runs write them, named ALGORITHM_seeds_FIRST-LAST.csv; seeds of one
algorithm may be spread over several files, and files may differ in length.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from scipy import stats

from elites.runs.logs import by_seed, read_table

matplotlib.use("Agg")
from matplotlib import pyplot

COLOURS = {"dcg_me": "#0072b2", "pga_me": "#d55e00", "me": "#555555"}
Curves = dict[int, dict[str, np.ndarray]]  # by seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--at", type=int, nargs="+", default=[100, 200, 300, 400])
    parser.add_argument("--seeds", help="only these, as FIRST-LAST; all when not given")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-")) if options.seeds else (0, 10**9)
    runs: dict[str, Curves] = defaultdict(dict)
    for path in sorted(options.folder.glob("*_seeds_*.csv")):
        if not path.stem.endswith("reach"):
            rows = read_table(path)
            columns = by_seed(rows, len(np.unique(rows["seed"])))
            for i, seed in enumerate(columns["seed"][0]):
                curves = {metric: values[:, i] for metric, values in columns.items()}
                if first <= seed <= last:
                    runs[path.stem.split("_seeds_")[0]][int(seed)] = curves
    for iteration in options.at:
        table(runs, iteration)
    figure(runs, options.output)


def table(runs: dict[str, Curves], iteration: int) -> None:
    scores = {}
    for name, seeds in runs.items():
        rows = [seeds[seed] for seed in sorted(seeds) if iteration in seeds[seed]["iteration"]]
        if not rows:
            continue
        at = [curves["iteration"] == iteration for curves in rows]
        scores[name], coverage = (
            np.concatenate([curves[m][row] for curves, row in zip(rows, at, strict=True)])
            for m in ("qd_score", "coverage")
        )
        values = ", ".join(f"{score / 1e5:.2f}" for score in scores[name])
        print(
            f"{iteration:5} {name:7} QD-score {scores[name].mean():.3g} ({values} e5), "
            f"coverage {100 * coverage.mean():.1f} %"
        )
    for name, other in scores.items():
        if name != "dcg_me" and "dcg_me" in scores:
            test = stats.mannwhitneyu(
                scores["dcg_me"], other, alternative="greater", method="exact"
            )
            print(f"{iteration:5} dcg_me above {name}: one-sided rank-sum p = {test.pvalue:.4f}")


def figure(runs: dict[str, Curves], path: Path) -> None:
    """Every seed a line; and of algorithms with PG, what the two variations added."""
    canvas, axes = pyplot.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for name, seeds in runs.items():
        for i, curves in enumerate(seeds.values()):
            label = f"{name}, {len(seeds)} seeds" if i == 0 else None
            for axis, metric, scale in ((axes[0], "qd_score", 1e-5), (axes[1], "coverage", 100)):
                axis.plot(
                    curves["iteration"],
                    scale * curves[metric],
                    color=COLOURS[name],
                    lw=0.9,
                    label=label,
                )
    for name, style in (("dcg_me", "-"), ("pga_me", "--")):
        if name not in runs:
            continue
        for origin, colour in (("ga", "#009e73"), ("pg", "#cc79a7")):
            parts = [curves[f"added.{origin}"][:400] for curves in runs[name].values()]
            mean = np.mean(parts, axis=0).reshape(-1, 10).sum(axis=1)
            axes[2].plot(
                10 * np.arange(1, len(mean) + 1), np.maximum(mean, 0.05), style, color=colour,
                label=f"{origin.upper()}, {name}",
            )  # fmt: skip
    axes[0].set_ylabel("QD-score (1e5)")
    axes[1].set_ylabel("coverage (%)")
    axes[2].set_ylabel("offspring added per 10 iterations,\nmean of the seeds")
    axes[2].set_yscale("log")
    axes[2].set_ylim(0.04, 4000)  # room for the legend
    for axis in axes:
        axis.set_xlabel("iteration")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=2 if axis is axes[2] else 1)
    canvas.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
