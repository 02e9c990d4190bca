"""The replay buffer: a list of bounded length that drops its oldest rows, sampled uniformly."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elites.core import replay as replays
from elites.core import ring

LAYOUT = {"state": 2, "reward": 1, "number": 1}
BATCH = 7


@jax.jit
def insert(replay, columns, mask):
    return replays.insert(replay, LAYOUT, columns, mask)


def numbered(first, n):
    """Return columns whose rows can be told apart by their number."""
    number = np.arange(first, first + n, dtype=np.float32)
    return {
        "state": np.stack([number * 10, -number], axis=1),
        "reward": number / 4,
        "number": number,
    }


def contents(replay):
    """Return the numbers of the rows from the oldest to the newest. Every row must be whole."""
    capacity, size, head = replay.rows.shape[0], int(replay.size), int(replay.head)
    rows = np.asarray(replay.rows)[(head - size + np.arange(size)) % capacity]
    columns = replays.columns(LAYOUT, rows)
    assert {name: values.shape for name, values in columns.items()} == {
        name: (size, width) for name, width in LAYOUT.items()
    }
    number = columns["number"][:, 0]
    np.testing.assert_array_equal(columns["state"], np.stack([number * 10, -number], axis=1))
    np.testing.assert_array_equal(columns["reward"][:, 0], number / 4)
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


place_rows = jax.jit(ring.places, static_argnums=2)


@pytest.mark.parametrize("capacity", [1, 3, 6, 7, 16])
@given(
    mask=st.lists(st.booleans(), min_size=BATCH, max_size=BATCH),
    head=st.integers(0, 15),
)
@example(mask=[True] * BATCH, head=0)
def test_no_two_rows_of_a_batch_share_a_place(capacity, mask, head):
    """A device may write rows in any order: two rows with one place would be resolved by luck."""
    head = head % capacity
    places = np.asarray(place_rows(jnp.int32(head), np.array(mask), capacity))
    kept = places < capacity
    assert (places[~kept] == capacity).all()  # nowhere
    assert len(np.unique(places[kept])) == kept.sum()
    offered = np.flatnonzero(mask)
    np.testing.assert_array_equal(np.flatnonzero(kept), offered[-capacity:])
    # Rows that are not kept move the head all the same.
    order = np.arange(len(offered))[-capacity:]
    np.testing.assert_array_equal(places[kept], (head + order) % capacity)


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


def test_thinning_keeps_a_random_part_of_the_chosen_rows():
    mask = jnp.arange(20_000).reshape(200, 100) % 2 == 0
    kept = np.asarray(replays.thin(mask, 5_000, jax.random.key(3)))
    assert not (kept & ~np.asarray(mask)).any()
    assert abs(kept.sum() - 2_500) < 200  # four standard deviations of a quarter of 10,000
    assert abs(kept[:100].sum() - kept[100:].sum()) < 300  # early and late ones alike


def test_sampling_is_uniform_over_the_filled_rows():
    sample = jax.jit(replays.sample, static_argnums=2)
    replay = insert(replays.empty(LAYOUT, 50), numbered(1, 10), np.ones(10, bool))
    rows = sample(replay, jax.random.key(0), (100, 200))
    assert rows.shape == (100, 200, 4)
    numbers = np.asarray(replays.columns(LAYOUT, rows)["number"]).astype(int).reshape(-1)
    counts = np.bincount(numbers)
    assert counts[0] == 0  # rows never written are zero
    assert len(counts) == 11
    chi_square = ((counts[1:] - 2000) ** 2 / 2000).sum()
    assert chi_square < 9 + 4 * 18**0.5

    full = insert(replays.empty(LAYOUT, 5), numbered(1, 12), np.ones(12, bool))
    rows = sample(full, jax.random.key(1), (1, 500))
    numbers = np.asarray(replays.columns(LAYOUT, rows)["number"])
    assert set(numbers.reshape(-1)) == {8, 9, 10, 11, 12}


def test_columns_read_what_was_put_in():
    rng = np.random.default_rng(2)
    columns = {
        "number": rng.normal(size=9).astype(np.float32),
        "state": rng.normal(size=(9, 2)).astype(np.float32),
        "reward": rng.random(9) < 0.5,  # flags are stored as numbers
    }
    replay = insert(replays.empty(LAYOUT, 9), columns, np.ones(9, bool))
    stored = replays.columns(LAYOUT, replay.rows)
    deeper = replays.columns(LAYOUT, replay.rows.reshape(3, 3, -1))
    assert list(stored) == list(deeper) == list(LAYOUT)
    for name, values in columns.items():
        expected = values.astype(np.float32).reshape(9, LAYOUT[name])
        np.testing.assert_array_equal(stored[name], expected)
        np.testing.assert_array_equal(deeper[name], expected.reshape(3, 3, LAYOUT[name]))
    with pytest.raises(KeyError, match="velocity"):
        stored["velocity"]


def test_a_column_of_width_one_may_have_an_axis_or_not():
    flat = numbered(0, BATCH)
    wide = flat | {name: flat[name][:, None] for name in ("reward", "number")}
    both = [insert(replays.empty(LAYOUT, 9), c, np.ones(BATCH, bool)) for c in (flat, wide)]
    np.testing.assert_array_equal(both[0].rows, both[1].rows)


def test_columns_that_do_not_fit_the_layout_are_refused():
    with pytest.raises(ValueError, match="do not fit the layout"):
        replays.insert(
            replays.empty(LAYOUT, 4), LAYOUT, {"state": jnp.zeros((1, 2))}, jnp.ones(1, bool)
        )
