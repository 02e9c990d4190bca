"""Start a run from policies that exist already, such as the archive of another run.

The policies are evaluated again by the new run, and each becomes the elite of the cell that it
reaches now. Fitness and descriptors in the new archive are therefore those of the new run's task
and of its compiled program, so that they repeat to the bit.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import archive as archives
from elites.core import averaging
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.types import Array, Results
from elites.training.keys import iteration_keys
from elites.training.seeds import Batched


class Given(NamedTuple):
    """Policies that the seeds of a run start from. Every seed has k rows."""

    policies: np.ndarray  # [seeds, k, P]
    origins: np.ndarray  # [seeds, k] int32: indices into `Algorithm.origins`
    filled: np.ndarray  # [seeds, k] bool: False for rows without a policy


def archive_of(batched: Batched, given: Given, keys: Array) -> Archive:
    """Evaluate given policies and return archives [seeds, ...] of those that won their cell.

    `keys` [seeds] come from `seed_keys`. The evaluations do not count towards the budget.
    """
    algorithm, seeds = batched.algorithm, batched.seeds
    centroids = algorithm.centroids()
    centroids = jnp.broadcast_to(centroids, (seeds, *centroids.shape))
    archive = jax.vmap(lambda c: archives.empty(c, algorithm.policy.size))(centroids)
    add = batched.over_seeds(functools.partial(_add, algorithm.division), donate=True)
    actor = algorithm.actor(batched.shapes(keys))
    actors = None if actor is None else jnp.zeros(actor.shape, actor.dtype)
    keys = iteration_keys(keys, _KEYS)
    count, batch = given.filled.shape[1], algorithm.batch
    for start in range(0, count, batch):
        rows = np.minimum(np.arange(start, start + batch), count - 1)
        known = given.filled[:, rows] & (np.arange(start, start + batch) < count)
        policies = jnp.asarray(given.policies[:, rows])
        results = _evaluated(batched, policies, actors, iteration_keys(keys, start))
        origins = jnp.asarray(given.origins[:, rows])
        archive = add(archive, policies, results, origins, jnp.asarray(known))
    return archive


_KEYS = 2**31 - 2  # an iteration that training never reaches, and re-evaluation does not use


def _evaluated(batched: Batched, policies: Array, actors: Array | None, keys: Array) -> Results:
    """Return the results [seeds, batch] of policies, averaged as in training."""
    algorithm = batched.algorithm
    parts = []
    for repeat in range(algorithm.repeats):
        found = batched.evaluate(policies, actors, iteration_keys(keys, repeat))
        parts.append(Results(*(array[:, : algorithm.batch] for array in found[:3])))
    joined = jax.tree.map(lambda *a: jnp.concatenate(a, axis=1), *parts)
    average = functools.partial(
        averaging.averaged, times=algorithm.repeats, average=algorithm.hp.average
    )
    return jax.vmap(average)(joined)


def _add(
    cells: Cells,
    archive: Archive,
    policies: Array,
    results: Results,
    origins: Array,
    known: Array,
) -> Archive:
    """Return the archive of one seed after adding evaluated policies, as elites of iteration 0."""
    return archives.add(
        archive, policies, results.fitness, results.descriptors, results.valid & known, origins,
        iteration=jnp.int32(0), cells=cells,
    ).archive  # fmt: skip
