"""CMA-ME, CMA-MAE, CMA-MEGA and CMA-MAEGA on the sphere, beside recorded curves of pyribs."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites import training
from elites.core import archive as archives
from elites.core import cma_es, evaluation

RECORDED = Path(__file__).parents[1] / "data" / "pyribs_curves.csv"
HP = {"grid": (100, 100), "batch_size": 540, "cma_emitters": 15, "cma_rank_one": "pyribs"}
SEEDS = 3

TASK = "vectors:sphere,dimensions=10"
SMALL = {"grid": (20, 20), "batch_size": 30, "cma_emitters": 3}


@functools.cache
def run(name: str, iterations: int):
    """Return the final state of three seeds and the metrics of all iterations on the sphere."""
    algorithm = elites.build("sphere", name, **HP)

    def one(key):
        keys = jax.random.split(key, iterations)
        state = algorithm.start(keys[0])  # the first iteration
        return jax.lax.scan(algorithm.step, state, keys[1:])

    seeds = jax.vmap(one, axis_name="seeds")
    return algorithm, *jax.jit(seeds)(training.seed_keys(range(SEEDS)))


def recorded(name: str) -> tuple[int, np.ndarray]:
    """Return the iteration of pyribs' recorded QD-scores, and those of its seeds."""
    with RECORDED.open() as file:
        rows = [row for row in csv.DictReader(file) if row["algorithm"] == name]
    scores = np.array([float(row["norm_qd_score"]) for row in rows])
    return int(rows[0]["iteration"]), scores


# Single seeds differ by up to a tenth this early.
@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("cma_me", 0.13), ("cma_mae", 0.13), ("cma_mega", 0.1), ("cma_maega", 0.1)],
)
def test_qd_score_agrees_with_pyribs(name, tolerance):
    iterations, theirs = recorded(name)
    _, _, metrics = run(name, iterations)
    assert (metrics.evaluations[:, -1] == iterations * 540).all()
    ours = np.asarray(metrics.qd_score[:, -1]) / 10_000
    assert ours.mean() == pytest.approx(theirs.mean(), rel=tolerance)


def test_emitters_restart_at_elites():
    _, state, _ = run("cma_me", recorded("cma_me")[0])
    assert (state.restarts > 0).all()
    new = state.gaussians.updates == 0
    assert new.any(), "some emitters have just restarted"
    archive = state.archive
    for seed, emitter in zip(*np.nonzero(np.asarray(new)), strict=True):
        mean = state.gaussians.mean[seed, emitter]
        assert (archive.policies[seed] == mean[None]).all(1).any()
        assert float(state.gaussians.sigma[seed, emitter]) == 0.5


def test_thresholds_of_cma_mae_rise_towards_the_elites():
    """A threshold is between the minimum and the fitness, and reached where there is an elite."""
    _, state, _ = run("cma_mae", recorded("cma_mae")[0])
    archive = state.archive
    full = np.isfinite(archive.fitness)
    assert (np.asarray(archive.reached) == full).all()
    assert (archive.threshold[~full] == 0).all()
    assert (archive.threshold[full] > 0).all()
    assert (archive.threshold[full] < archive.fitness[full]).all()
    # A candidate raises a threshold by one hundredth of the difference.
    assert np.median(archive.threshold[full]) < 0.5 * np.median(archive.fitness[full])


@functools.cache
def mega_step():
    algorithm = elites.build(TASK, "cma_mega", **SMALL)
    key = jax.random.key(0)
    state = jax.jit(algorithm.start)(key)
    (exchange,) = algorithm.rounds
    request = jax.jit(exchange.ask)(state, key)
    return algorithm, state, request


def test_branches_are_combinations_of_gradients():
    """A branch differs from its point by a combination of the normalised gradients there."""
    algorithm, state, request = mega_step()
    points, branches = np.split(np.asarray(request.policies), [3])
    np.testing.assert_array_equal(points, state.points)
    assert request.origins.tolist() == [1] * 3 + [2] * 27
    gradients = np.array(evaluation.jacobian(algorithm.problem, state.points))
    gradients /= np.linalg.norm(gradients, axis=2, keepdims=True)
    for i, each in enumerate(branches.reshape(3, 9, 10)):
        steps = each - points[i]
        found, *_ = np.linalg.lstsq(gradients[i].T, steps.T, rcond=None)
        np.testing.assert_allclose(found.T @ gradients[i], steps, atol=1e-3)
        assert np.abs(found).max() > 1, "coefficients are drawn with a step size of 10"


