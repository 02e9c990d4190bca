"""The evolution-strategy gradient, estimated from many perturbed copies of one policy.

Copies come in mirrored pairs, theta + sigma e and theta - sigma e. With n copies in all and a score
for each, the estimate of the gradient of the expected score is

    sum over pairs of (score+ - score-) e / (n sigma)

which is exact in expectation for a quadratic function. MAP-Elites-ES uses ranks as scores.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

Array = jax.Array


def noise(key: Array, pairs: int, size: int) -> Array:
    """Return independent standard normal noise [pairs, size], one row for each mirrored pair."""
    return jax.random.normal(key, (pairs, size))


def population(theta: Array, noise: Array, sigma: float) -> Array:
    """Return the mirrored copies [2 * pairs, P] of the policy `theta` [P], for noise [pairs, P].

    The first half is theta + sigma * noise, the second half theta - sigma * noise.
    """
    return jnp.concatenate([theta[None] + sigma * noise, theta[None] - sigma * noise])


def centred_ranks(values: Array) -> Array:
    """Return the ranks of n values [n], scaled to [-0.5, 0.5].

    They are rank / (n - 1) - 0.5. The highest value gets 0.5, and NaN counts as the lowest.
    """
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    ranks = jnp.argsort(jnp.argsort(values))
    return ranks / max(len(values) - 1, 1) - 0.5


def gradient(scores: Array, noise: Array, sigma: float) -> Array:
    """Return the estimated gradient [P] of the score with respect to the policy's parameters.

    `scores` [2 * pairs] are those of the copies that `population` made from `noise` [pairs, P].
    """
    plus, minus = jnp.split(scores, 2)
    return (plus - minus) @ noise / (len(scores) * sigma)
