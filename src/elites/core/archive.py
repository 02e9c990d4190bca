"""The archive of elites: one cell for each kind of behaviour, holding the best policy found for it.

Cells are Voronoi cells or those of a grid (`cells.py`). A candidate belongs to the cell of its
descriptor and replaces the elite there if it is strictly fitter. If several candidates of a batch
belong to one cell, the fittest competes, and the first of equals. A candidate whose fitness or
descriptor is not finite is rejected and cannot displace another.

An annealed archive (CMA-MAE) also has a threshold for each cell, which rises slowly from a minimum
towards the fitness of the candidates that exceed it. Candidates are judged by the threshold of
their cell. The elites are the same with and without it.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.cells import Cells
from elites.core.sampling import count_true, nth_true, uniform_index

Array = jax.Array
Numbers = TypeVar("Numbers", jax.Array, np.ndarray)

EMPTY = -1  # origin of a cell without an elite
NOT_BETTER, BETTER, NEW_CELL = 0, 1, 2  # status of a candidate, see `judge`


class Archive(NamedTuple):
    """Archive of one seed: arrays with one row per cell (C), including empty cells."""

    policies: Array  # [C, P]
    fitness: Array  # [C], -inf where a cell is empty
    descriptors: Array  # [C, D] reached by each elite, in task units
    centroids: Array  # [C, D]
    origin: Array  # [C] int32: which variation made the elite, EMPTY where there is none
    born: Array  # [C] int32: the iteration in which the elite was added
    threshold: Array | None = None  # [C] of an annealed archive: fitness to exceed
    reached: Array | None = None  # [C] bool: a candidate has exceeded the first threshold


@dataclasses.dataclass(frozen=True)
class Annealing:
    """How the thresholds of an annealed archive rise."""

    rate: float
    """Learning rate: 0 keeps the minimum, 1 takes the fitness of the latest candidates."""
    minimum: float
    """Threshold of every cell at the start."""


class Solutions(Protocol):
    """An archive, or another collection of solutions to draw from."""

    @property
    def fitness(self) -> Array: ...  # [C], -inf where there is no solution


class Addition(NamedTuple):
    """Result of adding a batch of b candidates to an archive."""

    archive: Archive
    added: Array  # [b] bool: the candidate is now an elite
    rejected: Array  # [b] bool: its evaluation failed or was not finite
    status: Array  # [b] int32: NOT_BETTER, BETTER or NEW_CELL, see `judge`
    value: Array  # [b] by how much it exceeds what its cell held, see `judge`


class Summary(NamedTuple):
    """Metrics of an archive: QD-score, coverage and maximum fitness."""

    qd_score: Array  # []
    coverage: Array  # [] share of filled cells
    max_fitness: Array  # []


def empty(centroids: Array, policy_size: int, annealing: Annealing | None = None) -> Archive:
    """Return an archive without elites, with one cell for each of the centroids [cells, D].

    `policy_size` is the number of parameters of a policy. With `annealing`, the archive has
    thresholds.
    """
    cells = centroids.shape[0]
    archive = Archive(
        policies=jnp.zeros((cells, policy_size)),
        fitness=jnp.full(cells, -jnp.inf, jnp.float32),  # typed, or a step would compile twice
        descriptors=jnp.zeros_like(centroids),
        centroids=centroids,
        origin=jnp.full(cells, EMPTY, jnp.int32),
        born=jnp.full(cells, -1, jnp.int32),
    )
    if annealing is None:
        return archive
    return archive._replace(
        threshold=jnp.full(cells, annealing.minimum, jnp.float32), reached=jnp.zeros(cells, bool)
    )


def filled(archive: Solutions) -> Array:
    """Return a boolean array [cells]: whether each cell holds an elite."""
    return archive.fitness > -jnp.inf


def cell_of(archive: Archive, descriptors: Array, cells: Cells) -> Array:
    """Return the index [n] of the cell that each of n descriptors [n, D] belongs to."""
    return cells.index(archive.centroids, descriptors)


def add(
    archive: Archive,
    policies: Array,
    fitness: Array,
    descriptors: Array,
    valid: Array,
    origin: Array,
    iteration: Array,
    cells: Cells,
    annealing: Annealing | None = None,
) -> Addition:
    """Add b candidates to the archive. Returns the new archive, and what became of each candidate.

    A candidate replaces the elite of its cell if it is fitter. `valid` [b] is False for a failed
    evaluation. `annealing` is that of the archive, if it has thresholds.
    """
    count = archive.fitness.shape[0]
    accepted = valid & jnp.isfinite(fitness) & jnp.isfinite(descriptors).all(-1)
    # Rejected candidates go to an extra cell behind the last one, which does not exist.
    cell = jnp.where(accepted, cell_of(archive, descriptors, cells), count)
    fitness = jnp.where(accepted, fitness, -jnp.inf)
    status, value = judge(archive, cell, fitness, annealing)
    added, best, born = _winners(archive, cell, fitness, jnp.asarray(iteration, jnp.int32))

    # A cell gets at most one new elite, so no two rows are written to the same place.
    place = jnp.where(added, cell, count)
    changed = archive._replace(
        policies=archive.policies.at[place].set(policies, mode="drop"),
        fitness=best.at[place].set(fitness, mode="drop"),
        descriptors=archive.descriptors.at[place].set(descriptors, mode="drop"),
        origin=archive.origin.at[place].set(origin.astype(jnp.int32), mode="drop"),
        born=born,
    )
    if annealing is not None:
        changed = _annealed(changed, cell, fitness, status, annealing)
    return Addition(changed, added, ~accepted, status, value)


def _winners(
    archive: Archive, cell: Array, fitness: Array, iteration: Array
) -> tuple[Array, Array, Array]:
    """Return which candidates [b] win their cell, and `fitness` and `born` [C] of the archive.

    The fittest candidate of a cell wins if it is fitter than the elite, and the first one of
    equals. Both arrays are scratch space before they have their new values. An array of their size
    for each step would take longer than all else, where there are many cells.
    """
    batch, count = len(fitness), len(archive.fitness)
    better = fitness > at(archive.fitness, cell, jnp.inf)
    best = archive.fitness.at[jnp.where(better, cell, count)].max(fitness, mode="drop")
    contender = better & (fitness == at(best, cell, jnp.inf))
    place, order = jnp.where(contender, cell, count), jnp.arange(batch)
    first = archive.born.at[place].set(batch, mode="drop").at[place].min(order, mode="drop")
    added = contender & (order == at(first, cell, batch))
    # Every cell with a contender has a winner, so nothing of the scratch is left.
    return added, best, first.at[jnp.where(added, cell, count)].set(iteration, mode="drop")


def at(values: Array, cell: Array, outside: float | bool) -> Array:
    """Return the values [b] of cells [b], given those of all cells [C], or `outside` beyond."""
    return values.at[cell].get(mode="fill", fill_value=outside)


def judge(
    archive: Archive, cell: Array, fitness: Array, annealing: Annealing | None = None
) -> tuple[Array, Array]:
    """Return the status and the value [b] of candidates, given the archive before the batch.

    `cell` [b] is the cell of each candidate, or the number of cells if it was rejected. The status
    is NEW_CELL if the cell was empty, BETTER if the candidate is fitter than its elite, and
    NOT_BETTER otherwise. The value is the difference of the two, or the fitness itself if the cell
    was empty. In an annealed archive, the threshold takes the place of the elite's fitness, and the
    minimum that of an empty cell's.
    """
    if annealing is None:
        old, nothing = at(archive.fitness, cell, jnp.inf), 0.0
        known = old > -jnp.inf
    else:
        assert archive.threshold is not None
        assert archive.reached is not None
        old, nothing = at(archive.threshold, cell, jnp.inf), annealing.minimum
        known = at(archive.reached, cell, True)
    better = fitness > old
    status = jnp.where(better, jnp.where(known, BETTER, NEW_CELL), NOT_BETTER)
    accepted = cell < archive.fitness.shape[0]
    value = fitness - jnp.where(known | ~better, old, nothing)
    return status.astype(jnp.int32), jnp.where(accepted, value, -jnp.inf)


def _annealed(
    archive: Archive, cell: Array, fitness: Array, status: Array, annealing: Annealing
) -> Archive:
    """Return the archive with raised thresholds.

    The k candidates of a cell that exceed its threshold t, with mean fitness m, change it to
    (1 - rate)^k t + (1 - (1 - rate)^k) m.
    """
    assert archive.threshold is not None
    assert archive.reached is not None
    count, better = archive.fitness.shape[0], status > NOT_BETTER
    # A product with a matrix of equal cells instead of a scattered sum, whose order a GPU does not
    # fix.
    same = ((cell[:, None] == cell[None, :]) & better[None, :]).astype(fitness.dtype)
    number = jnp.maximum(same.sum(1), 1.0)
    mean = jnp.matmul(same, jnp.where(better, fitness, 0.0), precision="highest") / number
    share = (1.0 - annealing.rate) ** number
    raised = share * at(archive.threshold, cell, 0.0) + (1.0 - share) * mean
    place = jnp.where(better, cell, count)  # candidates of one cell write the same number
    return archive._replace(
        threshold=archive.threshold.at[place].set(raised, mode="drop"),
        reached=archive.reached.at[place].set(True, mode="drop"),
    )


def sample(archive: Solutions, key: Array, count: int) -> Array:
    """Return the indices [count] of filled cells, drawn uniformly with replacement.

    If no cell is filled, the indices are out of range, and indexing with them yields the last cell.
    """
    full = filled(archive)
    return nth_true(full, uniform_index(key, (count,), count_true(full)))


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
