"""Measure the actor of a run between its elites, for `elites evaluate --interpolate`.

    interpolation/requests.csv   one row for each request to each seed's actor
    interpolation/metrics.csv    one row for each seed and range of distances to the nearest elite

Distances and errors are in units of the descriptor space, relative to its longest axis. The ranges
of distances are multiples of the spacing of cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from elites.runs import directory as directories
from elites.runs import snapshots
from elites.runs.directory import RunDirectory
from elites.runs.evaluation import numbered, write_csv
from elites.runs.logs import read_table
from elites.words import number

RANGES = (0.0, 0.5, 1.0, 2.0, 4.0, np.inf)  # of the distance to the nearest elite, in spacings
_NAMES = (
    "up to ½ spacing of cells",
    "½ to 1 spacing of cells",
    "1 to 2 spacings of cells",
    "2 to 4 spacings of cells",
    "more than 4 spacings of cells",
)
_COLUMNS = ("requests", "error", "hits", "fitness")


def interpolate(run: RunDirectory, checkpoint: int | None, points: int) -> tuple[Any, int]:
    """Measure the actor of a run's checkpoint between its elites and write the tables. Loads JAX.

    Returns the `Interpolated` and the iteration of the checkpoint. `checkpoint` is the iteration,
    by default the newest one. About `points` requests are made to each actor. A reduced run has the
    policies of few elites, but the distances are those to the elites of the whole archive.
    """
    from elites.runs import job, saved
    from elites.training import interpolating

    with job.memory_errors_explained():
        results, iteration = saved.load_checkpoint(run, checkpoint)
        found = results.interpolate(points)
    whole = None if directories.kept_cells(run) is None else snapshots.at(run, iteration)
    if whole is not None:
        found = interpolating.beside(found, whole["fitness"], whole["descriptors"])
    run.interpolation.mkdir(exist_ok=True)
    _write(run, results.seeds, found, iteration)
    return found, iteration


def _write(run: RunDirectory, seeds: Any, found: Any, iteration: int) -> None:
    """Write both tables. `found` is an `Interpolated`."""
    size, rows = found.problem.descriptor_size, []
    for i, seed in enumerate(seeds):
        parts = zip(
            found.cells, found.requests, found.reached[i], found.fitness[i], found.error[i],
            found.distance[i], found.filled[i], found.valid[i], strict=True,
        )  # fmt: skip
        rows += [
            [seed, iteration, cell, *asked, *reached, fitness, error, distance, int(filled)]
            for cell, asked, reached, fitness, error, distance, filled, valid in parts
            if valid
        ]
    columns = [c for name in ("request", "reached") for c in numbered(name, size)]
    write_csv(
        run.interpolation / "requests.csv",
        ["seed", "iteration", "cell", *columns, "fitness", "error", "distance", "filled"],
        rows,
    )
    scores = [
        [seed, iteration, low * found.spacing, high * found.spacing, *values]
        for i, seed in enumerate(seeds)
        for (low, high), values in zip(
            itertools.pairwise(RANGES), _by_distance(found, i), strict=True
        )
    ]
    header = ["seed", "iteration", "distance_from", "distance_to", *_COLUMNS]
    write_csv(run.interpolation / "metrics.csv", header, scores)


def _by_distance(found: Any, seed: int) -> Iterator[list[float]]:
    """Yield the values of a range of distances: requests, median error, share of hits, fitness.

    A request is hit if the error is below the spacing of cells. Fitness is the mean. `seed` is the
    index of a seed.
    """
    distance, known = found.distance[seed] / found.spacing, found.valid[seed]
    for low, high in itertools.pairwise(RANGES):
        yield _values(found, seed, known & (distance >= low) & (distance < high))


def _values(found: Any, seed: int, chosen: np.ndarray) -> list[float]:
    """Return number, median error, share of hits and mean fitness of the chosen requests [n]."""
    if not chosen.any():
        return [0, np.nan, np.nan, np.nan]
    error, fitness = found.error[seed][chosen], found.fitness[seed][chosen]
    hits = float((error < found.spacing).mean())
    return [int(chosen.sum()), float(np.median(error)), hits, float(fitness.mean())]


def table(found: Any) -> list[list[str]]:
    """Return the results by distance to the nearest elite as rows of texts, the header first.

    With several seeds, the values are medians over those that have such requests.
    """
    seeds = range(len(found.error))
    rows = [["distance to the nearest elite", "requests", "error", "hits", "fitness"]]
    groups = [[list(_by_distance(found, i))[k] for i in seeds] for k in range(len(_NAMES))]
    names: list[str] = [*_NAMES]
    for wanted, title in ((True, "in a filled cell"), (False, "in an empty cell")):
        groups.append(
            [_values(found, i, found.valid[i] & (found.filled[i] == wanted)) for i in seeds]
        )
        names.append(title)
    for name, values in zip(names, groups, strict=True):
        columns = np.array(values, float)
        known = columns[columns[:, 0] > 0]
        if not len(known):
            rows.append([name, "0", "", "", ""])
            continue
        count, error, hits, fitness = np.median(known, axis=0)
        rows.append([name, number(count), number(error), f"{100 * hits:.1f} %", number(fitness)])
    return rows


def between_errors(run: RunDirectory, iteration: int, seed: int, cells: int) -> np.ndarray | None:
    """Return the median error of the requests in each cell [cells], NaN where there were none.

    Returns None if the run has not been measured at this iteration.
    """
    rows = requests(run, iteration, seed)
    if rows is None:
        return None
    found = np.full(cells, np.nan)
    places, errors = rows["cell"].astype(int), rows["error"]
    for cell in np.unique(places[(places >= 0) & (places < cells)]):
        found[cell] = np.median(errors[places == cell])
    return found


def requests(run: RunDirectory, iteration: int, seed: int) -> dict[str, np.ndarray] | None:
    """Return the columns [n] of requests.csv for one seed and iteration, keyed by name.

    Returns None if the run has not been measured at this iteration.
    """
    path = run.interpolation / "requests.csv"
    if not path.exists():
        return None
    values = read_table(path, ("seed", "iteration", "cell", "error", "distance", "fitness"))
    rows = (values["seed"] == seed) & (values["iteration"] == iteration)
    return {name: column[rows] for name, column in values.items()} if rows.any() else None