def test_points_move_to_the_weighted_mean_of_the_better_half():
    algorithm, state, request = mega_step()
    (exchange,) = algorithm.rounds
    results = jax.jit(algorithm.evaluate)(request)
    after, metrics = jax.jit(exchange.tell)(state, request, results)
    # The points are added first, so the branches are judged against their archive.
    add = jax.jit(functools.partial(archives.add, cells=algorithm.division))
    archive, parts = state.archive, []
    for rows in (slice(3), slice(3, 30)):
        addition = add(
            archive, request.policies[rows], results.fitness[rows], results.descriptors[rows],
            results.valid[rows], request.origins[rows], jnp.int32(1),
        )  # fmt: skip
        archive, parts = addition.archive, [*parts, addition]
    np.testing.assert_array_equal(after.archive.fitness, archive.fitness)
    status, value = (np.asarray(a).reshape(3, 9) for a in (parts[1].status, parts[1].value))
    weights = np.asarray(cma_es.weights_of(9, jnp.array([4])))[0]
    branches = np.asarray(request.policies[3:]).reshape(3, 9, 10)
    for i in range(3):
        if not (status[i] > 0).any():
            continue
        order = np.lexsort((value[i], status[i]))[::-1]
        np.testing.assert_allclose(after.points[i], weights @ branches[i][order], atol=1e-3)
    assert (status > 0).any(1).sum() >= 1
    assert int(metrics.added["point"]) == int(parts[0].added.sum())
    assert int(metrics.added["branch"]) == int(parts[1].added.sum())


def test_a_point_without_parents_stays():
    """With selection by filter, pyribs would move it to 0."""
    rules = {"cma_selection": "filter", "cma_restart": "basic"}
    algorithm = elites.build(TASK, "cma_mega", **SMALL, **rules)
    _, state, request = mega_step()
    results = jax.jit(algorithm.evaluate)(request)
    best = state._replace(archive=state.archive._replace(fitness=jnp.full(400, 1e6)))
    after, _ = jax.jit(algorithm.rounds[0].tell)(best, request, results)
    np.testing.assert_array_equal(after.points, state.points)
    assert int(after.restarts) == int(state.restarts)


def test_failed_evaluations_do_not_spoil_an_emitter():
    """All rows failed: nothing is added, and all emitters stay finite and where they were."""
    algorithm, state, request = mega_step()
    results = jax.jit(algorithm.evaluate)(request)
    bad = results._replace(fitness=jnp.full(30, jnp.nan), valid=jnp.zeros(30, bool))
    after, metrics = jax.jit(algorithm.rounds[0].tell)(state, request, bad)
    assert int(metrics.rejected) == 30 + int(state.rejected)
    for leaf in jax.tree.leaves((after.points, after.gaussians)):
        assert np.isfinite(leaf).all()
    np.testing.assert_array_equal(after.archive.fitness, state.archive.fitness)


def test_a_run_with_an_annealed_archive_starts_from_a_plain_one():
    """The elites are kept, and the thresholds begin at the minimum."""
    algorithm = elites.build(TASK, "cma_mae", **SMALL, archive_minimum=3.0)
    plain = archives.empty(algorithm.centroids(), 10)
    plain = plain._replace(
        policies=plain.policies.at[0].set(7.0), fitness=plain.fitness.at[0].set(50.0)
    )
    state = jax.jit(lambda k, a: algorithm.start(k, archive=a))(jax.random.key(0), plain)
    assert (state.archive.policies[0] == 7.0).all()
    assert float(state.archive.threshold[0]) == 3.0
    assert not state.archive.reached[0]
    assert state.archive.reached.any()


def test_large_networks_have_separable_covariances():
    algorithm = elites.build("point_omni", "cma_mae", batch_size=64, cells=16)
    state = jax.eval_shape(algorithm.start, jax.random.key(0), algorithm.centroids())
    after, _ = jax.eval_shape(algorithm.step, state, jax.random.key(0))
    assert algorithm.policy.size > 10_000
    assert after.gaussians.covariance.shape == (8, algorithm.policy.size)
