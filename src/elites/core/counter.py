"""64-bit counters for JAX, whose integers have 32 bits by default.

A counter is two words, uint32 [2]: the low one and the high one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def zero() -> Array:
    """Return a counter [2] with the value 0."""
    return jnp.zeros(2, jnp.uint32)


def add(counter: Array, amount: Array) -> Array:
    """Return the counter [2] increased by `amount`, which must be less than 2**32."""
    low = counter[0] + amount.astype(jnp.uint32)
    carry = low < counter[0]  # the low word wrapped around
    return jnp.stack([low, counter[1] + carry.astype(jnp.uint32)])


def value(counters: np.ndarray | Array) -> np.ndarray:
    """Return the values of counters [..., 2] as an array [...] of 64-bit NumPy integers."""
    words = np.asarray(counters).astype(np.int64)
    return words[..., 0] + (words[..., 1] << 32)
