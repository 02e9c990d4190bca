"""Re-evaluate an archive and its actor, for QD-scores and descriptor errors.

The elites are asked for in requests of the same shape as those of training, so that the same
compiled program evaluates them and, on a deterministic task, every elite repeats to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core.algorithm import Algorithm
from elites.core.archive import Archive
from elites.core.types import Request, padded_size

Array = jax.Array


class Results(NamedTuple):
    """Evaluation results without the transitions."""

    fitness: Array  # [n]
    descriptors: Array  # [n, D]
    valid: Array  # [n]


class Reevaluation(NamedTuple):
    """Archive and actor re-evaluated. Errors are means over the filled cells.

    A rollout that diverges contributes no fitness and no error.
    """

    fitness: Array  # [C] of each elite, NaN where a cell is empty or its rollout diverged
    descriptors: Array  # [C, D]
    qd_score: Array  # []
    descriptor_error: Array  # []
    actor_fitness: Array  # [C] of the actor asked for each elite's descriptor; NaN without one
    actor_descriptors: Array  # [C, D]
    actor_qd_score: Array  # []
    actor_descriptor_error: Array  # []


def request_elites(
    algorithm: Algorithm, archive: Archive, actor: Array | None, cells: Array, key: Array
) -> Request:
    """Ask for the elites of cells [batch], and for the actor at their descriptors.

    Everything is shaped and typed as in training, or it would compile to another program.
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
    """Ask for the actor alone, at the descriptors of cells [batch]. Further rows are padding."""
    rows = jnp.minimum(jnp.arange(padded_size(algorithm.batch)), algorithm.batch - 1)
    descriptors = archive.descriptors[cells[rows]]
    return Request(
        policies=archive.policies[:0],
        origins=archive.origin[:0],
        targets=descriptors[:0],
        actor=actor,
        actor_targets=descriptors,
        key=key,
    )


def score(archive: Archive, elites: Results, actor: Results | None) -> Reevaluation:
    """Compute the metrics from the results [C] of all cells, and of the actor if there is one."""
    scores = _score(archive, elites)
    if actor is not None:
        return Reevaluation(*scores, *_score(archive, actor))
    nan = jnp.float32(jnp.nan)
    no_fitness = jnp.full_like(archive.fitness, jnp.nan)
    no_descriptors = jnp.full_like(archive.descriptors, jnp.nan)
    return Reevaluation(*scores, no_fitness, no_descriptors, nan, nan)


def _score(archive: Archive, results: Results) -> tuple[Array, Array, Array, Array]:
    """Return fitness, descriptors, QD-score and mean descriptor error, of the known results."""
    # Empty cells hold no policy, and a diverged rollout reached nothing.
    known = archives.filled(archive) & results.valid
    fitness = jnp.where(known, results.fitness, jnp.nan)
    descriptors = jnp.where(known[:, None], results.descriptors, jnp.nan)
    distance = jnp.sqrt(jnp.sum(jnp.square(descriptors - archive.descriptors), -1))
    # Without any result this is 0 / 0: an actor that always fails has no error, not a perfect one.
    error = jnp.nansum(distance) / jnp.isfinite(fitness).sum()
    return fitness, descriptors, jnp.nansum(fitness), error
