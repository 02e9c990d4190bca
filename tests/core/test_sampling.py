"""Random indices are uniform and below the count. Normal numbers have the bits of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core.sampling import bits, count_true, normal, nth_true, uniform_index

draw = jax.jit(uniform_index, static_argnums=1)


@pytest.mark.parametrize("count", [1, 2, 10, 37])
def test_indices_are_uniform(count):
    n = 40_000
    drawn = np.asarray(draw(jax.random.key(count), (n // 100, 100), jnp.int32(count)))
    assert drawn.shape == (n // 100, 100)
    assert drawn.dtype == np.int32
    counts = np.bincount(drawn.reshape(-1), minlength=count)
    assert len(counts) == count  # no index is as large as the count
    expected, freedom = n / count, count - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square <= freedom + 4 * (2 * freedom) ** 0.5


def test_indices_reach_across_a_large_buffer():
    """A million rows, as in the paper: the draws fill its whole range."""
    count = 1_000_000
    drawn = np.asarray(draw(jax.random.key(0), (10_000,), jnp.int32(count)))
    assert drawn.min() >= 0
    assert drawn.max() < count
    quarters = np.bincount(drawn * 4 // count, minlength=4)
    assert (abs(quarters - 2500) < 5 * (10_000 * 0.25 * 0.75) ** 0.5).all()


def test_a_count_of_zero_gives_zeros():
    np.testing.assert_array_equal(draw(jax.random.key(1), (50,), jnp.int32(0)), np.zeros(50))


def test_no_indices_can_be_drawn():
    assert draw(jax.random.key(1), (0,), jnp.int32(5)).shape == (0,)


def test_draws_depend_on_the_key_alone():
    first, again, other = (draw(jax.random.key(k), (50,), jnp.int32(1000)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).mean() > 0.9


@pytest.mark.parametrize("size", [1, 31, 32, 33, 1000, 20_000])
def test_the_nth_true_entry_is_found(size):
    """With few words of 32 entries and with many, which are searched in different ways."""
    mask = np.random.default_rng(size).random(size) < 0.3
    mask[size // 2] = True
    places = np.flatnonzero(mask)
    found = jax.jit(nth_true)(jnp.asarray(mask), jnp.arange(len(places)))
    np.testing.assert_array_equal(found, places)
    assert count_true(jnp.asarray(mask)) == len(places)


def test_without_true_entries_the_result_is_out_of_range():
    assert (np.asarray(nth_true(jnp.zeros(40, bool), jnp.zeros(3, jnp.int32))) >= 40).all()


@pytest.mark.parametrize("shape", [(), (7,), (15, 36, 10)])
def test_normal_numbers_have_the_bits_of_jax(shape):
    keys = jax.random.split(jax.random.key(3), 2)
    for function in (normal, jax.random.normal):
        own = jax.jit(lambda key, function=function: function(key, shape))
        batch = jax.jit(jax.vmap(own))(keys)
        np.testing.assert_array_equal(batch[1], own(keys[1]))
        np.testing.assert_array_equal(own(keys[1]), jax.random.normal(keys[1], shape))
    np.testing.assert_array_equal(bits(keys[0], shape), jax.random.bits(keys[0], shape))


@pytest.mark.parametrize("kind", ["rbg", "in halves"])
def test_other_random_bits_of_jax_are_used_as_they_are(kind):
    with jax.threefry_partitionable(kind == "rbg"):
        key = jax.random.key(3, impl="rbg" if kind == "rbg" else None)
        np.testing.assert_array_equal(normal(key, (6,)), jax.random.normal(key, (6,)))
