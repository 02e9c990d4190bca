"""The archive of elites: one cell for each kind of behaviour, holding the best policy found for it.

Cells are the Voronoi regions of fixed centroids (`centroids.py`), by distances relative to the
extents of the descriptor space (`distances.py`). A candidate belongs to the cell
of its descriptor and replaces the elite there if it is strictly fitter. If several candidates of a
batch belong to one cell, the fittest competes, and the first of equals. A candidate whose fitness
or descriptor is not finite is rejected and cannot displace another.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.distances import Weights, nearest_row
from elites.core.sampling import uniform_index

Array = jax.Array
Numbers = TypeVar("Numbers", jax.Array, np.ndarray)

EMPTY = -1  # origin of a cell without an elite


class Archive(NamedTuple):
    """Archive of one seed: arrays with one row per cell (C), including empty cells."""

    policies: Array  # [C, P]
    fitness: Array  # [C], -inf where a cell is empty
    descriptors: Array  # [C, D] reached by each elite, in task units
    centroids: Array  # [C, D]
    origin: Array  # [C] int32: which variation made the elite, EMPTY where there is none
    born: Array  # [C] int32: the iteration in which the elite was added


class Solutions(Protocol):
    """An archive, or another collection of solutions to draw from."""

    @property
    def fitness(self) -> Array: ...  # [C], -inf where there is no solution


class Addition(NamedTuple):
    """Result of adding a batch of b candidates to an archive."""

    archive: Archive
    added: Array  # [b] bool: the candidate is now an elite
    rejected: Array  # [b] bool: its evaluation failed or was not finite


class Summary(NamedTuple):
    """Metrics of an archive: QD-score, coverage and maximum fitness."""

    qd_score: Array  # []
    coverage: Array  # [] share of filled cells
    max_fitness: Array  # []


def empty(centroids: Array, policy_size: int) -> Archive:
    """Return an archive without elites, with one cell for each of the centroids [cells, D].

    `policy_size` is the number of parameters of a policy.
    """
    cells = centroids.shape[0]
    return Archive(
        policies=jnp.zeros((cells, policy_size)),
        fitness=jnp.full(cells, -jnp.inf, jnp.float32),  # typed, or a step would compile twice
        descriptors=jnp.zeros_like(centroids),
        centroids=centroids,
        origin=jnp.full(cells, EMPTY, jnp.int32),
        born=jnp.full(cells, -1, jnp.int32),
    )


def filled(archive: Solutions) -> Array:
    """Return a boolean array [cells]: whether each cell holds an elite."""
    return archive.fitness > -jnp.inf


def cell_of(archive: Archive, descriptors: Array, weights: Weights) -> Array:
    """Return the index [n] of the cell that each of n descriptors [n, D] belongs to.

    `weights` are the axis weights of the distance, see `Problem.weights`.
    """
    return nearest_row(descriptors, archive.centroids, weights)


def add(
    archive: Archive,
    policies: Array,
    fitness: Array,
    descriptors: Array,
    valid: Array,
    origin: Array,
    iteration: Array,
    weights: Weights,
) -> Addition:
    """Add b candidates to the archive. Returns the new archive, who was added and who was rejected.

    A candidate replaces the elite of its cell if it is fitter. `valid` [b] is False for a failed
    evaluation. `weights` are the axis weights of the distance, see `Problem.weights`.
    """
    batch, cells = fitness.shape[0], archive.fitness.shape[0]
    accepted = valid & jnp.isfinite(fitness) & jnp.isfinite(descriptors).all(-1)
    # Rejected candidates go to an extra cell behind the last one, which is then dropped.
    cell = jnp.where(accepted, cell_of(archive, descriptors, weights), cells)
    fitness = jnp.where(accepted, fitness, -jnp.inf)

    best = jnp.full(cells + 1, -jnp.inf).at[cell].max(fitness)
    order = jnp.arange(batch)
    contender = accepted & (fitness == best[cell])
    first = jnp.full(cells + 1, batch).at[cell].min(jnp.where(contender, order, batch))
    incumbent = jnp.append(archive.fitness, jnp.inf)
    added = contender & (order == first[cell]) & (fitness > incumbent[cell])

    # A cell gets at most one new elite, so no two rows are written to the same place.
    place = jnp.where(added, cell, cells)
    archive = Archive(
        policies=archive.policies.at[place].set(policies, mode="drop"),
        fitness=archive.fitness.at[place].set(fitness, mode="drop"),
        descriptors=archive.descriptors.at[place].set(descriptors, mode="drop"),
        centroids=archive.centroids,
        origin=archive.origin.at[place].set(origin.astype(jnp.int32), mode="drop"),
        born=archive.born.at[place].set(jnp.asarray(iteration, jnp.int32), mode="drop"),
    )
    return Addition(archive, added, ~accepted)


def sample(archive: Solutions, key: Array, count: int) -> Array:
    """Return the indices [count] of filled cells, drawn uniformly with replacement.

    If no cell is filled, the indices are out of range, and indexing with them yields the last cell.
    """
    ranks = jnp.cumsum(filled(archive))
    pick = uniform_index(key, (count,), ranks[-1])
    return jnp.searchsorted(ranks, pick, side="right", method="compare_all")


def above(fitness: Numbers, offset: float) -> Numbers:
    """Return what elites of this fitness [...] add to a QD-score: fitness minus offset."""
    return fitness - offset if offset else fitness


def summary(archive: Archive, offset: float = 0.0) -> Summary:
    """Return the archive's QD-score, coverage and maximum fitness.

    The QD-score is the sum of fitness - `offset` over the filled cells.
    """
    full = filled(archive)
    return Summary(
        qd_score=jnp.sum(jnp.where(full, above(archive.fitness, offset), 0.0)),
        coverage=jnp.mean(full.astype(jnp.float32)),
        max_fitness=jnp.max(archive.fitness),
    )
