"""Calibrate the requests to a descriptor-conditioned actor.

An actor that is asked for a descriptor reaches one nearby. Calibration searches, for each cell, for
the request whose episode ends nearest to the cell's centroid c. Every round adds a random share s
of the remaining error, and noise, to the best request so far:

    proposal = request + s (c - reached) + noise

The actor is rolled out at the proposals, and those that end nearer replace the requests.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import distances
from elites.core.reevaluation import Results
from elites.core.types import Array, Problem

LONGEST_STEP = 1.2  # of the random step sizes; 1 corrects the whole miss
LARGEST_NOISE = 0.015  # standard deviation, as a share of the range of a descriptor axis
MARGIN = 0.1  # requests may lie outside the bounds by this share of the range


class Calibration(NamedTuple):
    """Best request found for each of C cells, and the result of the actor's episode with it."""

    requests: Array  # [C, D] descriptors to ask the actor for, in task units
    fitness: Array  # [C]
    descriptors: Array  # [C, D] reached
    valid: Array  # [C] bool: False if the rollout diverged


def start(centroids: Array, results: Results) -> Calibration:
    """Return the calibration before the first round: every request is the centroid itself."""
    return Calibration(centroids, results.fitness, results.descriptors, results.valid)


def propose(problem: Problem, centroids: Array, found: Calibration, key: Array) -> Array:
    """Return new requests [C, D] to try, one for each cell."""
    step_key, noise_key = jax.random.split(key)
    ranges = jnp.array(problem.ranges)[None]
    missed = jnp.where(found.valid[:, None], centroids - found.descriptors, 0.0)
    step = jax.random.uniform(step_key, (len(centroids), 1), maxval=LONGEST_STEP)
    # A request that hits its cell is varied less than one that misses it by far.
    error = jnp.sqrt(jnp.mean(jnp.square(missed / ranges), -1, keepdims=True))
    size = jnp.where(found.valid[:, None], jnp.minimum(0.5 * error, LARGEST_NOISE), LARGEST_NOISE)
    noise = size * ranges * jax.random.normal(noise_key, centroids.shape)
    low, high = jnp.array(problem.descriptor_low)[None], jnp.array(problem.descriptor_high)[None]
    proposals = found.requests + step * missed + noise
    return jnp.clip(proposals, low - MARGIN * ranges, high + MARGIN * ranges)


def update(
    problem: Problem, centroids: Array, found: Calibration, requests: Array, results: Results
) -> Calibration:
    """Return the calibration with those of the tried `requests` [C, D] that ended nearer."""
    tried = Calibration(requests, results.fitness, results.descriptors, results.valid)
    better = _error(problem, centroids, tried) < _error(problem, centroids, found)
    return Calibration(
        *(
            jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(tried, found, strict=True)
        )
    )


def _error(problem: Problem, centroids: Array, found: Calibration) -> Array:
    """Return the distance [C] between what was reached and the centroids, infinite if invalid."""
    distance = distances.between(found.descriptors, centroids, problem.weights)
    return jnp.where(found.valid, distance, jnp.inf)
