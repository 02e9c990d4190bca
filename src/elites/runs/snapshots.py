"""Snapshots: the archive without its policies, in a small file for each checkpoint.

Unlike checkpoints, all snapshots of a run are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory, RunError


def write(run: RunDirectory, iteration: int, weights: checkpoints.Arrays) -> None:
    """Write the snapshot of a run at an iteration, from the weights of its checkpoint.

    A snapshot is the archive without its policies.
    """
    with directories.path_in_errors(run.snapshots):
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
    """Return the paths of all snapshots of a run, the newest last.

    A snapshot is the archive without its policies. Its file name is the iteration.
    """
    return sorted(run.snapshots.glob(f"{'[0-9]' * 9}.npz")) if run.snapshots.is_dir() else []


def newest(run: RunDirectory) -> dict[str, np.ndarray] | None:
    """Return the newest snapshot of a run as arrays by name, or None if there is none.

    A snapshot is the archive without its policies. See `read` for the arrays.
    """
    found = paths(run)
    return read(run, found[-1]) if found else None


def read(run: RunDirectory, path: Path) -> dict[str, np.ndarray]:
    """Read a snapshot (archive without policies) and return its arrays by name.

    The arrays are fitness, origin and born [seeds, C], descriptors [seeds, C, D], centroids [C, D]
    and iteration []. Raises a RunError if they do not fit the run.
    """
    arrays = checkpoints.read_arrays(path)
    config, facts = run.config(), directories.read_facts(run)
    seeds, cells, size = config.seeds, config.hp.cells, len(facts["descriptor_low"])
    expected = {
        "fitness": ("f", (seeds, cells)),
        "descriptors": ("f", (seeds, cells, size)),
        "origin": ("i", (seeds, cells)),
        "born": ("i", (seeds, cells)),
        "centroids": ("f", (cells, size)),
    }
    if missing := set(expected) - set(arrays):
        raise RunError(f"{path}: damaged: missing {', '.join(sorted(missing))}")
    for name, (kind, shape) in expected.items():
        found = arrays[name]
        if found.dtype.kind != kind or found.shape != shape:
            raise RunError(
                f"{path}: damaged: {name} is {found.dtype}{list(found.shape)}, this run has "
                f"{'numbers' if kind == 'f' else 'integers'}{list(shape)}"
            )
    if not np.isfinite(arrays["centroids"]).all():
        raise RunError(f"{path}: damaged: centroids are not all finite")
    return {**arrays, "iteration": np.array(int(path.stem))}


def best_seed(snapshot: Mapping[str, np.ndarray]) -> int:
    """Return the position of the seed with the highest QD-score in a snapshot."""
    fitness = snapshot["fitness"]
    return int(np.argmax(np.where(np.isfinite(fitness), fitness, 0.0).sum(axis=1)))
