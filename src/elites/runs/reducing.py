"""Reduce a run to a small one that still works with every command that reads runs.

A reduced run has one seed, its actor, and the policies of a few elites spread over the archive:

    config.json, facts.json          those of the run, for one seed; `kept_cells` in facts.json
    environment.json, kernels/       unchanged, apart from the folder in the commands
    metrics.csv, reevaluations.csv   the rows of that seed, also in the folders with tables
    snapshots/                       the whole archive without its policies, at the last checkpoint
    checkpoints/                     the actor, and the kept elites with their policies

It cannot be resumed, because it has no training state. JAX and the task are needed only to round
policies to half precision.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites import files
from elites.output import warn
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import environment, snapshots
from elites.runs.checkpoint import WEIGHTS, Arrays
from elites.runs.config import seed_index
from elites.runs.directory import CONFIG, ENVIRONMENT, FACTS, METRICS, REEVALUATIONS, RunDirectory
from elites.runs.evaluation import write_csv
from elites.runs.gaps import REEVALUATED

_TABLES = (
    METRICS, REEVALUATIONS, "evaluation/metrics.csv", "evaluation/cells.csv",
    "calibration/metrics.csv", "calibration/requests.csv", "interpolation/metrics.csv",
    "interpolation/requests.csv",
)  # fmt: skip
_EMPTY = {
    "policies": 0, "fitness": -np.inf, "descriptors": 0, "origin": -1, "born": -1
}  # fmt: skip
"""Values of the archive's arrays where a cell holds no elite, as in `core.archive.empty`."""


class Excerpt(NamedTuple):
    """What a reduced run holds of a run, apart from its tables."""

    seed: int
    iteration: int
    weights: Arrays
    """Arrays [1, ...] of weights.npz: actors, and the archive with all of its elites."""
    cells: list[int]
    """Sorted numbers of the cells whose policies are kept."""
    rounded: Arrays | None = None
    """The same arrays with rounded elites, if these are kept instead."""


def reduce(
    run: RunDirectory, folder: Path, elites: int, seed: int | None, half_precision: bool = False
) -> Excerpt:
    """Write the newest checkpoint of a run to the empty `folder`, reduced, and return what is kept.

    Keeps at most `elites` policies of one seed, by default the one with the highest QD-score. With
    `half_precision`, they are rounded, and chosen from those that remain elites.
    """
    if elites < 1:
        raise ValueError(f"--elites must be at least 1, got {elites}")
    found = checkpoints.newest(run.checkpoints, lambda p: checkpoints.load(p, (WEIGHTS,)), warn)
    if found is None:
        raise files.RunError(f"{run.path} has no checkpoint yet, so there are no policies to keep")
    seeds, arrays = run.config().seed_numbers, found.arrays
    if seed is None:
        facts = directories.read_facts(run)
        index = snapshots.best_seed({"fitness": arrays["archive.fitness"]}, facts)
    else:
        index = seed_index(seeds, seed)
    weights = {name: array[index : index + 1] for name, array in arrays.items()}
    rounded = None
    if half_precision:
        from elites.runs import rounding

        rounded = rounding.rounded(run, weights, index, found.iteration)
    eligible = weights if rounded is None else rounded
    cells = spread(eligible["archive.fitness"][0], eligible["archive.descriptors"][0], elites)
    cells.sort()
    excerpt = Excerpt(seeds[index], found.iteration, weights, cells, rounded)
    write(run, excerpt, RunDirectory(folder), found.information)
    return excerpt


def spread(fitness: np.ndarray, descriptors: np.ndarray, count: int) -> list[int]:
    """Choose up to `count` filled cells that are far apart, and return their numbers.

    The first choice is the cell with the highest fitness. Each further one is the cell that is
    farthest from those chosen so far. Cells whose fitness [C] is not finite are empty, and
    `descriptors` [C, D] are those of the elites.
    """
    filled = np.flatnonzero(np.isfinite(fitness))
    if not len(filled) or not count:
        return []
    places = np.asarray(descriptors, float)[filled]
    places = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), 1e-12)
    chosen = [int(np.argmax(fitness[filled]))]
    distance = np.linalg.norm(places - places[chosen[0]], axis=1)
    while len(chosen) < min(count, len(filled)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(places - places[chosen[-1]], axis=1))
    return [int(filled[i]) for i in chosen]


