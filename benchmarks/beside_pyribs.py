"""MAP-Elites, CMA-ME, CMA-MAE, CMA-MEGA and CMA-MAEGA of elites and of pyribs, on plain vectors.

    pip install ribs -c constraints.txt
    python benchmarks/beside_pyribs.py --iterations 200 --seeds 2
    python benchmarks/beside_pyribs.py --recorded docs/results/vectors/pyribs.csv --save elites.csv
    python benchmarks/beside_pyribs.py --speed

The problems are the linear projections of sphere and Rastrigin in 100 dimensions, with a grid of
100 x 100 cells and a start at 0. Each iteration evaluates 540 vectors: 15 emitters make 36 each,
and those of CMA-MEGA and CMA-MAEGA their point and 35 branches. The options of pyribs are those of
its own example for these problems. `--rank-one pyribs` uses its rank-one update in elites too.

Both libraries run in this process, in turns: first all seeds of one, then all of the other. pyribs
computes in 64 bits and with one thread, which is fastest for it. elites computes in 32 bits, with
all seeds in one batch. Seeds of the same number are not related. A run of pyribs with all defaults
takes minutes a seed, an hour in all. `--recorded FILE` compares with recorded curves instead.

Prints one JSON line for each library, algorithm, problem and seed, with the QD-score divided by the
number of cells. Then there is one line for each algorithm and problem with the means over seeds.
`--speed` measures the time of an iteration of one seed: a few iterations of one library, then of
the other, many times. It prints the medians and their ratio, and MAP-Elites with 1,024 vectors at
once in archives of 10^4 and 10^5 cells besides. The same follows for the processor time of all
threads together, which depends less on other programs.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

import elites
from beside_pyribs_parts import BATCH, GRID, advance, scheduler
from elites import packages, presets, training

ALGORITHMS = ("me", "cma_me", "cma_mae", "cma_mega", "cma_maega")
TITLES = {
    "me": "MAP-Elites",
    "cma_me": "CMA-ME",
    "cma_mae": "CMA-MAE",
    "cma_mega": "CMA-MEGA",
    "cma_maega": "CMA-MAEGA",
}
PROBLEMS = ("sphere", "rastrigin")
TURNS, EACH, WARM = 15, 10, 50  # of the speed: turns, iterations of a turn, iterations before it


class Point(NamedTuple):
    """One point of a learning curve. The fields are the columns of the saved files."""

    algorithm: str
    problem: str
    seed: int
    iteration: int
    evaluations: int
    norm_qd_score: float
    coverage: float
    max_objective: float
    restarts: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rank-one", choices=["published", "pyribs"], default="published")
    parser.add_argument("--recorded", type=Path, help="curves of pyribs, in place of a run")
    parser.add_argument("--save", type=Path, help="file for the curves of elites")
    parser.add_argument("--figure", type=Path, help="file for a figure of the curves of both")
    parser.add_argument("--speed", action="store_true", help="measure speed instead of curves")
    given = parser.parse_args()
    if not packages.is_installed("ribs"):
        sys.exit("this benchmark needs the package ribs: pip install ribs -c constraints.txt")
    from threadpoolctl import threadpool_limits  # pyribs needs it too

    print(json.dumps(packages.versions("ribs", "jax", "numpy")), flush=True)
    with threadpool_limits(1):
        if given.speed:
            measure_speed(given.algorithms)
        else:
            compare_curves(given)


# ------------------------------------------------------------------------------------------ curves


def compare_curves(given: argparse.Namespace) -> None:
    """Print the ends of all curves and the means over seeds. Save and draw them as requested."""
    ours: list[Point] = []
    theirs: list[Point] = []
    recorded = read(given.recorded) if given.recorded else []
    for problem in given.problems:
        for algorithm in given.algorithms:
            mine = list(curves_of_elites(algorithm, problem, given))
            if given.recorded:
                chosen = (algorithm, problem)
                other = [p for p in recorded if p[:2] == chosen and p.iteration <= given.iterations]
            else:
                other = list(curves_of_pyribs(algorithm, problem, given))
            for library, points in (("elites", mine), ("pyribs", other)):
                for point in ends(points):
                    print(json.dumps({"library": library, **point._asdict()}), flush=True)
            print(json.dumps(summary(mine, other)), flush=True)
            ours, theirs = ours + mine, theirs + other
    if given.save:
        write(given.save, ours)
    if given.figure:
        draw(given.figure, ours, theirs)


def recorded_at(iteration: int) -> bool:
    """Return whether a curve has a point at an iteration."""
    return iteration % 50 == 0 or iteration in (1, 5, 10, 25)


def curves_of_elites(algorithm: str, problem: str, given: argparse.Namespace) -> Iterator[Point]:
    """Run all seeds of an algorithm of elites at once and return their curves."""
    batched, keys = batched_of(algorithm, problem, given.seeds, cma_rank_one=given.rank_one)
    state = batched.start(training.iteration_keys(keys, 0))
    for i in range(2, given.iterations + 1):  # the start is the first iteration
        state, metrics = batched.step(state, training.iteration_keys(keys, i - 1))
        if recorded_at(i) or i == given.iterations:
            restarts = metrics.restarts
            for seed in range(given.seeds):
                score = float(metrics.qd_score[seed]) / batched.algorithm.cells
                yield Point(
                    algorithm, problem, seed + 1, i, int(metrics.evaluations[seed]), score,
                    float(metrics.coverage[seed]), float(metrics.max_fitness[seed]),
                    0 if restarts is None else int(restarts[seed]),
                )  # fmt: skip


def batched_of(
    algorithm: str, problem: str, seeds: int, **changes: Any
) -> tuple[training.Batched, jax.Array]:
    """Return an algorithm of elites over a batch of seeds, and the keys of the seeds."""
    hp = {**vars(presets.get("vectors").hp), **changes}
    batched = training.Batched(elites.build(problem, algorithm, **hp), seeds)
    return batched, training.seed_keys(range(1, seeds + 1))


def curves_of_pyribs(algorithm: str, problem: str, given: argparse.Namespace) -> Iterator[Point]:
    """Run the seeds of an algorithm of pyribs, one after another, and return their curves."""
    for seed in range(1, given.seeds + 1):
        search = scheduler(algorithm, seed)
        for i in range(1, given.iterations + 1):
            advance(search, algorithm, problem)
            if recorded_at(i) or i == given.iterations:
                found = search.result_archive.stats
                restarts = sum(getattr(emitter, "restarts", 0) for emitter in search.emitters)
                yield Point(
                    algorithm, problem, seed, i, i * BATCH, float(found.norm_qd_score),
                    float(found.coverage), float(found.obj_max), restarts,
                )  # fmt: skip


def ends(points: list[Point]) -> list[Point]:
    """Return the last point of each seed's curve."""
    return list({point.seed: point for point in points}.values())


