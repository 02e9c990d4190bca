"""Places in a ring buffer, in which the newest rows overwrite the oldest."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def places(head: Array, mask: Array, capacity: int) -> Array:
    """Return the place [n] in the ring where each row of a batch is written.

    A row that is not written has the place `capacity`.

    Rows where `mask` holds are written one after the other, from `head` on. If the batch alone is
    longer than the ring, only its last rows are written: no two rows share a place, so the result
    does not depend on the order in which a device writes them.
    """
    rank = jnp.cumsum(mask) - 1
    kept = mask & (rank > rank[-1] - capacity)
    return jnp.where(kept, (head + rank) % capacity, capacity)
