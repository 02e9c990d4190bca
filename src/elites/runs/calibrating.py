"""Calibrate the requests to the actor of a run, and write them as tables (`elites calibrate`).

calibration/requests.csv  one row for each cell of each seed: what to ask the actor for
calibration/metrics.csv   one row for each seed: how well the actor hits the cells
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.core.distances import Weights
from elites.runs.directory import RunDirectory, RunError
from elites.runs.evaluation import numbered, write_csv
from elites.runs.logs import read_table
from elites.training.calibrating import nearest
from elites.words import number

_METRICS = (
    ("descriptor_error", "descriptor error of the actor"),
    ("rebinned_qd_score", "QD-score of the actor, re-binned"),
    ("rebinned_coverage", "coverage of the actor, re-binned"),
)


def calibrate(
    run: RunDirectory, rounds: int, progress: Callable[[int], object] | None = None
) -> tuple[Any, int]:
    """Calibrate the requests of a run's last checkpoint and write the tables. Loads JAX.

    Returns the calibrated requests and the iteration of the checkpoint. `progress` is called with
    the number of rounds that are done.
    """
    from elites.runs import job, saved

    with job.memory_errors_explained():
        results, iteration = saved.load_checkpoint(run)
        found = results.calibrate(rounds, progress)
    _write(run, results, found, iteration)
    return found, iteration


def _write(run: RunDirectory, results: Any, found: Any, iteration: int) -> None:
    """Write both tables of the calibrated requests `found` of a run."""
    size = found.problem.descriptor_size
    centroids = np.asarray(results.archives.centroids)
    rows, scores = [], []
    for i, seed in enumerate(results.seeds):
        parts = zip(
            centroids[i], found.requests[i], found.reached[i], found.fitness[i], strict=True
        )
        rows += [
            [seed, iteration, cell, *centroid, *asked, *reached, fitness]
            for cell, (centroid, asked, reached, fitness) in enumerate(parts)
            if found.valid[i, cell]
        ]
        both = (found.before, found.after)
        scores.append(
            [seed, iteration, *(getattr(part, name)[i] for part in both for name, _ in _METRICS)]
        )
    run.calibration.mkdir(exist_ok=True)
    columns = [c for name in ("centroid", "request", "reached") for c in numbered(name, size)]
    write_csv(
        run.calibration / "requests.csv", ["seed", "iteration", "cell", *columns, "fitness"], rows
    )
    header = [f"{when}_{name}" for when in ("plain", "calibrated") for name, _ in _METRICS]
    write_csv(run.calibration / "metrics.csv", ["seed", "iteration", *header], scores)


def table(found: Any) -> list[list[str]]:
    """Return the scores before and after calibration as rows of texts, the header first.

    With several seeds, the values are medians.
    """
    rows = [["", "asked for centroids", "calibrated"]]
    for name, title in _METRICS:
        values = [np.nanmedian(getattr(part, name)) for part in (found.before, found.after)]
        shown = [f"{100 * v:.1f} %" if name.endswith("coverage") else number(v) for v in values]
        rows.append([title, *shown])
    return rows


def request(
    run: RunDirectory, seed: int, iteration: int, descriptor: np.ndarray, weights: Weights
) -> np.ndarray | None:
    """Return what to ask the actor of a seed for, to reach `descriptor` [D] in task units.

    Returns None if the run has not been calibrated at this iteration. `seed` is the
    number of a seed, and `weights` [D] are those of the problem's distances.
    """
    table = read_requests(run.calibration, seed, iteration, len(descriptor))
    return None if table is None else nearest(table.requests, table.reached, descriptor, weights)


class Requests(NamedTuple):
    """Requests to the actor of one seed, and what its episodes with them came to."""

    requests: np.ndarray  # [n, D] in task units
    reached: np.ndarray  # [n, D]
    fitness: np.ndarray  # [n]


def read_requests(folder: Path, seed: int, iteration: int, size: int) -> Requests | None:
    """Read requests.csv in a folder of a run, or return None if it has none of this iteration.

    `seed` is the number of a seed, and `size` that of the descriptor's dimensions.
    """
    path = folder / "requests.csv"
    if not path.exists():
        return None
    columns = [*numbered("request", size), *numbered("reached", size)]
    values = read_table(path, ("seed", "iteration", *columns))
    rows = (values["seed"] == seed) & (values["iteration"] == iteration)
    if not rows.any():
        return None
    asked, reached = (
        np.stack([values[name][rows] for name in numbered(kind, size)], -1)
        for kind in ("request", "reached")
    )
    if not (np.isfinite(asked).all() and np.isfinite(reached).all()):
        raise RunError(f"{path}: damaged: a request is not finite. Have the table written again")
    fitness = values.get("fitness", np.full(len(rows), np.nan))[rows]
    return Requests(asked, reached, fitness)
