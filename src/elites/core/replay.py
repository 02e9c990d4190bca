"""A ring of transitions: the newest replace the oldest, sampling is uniform.

A transition is one row of a matrix, so that sampling reads one contiguous piece of memory. Which
columns a row has depends on what the algorithm learns from: a `Layout` names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core.problem import random_index

Array = jax.Array
Layout = Mapping[str, int]  # column name -> width; width 1 reads as a number, not a vector


class Replay(NamedTuple):
    rows: Array  # [capacity, width]
    head: Array  # [] where the next row goes
    size: Array  # [] rows filled


def empty(layout: Layout, capacity: int) -> Replay:
    zero = jnp.zeros((), jnp.int32)
    return Replay(jnp.zeros((capacity, sum(layout.values()))), zero, zero)


def insert(replay: Replay, layout: Layout, columns: Mapping[str, Array], mask: Array) -> Replay:
    """Append the rows where `mask` [n] holds, in order. Columns are [n] or [n, width]."""
    if set(columns) != set(layout):
        raise ValueError(f"columns {sorted(columns)} do not fit the layout {sorted(layout)}")
    n, capacity = mask.shape[0], replay.rows.shape[0]
    rows = jnp.concatenate(
        [columns[name].reshape(n, width).astype(jnp.float32) for name, width in layout.items()],
        axis=1,
    )
    rank = jnp.cumsum(mask) - 1
    count = rank[-1] + 1
    # If the batch alone is longer than the ring, only its end survives.
    kept = mask & (rank >= count - capacity)
    place = jnp.where(kept, (replay.head + rank) % capacity, capacity)
    return Replay(
        rows=replay.rows.at[place].set(rows, mode="drop"),
        head=((replay.head + count) % capacity).astype(jnp.int32),
        size=jnp.minimum(replay.size + count, capacity).astype(jnp.int32),
    )


def sample(replay: Replay, key: Array, shape: tuple[int, ...]) -> Array:
    """Rows [*shape, width], uniform with replacement over the filled part."""
    return replay.rows[random_index(key, shape, replay.size)]


def column(layout: Layout, rows: Array, name: str) -> Array:
    """One column of rows [..., width]: [...] where its width is 1, else [..., width]."""
    start = 0
    for other, width in layout.items():
        if other == name:
            return rows[..., start] if width == 1 else rows[..., start : start + width]
        start += width
    raise KeyError(name)
