"""Snapshots: the archive without its policies, in a small file for each checkpoint.

Unlike checkpoints, all snapshots of a run are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory, RunError
from elites.words import counted


def write(run: RunDirectory, iteration: int, weights: checkpoints.Arrays) -> None:
    """Write the archive of a run, without its policies, as the snapshot of an iteration.

    `weights` are the arrays of `weights.npz` in the checkpoint of that iteration.
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
    """Return the paths of all snapshots of a run, from the oldest to the newest.

    A snapshot is the archive without its policies. Its file is named after the iteration.
    """
    return sorted(run.snapshots.glob(f"{'[0-9]' * 9}.npz")) if run.snapshots.is_dir() else []


def newest(run: RunDirectory) -> dict[str, np.ndarray] | None:
    """Return the newest snapshot of a run as arrays keyed by name, or None if it has none.

    A snapshot is the archive without its policies. See `read` for the arrays.
    """
    found = paths(run)
    return read(run, found[-1]) if found else None


def at(run: RunDirectory, iteration: int) -> dict[str, np.ndarray] | None:
    """Return the snapshot of an iteration of a run, or None if there is none. See `read`."""
    path = run.snapshots / f"{iteration:09d}.npz"
    return read(run, path) if path.exists() else None


def read(run: RunDirectory, path: Path) -> dict[str, np.ndarray]:
    """Read the snapshot at a path, an archive without policies, and return its arrays by name.

    The arrays are fitness, origin and born [seeds, C], descriptors [seeds, C, D], centroids [C, D]
    and iteration []. Raises a RunError if they do not fit the run.
    """
    arrays = checkpoints.read_arrays(path)
    config, facts = run.config(), directories.read_facts(run)
    seeds, cells, size = config.seeds, config.hp.cell_count, len(facts["descriptor_low"])
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


def qd_score(fitness: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    """Return the QD-scores [...] of archives with this fitness [..., C].

    Cells that are not finite are empty. `facts` are the run's, with the offset of QD-scores. Runs
    of earlier versions have none, which is an offset of 0.
    """
    above = fitness - facts.get("qd_offset", 0.0)
    return np.where(np.isfinite(fitness), above, 0.0).sum(axis=-1)


def best_seed(snapshot: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> int:
    """Return the index, in a snapshot's arrays, of the seed with the highest QD-score."""
    return int(np.argmax(qd_score(snapshot["fitness"], facts)))


def below_offset(run: RunDirectory) -> str:
    """Return a warning about elites whose fitness is below the QD offset, or an empty text.

    They lower the QD-score, so an archive that gains such an elite seems worse. The newest snapshot
    decides.
    """
    snapshot = newest(run)
    if snapshot is None:
        return ""
    offset = directories.read_facts(run).get("qd_offset", 0.0)
    fitness = snapshot["fitness"]
    count = int((np.isfinite(fitness) & (fitness < offset)).sum())
    if not count:
        return ""
    lowest = fitness[np.isfinite(fitness)].min()
    return (
        f"{counted(count, 'elite')} below the QD offset {offset:g}, which lower the QD-score. The "
        f"lowest fitness is {lowest:.6g}: a lower --hp.qd-offset makes every elite count"
    )
