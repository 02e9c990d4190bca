"""Variations: how parents become offspring. One function each, on matrices of policies.

The paper's GA variation, its descriptor-conditioned PG variation (algorithm 4) and the two ways an
actor itself becomes an offspring: as it is (PGA-MAP-Elites), or folded at a descriptor (DCRL).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from elites.core import networks, td3
from elites.core.networks import MLP
from elites.core.td3 import TD3

Array = jax.Array


def iso_line(first: Array, second: Array, key: Array, iso_sigma: float, line_sigma: float) -> Array:
    """child = x1 + iso_sigma N(0, I) + line_sigma N(0, 1) (x2 - x1), one line noise a child."""
    iso_key, line_key = jax.random.split(key)
    iso = jax.random.normal(iso_key, first.shape)
    line = jax.random.normal(line_key, (first.shape[0], 1))
    return first + iso_sigma * iso + line_sigma * line * (second - first)


def policy_gradient(
    policy: MLP,
    parents: Array,
    targets: Array,
    learner: TD3,
    critic: Array,
    observations: Array,
    rate: float,
) -> Array:
    """Let each parent [n, P] climb Q_1(s, a | its target) for as many Adam steps as minibatches.

    All parents see the same minibatches of `observations` [steps, N, O].
    """

    def loss(parameters: Array, target: Array, observation: Array) -> Array:
        layers = networks.unflatten(policy, parameters)
        action = networks.apply(policy, layers, observation)
        target = jnp.broadcast_to(target, (observation.shape[0], target.shape[0]))
        return -jnp.mean(td3.value(learner, critic, observation, action, target))

    def step(carry, observation: Array):
        policies, moments = carry
        gradient = jax.vmap(jax.grad(loss), in_axes=(0, 0, None))(policies, targets, observation)
        return networks.descend(policies, gradient, moments, rate), None

    start = (parents, optax.adam(rate).init(parents))  # no parent inherits another's momentum
    (policies, _), _ = jax.lax.scan(step, start, observations)
    return policies


def greedy(actor: Array) -> Array:
    """The actor itself, as one offspring."""
    return actor[None]


def injection(learner: TD3, actor: Array, targets: Array) -> Array:
    """The conditioned actor at each target [n, D], folded into plain policies."""
    return networks.fold(learner.actor, actor, targets)
