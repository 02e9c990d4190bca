"""Novelty: the distance of a descriptor to its nearest neighbours among those seen before.

`Memory` is a ring of descriptors, first in, first out. QD-PG stores states that are far enough from
all stored ones (`insert_distant`). MAP-Elites-ES stores every offspring (`append`). All descriptors
here are weighted (`distances.weighted`), so that distances count their axes alike.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import ring
from elites.core.distances import pairwise_squared

Array = jax.Array


class Memory(NamedTuple):
    """Ring buffer of descriptors in which new ones overwrite the oldest."""

    points: Array  # [M, D]
    age: Array  # [M] int32: order of entry, -1 where nothing is stored
    entered: Array  # [] int32: points ever stored


def empty(capacity: int, descriptor_size: int) -> Memory:
    """Return an empty memory for `capacity` descriptors."""
    return Memory(
        points=jnp.zeros((capacity, descriptor_size)),
        age=jnp.full(capacity, -1, jnp.int32),
        entered=jnp.zeros((), jnp.int32),
    )


def append(memory: Memory, points: Array, mask: Array) -> Memory:
    """Append the points [n, D] for which `mask` [n] is True, and return the new memory."""
    order = memory.entered + jnp.cumsum(mask) - 1
    place = ring.places(memory.entered, mask, memory.points.shape[0])
    return Memory(
        points=memory.points.at[place].set(points, mode="drop"),
        age=memory.age.at[place].set(order.astype(jnp.int32), mode="drop"),
        entered=(memory.entered + jnp.sum(mask)).astype(jnp.int32),
    )


def nearest_squared(memory: Memory, points: Array, neighbours: int) -> Array:
    """Return the squared distances [n, k] of n points [n, D] to their k nearest stored points.

    k is `neighbours`, or the memory's capacity if that is smaller. If fewer than k points are
    stored, the remaining entries are inf.
    """
    distance = jnp.where(memory.age[None] >= 0, pairwise_squared(points, memory.points), jnp.inf)
    count = min(neighbours, memory.points.shape[0])
    return -jax.lax.top_k(-distance, count)[0]


def mean_distance(memory: Memory, points: Array, neighbours: int, squared: bool) -> Array:
    """Return the mean distance [n] of n points [n, D] to their nearest stored points.

    The mean is over `neighbours` stored points, or over all if there are fewer. It is 0 if nothing
    is stored. If `squared`, squared distances are averaged.
    """
    nearest = nearest_squared(memory, points, neighbours)
    found = jnp.isfinite(nearest)
    values = jnp.where(found, nearest if squared else jnp.sqrt(nearest), 0.0)
    return values.sum(-1) / jnp.maximum(found.sum(-1), 1)


def rewards(memory: Memory, points: Array, neighbours: int) -> Array:
    """Return the novelty reward [steps, N] of points [steps, N, D].

    It is the mean squared distance to the nearest stored points. Training steps are computed one at
    a time, because all distances together would not fit into memory.
    """
    return jax.lax.map(lambda some: mean_distance(memory, some, neighbours, squared=True), points)


def insert_distant(
    memory: Memory, points: Array, mask: Array, threshold: float, block: int = 256
) -> Memory:
    """Store the points [n, D] that are far from all stored points, and return the new memory.

    Points for which `mask` [n] is True are considered one after the other. A point is stored if it
    is farther than `threshold` from every stored point. Points of the same batch that were stored
    before count too, and overwritten points do not.

    The result equals that of a sequential loop, but is computed in blocks by repeated guesses.
    Whether a point is stored depends only on earlier ones, so each round of deciding all points
    from the last guess fixes at least one more, usually most of them. A guess that no longer
    changes is the sequential answer.
    """
    n, capacity = points.shape[0], memory.points.shape[0]
    block = min(block, capacity, n)
    padding = -n % block
    points = jnp.concatenate([points, jnp.zeros((padding, points.shape[1]))])
    mask = jnp.concatenate([mask, jnp.zeros(padding, bool)])
    limit = threshold**2

    def offer(memory: Memory, candidates: tuple[Array, Array]):
        points, mask = candidates
        near = (pairwise_squared(points, memory.points) <= limit) & (memory.age[None] >= 0)
        # A stored point blocks a candidate until it is overwritten, so only the youngest of the
        # stored points near a candidate matters.
        youngest = jnp.max(jnp.where(near, memory.age[None], -1), axis=1)
        close_before = jnp.tril(pairwise_squared(points, points) <= limit, k=-1)

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
