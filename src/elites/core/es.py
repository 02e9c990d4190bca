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
    """Return standard normal noise [pairs, P], independent for every parameter of every pair."""
    return jax.random.normal(key, (pairs, size))


def population(theta: Array, noise: Array, sigma: float) -> Array:
    """Return mirrored copies [2 * pairs, P] of the policy `theta` [P].

    First come all theta + sigma * noise, then all theta - sigma * noise.
    """
    return jnp.concatenate([theta[None] + sigma * noise, theta[None] - sigma * noise])


def centred_ranks(values: Array) -> Array:
    """Return the ranks [n] of values [n], scaled to [-0.5, 0.5].

    They are rank / (n - 1) - 0.5. The highest value gets 0.5, and NaN counts as the lowest.
    """
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    ranks = jnp.argsort(jnp.argsort(values))
    return ranks / max(len(values) - 1, 1) - 0.5


def gradient(scores: Array, noise: Array, sigma: float) -> Array:
    """Return the ascent direction [P] from the scores [2 * pairs] of `population`."""
    plus, minus = jnp.split(scores, 2)
    return (plus - minus) @ noise / (len(scores) * sigma)
