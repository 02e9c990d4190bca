"""Read a run's data for the page. Needs neither JAX nor the task.

The functions return dictionaries that JSON can represent. Numbers that are not finite are None. The
run may still be training: its files can change while they are read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from elites.runs import checkpoint as checkpoints
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs import environment, evaluation, gaps, interpolating, logs, pretrained, snapshots
from elites.runs.checkpoint import WEIGHTS
from elites.runs.directory import CONFIG, ENVIRONMENT, FACTS, METRICS, RunDirectory, RunError
from elites.runs.voronoi import grid_places, polygons
from elites.tasks.axes import axes_of_facts
from elites.words import plain


class NotFoundError(ValueError):
    """The run does not contain the requested seed, iteration, cell, policy or file."""


def is_inside(run: RunDirectory, path: Path) -> bool:
    """Return whether a path exists and lies inside the run's directory, after following links."""
    return path.exists() and path.resolve().is_relative_to(run.path.resolve())


def iterations(run: RunDirectory) -> list[int]:
    """Return the iterations of a run that have a snapshot (an archive without policies)."""
    if not is_inside(run, run.snapshots):
        return []
    # There may be thousands of snapshots, so only links are resolved.
    paths = snapshots.paths(run)
    return [int(p.stem) for p in paths if not p.is_symlink() or is_inside(run, p)]


def kept_iterations(run: RunDirectory) -> list[int]:
    """Return the iterations of a run that have a checkpoint, and therefore their policies."""
    paths = checkpoints.complete(run.checkpoints)
    return [int(p.name) for p in paths if is_inside(run, p / WEIGHTS)]


def identity(run: RunDirectory) -> str:
    """Return a text that identifies a run, to detect when another run replaces it in its directory.

    The id is a hash of the record of the run's first session or, without one, of its configuration.
    """
    if not run.path.is_dir():
        raise NotFoundError(f"the run at {run.path} does not exist any more")
    if not is_inside(run, run / CONFIG):
        raise NotFoundError(f"{run / CONFIG} is missing, or is a link out of the run")
    start: Any = run.config().to_json()
    if is_inside(run, run / ENVIRONMENT):
        # A damaged file is ignored.
        with contextlib.suppress(RunError, OSError):
            start = next(iter(environment.read_sessions(run)), start)
    return hashlib.sha256(json.dumps(start, sort_keys=True).encode()).hexdigest()[:16]


def describe(run: RunDirectory) -> dict[str, Any]:
    """Return a description of a run for the page: names, seeds, descriptor axes and iterations.

    The key `iterations` has the iterations with a snapshot (an archive without policies). The key
    `playable` has those of them whose policies are available as well.
    """
    facts = _facts(run)
    kept = kept_iterations(run)  # read first, because a snapshot is written before its checkpoint
    snapshot_iterations = iterations(run)
    return {
        "id": identity(run),
        "name": plain(pretrained.shown_name(run.path), 200),
        "task": facts["task"],
        "algorithm": facts["algorithm"],
        "seeds": list(run.config().seed_numbers),
        "planned_iterations": facts["iterations"],
        "episode_length": facts["episode_length"],
        "deterministic": facts["deterministic"],
        "qd_offset": facts.get("qd_offset", 0.0),
        "repeatable": facts.get("repeatable", True),
        "descriptor": facts["descriptor"],
        "axes": [axis._asdict() for axis in axes_of_facts(facts)],
        "low": facts["descriptor_low"],
        "high": facts["descriptor_high"],
        "origins": facts["origins"],
        "actor_conditioned": facts["actor_conditioned"],
        "iterations": snapshot_iterations,
        "playable": [iteration for iteration in kept if iteration in snapshot_iterations],
        "evaluated_at": max(_evaluations(run), default=None),
        "trained_on": _trained_on(run),
    }


def _facts(run: RunDirectory) -> dict[str, Any]:
    """Return the facts about task and algorithm that were saved with the run, keyed by name.

    Raises a NotFoundError if the file is missing or is a link out of the run.
    """
    path = run / FACTS
    if not is_inside(run, path):
        raise NotFoundError(f"{path} is missing, or is a link out of the run")
    return directories.read_facts(run)


