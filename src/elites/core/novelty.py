"""Novelty: how far a descriptor is from its nearest neighbours among those seen before.

`Memory` is a ring of descriptors, first in, first out. QD-PG fills it with states that are far
enough from all in it (`insert_distant`), MAP-Elites-ES with every offspring (`append`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class Memory(NamedTuple):
    points: Array  # [M, D]
    age: Array  # [M] order of entry, -1 where nothing is stored
    entered: Array  # [] points that ever came in


def empty(capacity: int, descriptor_size: int) -> Memory:
    return Memory(
        points=jnp.zeros((capacity, descriptor_size)),
        age=jnp.full(capacity, -1, jnp.int32),
        entered=jnp.zeros((), jnp.int32),
    )


def append(memory: Memory, points: Array, mask: Array) -> Memory:
    """Store the points [n, D] where `mask` holds, in order."""
    capacity = memory.points.shape[0]
    rank = jnp.cumsum(mask) - 1
    count = rank[-1] + 1
    kept = mask & (rank >= count - capacity)
    order = memory.entered + rank
    place = jnp.where(kept, order % capacity, capacity)
    return Memory(
        points=memory.points.at[place].set(points, mode="drop"),
        age=memory.age.at[place].set(order.astype(jnp.int32), mode="drop"),
        entered=(memory.entered + count).astype(jnp.int32),
    )


def nearest_squared(memory: Memory, points: Array, neighbours: int) -> Array:
    """Squared distances [n, k] to the k nearest stored points, inf where there are fewer."""
    distance = jnp.where(memory.age[None] >= 0, _squared(points, memory.points), jnp.inf)
    count = min(neighbours, memory.points.shape[0])
    return -jax.lax.top_k(-distance, count)[0]


def mean_distance(memory: Memory, points: Array, neighbours: int, squared: bool) -> Array:
    """Mean (squared) distance [n] to the nearest stored points; missing neighbours are ignored."""
    nearest = nearest_squared(memory, points, neighbours)
    found = jnp.isfinite(nearest)
    values = jnp.where(found, nearest if squared else jnp.sqrt(nearest), 0.0)
    return values.sum(-1) / jnp.maximum(found.sum(-1), 1)


def insert_distant(
    memory: Memory, points: Array, mask: Array, threshold: float, block: int = 256
) -> Memory:
    """Offer points [n, D] one after the other; each enters if farther than `threshold` from all.

    'All' is what is stored at that moment: the points before the batch, those of the batch accepted
    so far, and no longer those that newcomers pushed out. Computed in blocks, and a block by
    repeated guesses: whether a point enters depends on earlier ones alone, so each round of
    deciding all points from the last guess settles at least one more, usually most of them, and a
    guess that repeats itself is the sequential answer.
    """
    n, capacity = points.shape[0], memory.points.shape[0]
    block = min(block, capacity, n)
    padding = -n % block
    points = jnp.concatenate([points, jnp.zeros((padding, points.shape[1]))])
    mask = jnp.concatenate([mask, jnp.zeros(padding, bool)])
    limit = threshold**2

    def offer(memory: Memory, candidates: tuple[Array, Array]):
        points, mask = candidates
        near = (_squared(points, memory.points) <= limit) & (memory.age[None] >= 0)
        # A stored point stands in the way until enough newcomers have pushed it out: only the
        # youngest one near a candidate matters.
        youngest = jnp.max(jnp.where(near, memory.age[None], -1), axis=1)
        close_before = jnp.tril(_squared(points, points) <= limit, k=-1)

        def decide(guess: Array) -> Array:
            entered_before = jnp.cumsum(guess) - guess
            oldest = jnp.maximum(memory.entered + entered_before - capacity, 0)
            return mask & (youngest < oldest) & ~jnp.any(close_before & guess[None], axis=1)

        _, accepted = jax.lax.while_loop(
            lambda guesses: jnp.any(guesses[0] != guesses[1]),
            lambda guesses: (guesses[1], decide(guesses[1])),
            (jnp.zeros(block, bool), decide(jnp.zeros(block, bool))),
        )
        return append(memory, points, accepted), None

    blocks = (points.reshape(-1, block, points.shape[1]), mask.reshape(-1, block))
    return jax.lax.scan(offer, memory, blocks)[0]


def _squared(a: Array, b: Array) -> Array:
    """Squared distances [n, m]."""
    squares = [jnp.square(a[:, i][:, None] - b[:, i][None, :]) for i in range(a.shape[1])]
    return sum(squares[1:], start=squares[0])
