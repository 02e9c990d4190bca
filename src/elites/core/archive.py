"""The archive of elites: one cell for each kind of behaviour, the best policy found in each.

Cells are the Voronoi regions of fixed centroids (a centroidal Voronoi tessellation). A candidate
goes to the cell of its descriptor and replaces the elite there if it is strictly fitter; of several
candidates for one cell in a batch the best competes, of equals the first. A candidate whose fitness
or descriptor is not finite is rejected and cannot stand in the way of another.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.problem import random_index

Array = jax.Array

EMPTY = -1  # origin of a cell without an elite


class Archive(NamedTuple):
    policies: Array  # [C, P]
    fitness: Array  # [C], -inf where a cell is empty
    descriptors: Array  # [C, D] reached by each elite, in task units
    centroids: Array  # [C, D]
    origin: Array  # [C] which variation made the elite, EMPTY where there is none
    born: Array  # [C] the iteration in which the elite came in


def centroids(low: tuple[float, ...], high: tuple[float, ...], cells: int) -> Array:
    """The centroids [C, D] of a box: k-means on 50,000 uniform samples.

    They depend on the box and the number of cells alone, so that seeds and algorithms share cells.
    """
    low_, high_ = np.array(low, np.float32), np.array(high, np.float32)
    return jnp.asarray(low_ + _unit_centroids(len(low), cells) * (high_ - low_))


@functools.cache
def _unit_centroids(dimensions: int, cells: int) -> np.ndarray:
    with jax.ensure_compile_time_eval(), jax.default_device(_host()):
        sample_key, start_key = jax.random.split(jax.random.key(0))
        samples = jax.random.uniform(sample_key, (max(50_000, 10 * cells), dimensions))
        start = jax.random.choice(start_key, samples, (cells,), replace=False)
        means, points = np.asarray(start), np.asarray(samples)
    # In NumPy: faster than what XLA makes of it, and summed in the same order on every machine.
    for _ in range(30):
        nearest = _nearest(means, points)
        members = np.bincount(nearest, minlength=cells)[:, None]
        totals = [np.bincount(nearest, column, minlength=cells) for column in points.T]
        moved = np.stack(totals, axis=1) / np.maximum(members, 1)
        means = np.where(members > 0, moved, means).astype(np.float32)
    return means


def _nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """What `nearest_rows` finds, a few points at a time: their distances fit into a cache."""
    count = max(1, 2**16 // len(rows))
    found = []
    for some in np.split(points, range(count, len(points), count)):
        squares = (np.square(a[:, None] - b) for a, b in zip(some.T, rows.T, strict=True))
        found.append(functools.reduce(np.add, squares).argmin(axis=1))
    return np.concatenate(found)


def _host():
    """The CPU, on which every machine finds the same centroids; the default where there is none."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return jax.devices()[0]


def empty(centroids: Array, policy_size: int) -> Archive:
    cells = centroids.shape[0]
    return Archive(
        policies=jnp.zeros((cells, policy_size)),
        fitness=jnp.full(cells, -jnp.inf, jnp.float32),  # typed, or a step would compile twice
        descriptors=jnp.zeros_like(centroids),
        centroids=centroids,
        origin=jnp.full(cells, EMPTY, jnp.int32),
        born=jnp.full(cells, -1, jnp.int32),
    )


def filled(archive: Archive) -> Array:
    """[C] bool"""
    return archive.fitness > -jnp.inf


def nearest_rows(rows: Array, points: Array) -> Array:
    """The index [n] of the nearest of `rows` [R, D] to each of `points` [n, D]; first of equals."""
    # Differences, not the expanded square: that loses the digits which tell close rows apart.
    squares = [
        jnp.square(points[:, i][:, None] - rows[:, i][None, :]) for i in range(rows.shape[1])
    ]
    return jnp.argmin(sum(squares[1:], start=squares[0]), axis=1)


def cell_of(archive: Archive, descriptors: Array) -> Array:
    """The cell [n] of each descriptor [n, D]."""
    return nearest_rows(archive.centroids, descriptors)


def add(
    archive: Archive,
    policies: Array,
    fitness: Array,
    descriptors: Array,
    valid: Array,
    origin: Array,
    iteration: Array,
) -> tuple[Archive, Array, Array]:
    """Add a batch: the new archive, which candidates [b] came in, and which [b] were rejected."""
    batch, cells = fitness.shape[0], archive.fitness.shape[0]
    accepted = valid & jnp.isfinite(fitness) & jnp.isfinite(descriptors).all(-1)
    # Rejected candidates go to a cell of their own behind the last, which is then dropped.
    cell = jnp.where(accepted, cell_of(archive, descriptors), cells)
    fitness = jnp.where(accepted, fitness, -jnp.inf)

    best = jnp.full(cells + 1, -jnp.inf).at[cell].max(fitness)
    order = jnp.arange(batch)
    contender = accepted & (fitness == best[cell])
    first = jnp.full(cells + 1, batch).at[cell].min(jnp.where(contender, order, batch))
    incumbent = jnp.append(archive.fitness, jnp.inf)
    added = contender & (order == first[cell]) & (fitness > incumbent[cell])

    # Every cell has at most one newcomer, so no two rows are written to the same place.
    place = jnp.where(added, cell, cells)
    archive = Archive(
        policies=archive.policies.at[place].set(policies, mode="drop"),
        fitness=archive.fitness.at[place].set(fitness, mode="drop"),
        descriptors=archive.descriptors.at[place].set(descriptors, mode="drop"),
        centroids=archive.centroids,
        origin=archive.origin.at[place].set(origin.astype(jnp.int32), mode="drop"),
        born=archive.born.at[place].set(jnp.asarray(iteration, jnp.int32), mode="drop"),
    )
    return archive, added, ~accepted


def sample(archive: Archive, key: Array, count: int) -> Array:
    """Cells [count], uniform with replacement over the filled ones."""
    full = filled(archive)
    ranks = jnp.cumsum(full)
    pick = random_index(key, (count,), ranks[-1])
    return jnp.searchsorted(ranks, pick, side="right", method="compare_all")


class Summary(NamedTuple):
    qd_score: Array
    coverage: Array  # share of filled cells
    max_fitness: Array


def summary(archive: Archive) -> Summary:
    full = filled(archive)
    return Summary(
        qd_score=jnp.sum(jnp.where(full, archive.fitness, 0.0)),
        coverage=jnp.mean(full.astype(jnp.float32)),
        max_fitness=jnp.max(archive.fitness),
    )
