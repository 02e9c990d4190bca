"""Distances between descriptors, relative to the extents of the descriptor space.

In task units, an axis that is ten times as long as another counts ten times as much. The weights of
`Problem.weights` measure every axis in units of the longest one. If all axes are equally long, the
weights are 1 and distances are Euclidean distances in task units.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Weights = tuple[float, ...]  # [D]


def weights_of(ranges: tuple[float, ...]) -> Weights:
    """Return one weight for each descriptor axis: the longest axis's extent divided by its own.

    `ranges` are the extents of the axes. Multiplied by these weights, all axes are equally long.
    """
    longest = max(ranges)
    return tuple(float(np.float32(longest / extent)) for extent in ranges)


def weighted(points: Array, weights: Weights) -> Array:
    """Return points [..., D] multiplied by the axis weights, for use in Euclidean distances."""
    if all(weight == 1.0 for weight in weights):
        return points  # nothing to compute: results keep their bits
    return points * jnp.array(weights).reshape((1,) * (points.ndim - 1) + (-1,))


def between(points: Array, others: Array, weights: Weights) -> Array:
    """Return the weighted distance [n] between each point [n, D] and the same row of `others`."""
    return _length(weighted(points - others, weights))


def euclidean(points: Array, others: Array) -> Array:
    """Return the distance [...] between each point [..., D] and its counterpart in `others`."""
    return _length(points - others)


def _length(vectors: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(vectors), -1))


def pairwise_squared(points: Array, rows: Array) -> Array:
    """Return the squared distances [n, R] of n points [n, D] to each of R rows [R, D].

    Both must already be weighted, see `weighted`.
    """
    # Differences, because the expanded square loses the digits that tell close rows apart.
    squares = [
        jnp.square(points[:, i][:, None] - rows[:, i][None, :]) for i in range(rows.shape[1])
    ]
    return sum(squares[1:], start=squares[0])


def nearest_row(points: Array, rows: Array, weights: Weights) -> Array:
    """Return the index [n] of the row [R, D] nearest to each of n points [n, D].

    Of equally near rows, the first is chosen.
    """
    squares = pairwise_squared(weighted(points, weights), weighted(rows, weights))
    return jnp.argmin(squares, axis=1)
