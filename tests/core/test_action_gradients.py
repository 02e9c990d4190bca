"""Gradients of many actions at once against `jax.grad` of the critic's value."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import networks, td3
from elites.core.action_gradients import action_gradients
from elites.core.networks import MLP

S, A, D, N = 4, 2, 2, 16


def learner(hidden=(9,), conditioned=True) -> td3.TD3:
    """Only the critic matters here."""
    return td3.TD3(
        actor=MLP((S + D * conditioned, 8, A)),
        critic=MLP((S + A + D * conditioned, *hidden, 1), output="linear"),
        actor_conditioned=conditioned, critic_conditioned=conditioned, actor_rate=1e-3,
        critic_rate=1e-3, discount=0.9, target_rate=0.1, smoothing_noise=0.2, smoothing_clip=0.5,
        delay=2, steps=2, batch_size=4, lengthscale=0.1,
    )  # fmt: skip


def many(config: td3.TD3, dtype):
    """Return the compiled gradients of many actions, as NumPy arrays."""
    gradients = jax.jit(functools.partial(action_gradients, config.critic, dtype=dtype))
    return lambda *arguments: np.asarray(gradients(*arguments))


@functools.cache
def one(config: td3.TD3):
    """Return the compiled gradient of the actions at one target each."""

    def value(action, critic, observation, target):
        return td3.value(config, critic, observation, action, target).sum()

    return jax.jit(jax.grad(value))


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.float16, 0.03)])
@pytest.mark.parametrize("hidden", [(32,), (64, 48), (32, 32, 32)])
def test_gradients_of_many_actions_equal_those_of_each_action(hidden, dtype, tolerance):
    rows, n = 20, 4
    config = learner(hidden)
    keys = jax.random.split(jax.random.key(0), 4)
    critic = 2.0 * networks.init(config.critic, keys[0])
    observation = jax.random.normal(keys[1], (rows, S))
    action = jnp.tanh(jax.random.normal(keys[2], (n, rows, A)))
    target = jax.random.uniform(keys[3], (n, D))
    got = many(config, dtype)(critic, observation, action, target)
    for i in range(n):
        targets = jnp.broadcast_to(target[i], (rows, D))
        expected = one(config)(action[i], critic, observation, targets)
        assert np.linalg.norm(got[i] - expected) < tolerance * np.linalg.norm(expected)


def test_gradients_of_an_unconditioned_critic_need_no_target():
    config = learner(conditioned=False)
    keys = jax.random.split(jax.random.key(0), 3)
    critic = networks.init(config.critic, keys[0])
    observation = jax.random.normal(keys[1], (N, S))
    action = jnp.tanh(jax.random.normal(keys[2], (3, N, A)))
    got = many(config, jnp.float32)(critic, observation, action, jnp.zeros((3, 0)))
    for i in range(3):
        expected = one(config)(action[i], critic, observation, jnp.zeros((N, 0)))
        np.testing.assert_allclose(got[i], expected, atol=1e-5)


def test_gradients_of_a_critic_with_huge_values_are_finite():
    config = learner((128, 64))
    critic = 1e4 * networks.init(config.critic, jax.random.key(0))
    observation, action = 10 * jnp.ones((8, S)), jnp.ones((2, 8, A))
    got = many(config, jnp.float16)(critic, observation, action, jnp.ones((2, D)))
    assert np.isfinite(got).all()
    assert (got != 0).any()
