"""The archive: addition equals a serial reference, cells are Voronoi regions, selection is uniform.

The reference is plain Python and takes one candidate after the other. A finite and valid candidate
goes to the cell of the nearest centroid. The fittest candidate of a batch in a cell, or the first
of equals, replaces the cell's elite only if it is strictly fitter.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from elites.core import archive as archives
from elites.core import centroids as voronoi
from elites.core.cells import Cells

NAN, INF = np.nan, np.inf
CENTROIDS = np.float32([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.5, -1.0]])
POLICY_SIZE, BATCH = 3, 6

add = jax.jit(
    functools.partial(archives.add, cells=Cells((-1.0, -1.0), (1.0, 1.0), len(CENTROIDS)))
)
sample = jax.jit(archives.sample, static_argnums=2)


class SerialArchive:
    """Expected contents of the archive, as a dictionary from cell to elite."""

    def __init__(self, centroids):
        self.centroids = np.asarray(centroids, np.float64)
        self.elites = {}

    def add(self, policies, fitness, descriptors, valid, origin, iteration):
        winners, rejected = {}, set()
        for i in range(len(fitness)):
            if not (valid[i] and np.isfinite(fitness[i]) and np.isfinite(descriptors[i]).all()):
                rejected.add(i)
                continue
            cell = int(np.argmin(((descriptors[i] - self.centroids) ** 2).sum(-1)))
            if cell not in winners or fitness[i] > fitness[winners[cell]]:
                winners[cell] = i
        added = set()
        for cell, i in winners.items():
            if cell not in self.elites or fitness[i] > self.elites[cell]["fitness"]:
                added.add(i)
                self.elites[cell] = {
                    "policies": policies[i],
                    "fitness": fitness[i],
                    "descriptors": descriptors[i],
                    "origin": origin[i],
                    "born": iteration,
                }
        return added, rejected

    def judge(self, fitness, descriptors, valid):
        """Return status and value of each candidate, given the archive before the batch."""
        judged = []
        for i in range(len(fitness)):
            if not (valid[i] and np.isfinite(fitness[i]) and np.isfinite(descriptors[i]).all()):
                judged.append((archives.NOT_BETTER, -INF))
                continue
            cell = int(np.argmin(((descriptors[i] - self.centroids) ** 2).sum(-1)))
            if cell not in self.elites:
                judged.append((archives.NEW_CELL, fitness[i]))
                continue
            value = fitness[i] - self.elites[cell]["fitness"]
            judged.append((archives.BETTER if value > 0 else archives.NOT_BETTER, value))
        return judged

    def assert_equals(self, archive):
        archive = jax.tree.map(np.asarray, archive)
        full = archive.fitness > -INF
        assert set(np.flatnonzero(full)) == set(self.elites)
        for cell, elite in self.elites.items():
            for field, value in elite.items():
                stored = getattr(archive, field)[cell]
                np.testing.assert_array_equal(stored, np.float32(value), f"{field} of cell {cell}")
        empty = ~full
        assert (archive.fitness[empty] == -INF).all()
        assert (archive.origin[empty] == archives.EMPTY).all()
        assert (archive.born[empty] == -1).all()
        assert (archive.policies[empty] == 0).all()


def both_add(archive, reference, fitness, descriptors, valid, origin, iteration):
    """Add the same batch to both; policies are numbered so that each can be told apart."""
    fitness, descriptors = np.float32(fitness), np.float32(descriptors)
    policies = np.float32([[iteration, i, 1.0] for i in range(len(fitness))])
    archive, added, rejected, status, value = add(
        archive, policies, fitness, descriptors, np.array(valid), np.int32(origin), iteration
    )
    expected = reference.judge(fitness, descriptors, valid)
    np.testing.assert_array_equal(status, [each[0] for each in expected])
    np.testing.assert_array_equal(value, np.float32([each[1] for each in expected]))
    expected_added, expected_rejected = reference.add(
        policies, fitness, descriptors, valid, origin, iteration
    )
    assert set(np.flatnonzero(added)) == expected_added
    assert set(np.flatnonzero(rejected)) == expected_rejected
    return archive


# Few values, so that batches are full of ties and duplicates; no place is equally far from two
# centroids. The last four lie outside the box [-1, 1] x [-1, 1] or are no places at all.
_PLACES = [
    (0.1, 0.05), (-0.05, 0.1), (0.9, 0.02), (0.8, 0.1), (0.1, 0.9), (-0.9, 0.1), (0.45, -0.8),
    (7.0, 0.3), (NAN, 0.1), (0.1, -INF), (NAN, NAN),
]  # fmt: skip
_candidate = st.tuples(
    st.sampled_from([0.0, 1.0, 2.0, -3.0, NAN, INF, -INF]),
    st.sampled_from(_PLACES),
    st.sampled_from([True, True, True, False]),
    st.integers(0, 3),
)
_batches = st.lists(st.lists(_candidate, min_size=BATCH, max_size=BATCH), min_size=1, max_size=4)


@given(_batches)
@example(  # an invalid, a NaN and an infinite candidate before valid ones of the same cell
    [
        [
            (2.0, (0.1, 0.05), False, 1), (NAN, (0.1, 0.05), True, 1), (INF, (0.1, 0.05), True, 1),
            (1.0, (0.1, 0.05), True, 2), (1.0, (-0.05, 0.1), True, 3), (-3.0, (0.1, 0.9), True, 1),
        ]
    ]
)  # fmt: skip
def test_addition_equals_a_serial_reference(batches):
    archive = archives.empty(jnp.asarray(CENTROIDS), POLICY_SIZE)
    reference = SerialArchive(CENTROIDS)
    for iteration, batch in enumerate(batches):
        fitness, descriptors, valid, origin = zip(*batch, strict=True)
        archive = both_add(archive, reference, fitness, descriptors, valid, origin, iteration)
        reference.assert_equals(archive)


def test_addition_equals_the_reference_on_large_random_batches():
    rng = np.random.default_rng(3)
    centroids = voronoi.box_centroids((-2.0, 0.0), (2.0, 1.0), 64)
    archive, reference = archives.empty(centroids, POLICY_SIZE), SerialArchive(centroids)
    for iteration in range(6):
        n = 200
        fitness = np.where(rng.random(n) < 0.1, NAN, rng.normal(size=n).round(1))
        descriptors = rng.uniform((-2.5, -0.2), (2.5, 1.2), (n, 2))
        descriptors[rng.random(n) < 0.05] = NAN
        valid = rng.random(n) < 0.9
        archive = both_add(
            archive, reference, fitness, descriptors, valid, rng.integers(0, 4, n), iteration
        )
        reference.assert_equals(archive)
    assert np.isfinite(archive.fitness).mean() > 0.9


def one_candidate(archive, fitness, descriptor, policy, valid=True, iteration=0):
    return add(
        archive, np.float32([policy]), np.float32([fitness]), np.float32([descriptor]),
        np.array([valid]), np.int32([1]), iteration,
    )  # fmt: skip


def test_a_tie_keeps_the_incumbent():
    archive = archives.empty(jnp.asarray(CENTROIDS), POLICY_SIZE)
    archive, added, *_ = one_candidate(archive, 1.5, (1.0, 0.1), (1, 1, 1))
    assert added.all()
    archive, added, rejected, *_ = one_candidate(archive, 1.5, (0.9, 0.0), (2, 2, 2), iteration=1)
    assert not added.any()
    assert not rejected.any()  # a loser is not a failure
    np.testing.assert_array_equal(archive.policies[1], [1, 1, 1])
    assert archive.born[1] == 0


@pytest.mark.parametrize("descriptor", [(NAN, 0.0), (NAN, NAN), (INF, 0.0), (0.0, -INF)])
def test_a_descriptor_that_is_no_place_enters_no_cell(descriptor):
    empty = archives.empty(jnp.asarray(CENTROIDS), POLICY_SIZE)
    archive, added, rejected, *_ = one_candidate(empty, 1.0, descriptor, (1, 1, 1))
    assert rejected.all()
    assert not added.any()
    assert not archives.filled(archive).any()
    np.testing.assert_array_equal(archive.policies, empty.policies)
    np.testing.assert_array_equal(archive.descriptors, empty.descriptors)


# -------------------------------------------------------------------------------------- annealing


@pytest.mark.parametrize(("rate", "minimum"), [(0.01, 0.0), (0.5, -1.0), (0.0, 0.0), (1.0, -2.0)])
def test_thresholds_rise_by_the_rule_of_cma_mae(rate, minimum):
    """Compare with a loop over cells that applies the published rule."""
    rng, annealing = np.random.default_rng(5), archives.Annealing(rate, minimum)
    cells = Cells((-1.0, -1.0), (1.0, 1.0), 20, grid=(5, 4))
    plain = archive = archives.empty(cells.centroids(), POLICY_SIZE, annealing)
    plain = archives.empty(cells.centroids(), POLICY_SIZE)
    add_annealed = jax.jit(functools.partial(archives.add, cells=cells, annealing=annealing))
    add_plain = jax.jit(functools.partial(archives.add, cells=cells))
    threshold, reached = np.full(20, minimum, float), np.zeros(20, bool)
    for iteration in range(12):
        fitness = np.float32(rng.normal(size=60).round(1) + 0.1 * iteration)
        descriptors = np.float32(rng.uniform(-1.2, 1.2, (60, 2)))
        batch = (np.float32(rng.normal(size=(60, POLICY_SIZE))), fitness, descriptors,
                 np.ones(60, bool), np.ones(60, np.int32), iteration)  # fmt: skip
        archive, _, _, status, value = add_annealed(archive, *batch)
        plain = add_plain(plain, *batch).archive
        place = np.asarray(cells.index(cells.centroids(), jnp.asarray(descriptors)))
        better = fitness > threshold[place]
        expected = np.where(better, np.where(reached[place], 1, 2), 0)
        np.testing.assert_array_equal(status, expected)
        np.testing.assert_allclose(value, fitness - threshold[place], atol=2e-5)
        for cell in np.unique(place[better]):
            above = fitness[better & (place == cell)]
            share = (1 - rate) ** len(above)
            threshold[cell] = share * threshold[cell] + (1 - share) * above.mean(dtype=float)
            reached[cell] = True
        np.testing.assert_allclose(archive.threshold, threshold, atol=2e-5)
        np.testing.assert_array_equal(archive.reached, reached)
        for name in ("policies", "fitness", "descriptors", "born"):  # the elites are the same
            np.testing.assert_array_equal(getattr(archive, name), getattr(plain, name))


# ------------------------------------------------------------------------------------------ cells


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((-30.0,), (30.0,)),
        ((-30.0, -30.0), (30.0, 30.0)),
        ((-1.0, 0.0), (1.0, 20.0)),
        ((-2.0, 0.0, -300.0), (2.0, 1.0, 300.0)),
    ],
)
def test_cells_are_the_nearest_centroids_relative_to_the_ranges(low, high):
    centroids = voronoi.box_centroids(low, high, 64)
    points = np.random.default_rng(1).uniform(low, high, (5000, len(low))).astype(np.float32)
    archive = archives.empty(centroids, POLICY_SIZE)
    ranges = np.subtract(high, low)
    cells = Cells(low, high, len(centroids))
    cells = np.asarray(archives.cell_of(archive, jnp.asarray(points), cells))
    distance, nearest = cKDTree(np.asarray(centroids) / ranges).query(points / ranges, k=2)
    clear = distance[:, 1] - distance[:, 0] > 1e-6  # nearer ones are ties in 32 bits
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(cells[clear], nearest[clear, 0])


# -------------------------------------------------------------------------------------- selection


def archive_with(filled, cells=10):
    fitness = np.full(cells, -INF, np.float32)
    fitness[filled] = -5.0
    return archives.empty(jnp.zeros((cells, 2)), 1)._replace(fitness=jnp.asarray(fitness))


@pytest.mark.parametrize("filled", [[0], [9], [4], [0, 9], [1, 2, 5, 9], list(range(10))])
def test_selection_is_uniform_over_the_filled_cells(filled):
    n = 20_000
    drawn = np.asarray(sample(archive_with(filled), jax.random.key(5), n))
    counts = np.bincount(drawn, minlength=10)
    assert len(counts) == 10
    assert counts.sum() == counts[filled].sum() == n  # never an empty cell
    expected = n / len(filled)
    chi_square = ((counts[filled] - expected) ** 2 / expected).sum()
    freedom = len(filled) - 1
    assert chi_square <= freedom + 4 * (2 * freedom) ** 0.5


def test_selection_is_with_replacement_and_independent():
    drawn = np.asarray(sample(archive_with([2, 7]), jax.random.key(8), 20_000))
    pairs = np.bincount((drawn[::2] == 7) * 2 + (drawn[1::2] == 7), minlength=4)
    assert (abs(pairs - 2500) < 5 * (10_000 * 0.25 * 0.75) ** 0.5).all()


def test_summary_counts_filled_cells_only():
    fitness = np.float32([-INF, -5.0, -INF, 2.5, -5.0, -INF, -INF, -INF, -INF, -INF])
    archive = archive_with([1, 3, 4])._replace(fitness=jnp.asarray(fitness))
    summary = jax.jit(archives.summary)(archive)
    assert float(summary.qd_score) == -5.0 + 2.5 - 5.0
    assert float(summary.coverage) == np.float32(3 / 10)
    assert float(summary.max_fitness) == 2.5
