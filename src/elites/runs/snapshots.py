"""The archive over time, without its policies: a small file for each checkpoint, kept for good."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory, RunError


def write(run: RunDirectory, iteration: int, weights: checkpoints.Arrays) -> None:
    """Write that of an iteration, of the weights of its checkpoint."""
    with directories.naming(run.snapshots):
        run.snapshots.mkdir(exist_ok=True)
    arrays = {
        "fitness": weights["archive.fitness"],
        "descriptors": weights["archive.descriptors"],
        "origin": weights["archive.origin"].astype(np.int8),
        "born": weights["archive.born"],
        "centroids": weights["archive.centroids"][0],
    }
    with directories.replacing(run.snapshots / f"{iteration:09d}.npz") as temporary:
        checkpoints.write_arrays(temporary, arrays)


def paths(run: RunDirectory) -> list[Path]:
    """All there are, the newest last; their names are the iterations."""
    return sorted(run.snapshots.glob("[0-9]*.npz")) if run.snapshots.is_dir() else []


def newest(run: RunDirectory) -> dict[str, np.ndarray] | None:
    """The archive, without its policies, as of the last checkpoint."""
    found = paths(run)
    return read(found[-1]) if found else None


def read(path: Path) -> dict[str, np.ndarray]:
    arrays = checkpoints.read_arrays(path)
    missing = {"fitness", "descriptors", "origin", "born", "centroids"} - set(arrays)
    if missing:
        raise RunError(f"{path}: damaged: missing {', '.join(sorted(missing))}")
    return {**arrays, "iteration": np.array(int(path.stem))}


def best_seed(snapshot: Mapping[str, np.ndarray]) -> int:
    fitness = snapshot["fitness"]
    return int(np.argmax(np.where(np.isfinite(fitness), fitness, 0.0).sum(axis=1)))
