import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from elites.core import counter

WORD = 2**32
add = jax.jit(counter.add)


@given(st.lists(st.integers(0, WORD - 1), max_size=6))
@example([WORD - 1, 1])
@example([WORD - 1, WORD - 1, 2])
def test_counts_beyond_32_bits(amounts):
    count = counter.zero()
    for amount in amounts:
        count = add(count, jnp.uint32(amount))
    assert counter.value(count) == sum(amounts)


def test_values_of_a_batch():
    words = np.array([[[5, 0], [0, 1]]], np.uint32)
    np.testing.assert_array_equal(counter.value(words), [[5, WORD]])
