"""Variations: how parents become offspring. One function each, on matrices of policies.

The paper's GA variation, its descriptor-conditioned PG variation (algorithm 4) and the two ways an
actor itself becomes an offspring: as it is (PGA-MAP-Elites), or folded at a descriptor (DCRL).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from elites.core import networks, td3
from elites.core.networks import MLP, Layers
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
    products = jnp.float16 if jax.default_backend() == "gpu" else jnp.float32

    def gradient(layers: Layers, observation: Array) -> Layers:
        seen = jnp.broadcast_to(observation, (len(parents), *observation.shape))

        def act(layers: Layers) -> Array:
            return networks.apply(policy, [(k, b[:, None]) for k, b in layers], seen)

        action, back = jax.vjp(act, layers)
        climb = td3.action_gradients(learner, critic, observation, action, targets, products)
        return back(-climb / observation.shape[0])[0]  # of minus the mean value, for each policy

    def step(carry, observation: Array):
        layers, moments = carry
        return networks.descend(layers, gradient(layers, observation), moments, rate), None

    # Layers, not vectors: what the steps work on need not be cut out and put back every time.
    layers = networks.unflatten(policy, parents)
    start = (layers, optax.adam(rate).init(layers))  # no parent inherits another's momentum
    (layers, _), _ = jax.lax.scan(step, start, observations)
    return networks.flatten(layers)


def greedy(actor: Array) -> Array:
    """The actor itself, as one offspring."""
    return actor[None]


def injection(learner: TD3, actor: Array, targets: Array) -> Array:
    """The conditioned actor at each target [n, D], folded into plain policies."""
    return networks.fold(learner.actor, actor, targets)
