"""State of the bodies, and how it is read and summed by joints and contact points.

A state is one array `[13, B, n]` for B bodies and n robots. `unpack` names its rows without copying
them. Joints and contacts read the bodies through constant index tables. Their results are summed
per body by gathers or by a product with a constant matrix. There is no scatter-add: every sum has
one order, so a simulation repeats to the last bit.
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
    """Position, rotation, velocity and angular velocity of bodies.

    Every component is an array [rows, n], with one row per body and one column per robot.
    """

    pos: Vec3
    rot: Quat
    vel: Vec3
    ang: Vec3


def unpack(state: Array) -> Bodies:
    """Split a state [13, ...] into its named components, each of shape [...]."""
    return Bodies(Vec3(*state[0:3]), Quat(*state[3:7]), Vec3(*state[7:10]), Vec3(*state[10:13]))


def pack(bodies: Bodies) -> Array:
    """Return the components of bodies as one state array [13, ...], the inverse of `unpack`."""
    return jnp.stack([*bodies.pos, *bodies.rot, *bodies.vel, *bodies.ang])


def take(bodies: Bodies, index: np.ndarray) -> Bodies:
    """Return the bodies at the indices `index` [rows], so that row k holds body index[k]."""
    first = int(index[0]) if len(index) else 0
    if np.array_equal(index, np.arange(first, first + len(index))):
        rows = slice(first, first + len(index))  # a slice fuses better than a gather
    else:
        rows = index
    return jax.tree.map(lambda a: a[rows], bodies)


def incidence(index: np.ndarray, count: int) -> np.ndarray:
    """Return the matrix [count, rows] whose product with an array sums its rows by body.

    Row k of the array is added to body index[k]. Rows with the index -1 are left out.
    """
    return (np.arange(count)[:, None] == index[None, :]).astype(np.float32)


def sum_rows(columns: Sequence[Any], weights: np.ndarray) -> list[Array]:
    """Return `weights` @ column, an array [B, n], for each array [rows, n] in `columns`.

    B is the number of sums and n the number of robots. The CPU uses a matrix product and other
    devices use gathers, whichever is faster there. On a CPU, XLA computes the operand of a gather
    again for every gather, but the operand of a product only once. On a GPU, the small product
    would be a separate kernel, while gathers are fused.
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
    """Return the array [rows, n] unchanged, but make XLA store it instead of recomputing it.

    On a CPU, XLA would compute an array with several uses once per use. It does not fuse through a
    product, and the product with the identity is exact. A number that is not finite spreads to the
    other rows of the same robot, not to other robots.
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
