"""The replay buffer: a ring of transitions, in which the newest replace the oldest.

A transition is one row of a matrix, so that sampling reads one contiguous piece of memory. A
`Layout` names the columns of a row; which ones there are depends on what the algorithm learns from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import ring
from elites.core.sampling import uniform_index

Array = jax.Array
Layout = Mapping[str, int]  # column name -> width

# Folding i into a key gives the i-th key of a split, so this is larger than any number of rows.
_THIN = 2**32 - 1


def transition_layout(observation_size: int, action_size: int) -> dict[str, int]:
    """Return the columns of a transition that every TD3 learner needs."""
    return {
        "observation": observation_size, "action": action_size, "reward": 1,
        "next_observation": observation_size, "done": 1, "truncation": 1,
    }  # fmt: skip


class Replay(NamedTuple):
    """Replay buffer: a ring buffer with one transition per row."""

    rows: Array  # [capacity, width]
    head: Array  # [] int32: where the next row goes
    size: Array  # [] int32: rows filled


def empty(layout: Layout, capacity: int) -> Replay:
    """Return a replay buffer without transitions, with room for `capacity` of them."""
    zero = jnp.zeros((), jnp.int32)
    return Replay(jnp.zeros((capacity, sum(layout.values()))), zero, zero)


def insert(replay: Replay, layout: Layout, columns: Mapping[str, Array], mask: Array) -> Replay:
    """Append the transitions for which `mask` [n] is True, and return the new replay buffer.

    `columns` holds one array [n, width] for each column of the layout, or [n] for a width of 1.
    """
    if set(columns) != set(layout):
        raise ValueError(f"columns {sorted(columns)} do not fit the layout {sorted(layout)}")
    capacity = replay.rows.shape[0]
    rows = jnp.concatenate(
        [
            columns[name].reshape(mask.size, width).astype(jnp.float32)
            for name, width in layout.items()
        ],
        axis=1,
    )
    count = jnp.sum(mask)
    return Replay(
        rows=replay.rows.at[ring.places(replay.head, mask, capacity)].set(rows, mode="drop"),
        head=((replay.head + count) % capacity).astype(jnp.int32),
        size=jnp.minimum(replay.size + count, capacity).astype(jnp.int32),
    )


def thin(mask: Array, rows: float, key: Array) -> Array:
    """Return the mask [...] with a random part of its True entries set to False.

    Each stays True with probability `rows` / size of the mask. `key` may also have been split into
    the keys of the episodes: the numbers drawn here do not depend on those.
    """
    drawn = jax.random.uniform(jax.random.fold_in(key, _THIN), mask.shape)
    return mask & (drawn < rows / mask.size)


def sample(replay: Replay, key: Array, shape: tuple[int, ...]) -> Array:
    """Return stored transitions [*shape, width], drawn uniformly with replacement.

    `width` is the sum of the widths of all columns.
    """
    return replay.rows[uniform_index(key, shape, replay.size)]


def columns(layout: Layout, rows: Array) -> dict[str, Array]:
    """Split transitions [..., W] into the layout's columns. Returns them by name.

    A column of width w is an array [..., w], and W is the sum of all widths.
    """
    found, start = {}, 0
    for name, width in layout.items():
        found[name] = rows[..., start : start + width]
        start += width
    return found