# ----------------------------------------------------------------------------------------- writing


def write(
    run: RunDirectory, excerpt: Excerpt, place: RunDirectory, information: Mapping[str, Any]
) -> None:
    """Write an excerpt of a run, and the tables of its seed, to the empty run directory `place`.

    `information` is what the run saved with its checkpoint.
    """
    seed, iteration = excerpt.seed, excerpt.iteration
    config = dataclasses.replace(run.config(), seeds=1, first_seed=seed, seed_list=())
    facts = files.read_record(run / FACTS, {}) | {directories.KEPT_CELLS: excerpt.cells}
    if excerpt.rounded is not None:
        facts[directories.HALF_PRECISION] = True
    directories.write_json(place / FACTS, facts)
    for name in filter(lambda name: os.path.lexists(run / name), _TABLES):
        _write_rows(run / name, place.path / name, seed)
    if sessions := environment.read_sessions(run):
        directories.write_json(place / ENVIRONMENT, list(map(_without_folders, sessions)))
    if run.kernels.is_dir():
        shutil.copytree(run.kernels, place.kernels, symlinks=True)
    _write_snapshot(run, place, excerpt)
    saved = {
        "config": config.to_json(),
        "seconds": information.get("seconds", 0.0),
        REEVALUATED: information.get(REEVALUATED, []),
    }
    checkpoints.save(place.checkpoints, iteration, {WEIGHTS: _kept(excerpt)}, saved)
    directories.write_json(place / CONFIG, config.to_json())


def _write_snapshot(run: RunDirectory, place: RunDirectory, excerpt: Excerpt) -> None:
    """Write the whole archive of the excerpt's seed, without its policies, as a snapshot.

    It is a part of the run's own snapshot, if there is one: the checkpoint of a run that is reduced
    already lacks most elites.
    """
    path = run.snapshots / f"{excerpt.iteration:09d}.npz"
    if not path.exists():
        return snapshots.write(place, excerpt.iteration, excerpt.weights)
    index = seed_index(run.config().seed_numbers, excerpt.seed)
    found = snapshots.read(run, path)
    centroids, _ = found.pop("centroids"), found.pop("iteration")
    place.snapshots.mkdir()
    arrays = {name: array[index : index + 1] for name, array in found.items()}
    checkpoints.write_arrays(place.snapshots / path.name, {**arrays, "centroids": centroids})


def _without_folders(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a session whose command names no folder of its machine.

    Paths are reduced to their last part, and the option --output is left out.
    """
    try:
        words = shlex.split(session["command"])
    except ValueError:
        return dict(session)
    if words[:1] != ["elites"]:  # a text such as "elites.train(...) in Python, and save"
        return dict(session)
    kept = [
        _without_folder(word)
        for before, word in itertools.pairwise(["", *words])
        if word != "--output" and before != "--output" and not word.startswith("--output=")
    ]
    return {**session, "command": shlex.join(kept)}


def _without_folder(word: str) -> str:
    """Return a word of a command in which a path, or that of an option, has its last part alone.

    The path begins with "./", so that a study is not taken for the built-in plan of that name.
    """
    option, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{option}{sign}./{Path(value).name}" if "/" in value else word


def _write_rows(source: Path, target: Path, seed: int) -> None:
    """Write the rows of one seed of the table `source` to the table `target`."""
    header, rows = files.read_csv(source, unfinished=True)
    target.parent.mkdir(exist_ok=True)
    if "seed" not in header:
        raise files.RunError(f"{source}: damaged: it needs a column 'seed'")
    column = header.index("seed")
    write_csv(target, header, [row for row in rows if row[column] == str(seed)])


def _kept(excerpt: Excerpt) -> dict[str, np.ndarray]:
    """Return the arrays of weights.npz, with the kept elites only."""
    result, arrays = {}, excerpt.weights if excerpt.rounded is None else excerpt.rounded
    for name, array in arrays.items():
        part, _, field = name.partition(".")
        if part == "archive" and field in _EMPTY:
            kept = np.full_like(array, _EMPTY[field])
            kept[:, excerpt.cells] = array[:, excerpt.cells]
            array = kept
        result[name] = array
    return result
