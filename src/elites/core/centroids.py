"""The centroids of a centroidal Voronoi tessellation: the archive's cells, found by k-means."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array

_SAMPLES, _ROUNDS = 50_000, 30


def box_centroids(low: tuple[float, ...], high: tuple[float, ...], cells: int) -> Array:
    """Return the centroids [cells, D] of the box [low, high], by k-means on uniform samples.

    They depend only on the box and the number of cells, so that seeds and algorithms share cells.
    """
    low_, high_ = np.array(low, np.float32), np.array(high, np.float32)
    unit = _unit_box_centroids(len(low), cells)
    return jnp.asarray(low_[None] + unit * (high_ - low_)[None])


@functools.cache
def _unit_box_centroids(dimensions: int, cells: int) -> np.ndarray:
    with jax.ensure_compile_time_eval(), jax.default_device(_host()):
        sample_key, start_key = jax.random.split(jax.random.key(0))
        samples = jax.random.uniform(sample_key, (max(_SAMPLES, 10 * cells), dimensions))
        start = jax.random.choice(start_key, samples, (cells,), replace=False)
        means, points = np.asarray(start), np.asarray(samples)
    # NumPy is faster here than compiled code, and sums in the same order on every machine.
    for _ in range(_ROUNDS):
        nearest = _nearest(means, points)
        members = np.bincount(nearest, minlength=cells)[:, None]
        totals = [np.bincount(nearest, column, minlength=cells) for column in points.T]
        moved = np.stack(totals, axis=1) / np.maximum(members, 1)
        means = np.where(members > 0, moved, means).astype(np.float32)
    return means


_FEW, _FLAT = 256, 4  # rows, and dimensions: with fewer rows or more dimensions, no tree is used
_CLOSE, _NEAR = 4, 1e-5  # rows to compare for a point, and relative difference of near distances


def _nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the index [n] of the row that is nearest to each of n points [n, D].

    A tree finds the rows that come into question, and their distances decide as those of all rows
    would: in 32 bits, and the first of equals. All rows are compared where too many are near.
    """
    if len(rows) < _FEW or rows.shape[1] > _FLAT:
        return _nearest_of_all(rows, points)
    from scipy.spatial import KDTree  # comes with JAX, and takes a while to load

    distances, close = KDTree(rows).query(points, _CLOSE)
    close = np.sort(close, axis=1)
    offsets = (points[:, None, i] - rows[close, i] for i in range(rows.shape[1]))
    squares = functools.reduce(np.add, map(np.square, offsets))
    found = np.take_along_axis(close, squares.argmin(axis=1)[:, None], 1)[:, 0]
    unsure = distances[:, -1] <= distances[:, 0] * (1 + _NEAR)
    if unsure.any():
        found[unsure] = _nearest_of_all(rows, points[unsure])
    return found


def _nearest_of_all(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the same as `_nearest`, by the distances to all rows.

    They are computed in blocks that fit into the processor's cache.
    """
    block = max(1, 2**16 // len(rows))
    found = []
    for some in np.split(points, range(block, len(points), block)):
        squares = (np.square(a[:, None] - b) for a, b in zip(some.T, rows.T, strict=True))
        found.append(functools.reduce(np.add, squares).argmin(axis=1))
    return np.concatenate(found)


def _host():
    """Return the CPU as a JAX device, or the default device if JAX has no CPU device.

    Centroids are computed on the CPU, so that every machine finds the same ones.
    """
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return jax.devices()[0]
