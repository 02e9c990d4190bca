"""Random indices: uniform, below the count, and zero if there is nothing to draw from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core.sampling import uniform_index

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
