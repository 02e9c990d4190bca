"""Networks as flat vectors: their layout, their arithmetic and how they start."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.core import networks
from elites.core.networks import MLP


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ((3, 2), 3 * 2 + 2),
        ((1, 1), 2),
        ((4, 5, 6, 2), 4 * 5 + 5 + 5 * 6 + 6 + 6 * 2 + 2),
        ((29, 128, 128, 8), 21_384),
        ((48, 128, 128, 18), 25_106),
        ((19, 128, 128, 6), 19_846),
    ],
)
def test_number_of_parameters(sizes, count):
    network = MLP(sizes)
    assert network.size == count
    assert networks.init(network, jax.random.key(0)).shape == (count,)
    layers = networks.unflatten(network, jnp.zeros(count))
    assert sum(kernel.size + bias.size for kernel, bias in layers) == count


def test_policies_have_two_hidden_layers_of_128_and_bounded_outputs():
    assert networks.policy(29, 8) == MLP((29, 128, 128, 8), output="tanh")
    assert networks.policy(3, 2, (16,)).sizes == (3, 16, 2)


@pytest.mark.parametrize("sizes", [(), (3,), (3, 0, 2), (-1, 2)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="at least two positive sizes"):
        MLP(sizes)


def test_layout_is_kernels_row_by_row_each_followed_by_its_bias():
    network = MLP((2, 3, 1))
    (first, first_bias), (second, second_bias) = networks.unflatten(network, jnp.arange(13.0))
    np.testing.assert_array_equal(first, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(first_bias, [6, 7, 8])
    np.testing.assert_array_equal(second, [[9], [10], [11]])
    np.testing.assert_array_equal(second_bias, [12])


@pytest.mark.parametrize("count", [25, 27, 0])
def test_a_wrong_number_of_parameters_is_refused(count):
    with pytest.raises(ValueError, match=f"3-4-2 network has 26 parameters, got {count}"):
        networks.unflatten(MLP((3, 4, 2)), jnp.zeros((5, count)))


@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_flatten_undoes_unflatten(leading):
    network = MLP((3, 4, 2))
    vectors = jax.random.normal(jax.random.key(0), (*leading, network.size))
    layers = networks.unflatten(network, vectors)
    assert [kernel.shape for kernel, _ in layers] == [(*leading, 3, 4), (*leading, 4, 2)]
    np.testing.assert_array_equal(networks.flatten(layers), vectors)


def numpy_forward(sizes, vector, x, output):
    """Layer by layer, in float64, reading the vector from the front."""
    vector, x = np.asarray(vector, np.float64), np.asarray(x, np.float64)
    pairs = list(itertools.pairwise(sizes))
    for i, (inputs, outputs) in enumerate(pairs):
        kernel, vector = vector[: inputs * outputs], vector[inputs * outputs :]
        bias, vector = vector[:outputs], vector[outputs:]
        x = np.array([sum(x[r] * kernel[r * outputs + c] for r in range(inputs)) + bias[c]
                      for c in range(outputs)])  # fmt: skip
        if i < len(pairs) - 1:
            x = np.maximum(x, 0.0)
    return np.tanh(x) if output == "tanh" else x


@settings(max_examples=10)
@given(
    st.sampled_from([(3, 4, 2), (2, 1), (5, 3, 3, 2)]),
    st.sampled_from(["tanh", "linear"]),
    st.integers(0, 1000),
)
def test_apply_is_the_forward_pass(sizes, output, seed):
    network = MLP(sizes, output)
    rng = np.random.default_rng(seed)
    vector, x = rng.normal(size=network.size), rng.normal(size=(4, sizes[0]))
    found = networks.apply(
        network, networks.unflatten(network, jnp.asarray(vector, jnp.float32)), jnp.asarray(x)
    )
    expected = [numpy_forward(sizes, vector, row, output) for row in x]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    if output == "tanh":
        assert (np.abs(found) <= 1.0).all()


def test_each_network_sees_its_own_input():
    network = networks.policy(6, 3, (8, 8))
    vectors = jax.vmap(lambda k: networks.init(network, k))(jax.random.split(jax.random.key(0), 7))
    x = jax.random.normal(jax.random.key(1), (7, 6))
    each = networks.apply_each(network, networks.unflatten(network, vectors), x)
    assert each.shape == (7, 3)
    apply = jax.jit(
        lambda vector, x: networks.apply(network, networks.unflatten(network, vector), x)
    )
    for i in range(7):
        np.testing.assert_allclose(each[i], apply(vectors[i], x[i]), atol=1e-6)


def test_kernels_start_lecun_uniform_and_biases_at_zero():
    """Uniform within sqrt(3 / inputs): a variance of 1 / inputs."""
    network = MLP((50, 100, 20))
    layers = networks.unflatten(network, networks.init(network, jax.random.key(4)))
    for (kernel, bias), inputs in zip(layers, (50, 100), strict=True):
        limit = math.sqrt(3.0 / inputs)
        weights = np.asarray(kernel, np.float64).ravel()
        assert np.abs(weights).max() <= limit
        assert np.abs(weights).max() > 0.99 * limit
        # Standard errors of mean and variance are below 0.03 of their scale at 2,000 weights.
        assert abs(weights.mean()) < 0.1 / math.sqrt(inputs)
        assert weights.var() == pytest.approx(1.0 / inputs, rel=0.1)
        # A uniform law has a quarter of its weight in each quarter of its range.
        quarters = np.histogram(weights, bins=4, range=(-limit, limit))[0] / weights.size
        np.testing.assert_allclose(quarters, 0.25, atol=0.05)
        assert not bias.any()


def test_starts_differ_by_key_and_by_layer():
    network = MLP((10, 10, 10))
    first, again, other = (networks.init(network, jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).sum() == 200
    (kernel, _), (next_kernel, _) = networks.unflatten(network, first)
    assert not np.allclose(kernel, next_kernel)


def test_a_conditioned_network_folds_into_plain_ones():
    """With its condition held fixed it is a network on the observation alone."""
    observation, condition, actions = 5, 2, 3
    network = MLP((observation + condition, 8, actions))
    vector = networks.init(network, jax.random.key(0)) + 0.1
    conditions = jax.random.normal(jax.random.key(1), (4, condition))
    folded = networks.fold(network, vector, conditions)
    plain = networks.policy(observation, actions, (8,))
    assert folded.shape == (4, plain.size)
    x = jax.random.normal(jax.random.key(2), (4, observation))
    expected = networks.apply(
        network, networks.unflatten(network, vector), jnp.concatenate([x, conditions], axis=1)
    )
    found = networks.apply_each(plain, networks.unflatten(plain, folded), x)
    np.testing.assert_allclose(found, expected, atol=1e-5)
