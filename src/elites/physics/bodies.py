"""The state of the bodies, and moving rows between bodies, joints and contact points.

A state is one array `[13, bodies, lanes]`; `unpack` names its rows without copying. Bodies are read
by joints and contacts through static index tables, and what those produce is summed per body by
gathers or a product with a constant matrix: no scatter-add, so a sum has one order and a simulation
repeats to the last bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.physics.rotations import Array, Quat, Vec3


class Bodies(NamedTuple):
    """Position, rotation, velocity and spin; every component is [rows, lanes]."""

    pos: Vec3
    rot: Quat
    vel: Vec3
    ang: Vec3


def unpack(state: Array) -> Bodies:
    return Bodies(Vec3(*state[0:3]), Quat(*state[3:7]), Vec3(*state[7:10]), Vec3(*state[10:13]))


def pack(bodies: Bodies) -> Array:
    return jnp.stack([*bodies.pos, *bodies.rot, *bodies.vel, *bodies.ang])


def take(bodies: Bodies, index: np.ndarray) -> Bodies:
    """The bodies `index`, one row each."""
    first = int(index[0]) if len(index) else 0
    if np.array_equal(index, np.arange(first, first + len(index))):
        rows = slice(first, first + len(index))  # a slice fuses better than a gather
    else:
        rows = index
    return jax.tree.map(lambda a: a[rows], bodies)


def incidence(index: np.ndarray, count: int) -> np.ndarray:
    """The matrix [count, rows] that sums row k into body `index[k]`."""
    return (np.arange(count)[:, None] == index[None, :]).astype(np.float32)


def sum_rows(columns: Sequence[Any], weights: np.ndarray) -> list[Array]:
    """Sum rows of each of `columns` [rows, n] into bodies [B, n] by `weights` [B, rows].

    Two ways to the same sums, each the fast one on its hardware. A CPU's XLA recomputes whatever
    feeds a gather once for every gather, while a product makes it compute its operand first; on a
    GPU the small product is a kernel of its own, while gathers merge into their neighbours.
    """
    return [
        jax.lax.platform_dependent(
            column,
            cpu=functools.partial(_sum_by_product, weights=weights),
            default=functools.partial(_sum_by_gathers, weights=weights),
        )
        for column in columns
    ]


def computed_once(column: Array) -> Array:
    """The same numbers [rows, n], for a result with many readers that is worth storing.

    A CPU's XLA would compute it again for each of them; it does not look through a product, and one
    with the identity is exact. What is not finite spreads, but only within its robot.
    """
    identity = np.eye(column.shape[0], dtype=np.float32)
    return jax.lax.platform_dependent(
        column,
        cpu=functools.partial(_sum_by_product, weights=identity),
        default=lambda column: column,
    )


def _sum_by_product(column: Array, weights: np.ndarray) -> Array:
    return jnp.dot(weights, column, precision="highest")


def _sum_by_gathers(column: Array, weights: np.ndarray) -> Array:
    members = [np.flatnonzero(row) for row in weights]
    total = jnp.zeros((len(weights), column.shape[-1]), column.dtype)
    for k in range(max(map(len, members), default=0)):
        source = np.array([rows[k] if k < len(rows) else 0 for rows in members])
        weight = [weights[i, rows[k]] if k < len(rows) else 0 for i, rows in enumerate(members)]
        total = total + column[source] * np.array(weight, np.float32)[:, None]
    return total
