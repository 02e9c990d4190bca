"""Places in a ring buffer, in which the newest rows overwrite the oldest."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def places(head: Array, mask: Array, capacity: int) -> Array:
    """Return the index [n] in the ring buffer at which each of n rows is written.

    Rows where `mask` [n] is True are written one after the other, starting at `head`. The index is
    `capacity` for rows that are not written.

    If a batch is longer than the ring, only its last rows are written. No two rows then share an
    index, so the result does not depend on the order in which a device writes them.
    """
    rank = jnp.cumsum(mask) - 1
    kept = mask & (rank > rank[-1] - capacity)
    return jnp.where(kept, (head + rank) % capacity, capacity)
