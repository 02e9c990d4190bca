"""Activations: JAX, NumPy and exported files agree; critics are differentiated through them."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import networks, numpy_networks, td3
from elites.core.action_gradients import action_gradients
from elites.core.gpu import kernels  # noqa: F401  (the kernels can be imported without a GPU)
from elites.core.gpu.td3 import _supported_network
from elites.core.hyperparameters import Activation, Hyperparameters
from elites.core.networks import MLP

NAMES = get_args(Activation)
EXACT = {  # by the definitions of their papers, in double precision
    "relu": lambda x: np.where(x > 0, x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_in_numpy_and_in_jax_is_that_of_the_definition(name):
    network = MLP((4, 16, 12, 3), activation=name)
    parameters = 2.0 * networks.init(network, jax.random.key(0))
    seen = np.random.default_rng(0).normal(0, 3, (20, 4)).astype(np.float32)
    layers = numpy_networks.unflatten(network.sizes, np.asarray(parameters))
    x = seen.astype(np.float64)
    for kernel, bias in layers[:-1]:
        x = EXACT[name](x @ kernel + bias)
    expected = np.tanh(x @ layers[-1][0] + layers[-1][1])
    in_jax = networks.apply(network, networks.unflatten(network, parameters), jnp.asarray(seen))
    np.testing.assert_allclose(in_jax, expected, atol=3e-5)
    found = numpy_networks.forward(layers, seen, name)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=3e-5)
    np.testing.assert_allclose(numpy_networks.forward(layers, seen[0], name), found[0], atol=1e-6)


def test_large_inputs_do_not_overflow():
    extremes = np.array([-1e4, 1e4], np.float32)
    for name, activate in numpy_networks.ACTIVATIONS.items():
        with np.errstate(all="raise", under="ignore"):
            assert np.isfinite(activate(extremes)).all(), name
    with pytest.raises(ValueError, match="a 2-3 network has 9 parameters, got shape"):
        numpy_networks.unflatten((2, 3), np.zeros(8))


def test_policies_in_numpy_need_no_jax():
    script = "import sys, elites.core.numpy_networks; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", ["gelu"])
def test_gradients_of_actions_pass_through_the_activation(name):
    critic = MLP((4 + 2 + 2, 24, 16, 1), "linear", name)
    learner = td3.TD3(
        actor=MLP((6, 8, 2)), critic=critic, actor_conditioned=True, critic_conditioned=True,
        actor_rate=1e-3, critic_rate=1e-3, discount=0.9, target_rate=0.1, smoothing_noise=0.2,
        smoothing_clip=0.5, delay=2, steps=2, batch_size=4, lengthscale=0.1,
    )  # fmt: skip
    keys = jax.random.split(jax.random.key(0), 4)
    parameters = networks.init(critic, keys[0])
    seen, action = jax.random.normal(keys[1], (20, 4)), jax.random.normal(keys[2], (3, 20, 2))
    target = jax.random.uniform(keys[3], (3, 2))
    gradients = jax.jit(functools.partial(action_gradients, critic, dtype=jnp.float16))
    found = np.asarray(gradients(parameters, seen, action, target))
    of_one = jax.jit(jax.grad(lambda a, d: td3.value(learner, parameters, seen, a, d).sum()))
    for i in range(3):
        expected = of_one(action[i], jnp.broadcast_to(target[i], (20, 2)))
        np.testing.assert_allclose(found[i], expected, atol=1e-5)


def test_other_activations_are_left_to_the_compiler_on_a_gpu():
    for hidden, name in itertools.product([(64, 64), (64,)], NAMES):
        network = MLP((20, *hidden, 4), activation=name)
        assert _supported_network(network) == (hidden == (64, 64) and name == "relu")


def test_unknown_activations_are_refused():
    with pytest.raises(ValueError, match="one of relu, tanh, elu, gelu, silu, got 'swish'"):
        Hyperparameters(activation="swish")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="activation must be one of"):
        MLP((2, 3, 1), activation="cosine")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="normalise_observations must be true or false, got 1"):
        Hyperparameters(normalise_observations=1)  # pyright: ignore[reportArgumentType]
