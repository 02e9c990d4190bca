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
from elites.runs import directory as directories
from elites.runs import environment, evaluation, gaps, logs, snapshots
from elites.runs.checkpoint import WEIGHTS
from elites.runs.directory import CONFIG, ENVIRONMENT, FACTS, METRICS, RunDirectory, RunError
from elites.runs.voronoi import polygons
from elites.tasks.axes import axes_of_facts
from elites.words import plain


class NotFoundError(ValueError):
    """The run does not contain the requested seed, iteration, cell, policy or file."""


def is_inside(run: RunDirectory, path: Path) -> bool:
    """Return whether a file exists inside the run's directory.

    A link to the outside does not count.
    """
    return path.exists() and path.resolve().is_relative_to(run.path.resolve())


def iterations(run: RunDirectory) -> list[int]:
    """Return the iterations of a run that have a snapshot, which is an archive without policies."""
    if not is_inside(run, run.snapshots):
        return []
    # There may be thousands of snapshots, so only links are resolved.
    paths = snapshots.paths(run)
    return [int(p.stem) for p in paths if not p.is_symlink() or is_inside(run, p)]


def kept_iterations(run: RunDirectory) -> list[int]:
    """Return the iterations of a run that have a checkpoint, and with it their policies."""
    paths = checkpoints.complete(run.checkpoints)
    return [int(p.name) for p in paths if is_inside(run, p / WEIGHTS)]


def identity(run: RunDirectory) -> str:
    """Return an id of the run in a directory, to detect when another run has replaced it.

    The id is a hash of the record of the run's first session, or else of its configuration.
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

    `iterations` has the iterations with a snapshot, which is an archive without policies.
    `playable` has those whose policies can also be played.
    """
    facts = _facts(run)
    kept = kept_iterations(run)  # read first, because a snapshot is written before its checkpoint
    snapshot_iterations = iterations(run)
    return {
        "id": identity(run),
        "name": plain(run.path.resolve().name, 200),
        "task": facts["task"],
        "algorithm": facts["algorithm"],
        "seeds": list(run.config().seed_numbers),
        "planned_iterations": facts["iterations"],
        "episode_length": facts["episode_length"],
        "deterministic": facts["deterministic"],
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
    """Return the facts about task and algorithm that were saved with the run, by name."""
    path = run / FACTS
    if not is_inside(run, path):
        raise NotFoundError(f"{path} is missing, or is a link out of the run")
    return directories.read_facts(run)


def _trained_on(run: RunDirectory) -> str | None:
    """Return the name of the device that trained the run, or None if it was the CPU.

    Recordings are made on the CPU.
    """
    try:
        session = environment.read_sessions(run)[-1]
        return None if session["backend"] == "cpu" else plain(session["device"], 200)
    except (OSError, RunError, IndexError):
        return None  # the device is only displayed


def _evaluations(run: RunDirectory) -> dict[int, Path]:
    """Return the folders of a run with re-evaluations of its archives, by iteration."""
    found = {}
    # The evaluation at the end of training comes last, so it replaces others of its iteration.
    for folder in (*run.path.glob("evaluation_*"), run.evaluation):
        if all(is_inside(run, folder / name) for name in ("metrics.csv", "cells.csv")):
            iteration = evaluation.iteration_of(folder)
            if iteration is not None:
                found[iteration] = folder
    return found


def cells(run: RunDirectory) -> dict[str, Any]:
    """Return the centroids [cells][D] of a run's archive, and in two dimensions the cells' corners.

    `fitness_range` is the least and the greatest fitness of the newest archives. It is the colour
    scale of all iterations, because fitness grows during training.
    """
    snapshot_iterations = iterations(run)
    if not snapshot_iterations:
        raise NotFoundError("the run has no snapshot of its archive yet")
    snapshot, facts = _snapshot(run, snapshot_iterations[-1]), _facts(run)
    centroids, fitness = snapshot["centroids"], snapshot["fitness"]
    low, high = tuple(facts["descriptor_low"]), tuple(facts["descriptor_high"])
    corners = None
    if len(low) == 2:
        corners = _corners(centroids.tobytes(), centroids.shape, centroids.dtype.str, low, high)
    known = fitness[np.isfinite(fitness)]
    return {
        "centroids": to_lists(centroids),
        "corners": corners,
        "fitness_range": to_lists(np.array([known.min(), known.max()])) if len(known) else None,
    }


@functools.lru_cache(maxsize=4)
def _corners(data: bytes, shape, dtype: str, low, high) -> list[list[float]]:
    """Return the corners of each cell as a flat list x, y, x, y, ... in task units.

    `data`, `shape` and `dtype` are the bytes and the type of the centroids [cells, 2]. `low` and
    `high` are the bounds of the descriptor. Cached, because a thousand cells take a second.
    """
    points = np.frombuffer(data, dtype).reshape(shape)
    return [to_lists(corners.reshape(-1)) for corners in polygons(points, low, high)]


def archive(run: RunDirectory, iteration: int, seed: int) -> dict[str, Any]:
    """Return the archive of one seed of a run at one iteration: lists with an entry for each cell.

    The lists are fitness, descriptors, origin (number of the variation that added the elite) and
    born (iteration of its addition). If that iteration was re-evaluated, its results are included.
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
    return {name: to_lists(values) for name, values in columns.items()}


def _errors(
    folder: Path, iteration: int, seed: int, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the results of a re-evaluation of one seed: arrays [cells] with a value for each cell.

    `folder` is that of the re-evaluation, `shape` that of the centroids. Cells without results are
    NaN.
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

    `missing` is a text that names the iterations before the last one that the metrics lack, or
    None. Returns an empty dictionary if the run has no metrics yet.
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
    """Return the columns [iterations, seeds] of the table of metrics at a path, by name.

    Cached, because every open page requests the metrics every few seconds. A new time of change or
    size of the file makes a new entry.
    """
    return logs.read_metrics(path, seeds, logs.SHOWN)


def seed_index(run: RunDirectory, seed: int) -> int:
    """Return the position of a seed in the arrays of a run, or raise a NotFoundError."""
    seeds = list(run.config().seed_numbers)
    if seed not in seeds:
        raise NotFoundError(
            f"the run has no seed {seed}. Its seeds are {', '.join(map(str, seeds))}"
        )
    return seeds.index(seed)


def _snapshot(run: RunDirectory, iteration: int) -> dict[str, np.ndarray]:
    """Return the snapshot of a run at an iteration: the arrays of all seeds' archives, by name.

    Raises a NotFoundError if that iteration has no snapshot.
    """
    path = run.snapshots / f"{iteration:09d}.npz"
    if not is_inside(run, path):
        raise NotFoundError(f"there is no snapshot of iteration {iteration}")
    return _read(run, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(run: RunDirectory, path: Path, _changed: int) -> dict[str, np.ndarray]:
    """Return the arrays of the snapshot at a path, by name. Cached until the file changes."""
    return snapshots.read(run, path)


def to_lists(values: np.ndarray) -> list[Any]:
    """Return an array as nested lists.

    Floats have six digits, or are None if they are not finite.
    """
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    if values.ndim > 1:
        return [to_lists(row) for row in values]
    return [
        float(f"{v:.6g}") if f else None for v, f in zip(values, np.isfinite(values), strict=True)
    ]
