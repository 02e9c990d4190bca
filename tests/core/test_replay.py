"""The replay buffer: a list of bounded length that forgets its oldest rows, sampled uniformly."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites.core import replay as replays

LAYOUT = {"state": 2, "reward": 1, "number": 1}
BATCH = 7


@jax.jit
def insert(replay, columns, mask):
    return replays.insert(replay, LAYOUT, columns, mask)


def numbered(first, n):
    """Columns whose rows can be told apart by their number."""
    number = np.arange(first, first + n, dtype=np.float32)
    return {
        "state": np.stack([number * 10, -number], axis=1),
        "reward": number / 4,
        "number": number,
    }


def contents(replay):
    """The numbers of the rows from the oldest to the newest; every row must be whole."""
    capacity, size, head = replay.rows.shape[0], int(replay.size), int(replay.head)
    rows = np.asarray(replay.rows)[(head - size + np.arange(size)) % capacity]
    number = np.asarray(replays.column(LAYOUT, rows, "number"))
    for name, values in numbered(0, 1).items():
        assert replays.column(LAYOUT, rows, name).shape == (size, *values.shape[1:])
    np.testing.assert_array_equal(
        replays.column(LAYOUT, rows, "state"), np.stack([number * 10, -number], axis=1)
    )
    np.testing.assert_array_equal(replays.column(LAYOUT, rows, "reward"), number / 4)
    return number.tolist()


@pytest.mark.parametrize("capacity", [1, 5, 7, 16])
@given(masks=st.lists(st.lists(st.booleans(), min_size=BATCH, max_size=BATCH), max_size=6))
def test_insertion_equals_a_list_of_bounded_length(capacity, masks):
    """Capacities below a batch, equal to it and above; whole batches masked out among them."""
    replay, reference, total = replays.empty(LAYOUT, capacity), deque(maxlen=capacity), 0
    for i, mask in enumerate(masks):
        replay = insert(replay, numbered(i * BATCH, BATCH), np.array(mask))
        reference.extend(i * BATCH + j for j in range(BATCH) if mask[j])
        total += sum(mask)
        assert contents(replay) == list(reference)
        assert int(replay.size) == min(total, capacity)
        assert int(replay.head) == total % capacity


def test_a_batch_much_longer_than_the_ring_leaves_its_end():
    replay = insert(replays.empty(LAYOUT, 4), numbered(0, 3), np.ones(3, bool))
    mask = np.arange(23) % 3 != 0
    replay = insert(replay, numbered(100, 23), mask)
    assert contents(replay) == (100 + np.flatnonzero(mask))[-4:].tolist()


def test_episodes_of_different_lengths_wrap_around():
    """Time-major masks, as rollouts give them: an episode's rows stop when it ends."""
    steps, capacity = 6, 32
    rng = np.random.default_rng(0)
    replay, reference, first = replays.empty(LAYOUT, capacity), deque(maxlen=capacity), 0
    for _ in range(8):
        lengths = rng.integers(1, steps + 1, 4)
        mask = (np.arange(steps)[:, None] < lengths).reshape(-1)
        replay = insert(replay, numbered(first, mask.size), mask)
        reference.extend((first + np.flatnonzero(mask)).tolist())
        first += mask.size
    assert contents(replay) == list(reference)


def test_sampling_is_uniform_over_the_filled_rows():
    sample = jax.jit(replays.sample, static_argnums=2)
    replay = insert(replays.empty(LAYOUT, 50), numbered(1, 10), np.ones(10, bool))
    rows = sample(replay, jax.random.key(0), (100, 200))
    assert rows.shape == (100, 200, 4)
    numbers = np.asarray(replays.column(LAYOUT, rows, "number")).astype(int).reshape(-1)
    counts = np.bincount(numbers)
    assert counts[0] == 0  # rows never written are zero
    assert len(counts) == 11
    chi_square = ((counts[1:] - 2000) ** 2 / 2000).sum()
    assert chi_square < 9 + 4 * 18**0.5

    full = insert(replays.empty(LAYOUT, 5), numbered(1, 12), np.ones(12, bool))
    rows = sample(full, jax.random.key(1), (1, 500))
    numbers = np.asarray(replays.column(LAYOUT, rows, "number"))
    assert set(numbers.reshape(-1)) == {8, 9, 10, 11, 12}


def test_columns_read_what_was_put_in():
    rng = np.random.default_rng(2)
    columns = {
        "number": rng.normal(size=9).astype(np.float32),
        "state": rng.normal(size=(9, 2)).astype(np.float32),
        "reward": rng.random(9) < 0.5,  # flags are stored as numbers
    }
    replay = insert(replays.empty(LAYOUT, 9), columns, np.ones(9, bool))
    for name, values in columns.items():
        stored = replays.column(LAYOUT, replay.rows, name)
        np.testing.assert_array_equal(stored, values.astype(np.float32))
        deeper = replays.column(LAYOUT, replay.rows.reshape(3, 3, -1), name)
        np.testing.assert_array_equal(deeper, np.float32(values).reshape(3, 3, *values.shape[1:]))
    with pytest.raises(KeyError, match="velocity"):
        replays.column(LAYOUT, replay.rows, "velocity")


def test_columns_that_do_not_fit_the_layout_are_refused():
    with pytest.raises(ValueError, match="do not fit the layout"):
        replays.insert(
            replays.empty(LAYOUT, 4), LAYOUT, {"state": jnp.zeros((1, 2))}, jnp.ones(1, bool)
        )