def summary(ours: list[Point], theirs: list[Point]) -> dict[str, Any]:
    """Return means and standard deviations of both over seeds, and by how much ours is higher."""
    line: dict[str, Any] = {"algorithm": ours[0].algorithm, "problem": ours[0].problem}
    for library, points in (("elites", ours), ("pyribs", theirs)):
        scores = [point.norm_qd_score for point in ends(points)]
        line[library] = {
            "qd_score": round(statistics.mean(scores), 3),
            "deviation": round(statistics.stdev(scores), 3) if len(scores) > 1 else None,
            "coverage": round(statistics.mean(point.coverage for point in ends(points)), 4),
            "evaluations": ends(points)[0].evaluations,
            "seeds": len(scores),
        }
    ratio = line["elites"]["qd_score"] / line["pyribs"]["qd_score"]
    return {**line, "elites_higher_by_percent": round(100 * (ratio - 1), 2)}


def read(path: Path) -> list[Point]:
    """Return the points of a file that `write` wrote."""
    with path.open() as file:
        return [
            Point(
                row["algorithm"], row["problem"], int(row["seed"]), int(row["iteration"]),
                int(row["evaluations"]), float(row["norm_qd_score"]), float(row["coverage"]),
                float(row["max_objective"]), int(row["restarts"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write(path: Path, points: list[Point]) -> None:
    """Write points of curves to a file, one line each."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        for p in points:
            rounded = (f"{value:.5f}" if isinstance(value, float) else value for value in p)
            writer.writerow(rounded)


def draw(path: Path, ours: list[Point], theirs: list[Point]) -> None:
    """Draw the mean curves of both libraries, with the range over seeds."""
    from matplotlib import lines, pyplot

    problems = list(dict.fromkeys(point.problem for point in ours))
    algorithms = [name for name in ALGORITHMS if any(p.algorithm == name for p in ours)]
    size = (5 * len(problems) + 1.5, 3.8)
    figure, axes = pyplot.subplots(
        1, len(problems), figsize=size, squeeze=False, layout="constrained"
    )
    for axis, problem in zip(axes[0], problems, strict=True):
        for colour, algorithm in enumerate(algorithms):
            for points, style in ((ours, "-"), (theirs, "--")):
                chosen = [p for p in points if (p.algorithm, p.problem) == (algorithm, problem)]
                if chosen:
                    _draw_curve(axis, chosen, f"C{colour}", style, TITLES[algorithm])
        axis.set(title=problem.capitalize(), xlabel="evaluations / 1000", ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("QD-score / cells")
    handles = [lines.Line2D([], [], color=f"C{i}") for i in range(len(algorithms))]
    handles += [lines.Line2D([], [], color="grey", linestyle=style) for style in ("-", "--")]
    labels = [*(TITLES[name] for name in algorithms), "elites", "pyribs"]
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.savefig(path, dpi=110)


def _draw_curve(axis: Any, points: list[Point], colour: str, style: str, label: str) -> None:
    """Draw the mean of one algorithm on one problem over seeds, and their range."""
    budgets = sorted({point.evaluations for point in points})
    scores = [[p.norm_qd_score for p in points if p.evaluations == n] for n in budgets]
    at = [n / 1000 for n in budgets]
    axis.plot(at, [statistics.mean(s) for s in scores], style, color=colour, lw=1.4, label=label)
    low, high = [min(s) for s in scores], [max(s) for s in scores]
    axis.fill_between(at, low, high, color=colour, alpha=0.12, lw=0)


# ------------------------------------------------------------------------------------------- speed


def measure_speed(algorithms: list[str]) -> None:
    """Print the time of an iteration of both libraries, measured in turns."""
    for algorithm in algorithms:
        print(json.dumps(compared(algorithm)), flush=True)
    if "me" in algorithms:
        for grid in ((100, 100), (400, 250)):
            print(json.dumps(compared("me", grid, 1024)), flush=True)


def compared(algorithm: str, grid: tuple[int, int] = GRID, batch: int = BATCH) -> dict[str, Any]:
    """Return the median time of an iteration on the sphere, and the ratio of the two libraries."""
    batched, keys = batched_of(algorithm, "sphere", 1, grid=grid, batch_size=batch)
    state = batched.start(training.iteration_keys(keys, 0))
    search, done = scheduler(algorithm, 1, grid, batch), 0

    def ours() -> None:
        nonlocal state, done
        done += 1
        state, metrics = batched.step(state, training.iteration_keys(keys, done))
        jax.block_until_ready(metrics)

    def theirs() -> None:
        advance(search, algorithm, "sphere")

    sides: dict[str, Callable[[], None]] = {"elites": ours, "pyribs": theirs}
    clocks = {"ms": time.perf_counter, "cpu_ms": time.process_time}
    times: dict[str, list[float]] = {f"{name}_{clock}": [] for clock in clocks for name in sides}
    for run in sides.values():
        for _ in range(WARM):
            run()
    for _ in range(TURNS):
        for name, run in sides.items():
            begun = {clock: now() for clock, now in clocks.items()}
            for _ in range(EACH):
                run()
            for clock, now in clocks.items():
                times[f"{name}_{clock}"].append(1000 * (now() - begun[clock]) / EACH)
    found = {name: statistics.median(each) for name, each in times.items()}
    return {
        "algorithm": algorithm, "batch": batch, "cells": grid[0] * grid[1],
        **{name: round(value, 2) for name, value in found.items()},
        "ratio": round(found["pyribs_ms"] / found["elites_ms"], 2),
        "cpu_ratio": round(found["pyribs_cpu_ms"] / found["elites_cpu_ms"], 2),
    }  # fmt: skip


if __name__ == "__main__":
    main()
