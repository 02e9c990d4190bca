"""Dominated novelty search: a population in which solutions compete without cells.

Bahlous-Boldi et al. (2025) replace the cells of an archive by a competition fitness. With D_i, the
solutions that are fitter than solution i, it is

    c_i = mean distance of the descriptor of i to its k nearest descriptors in D_i
          infinite where D_i is empty

The N solutions with the highest c survive. A solution stays if it is fit, or if it is far from all
that are fitter. Of equally fit solutions, the one that came first counts as fitter, so that copies
do not fill the population.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import averaging, distances
from elites.core.distances import Weights
from elites.core.types import Array, Results


class Population(NamedTuple):
    """Solutions of a search without cells. The oldest come first."""

    policies: Array  # [N, P]
    fitness: Array  # [N], -inf where there is no solution yet
    descriptors: Array  # [N, D] in task units


def empty(capacity: int, policy_size: int, descriptor_size: int) -> Population | None:
    """Return a population without solutions, with room for `capacity` of them.

    Returns None if `capacity` is 0, for algorithms that have no population.
    """
    if not capacity:
        return None
    return Population(
        policies=jnp.zeros((capacity, policy_size)),
        fitness=jnp.full(capacity, -jnp.inf, jnp.float32),
        descriptors=jnp.zeros((capacity, descriptor_size)),
    )


def competition(fitness: Array, points: Array, neighbours: int) -> Array:
    """Return the competition fitness [n] of n solutions with weighted descriptors `points` [n, D].

    The mean is over `neighbours` fitter solutions, or over all if there are fewer. Entries without
    a solution, whose fitness is -inf, get -inf.
    """
    full, order = fitness > -jnp.inf, jnp.arange(len(fitness))
    mine, others = fitness[:, None], fitness[None]
    fitter = (others > mine) | ((others == mine) & (order[None] < order[:, None]))
    squares = distances.pairwise_squared(points, points)
    squares = jnp.where(fitter & full[None], squares, jnp.inf)
    nearest = -jax.lax.top_k(-squares, min(neighbours, len(fitness)))[0]
    found = jnp.isfinite(nearest)
    total = jnp.sum(jnp.where(found, jnp.sqrt(nearest), 0.0), -1)
    mean = jnp.where(found.any(-1), total / jnp.maximum(found.sum(-1), 1), jnp.inf)
    return jnp.where(full, mean, -jnp.inf)


def survivors(
    population: Population,
    policies: Array,
    results: Results,
    neighbours: int,
    weights: Weights,
) -> Population:
    """Return the solutions that survive of a population and b evaluated policies [b, P].

    Failed evaluations do not enter it. `weights` are the axis weights of distances.
    """
    fitness = jnp.where(averaging.failed(results), -jnp.inf, results.fitness)
    descriptors = jnp.where(jnp.isfinite(fitness)[:, None], results.descriptors, 0.0)
    new = Population(policies, fitness, descriptors)
    joined = Population(*(jnp.concatenate(pair) for pair in zip(population, new, strict=True)))
    points = distances.weighted(joined.descriptors, weights)
    score = competition(joined.fitness, points, neighbours)
    rows = jnp.sort(jax.lax.top_k(score, len(population.fitness))[1])  # keeps their order
    return Population(*(part[rows] for part in joined))
