"""What the page is told of a run, from its files alone: neither JAX nor the task is needed.

Everything here is a dictionary of plain values, ready for JSON; what is not finite is None. A
directory that is being written while it is read is the normal case.
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
from elites.runs import evaluation, logs, snapshots
from elites.runs.checkpoint import WEIGHTS
from elites.runs.directory import CONFIG, ENVIRONMENT, METRICS, RESOLVED, RunDirectory, RunError
from elites.runs.voronoi import polygons


class NotThereError(ValueError):
    """Something was asked for that the run has not got."""


def inside(run: RunDirectory, path: Path) -> bool:
    """Whether a file is there and lies in the run: a link out of it is not followed."""
    return path.exists() and path.resolve().is_relative_to(run.path.resolve())


def iterations(run: RunDirectory) -> list[int]:
    """Those whose archive can be looked at."""
    if not inside(run, run.snapshots):
        return []
    # There may be thousands, and what is no link needs no look at where it leads.
    paths = snapshots.paths(run)
    return [int(p.stem) for p in paths if not p.is_symlink() or inside(run, p)]


def kept(run: RunDirectory) -> list[int]:
    """Iterations whose checkpoint, and with it the policies, is still there."""
    paths = checkpoints.complete(run.checkpoints)
    return [int(p.name) for p in paths if inside(run, p / WEIGHTS)]


def identity(run: RunDirectory) -> str:
    """Tells a run from another that takes its place: when and where it was begun."""
    if not run.path.is_dir():
        raise NotThereError(f"the run at {run.path} is gone")
    if not inside(run, run / CONFIG):
        raise NotThereError(f"{run / CONFIG} is gone, or leads out of the run")
    begun: Any = run.config().to_json()
    if inside(run, run / ENVIRONMENT):
        with contextlib.suppress(RunError, LookupError, TypeError):  # damaged: do without
            begun = directories.read_json(run / ENVIRONMENT)[0]
    return hashlib.sha256(json.dumps(begun, sort_keys=True).encode()).hexdigest()[:16]


def describe(run: RunDirectory) -> dict[str, Any]:
    """What the run is, and what of it there is to see."""
    facts = _facts(run)
    playable = kept(run)  # before the others: a snapshot is there before its checkpoint is
    seen = iterations(run)
    return {
        "id": identity(run),
        "name": run.path.resolve().name,
        "task": facts["task"],
        "algorithm": facts["algorithm"],
        "seeds": list(run.config().seed_numbers),
        "total": facts["iterations"],
        "episode_length": facts["episode_length"],
        "deterministic": facts["deterministic"],
        "descriptor": facts["descriptor"],
        "low": facts["descriptor_low"],
        "high": facts["descriptor_high"],
        "origins": facts["origins"],
        "conditioned": facts["actor_conditioned"],
        "iterations": seen,
        "kept": [iteration for iteration in playable if iteration in seen],
        "evaluated": max(_evaluations(run), default=None),
        "trained_on": _trained_on(run),
    }


_FACTS = {
    "task", "algorithm", "iterations", "episode_length", "deterministic", "descriptor",
    "descriptor_low", "descriptor_high", "origins", "actor_conditioned",
}  # fmt: skip


def _facts(run: RunDirectory) -> dict[str, Any]:
    path = run / RESOLVED
    if not inside(run, path):
        raise NotThereError(f"{path} is missing, or leads out of the run")
    facts = directories.read_json(path)
    if not isinstance(facts, dict):
        raise RunError(f"{path}: damaged: not a table of facts")
    missing = sorted(_FACTS - set(facts))
    if missing:
        raise RunError(f"{path}: damaged: missing {', '.join(missing)}")
    return facts


def _trained_on(run: RunDirectory) -> str | None:
    """The device, if it was another than the CPU that recordings are made on."""
    try:
        session = directories.read_json(run / ENVIRONMENT)[-1]
        return None if session["backend"] == "cpu" else str(session["device"])
    except (OSError, RunError, LookupError, TypeError):
        return None  # for show alone


def _evaluations(run: RunDirectory) -> dict[int, Path]:
    """Where the tables of archives that were evaluated again are, by iteration."""
    found = {}
    # Those of the end come last: of one iteration, they are taken.
    for folder in (*run.path.glob("evaluation_*"), run.evaluation):
        if all(inside(run, folder / name) for name in ("metrics.csv", "cells.csv")):
            iteration = evaluation.iteration_of(folder)
            if iteration is not None:
                found[iteration] = folder
    return found


def cells(run: RunDirectory) -> dict[str, Any]:
    """Where the cells are: their middles, and in two dimensions their corners.

    And the least and the greatest fitness of the newest archives, for one scale of colours at all
    iterations: that of the first would leave no colours for the last.
    """
    seen = iterations(run)
    if not seen:
        raise NotThereError("the run has no snapshot of its archive yet")
    snapshot, facts = _snapshot(run, seen[-1]), _facts(run)
    centroids, fitness = snapshot["centroids"], snapshot["fitness"]
    low, high = tuple(facts["descriptor_low"]), tuple(facts["descriptor_high"])
    corners = None
    if len(low) == 2:
        corners = _corners(centroids.tobytes(), centroids.shape, centroids.dtype.str, low, high)
    known = fitness[np.isfinite(fitness)]
    return {
        "centroids": plain(centroids),
        "corners": corners,
        "fitness": plain(np.array([known.min(), known.max()])) if len(known) else None,
    }


@functools.lru_cache(maxsize=4)
def _corners(data: bytes, shape, dtype: str, low, high) -> list[list[float]]:
    """x, y, x, y, ... of each cell. Cached: a thousand cells take a second."""
    points = np.frombuffer(data, dtype).reshape(shape)
    return [plain(corners.reshape(-1)) for corners in polygons(points, low, high)]


def archive(run: RunDirectory, iteration: int, seed: int) -> dict[str, Any]:
    """The archive of one seed at one iteration, a column for each property of a cell."""
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
        columns |= _errors(folder, iteration, seed, len(fitness))
    return {name: plain(values) for name, values in columns.items()}


def _errors(folder: Path, iteration: int, seed: int, count: int) -> dict[str, np.ndarray]:
    table = logs.read_table(folder / "cells.csv")
    # An evaluation that is being written has its cells before its metrics.
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
    return result


def metrics(run: RunDirectory, after: int = 0) -> dict[str, Any]:
    """Rows of the metrics behind an iteration, by column [iterations][seeds]."""
    path = run / METRICS
    if not inside(run, path):
        return {}
    state = path.stat()
    table = _table(path, run.config().seeds, state.st_mtime_ns, state.st_size)
    if not len(table.get("iteration", ())):
        return {}
    new = table["iteration"][:, 0] > after
    shared = {name: plain(table[name][new, 0].astype(int)) for name in ("iteration", "evaluations")}
    rest = {
        name: plain(values[new])
        for name, values in table.items()
        if name not in (*shared, "seed", "env_steps")
    }
    return {**shared, "values": rest}


@functools.lru_cache(maxsize=2)
def _table(path: Path, seeds: int, _changed: int, _size: int) -> dict[str, np.ndarray]:
    """By columns [iterations, seeds]. Cached: every open page asks every few seconds."""
    return logs.by_seed(logs.read_table(path), seeds)


def seed_index(run: RunDirectory, seed: int) -> int:
    """The place of a seed in the arrays of its run."""
    seeds = list(run.config().seed_numbers)
    if seed not in seeds:
        raise NotThereError(f"seed {seed} is not one of this run's: {', '.join(map(str, seeds))}")
    return seeds.index(seed)


def _snapshot(run: RunDirectory, iteration: int) -> dict[str, np.ndarray]:
    path = run.snapshots / f"{iteration:09d}.npz"
    if not inside(run, path):
        raise NotThereError(f"there is no snapshot of iteration {iteration}")
    return _read(run, path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(run: RunDirectory, path: Path, _changed: int) -> dict[str, np.ndarray]:
    return snapshots.read(run, path)


def plain(values: np.ndarray) -> list[Any]:
    """Nested lists, with six digits of a float and None for what is not finite."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    if values.ndim > 1:
        return [plain(row) for row in values]
    return [
        float(f"{v:.6g}") if f else None for v, f in zip(values, np.isfinite(values), strict=True)
    ]