def _trained_on(run: RunDirectory) -> str | None:
    """Return the name of the GPU that trained the run, or None if it was a CPU or is unknown.

    The page shows it, because recordings are made on the CPU and may differ.
    """
    try:
        session = environment.read_sessions(run)[-1]
        return None if session["backend"] == "cpu" else plain(session["device"], 200)
    except (OSError, RunError, IndexError):
        return None  # the device is only displayed


def _evaluations(run: RunDirectory) -> dict[int, Path]:
    """Return the folders with evaluation tables of a run, keyed by iteration."""
    found = {}
    # The evaluation at the end of training comes last, so it replaces others of its iteration.
    for folder in (*run.path.glob("evaluation_*"), run.evaluation):
        if all(is_inside(run, folder / name) for name in ("metrics.csv", "cells.csv")):
            iteration = evaluation.iteration_of(folder)
            if iteration is not None:
                found[iteration] = folder
    return found


def cells(run: RunDirectory) -> dict[str, Any]:
    """Return the cells of a run's archive: centroids [cells][D], corners, grid and `fitness_range`.

    If descriptors have two dimensions, either `corners` has the corners of the Voronoi cells, or
    `grid` the number of columns and rows of a grid. Otherwise both are None. `fitness_range` is the
    smallest and the largest fitness in the newest snapshot. The page uses it as the colour scale of
    all iterations, because fitness grows during training.
    """
    snapshot_iterations = iterations(run)
    if not snapshot_iterations:
        raise NotFoundError("the run has no snapshot of its archive yet")
    snapshot, facts = _snapshot(run, snapshot_iterations[-1]), _facts(run)
    centroids, fitness = snapshot["centroids"], snapshot["fitness"]
    low, high = tuple(facts["descriptor_low"]), tuple(facts["descriptor_high"])
    corners = places = None
    if len(low) == 2:
        places = grid_places(centroids, low, high)
    if len(low) == 2 and places is None:
        corners = _corners(centroids.tobytes(), centroids.shape, centroids.dtype.str, low, high)
    known = fitness[np.isfinite(fitness)]
    return {
        "centroids": to_lists(centroids),
        "corners": corners,
        "grid": None if places is None else to_lists(places.max(0) + 1),
        "fitness_range": to_lists(np.array([known.min(), known.max()])) if len(known) else None,
    }


@functools.lru_cache(maxsize=4)
def _corners(data: bytes, shape, dtype: str, low, high) -> list[list[float]]:
    """Return the corners of each cell as a flat list x, y, x, y, ... in task units.

    `data`, `shape` and `dtype` are the bytes, the shape and the type of the centroids [cells, 2].
    `low` and `high` are the bounds of the descriptor. The result is cached, because computing a
    thousand cells takes a second.
    """
    points = np.frombuffer(data, dtype).reshape(shape)
    return [to_lists(corners.reshape(-1)) for corners in polygons(points, low, high)]


def archive(run: RunDirectory, iteration: int, seed: int) -> dict[str, Any]:
    """Return the archive of one seed at one iteration: lists with an entry for each cell.

    The lists are fitness, descriptors, origin (number of the variation that made the elite) and
    born (iteration in which it was added). If that iteration was re-evaluated, descriptor errors
    and the actor's fitness are included. If the actor was measured between elites, its errors there
    are `between_error`, also for empty cells. If only some elites have kept their policies, `kept`
    has their cells.
    """
    index = seed_index(run, seed)
    snapshot = _snapshot(run, iteration)
    fitness = snapshot["fitness"][index]
    columns = {
        "fitness": fitness,
        "descriptors": np.where(
            np.isfinite(fitness)[:, None], snapshot["descriptors"][index], np.nan
        ),
        "origin": np.where(np.isfinite(fitness), snapshot["origin"][index], -1),
        "born": np.where(np.isfinite(fitness), snapshot["born"][index], -1),
    }
    folder = _evaluations(run).get(iteration)
    if folder is not None:
        columns |= _errors(folder, iteration, seed, snapshot["centroids"].shape)
    between = _between(run, iteration, seed, len(fitness))
    if between is not None:
        columns["between_error"] = between
    lists: dict[str, Any] = {name: to_lists(values) for name, values in columns.items()}
    kept = directories.kept_cells(run)
    return lists if kept is None else {**lists, "kept": kept}


