"""Uniform random indices, for drawing elites and transitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def uniform_index(key: Array, shape: tuple[int, ...], count: Array) -> Array:
    """Return random indices of this shape, drawn uniformly from 0 to `count` - 1.

    Returns zeros if `count` is 0. It takes the remainder of 32 random bits. This is cheaper than
    `jax.random.randint`, which draws twice to remove a bias of count / 2^32.
    """
    bits = jax.random.bits(key, shape, jnp.uint32)
    return (bits % jnp.maximum(count, 1).astype(jnp.uint32)).astype(jnp.int32)
