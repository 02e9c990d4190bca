"""Novelty: distances to the nearest neighbours, and a memory that keeps distant points only."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elites.core import novelty

append = jax.jit(novelty.append)
mean_distance = jax.jit(novelty.mean_distance, static_argnums=(2, 3))


@functools.partial(jax.jit, static_argnums=(3, 4))
def insert_distant(memory, points, mask, threshold, block):
    return novelty.insert_distant(memory, points, mask, threshold, block)


def stored(memory):
    """The points from the oldest to the newest."""
    memory = jax.tree.map(np.asarray, memory)
    order = np.argsort(memory.age[memory.age >= 0])
    return memory.points[memory.age >= 0][order].tolist()


def memory_of(points, capacity=8):
    points = np.float32(points).reshape(-1, 2)
    memory = novelty.empty(capacity, 2)
    return append(memory, points, np.ones(len(points), bool)) if len(points) else memory


# --------------------------------------------------------------------------------------- distance


def test_mean_distance_by_hand():
    # From (0, 0): distances 1, 2, 5 (3-4-5) and 10; squares 1, 4, 25, 100.
    memory = memory_of([(3, 4), (0, 1), (-2, 0), (6, 8)])
    origin = np.zeros((1, 2), np.float32)
    for neighbours, mean, mean_square in [(1, 1, 1), (2, 1.5, 2.5), (3, 8 / 3, 10), (4, 4.5, 32.5)]:
        np.testing.assert_allclose(mean_distance(memory, origin, neighbours, False), [mean])
        np.testing.assert_allclose(mean_distance(memory, origin, neighbours, True), [mean_square])


def test_missing_neighbours_are_ignored():
    memory = memory_of([(3, 4), (0, 1)])
    origin = np.zeros((1, 2), np.float32)
    for neighbours in (2, 5, 8, 20):  # more than are stored, more than could be
        np.testing.assert_allclose(mean_distance(memory, origin, neighbours, False), [3.0])
        np.testing.assert_allclose(mean_distance(memory, origin, neighbours, True), [13.0])


def test_an_empty_memory_finds_nothing_novel():
    points = np.float32([[5, 5], [0, 0]])
    for squared in (True, False):
        distance = mean_distance(novelty.empty(8, 2), points, 3, squared)
        np.testing.assert_array_equal(distance, [0, 0])


def test_mean_distance_equals_sorting_all_distances():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(100, 2)).astype(np.float32)
    queries = rng.normal(size=(50, 2)).astype(np.float32)
    distances = np.sort(np.linalg.norm(queries[:, None] - points[None], axis=-1), axis=1)[:, :5]
    memory = memory_of(points, capacity=128)
    np.testing.assert_allclose(
        mean_distance(memory, queries, 5, False), distances.mean(1), rtol=1e-5
    )
    np.testing.assert_allclose(
        mean_distance(memory, queries, 5, True), (distances**2).mean(1), rtol=1e-5
    )


# ----------------------------------------------------------------------------------------- append


@pytest.mark.parametrize("capacity", [2, 5, 9])
@given(masks=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), max_size=5))
def test_append_is_first_in_first_out(capacity, masks):
    memory, reference = novelty.empty(capacity, 2), []
    for i, mask in enumerate(masks):
        points = np.float32([[i, j] for j in range(4)])
        memory = append(memory, points, np.array(mask))
        reference += [[i, j] for j in range(4) if mask[j]]
        assert stored(memory) == reference[-capacity:]
        assert int(memory.entered) == len(reference)


# --------------------------------------------------------------------------------- distant points


def serial_insert(points, mask, threshold, kept, capacity):
    """Each point enters if farther than the threshold from all there are; the oldest makes room."""
    for point, offered in zip(points, mask, strict=True):
        distances = [((point[0] - x) ** 2 + (point[1] - y) ** 2) ** 0.5 for x, y in kept]
        if offered and all(d > threshold for d in distances):
            kept = [*kept, list(point)][-capacity:]
    return kept


# A small grid, so that points coincide, lie exactly on the threshold (1) and push each other out.
_point = st.tuples(st.integers(0, 4), st.integers(0, 2))
_offer = st.lists(st.tuples(_point, st.sampled_from([True, True, False])), min_size=10, max_size=10)


@pytest.mark.parametrize(
    ("capacity", "block"),
    [(3, 256), (4, 3), (6, 1), (6, 4), (100, 7)],  # blocks are cut to the capacity
)
@given(batches=st.lists(_offer, min_size=1, max_size=3))
def test_distant_points_enter_as_if_offered_one_by_one(capacity, block, batches):
    memory, reference = novelty.empty(capacity, 2), []
    for batch in batches:
        points = [list(map(float, point)) for point, _ in batch]
        mask = [offered for _, offered in batch]
        memory = insert_distant(memory, np.float32(points), np.array(mask), 1.0, block)
        reference = serial_insert(points, mask, 1.0, reference, capacity)
        assert stored(memory) == reference


def test_a_long_random_stream_enters_as_if_offered_one_by_one():
    """Many batches through a ring that is full most of the time."""
    rng = np.random.default_rng(0)
    memory, reference = novelty.empty(20, 2), []
    for _ in range(12):
        points = rng.uniform(0, 1, (100, 2)).astype(np.float32)
        mask = rng.random(100) < 0.8
        memory = insert_distant(memory, points, mask, 0.15, 16)
        reference = serial_insert(points.tolist(), mask, 0.15, reference, 20)
        assert stored(memory) == reference
    assert int(memory.entered) > 100  # newcomers kept pushing old points out


@pytest.mark.parametrize("capacity", [3, 16, 64])
def test_a_chain_in_which_each_decision_hangs_on_the_one_before(capacity):
    """Points 3/4 apart along a line, there and back: whether one enters decides for the next."""
    there = [[0.75 * i, 0.0] for i in range(30)]
    points, mask = there + there[::-1], [True] * 60
    memory = insert_distant(
        novelty.empty(capacity, 2), np.float32(points), np.array(mask), 1.0, 256
    )
    assert stored(memory) == serial_insert(points, mask, 1.0, [], capacity)


def test_a_newcomer_may_take_the_place_of_one_it_pushes_out():
    """Capacity 2, stored A then B. C pushes A out, so a point near A may enter; it pushes B out."""
    memory = memory_of([(0, 0), (10, 0)], capacity=2)
    offered = np.float32([[20, 0], [0, 0.5], [10, 0.5], [20, 0.5]])
    memory = insert_distant(memory, offered, np.ones(4, bool), 1.0, 256)
    # (20, 0) pushes (0, 0) out; (0, 0.5) pushes (10, 0) out; (10, 0.5) pushes (20, 0) out;
    # (20, 0.5) is now far from both and pushes (0, 0.5) out.
    assert stored(memory) == [[10, 0.5], [20, 0.5]]


def test_a_batch_without_offers_changes_nothing():
    memory = memory_of([(0, 0), (3, 0)])
    after = insert_distant(memory, jnp.ones((5, 2)) * 9, jnp.zeros(5, bool), 1.0, 4)
    assert stored(after) == stored(memory)
    assert int(after.entered) == 2
