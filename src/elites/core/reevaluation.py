"""Re-evaluate an archive and its actor, for QD-scores and descriptor errors.

The elites are asked for in requests of the same shape as those of training, so that the same
compiled program evaluates them and, on a deterministic task, every elite repeats to the bit, if
its simulator does.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import distances
from elites.core.algorithm import Algorithm
from elites.core.archive import Archive, Summary
from elites.core.cells import Cells
from elites.core.types import Request, Results, padded_size

Array = jax.Array


class Reevaluation(NamedTuple):
    """Scores of an archive and its actor from evaluating both again.

    Errors are mean distances (see `distances`) over the filled cells. A rollout that diverges
    contributes no fitness and no error.

    A QD-score counts a rollout for the cell that it was asked for, wherever it ended. A rollout
    adds its fitness minus the offset, see `Algorithm.qd_offset`. The re-binned
    figures describe the archive that the rollouts alone would fill, each in the cell it reached.
    """

    fitness: Array  # [C] of each elite, NaN where a cell is empty or its rollout diverged
    descriptors: Array  # [C, D]
    qd_score: Array  # []
    descriptor_error: Array  # []
    cells: Array  # [C] int32: the cell that each rollout reached, -1 where there is no result
    rebinned_qd_score: Array  # []
    rebinned_coverage: Array  # []
    actor_fitness: Array  # [C] of the actor asked for each elite's descriptor; NaN without one
    actor_descriptors: Array  # [C, D]
    actor_qd_score: Array  # []
    actor_descriptor_error: Array  # []
    actor_cells: Array  # [C]
    actor_rebinned_qd_score: Array  # []
    actor_rebinned_coverage: Array  # []


class _Scores(NamedTuple):
    """Scores of either the archive or the actor: one half of the fields of a `Reevaluation`."""

    fitness: Array
    descriptors: Array
    qd_score: Array
    descriptor_error: Array
    cells: Array
    rebinned_qd_score: Array
    rebinned_coverage: Array


def request_elites(
    algorithm: Algorithm, archive: Archive, actor: Array | None, cells: Array, key: Array
) -> Request:
    """Return a request for the elites of `cells` [batch], and for the actor at their descriptors.

    `cells` are indices. All arrays have the shapes and types of training. Otherwise JAX would
    compile another program, whose results could differ in the last bits.
    """
    descriptors = archive.descriptors[cells]
    return Request(
        policies=archive.policies[cells],
        origins=archive.origin[cells],
        targets=descriptors,
        actor=actor,
        actor_targets=descriptors[jnp.arange(algorithm.actor_rollouts) % algorithm.batch],
        key=key,
    )


def request_actor(
    algorithm: Algorithm, archive: Archive, actor: Array, cells: Array, key: Array
) -> Request:
    """Return a request for rollouts of the actor alone, at the descriptors of `cells` [batch].

    `cells` are indices.
    """
    return request_at(algorithm, actor, archive.descriptors[cells], key)


def request_at(algorithm: Algorithm, actor: Array, descriptors: Array, key: Array) -> Request:
    """Return a request for rollouts of the actor alone, at `descriptors` [batch, D].

    Further rows of the request are padding: they repeat the last descriptor.
    """
    rows = jnp.minimum(jnp.arange(padded_size(algorithm.batch)), algorithm.batch - 1)
    targets = descriptors[rows]
    return Request(
        policies=jnp.zeros((0, algorithm.policy.size)),
        origins=jnp.zeros(0, jnp.int32),
        targets=targets[:0],
        actor=actor,
        actor_targets=targets,
        key=key,
    )


def score(
    cells: Cells,
    archive: Archive,
    elites: Results,
    actor: Results | None,
    offset: float = 0.0,
) -> Reevaluation:
    """Return the scores of an archive and its actor from their results, one for each of C cells.

    `cells` says how the descriptor space is divided. If `actor` is None, the actor's scores are
    NaN. `offset` is that of the QD-scores.
    """
    of_elites = _score(cells, archive, elites, offset)._asdict()
    if actor is not None:
        of_actor = _score(cells, archive, actor, offset)._asdict()
    else:
        nothing = dict.fromkeys(of_elites, jnp.nan) | {"cells": -1}
        of_actor = {name: jnp.full_like(part, nothing[name]) for name, part in of_elites.items()}
    return Reevaluation(**of_elites, **{f"actor_{name}": part for name, part in of_actor.items()})


def _score(cells: Cells, archive: Archive, results: Results, offset: float) -> _Scores:
    # Empty cells hold no policy, and a diverged rollout reached nothing.
    known = archives.filled(archive) & results.valid
    fitness = jnp.where(known, results.fitness, jnp.nan)
    descriptors = jnp.where(known[:, None], results.descriptors, jnp.nan)
    distance = distances.between(descriptors, archive.descriptors, cells.weights)
    # Without any result this is 0 / 0: an actor that always fails has no error, not a perfect one.
    error = jnp.nansum(distance) / jnp.isfinite(fitness).sum()
    reached = archives.cell_of(archive, results.descriptors, cells)
    summary = _rebinned(cells, archive.centroids, results._replace(valid=known), offset)
    return _Scores(
        fitness=fitness,
        descriptors=descriptors,
        qd_score=jnp.nansum(archives.above(fitness, offset)),
        descriptor_error=error,
        cells=jnp.where(known, reached, -1),
        rebinned_qd_score=summary.qd_score,
        rebinned_coverage=summary.coverage,
    )


def _rebinned(cells: Cells, centroids: Array, results: Results, offset: float) -> Summary:
    """Return the summary of an archive of these results alone, each in the cell it reached."""
    n = results.fitness.shape[0]
    addition = archives.add(
        archives.empty(centroids, 0),
        jnp.zeros((n, 0)),  # nobody needs the policies
        results.fitness,
        results.descriptors,
        results.valid,
        origin=jnp.zeros(n, jnp.int32),
        iteration=jnp.int32(0),
        cells=cells,
    )
    return archives.summary(addition.archive, offset)
