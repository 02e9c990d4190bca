"""Random keys of seeds and iterations. They are derived from the seeds, never stored."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.types import Array


def seed_keys(seeds: Iterable[int]) -> Array:
    """Return the JAX random key of each seed, as an array [seeds]."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def iteration_keys(keys: Array, iteration: int) -> Array:
    """Return the random keys [seeds] of an iteration. `keys` [seeds] come from `seed_keys`."""
    return _folded_in(keys, np.uint32(iteration))


@jax.jit  # otherwise this would take longer than many an iteration on plain vectors
def _folded_in(keys: Array, number: Array | np.uint32) -> Array:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, number)


def reevaluation_keys(keys: Array) -> Array:
    """Return the random keys [seeds] of a re-evaluation. `keys` [seeds] come from `seed_keys`.

    They are the keys of an iteration number that training never reaches.
    """
    return iteration_keys(keys, 2**31 - 1)
