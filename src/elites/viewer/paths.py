"""Paths of all elites of an archive, computed in chunks so that the page can show how far it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from elites.tasks.task import Task
from elites.training import Elites
from elites.viewer.data import NotFoundError, to_lists
from elites.viewer.recording import RecordingRequest, record

CHUNK = 64  # elites that are simulated together
POINTS = 40  # most points of a path


def has_paths(task: Task) -> bool:
    """Return whether the episodes of a task have paths: places that lead to the descriptor."""
    several = task.descriptor_size > 1 and task.episode_length > 1
    return several and task.episode_descriptor == "final"


def chunk(task: Task, archive: Elites, start: int) -> dict[str, Any]:
    """Return the paths of the elites from number `start` on, in the order of their cells.

    The key `paths` has a path [points][D] for each of them whose rollout is valid, `done` is the
    number of elites up to here, `total` that of all, and `next` the `start` of the next chunk, or
    None.
    """
    stored = archive.arrays
    filled = np.flatnonzero(np.isfinite(stored.fitness))
    chosen = filled[start : start + CHUNK]
    if not 0 <= start < len(filled):
        raise NotFoundError(f"there is no elite number {start}. The archive has {len(filled)}")
    # The last chunk is as large as the others, so that it does not have to be compiled.
    rows = chosen if task.outside is not None else np.resize(chosen, min(CHUNK, len(filled)))
    network = archive.algorithm.policy
    requests = [
        RecordingRequest(network, stored.policies[cell], stored.descriptors[cell]) for cell in rows
    ]
    recordings = record(task, *requests)[: len(chosen)]
    paths = [r.path for r in recordings if r is not None and r.valid and r.path is not None]
    done = start + len(chosen)
    return {
        "paths": [to_lists(_thinned(path)) for path in paths],
        "done": done,
        "total": len(filled),
        "next": done if done < len(filled) else None,
    }


def _thinned(path: np.ndarray) -> np.ndarray:
    """Return at most `POINTS` points of a path [T, D], with its first and its last."""
    places = np.linspace(0, len(path) - 1, min(POINTS, len(path)))
    return path[places.round().astype(int)]
