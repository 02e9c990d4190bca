"""The kernels of TD3, run in Python, against the plain code; and what they are lowered to.

Their arithmetic is tested here. That a GPU's threads wait for each other where they must can only
be seen on one: `benchmarks/fused.py`.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import fused, networks, td3
from elites.core.networks import MLP

STEPS = 6


def learner(o=7, a=3, d=2, actor_sees=True, hidden=(64, 128), **changes) -> td3.TD3:
    return td3.TD3(
        **{
            "actor": MLP((o + (d if actor_sees else 0), *hidden, a)),
            "critic": MLP((o + a + d, *reversed(hidden), 1), output="linear"),
            "actor_conditioned": actor_sees,
            "actor_rate": 1e-3,
            "critic_rate": 3e-3,
            "discount": 0.9,
            "target_rate": 0.1,
            "smoothing_noise": 0.3,
            "smoothing_clip": 0.4,
            "delay": 2,
            "steps": STEPS,
            "batch_size": 0,  # of the data, not of the learner
            "lengthscale": 0.5,
            **changes,
        }
    )


def data(o: int, a: int, d: int, rows: int) -> tuple[td3.Batch, jax.Array]:
    rng = np.random.default_rng(0)

    def normal(*size: int) -> jax.Array:
        return jnp.float32(rng.normal(size=(STEPS, rows, *size)))

    def seldom() -> jax.Array:
        return (normal() > 0.8).astype(jnp.float32)

    batch = td3.Batch(
        normal(o), jnp.tanh(normal(a)), normal(), normal(o), seldom(), seldom(),
        jnp.tanh(normal(d)), jnp.tanh(normal(d)),
    )  # fmt: skip
    return batch, normal(a)


def begun(part: td3.TD3) -> td3.TD3State:
    """A state with targets apart from their networks."""
    state = td3.init(part, jax.random.key(0))
    return state._replace(target_actor=state.actor + 0.05, target_critics=state.critics - 0.05)


CASES = {
    # 40 rows are not a multiple of what a program takes, 34 inputs not of what it reads at a time,
    # 18 actions more than the least width of a matrix unit
    "conditioned": ({"o": 14, "a": 18, "d": 2}, 40),
    "no descriptor, delay 3, large batch": ({"o": 5, "a": 2, "d": 0, "delay": 3}, 140),
}


@functools.cache
def by_kernels(part: td3.TD3):
    return jax.jit(functools.partial(fused.train, part, interpret=True))


@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_what_the_plain_code_does(case, quick_compiler):
    shape, rows = CASES[case]
    part = learner(**shape)
    batches, noise = data(shape["o"], shape["a"], shape["d"], rows)
    state = begun(part)
    plain, losses = jax.jit(functools.partial(td3.train_plain, part))(state, batches, noise)
    kernels, their_losses = by_kernels(part)(state, batches, noise)
    for name in td3.TD3State._fields:
        for before, expected, got in zip(
            *(jax.tree.leaves(getattr(s, name)) for s in (state, plain, kernels)), strict=True
        ):
            way = np.linalg.norm(np.float64(expected) - np.float64(before))
            assert way > 0
            assert np.linalg.norm(np.float64(got) - np.float64(expected)) < 1e-4 * way, name
    np.testing.assert_allclose(np.array(losses), np.array(their_losses), rtol=1e-5)


def test_rows_that_do_not_count_change_no_critic(quick_compiler):
    shape, rows = CASES["conditioned"]
    part = learner(**shape)
    batches, noise = data(14, 18, 2, rows)
    batches = batches._replace(truncation=jnp.ones_like(batches.truncation))
    state = begun(part)
    after, losses = by_kernels(part)(state, batches, noise)
    np.testing.assert_array_equal(state.critics, after.critics)  # only the actor learns of them
    assert (state.actor != after.actor).any()
    assert losses.critic == 0


@pytest.mark.parametrize(
    ("network", "fits"),
    [
        (MLP((20, 256, 256, 8)), True),
        (MLP((20, 64, 128, 1), output="linear"), True),
        (MLP((20, 256, 8)), False),  # one hidden layer
        (MLP((20, 100, 100, 8)), False),  # no powers of two
        (MLP((20, 512, 512, 8)), False),
        (MLP((20, 64, 64, 18)), True),
        (MLP((20, 64, 64, 65)), False),  # more outputs than any robot of ours
    ],
)
def test_which_networks_have_kernels(network, fits):
    assert fused._fits(network) == fits


def test_padding_and_back():
    net = fused.Net.of(MLP((5, 64, 64, 2)))
    weights = jnp.arange(2.0 * (net.bias3 + 2)).reshape(2, -1)
    moments = td3.optax.adam(1.0).init(weights)[0]
    moved = fused.padded(net, weights, moments, -weights)
    assert moved.weights.shape == (2 * net.padded,)
    assert net.padded % 64 == 0
    back = fused.unpadded(net, moved, weights)
    np.testing.assert_array_equal(back.weights, weights)
    np.testing.assert_array_equal(back.target, -weights)


def as_if_on_a_gpu():
    """Newer releases of JAX want to know for which GPU they lower; older ones assume one."""
    try:
        from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

        device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
        return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device))
    except (ImportError, TypeError):
        return contextlib.nullcontext()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend")
def test_a_turn_is_eight_kernels_on_a_gpu():
    part = learner(14, 3, 2, hidden=(64, 64))
    arguments = begun(part), *data(14, 3, 2, 40)
    with as_if_on_a_gpu():
        traced = jax.jit(functools.partial(fused.train, part)).trace(*arguments)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.triton") == 8  # 5 of the first step, 3 of the second


# -------------------------------------------------------------------- gradients of many actions


@pytest.mark.parametrize(("products", "tolerance"), [(jnp.float32, 1e-5), (jnp.float16, 0.03)])
@pytest.mark.parametrize("hidden", [(32,), (64, 48), (32, 32, 32)])
def test_gradients_of_many_actions_equal_those_of_each(hidden, products, tolerance):
    o, a, d, rows, n = 9, 3, 2, 20, 4
    part = learner(o, a, d)
    part = td3.dataclasses.replace(part, critic=MLP((o + a + d, *hidden, 1), output="linear"))
    keys = jax.random.split(jax.random.key(0), 4)
    critic = 2.0 * networks.init(part.critic, keys[0])
    seen = jax.random.normal(keys[1], (rows, o))
    action = jnp.tanh(jax.random.normal(keys[2], (n, rows, a)))
    target = jax.random.uniform(keys[3], (n, d))
    got = td3.action_gradients(part, critic, seen, action, target, products)
    for i in range(n):
        asked = jnp.broadcast_to(target[i], (rows, d))
        expected = jax.grad(lambda x, d=asked: td3.value(part, critic, seen, x, d).sum())(action[i])
        assert np.linalg.norm(got[i] - expected) < tolerance * np.linalg.norm(expected)


def test_gradients_of_a_critic_with_huge_values_are_finite():
    part = learner(9, 3, 2)
    critic = 1e4 * networks.init(part.critic, jax.random.key(0))
    seen, action = 10 * jnp.ones((8, 9)), jnp.ones((2, 8, 3))
    got = td3.action_gradients(part, critic, seen, action, jnp.ones((2, 2)), jnp.float16)
    assert np.isfinite(got).all()
    assert (got != 0).any()
