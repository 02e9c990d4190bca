"""Emitters: what they rank by, who becomes a parent, when they restart and where."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core import archive as archives
from elites.core import cma_es, emitters
from elites.core.archive import Addition
from elites.core.emitters import Rules, Spec
from elites.core.hyperparameters import Hyperparameters
from elites.core.types import Results

OWN = Rules("imp", "mu", "basic")
STATUS = [[0, 2, 1, 2], [0, 0, 0, 0]]  # of two emitters with four samples each
VALUE = [[9.0, 1.0, 8.0, 3.0], [-1.0, -4.0, -2.0, -3.0]]
FITNESS = [[5.0, 7.0, 1.0, 2.0], [2.0, 9.0, 1.0, 0.0]]
DESCRIPTORS = [[[0, 1], [0, 2], [0, 3], [0, -1]], [[3, 0], [1, 0], [2, 0], [0, 0]]]
DIRECTIONS = [[0.0, 1.0], [-1.0, 0.0]]


@pytest.fixture(scope="module")
def problem():
    return elites.build("vectors:sphere,dimensions=6", "me", grid=(4, 5)).problem


def made(problem, **given) -> Spec:
    hp = Hyperparameters(batch_size=8, cma_emitters=2, grid=(4, 5), **given)
    return Spec("cma_me", problem, hp, OWN, 0.5)


def ranked(spec, rejected=()):
    archive = archives.empty(spec.cells.centroids(), 6)
    failed = jnp.isin(jnp.arange(8), jnp.array(rejected, int))
    status, value = jnp.array(STATUS).reshape(-1), jnp.array(VALUE).reshape(-1)
    addition = Addition(archive, status > 0, failed, status, jnp.where(failed, -jnp.inf, value))
    descriptors = jnp.array(DESCRIPTORS, float).reshape(-1, 2)
    results = Results(jnp.array(FITNESS).reshape(-1), descriptors, ~failed)
    return emitters.rank(spec, addition, results, jnp.array(DIRECTIONS))


@pytest.mark.parametrize(
    ("ranker", "first", "second"),
    [
        ("imp", [0, 2, 3, 1], [0, 2, 3, 1]),
        ("2imp", [3, 1, 2, 0], [0, 2, 3, 1]),
        ("obj", [1, 0, 3, 2], [1, 0, 2, 3]),
        ("2obj", [1, 3, 2, 0], [1, 0, 2, 3]),
        ("rd", [2, 1, 0, 3], [3, 1, 2, 0]),
        ("2rd", [1, 3, 2, 0], [3, 1, 2, 0]),
    ],
)
def test_samples_are_ordered(ranker, first, second, problem):
    found = ranked(made(problem, cma_ranker=ranker))
    assert found.order.tolist() == [first, second]
    assert found.better.tolist() == [3, 0]


def test_failed_samples_come_last(problem):
    for ranker in ("imp", "obj", "rd"):
        assert ranked(made(problem, cma_ranker=ranker), [1, 4]).order[:, -1].tolist() == [1, 0]


def test_parents_are_those_added_or_the_better_half(problem):
    assert ranked(made(problem)).parents.tolist() == [2, 2]
    assert ranked(made(problem, cma_selection="filter")).parents.tolist() == [3, 0]


def test_restarts(problem):
    """The second emitter added nothing, which ends it under one of the rules."""
    spec = made(problem)
    fresh = cma_es.init(spec.cma, jnp.zeros((2, 6)))
    assert emitters.exhausted(spec, fresh, ranked(spec)).tolist() == [False, False]
    strict = made(problem, cma_restart="no_improvement")
    assert emitters.exhausted(strict, fresh, ranked(strict)).tolist() == [False, True]
    narrow = fresh._replace(sigma=jnp.array([1e-12, 0.5]))
    assert emitters.exhausted(spec, narrow, ranked(spec)).tolist() == [True, False]


def test_the_value_that_best_and_worst_are_compared_by(problem):
    """Both values of a ranking by status count: here they differ in the second only."""
    found = ranked(made(problem, cma_ranker="2imp"))
    assert found.best.tolist() == [[3.0, 2.0], [-1.0, 0.0]]
    assert found.worst.tolist() == [[9.0, 0.0], [-4.0, 0.0]]


def test_restarts_draw_elites(problem):
    archive = archives.empty(made(problem).cells.centroids(), 6)
    points = jnp.ones((2, 6))
    key = jax.random.key(0)
    assert emitters.random_elites(archive, key, points).tolist() == points.tolist(), "none yet"
    filled = archive._replace(
        policies=archive.policies.at[7].set(3.0), fitness=archive.fitness.at[7].set(1.0)
    )
    assert (emitters.random_elites(filled, key, points) == 3.0).all()


def test_directions_are_scaled_by_the_descriptor_space(problem):
    spec = made(problem)
    drawn = np.concatenate(
        [emitters.random_directions(spec, jax.random.key(i)) for i in range(400)]
    )
    np.testing.assert_allclose(drawn.std(0), problem.ranges, rtol=0.15)
    np.testing.assert_allclose(drawn.mean(0) / problem.ranges, 0, atol=0.15)


def test_covariances_are_decomposed_when_due(problem):
    """Every third iteration in 100 dimensions; seeds in a batch keep the branch a branch."""
    spec = made(elites.build("sphere", "me").problem)
    assert spec.cma.gap > 1
    fresh = cma_es.init(spec.cma, jnp.zeros((2, 100)))
    stale = fresh._replace(covariance=4 * fresh.covariance)

    def scale(iteration):
        return emitters.decomposed_when_due(spec, stale, iteration).scale[0, 0]

    found = [float(jax.jit(scale)(jnp.int32(i))) for i in range(2 * spec.cma.gap)]
    due = [i % spec.cma.gap == spec.cma.gap - 1 for i in range(len(found))]
    assert found == [2.0 if now else 1.0 for now in due]
    seeds = jax.vmap(scale, axis_name="seeds")
    assert seeds(jnp.full(3, spec.cma.gap - 1)).tolist() == [2.0] * 3
    assert "cond" in str(jax.make_jaxpr(seeds)(jnp.zeros(3, jnp.int32)))
    assert "cond" not in str(jax.make_jaxpr(jax.vmap(scale))(jnp.zeros(3, jnp.int32)))


@pytest.mark.parametrize(
    ("task", "algorithm", "given", "message"),
    [
        ("sphere", "cma_me", {"batch_size": 50}, "batch_size must be a multiple of cma_emitters"),
        ("sphere", "cma_me", {"batch_size": 15, "cma_emitters": 15}, "needs at least 2 policies"),
        ("sphere", "cma_mega", {"batch_size": 30, "cma_emitters": 15}, "needs at least 3 policies"),
        ("point_omni", "cma_mega", {}, "'point_omni' does not have: use cma_mega_es"),
        ("point_omni", "cma_maega", {}, "cma_maega needs exact gradients"),
        ("point_omni", "cma_me", {"cma_form": "eigen"}, "use cma_form 'separable'"),
        ("point_omni", "cma_mae", {"normalise_observations": True}, "normalise_observations"),
        ("point_omni", "cma_mega_es", {"cma_copies": 7}, "cma_copies must be even"),
        ("point_omni", "cma_me", {"evaluations_per_policy": 2}, "which is deterministic"),
    ],
)
def test_refusals(task, algorithm, given, message):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        elites.build(task, algorithm, **given)
    assert message in str(error.value)


def test_the_form_follows_the_number_of_dimensions():
    sizes = {
        "vectors:sphere,dimensions=1000": "cholesky",
        "vectors:sphere,dimensions=1001": "separable",
    }
    for task, form in sizes.items():
        problem = elites.build(task, "me", grid=(4, 5)).problem
        assert made(problem).form == form
        assert made(problem, cma_form="eigen").form == "eigen"
