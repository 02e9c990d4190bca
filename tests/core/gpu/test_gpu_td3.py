"""Compare the TD3 kernels, run in Python, with the plain code, and lower them for a GPU.

These tests check the arithmetic. Only a GPU can show that its threads wait for each other where
they must: run `benchmarks/kernels.py` there.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from elites.core import gpu, td3
from elites.core.gpu import td3 as gpu_td3
from elites.core.gpu.kernels import NetworkLayout
from elites.core.networks import MLP

STEPS = 6


def make_learner(o=7, a=3, d=2, conditioned=True, hidden=(64, 128), **changes) -> td3.TD3:
    """Return a TD3 learner for o observations, a actions and d descriptors."""
    return td3.TD3(
        **{
            "actor": MLP((o + (d if conditioned else 0), *hidden, a)),
            "critic": MLP((o + a + d, *reversed(hidden), 1), output="linear"),
            "actor_conditioned": conditioned and d > 0,
            "critic_conditioned": d > 0,
            "actor_rate": 1e-3,
            "critic_rate": 3e-3,
            "discount": 0.9,
            "target_rate": 0.1,
            "smoothing_noise": 0.3,
            "smoothing_clip": 0.4,
            "delay": 2,
            "steps": STEPS,
            "batch_size": 0,  # unused: the size of a batch is that of the data
            "lengthscale": 0.5,
            **changes,
        }
    )


def data(o: int, a: int, d: int, rows: int) -> tuple[td3.Batch, jax.Array]:
    """Return random batches of all steps, and the smoothing noise."""
    rng = np.random.default_rng(0)

    def normal(*size: int) -> jax.Array:
        return jnp.float32(rng.normal(size=(STEPS, rows, *size)))

    def rare_flags() -> jax.Array:
        return (normal() > 0.8).astype(jnp.float32)

    batch = td3.Batch(
        normal(o), jnp.tanh(normal(a)), normal(), normal(o), rare_flags(), rare_flags(),
        jnp.tanh(normal(d)), jnp.tanh(normal(d)),
    )  # fmt: skip
    return batch, normal(a)


def initial_state(learner: td3.TD3) -> td3.TD3State:
    """Return a state whose target networks differ from their networks."""
    state = td3.init(learner, jax.random.key(0))
    return state._replace(target_actor=state.actor + 0.05, target_critics=state.critics - 0.05)


CASES = {
    # 40 rows are no multiple of a block, 34 inputs are no multiple of a chunk, and 18 actions are
    # more than the smallest padded width.
    "conditioned": ({"o": 14, "a": 18, "d": 2}, 40),
    "no descriptor, delay 3, large batch": ({"o": 5, "a": 2, "d": 0, "delay": 3}, 140),
}


@functools.cache
def compiled_kernels(learner: td3.TD3):
    """Return the kernels' training function, to run in Python."""
    return jax.jit(functools.partial(gpu_td3.train, learner, interpret=True))


@pytest.mark.parametrize(("case", "factor"), list(zip(CASES, [0.3, None], strict=True)))
def test_kernels_compute_what_the_plain_code_does(case, factor):
    shape, rows = CASES[case]
    factor = None if factor is None else jnp.float32(factor)
    learner = make_learner(**shape)
    batches, noise = data(shape["o"], shape["a"], shape["d"], rows)
    state = initial_state(learner)
    plain, plain_losses = jax.jit(functools.partial(td3.train_plain, learner))(
        state, batches, noise, factor
    )
    kernels, kernel_losses = compiled_kernels(learner)(state, batches, noise, factor)
    for name in td3.TD3State._fields:
        for before, expected, got in zip(
            *(jax.tree.leaves(getattr(s, name)) for s in (state, plain, kernels)), strict=True
        ):
            change = np.linalg.norm(np.float64(expected) - np.float64(before))
            assert change > 0
            assert np.linalg.norm(np.float64(got) - np.float64(expected)) < 1e-4 * change, name
    np.testing.assert_allclose(np.array(plain_losses), np.array(kernel_losses), rtol=1e-5)


def test_truncated_transitions_change_no_critic():
    shape, rows = CASES["conditioned"]
    learner = make_learner(**shape)
    batches, noise = data(14, 18, 2, rows)
    batches = batches._replace(truncation=jnp.ones_like(batches.truncation))
    state = initial_state(learner)
    # With a factor, as above: the kernels are compiled once for both tests.
    after, losses = compiled_kernels(learner)(state, batches, noise, jnp.float32(0.3))
    np.testing.assert_array_equal(state.critics, after.critics)  # only the actor learns from them
    assert (state.actor != after.actor).any()
    assert losses.critic == 0


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (MLP((20, 256, 256, 8)), True),
        (MLP((20, 64, 128, 1), output="linear"), True),
        (MLP((20, 256, 8)), False),  # one hidden layer
        (MLP((20, 100, 100, 8)), False),  # not powers of two
        (MLP((20, 512, 512, 8)), False),
        (MLP((20, 64, 64, 18)), True),
        (MLP((20, 64, 64, 65)), False),  # more outputs than the widest padding
    ],
)
def test_which_networks_the_kernels_support(network, expected):
    assert gpu_td3._supported_network(network) == expected


def test_unpadding_inverts_padding():
    net = NetworkLayout.of(MLP((5, 64, 64, 2)))
    parameters = jnp.arange(2.0 * (net.bias3 + 2)).reshape(2, -1)
    adam = optax.adam(1.0).init(parameters)
    padded = gpu_td3.pad_state(net, parameters, adam, -parameters)
    assert padded.parameters.shape == (2 * net.padded_size,)
    assert net.padded_size % 64 == 0
    back = gpu_td3.unpad_state(net, padded, parameters)
    np.testing.assert_array_equal(back.parameters, parameters)
    np.testing.assert_array_equal(back.target, -parameters)


def as_if_on_a_gpu():
    """Declare a GPU to lower for, as newer releases of JAX require. Older ones assume one."""
    try:
        from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

        device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
        return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device))
    except (ImportError, TypeError):
        return contextlib.nullcontext()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend")
def test_a_delay_cycle_is_eight_kernels_on_a_gpu():
    learner = make_learner(14, 3, 2, hidden=(64, 64))
    arguments = initial_state(learner), *data(14, 3, 2, 40)
    with as_if_on_a_gpu():
        traced = jax.jit(functools.partial(gpu_td3.train, learner)).trace(*arguments)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@__gpu$xla.gpu.triton") == 8  # five for the first step, three for the second


# ---------------------------------------------------------------------------------------- choices


def test_without_a_gpu_nothing_is_chosen_for_one(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert gpu.td3_training(make_learner()) is None
    assert gpu.product_dtype() == jnp.float32


@pytest.mark.parametrize("supported", [True, False])
def test_on_a_gpu_the_kernels_run_what_they_support(monkeypatch, supported):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(gpu_td3, "supported", lambda learner: supported)
    training = gpu.td3_training(make_learner())
    assert (training is not None) == supported
    assert gpu.product_dtype() == jnp.float16