def _between(run: RunDirectory, iteration: int, seed: int, count: int) -> np.ndarray | None:
    """Return the actor's median error in each cell, an array [cells], for requests between elites.

    Returns None if `elites evaluate --interpolate` has not measured it.
    """
    if not is_inside(run, run.interpolation / "requests.csv"):
        return None
    return interpolating.between_errors(run, iteration, seed, count)


def _errors(
    folder: Path, iteration: int, seed: int, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the re-evaluation of one seed's archive as arrays [cells], keyed by name.

    They are the descriptor errors of elites and actor, and the fitness of the actor. `folder` has
    the evaluation tables, and `shape` is the shape of the centroids. Cells without results are NaN.
    """
    count, size = shape
    table = evaluation.read_cells(folder, count, size)
    # While an evaluation is written, its cells are newer than its metrics, so they are checked.
    rows = (table["seed"] == seed) & (table.get("iteration", iteration) == iteration)
    cell = table["cell"][rows].astype(int)
    result = {}
    for name, column in (
        ("error", "descriptor_error"),
        ("actor_error", "actor_descriptor_error"),
        ("actor_fitness", "actor_fitness"),
    ):
        result[name] = np.full(count, np.nan)
        result[name][cell] = table[column][rows]
    if "actor_cell" in table:  # tables of earlier versions do not have it
        reached, earned = table["actor_cell"][rows], table["actor_fitness"][rows]
        result["actor_rebinned"] = evaluation.rebinned(reached, earned, count)
    return result


def metrics(run: RunDirectory, after: int = 0) -> dict[str, Any]:
    """Return the metrics of a run after an iteration: iteration, evaluations and values [n][seeds].

    The key `missing` has a text that names the iterations missing from the table, or None. Returns
    an empty dictionary if the run has no metrics yet.
    """
    path = run / METRICS
    if not is_inside(run, path):
        return {}
    state = path.stat()
    table = _table(path, run.config().seeds, state.st_mtime_ns, state.st_size)
    if not len(table.get("iteration", ())):
        return {}
    new = table["iteration"][:, 0] > after
    shared = {
        name: to_lists(table[name][new, 0].astype(int)) for name in ("iteration", "evaluations")
    }
    rest = {
        name: to_lists(values[new])
        for name, values in table.items()
        if name not in (*shared, "seed", "env_steps")
    }
    missing = gaps.within(table["iteration"][:, 0])
    return {**shared, "values": rest, "missing": gaps.in_words(missing) if missing else None}


@functools.lru_cache(maxsize=2)
def _table(path: Path, seeds: int, _changed: int, _size: int) -> dict[str, np.ndarray]:
    """Return the columns [iterations, seeds] of the table of metrics at a path, keyed by name.

    The result is cached, because every open page requests the metrics every few seconds. `_changed`
    and `_size`, the file's time of change and size, are part of the cache key.
    """
    return logs.read_metrics(path, seeds, logs.SHOWN)


def seed_index(run: RunDirectory, seed: int) -> int:
    """Return the position of a seed in the arrays of a run.

    Raises a NotFoundError if the run does not have that seed.
    """
    seeds = run.config().seed_numbers
    try:
        return configs.seed_index(seeds, seed)
    except ValueError as error:
        raise NotFoundError(str(error)) from None


def _snapshot(run: RunDirectory, iteration: int) -> dict[str, np.ndarray]:
    """Return the snapshot of a run at an iteration: arrays of all seeds' archives, keyed by name.

    Raises a NotFoundError if that iteration has no snapshot.
    """
    path = run.snapshots / f"{iteration:09d}.npz"
    if not is_inside(run, path):
        raise NotFoundError(f"there is no snapshot of iteration {iteration}")
    return _read(run, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(run: RunDirectory, path: Path, _changed: int) -> dict[str, np.ndarray]:
    """Return the arrays of the snapshot at a path, keyed by name. Cached until the file changes."""
    return snapshots.read(run, path)


def to_lists(values: np.ndarray) -> list[Any]:
    """Return an array as nested lists of numbers that JSON can represent.

    Floats are rounded to six digits. Those that are not finite become None.
    """
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    if values.ndim > 1:
        return [to_lists(row) for row in values]
    return [
        float(f"{v:.6g}") if f else None for v, f in zip(values, np.isfinite(values), strict=True)
    ]
