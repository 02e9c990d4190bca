"""Re-evaluation: its requests have the shape of training's, its metrics are computed by hand.

On the real robots, re-evaluating an archive reproduces it exactly.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
import probe
import quick
from elites import training
from elites.core import archive as archives
from elites.core import map_elites, networks, reevaluation, td3
from elites.core.algorithm import Algorithm
from elites.core.algorithms import ALGORITHMS
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.reevaluation import Results
from small import SMALL

NAN, INF = np.nan, np.inf

# ---------------------------------------------------------------------------------------- requests


def numbered_archive(algorithm: Algorithm) -> Archive:
    """Return an archive in which policies, origins and descriptors hold the number of the cell."""
    cells = algorithm.cells
    number = jnp.arange(cells, dtype=jnp.float32)
    empty = archives.empty(probe.centroids(cells), algorithm.policy.size)
    return empty._replace(
        policies=jnp.broadcast_to(number[:, None], empty.policies.shape),
        fitness=number,
        descriptors=jnp.stack([number, -number], axis=1),
        origin=jnp.arange(cells, dtype=jnp.int32),
    )


def probe_algorithm(actor_rollouts: int, **choices) -> Algorithm:
    return map_elites.algorithm(probe.spec(actor_rollouts=actor_rollouts, **choices))


CELLS = jnp.array([7, 2, 2, 11])  # as many as the batch of `probe`


@pytest.mark.parametrize(
    ("actor_rollouts", "asked"),
    [
        (0, []),
        (4, [7, 2, 2, 11]),
        (3, [7, 2, 2]),
        (6, [7, 2, 2, 11, 7, 2]),  # repeated, to have the shape of training
    ],
)
def test_elites_are_requested_with_the_actor_at_their_descriptors(actor_rollouts, asked):
    algorithm = probe_algorithm(actor_rollouts)
    actor, key = jnp.ones(algorithm.main_td3.actor.size), jax.random.key(3)
    archive = numbered_archive(algorithm)
    request = reevaluation.request_elites(algorithm, archive, actor, CELLS, key)
    np.testing.assert_array_equal(request.policies[:, 0], CELLS)
    np.testing.assert_array_equal(request.origins, CELLS)
    np.testing.assert_array_equal(request.targets, np.stack([CELLS, -CELLS], axis=1))
    np.testing.assert_array_equal(request.actor, actor)
    assert request.actor_targets.shape == (actor_rollouts, 2)
    np.testing.assert_array_equal(request.actor_targets[:, 0], asked)
    assert request.key == key


def test_the_actor_alone_is_requested_at_a_padded_batch_of_descriptors():
    algorithm = probe_algorithm(0)
    actor, key = jnp.ones(algorithm.main_td3.actor.size), jax.random.key(3)
    request = reevaluation.request_actor(algorithm, numbered_archive(algorithm), actor, CELLS, key)
    assert len(request.policies) == len(request.origins) == len(request.targets) == 0
    np.testing.assert_array_equal(request.actor_targets[:, 0], [7, 2, 2] + [11] * 29)
    evaluation = jax.eval_shape(algorithm.evaluate, request)
    assert evaluation.fitness.shape == (32,)


def shapes(tree) -> tuple:
    leaves = [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]
    return jax.tree.structure(tree), leaves


@pytest.mark.parametrize("name", ALGORITHMS)
def test_elites_are_requested_in_the_shape_of_training(name):
    """With another shape or type, another program would evaluate them, to other bits."""
    exact = name in ("cma_mega", "cma_maega")  # which need exact gradients
    task = "vectors:sphere,dimensions=6" if exact else "point_omni"
    algorithm = elites.build(task, name, preset="paper", **SMALL)
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key, algorithm.centroids())
    trained = jax.eval_shape(algorithm.rounds[-1].ask, state, key)
    again = jax.eval_shape(
        functools.partial(reevaluation.request_elites, algorithm),
        state.archive, algorithm.actor(state), jnp.zeros(algorithm.batch, int), key,
    )  # fmt: skip
    first = jax.eval_shape(algorithm.first, state, key)
    assert shapes(again) == shapes(trained.to_evaluate())
    assert shapes(first.to_evaluate()) == shapes(trained.to_evaluate())


@pytest.mark.parametrize(
    "choices",
    [
        {"actor_rollouts": 4},  # elites and actor in one request
        {"actor_rollouts": 0},  # the actor in requests of its own
        {"actor_rollouts": 6},
        {"actor_rollouts": 4, "actor_conditioned": False},
        {"actor_rollouts": 0, "learns": False},
    ],
)
def test_all_cells_and_the_actor_at_their_descriptors_are_reevaluated(choices):
    """14 cells take 4 requests of a batch of 4. Results are compared with direct computations."""
    cells = 14
    algorithm = probe_algorithm(**choices, hp=dataclasses.replace(probe.HP, cells=cells))
    rng = np.random.default_rng(0)
    full = rng.random(cells) < 0.7
    archive = archives.empty(probe.centroids(cells), algorithm.policy.size)._replace(
        policies=probe.random_policies(cells, algorithm.policy.size),
        fitness=jnp.where(full, 1.0, -INF),
        descriptors=jnp.asarray(rng.uniform(probe.LOW, probe.HIGH, (cells, 2)), jnp.float32),
    )
    learner = algorithm.main_td3
    actor = None if learner is None else probe.random_policies(1, learner.actor.size)
    keys = training.seed_keys([0])
    found = training.Batched(algorithm, 1).reevaluate(
        jax.tree.map(lambda a: a[None], archive), actor, keys
    )

    seen = probe.observations(keys, deterministic=True)[:, 0]
    layers = networks.unflatten(algorithm.policy, archive.policies)
    actions = jax.vmap(lambda one: networks.apply(algorithm.policy, one, seen))(layers)
    expected = np.where(full, actions.sum((1, 2)), NAN)
    np.testing.assert_allclose(found.fitness[0], expected, atol=1e-5)
    expected = np.full(cells, NAN)
    if algorithm.conditioned:
        scaled = algorithm.problem.normalise(archive.descriptors)
        targets = jnp.broadcast_to(scaled[:, None], (cells, len(seen), 2))
        actions = jax.vmap(lambda target: td3.act(learner, actor[0], seen, target))(targets)
        expected = np.where(full, actions.sum((1, 2)), NAN)
    np.testing.assert_allclose(found.actor_fitness[0], expected, atol=1e-5)
    assert np.isfinite(found.actor_qd_score[0]) == algorithm.conditioned


# ----------------------------------------------------------------------------------------- metrics


def score(archive: Archive, elites: Results, actor: Results | None, high=(10.0, 10.0)):
    """Score results in Voronoi cells of descriptors that lie between 0 and `high`."""
    cells = Cells((0.0, 0.0), high, len(archive.fitness))
    return jax.jit(functools.partial(reevaluation.score, cells))(archive, elites, actor)


def scored_archive() -> Archive:
    """Return five cells, the third of them empty."""
    archive = archives.empty(jnp.array([[0.0, 0], [1, 1], [9, 9], [2, 0], [4, 4]]), 1)
    return archive._replace(
        fitness=jnp.array([1.0, 2.0, -INF, 4.0, 5.0]),
        descriptors=jnp.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [2.0, 0.0], [3.0, 3.0]]),
    )


ELITES = Results(  # cells 0 and 4 repeat, cell 1 reaches elsewhere, cell 3 diverges
    fitness=jnp.array([1.0, 3.0, 100.0, 200.0, 5.0]),
    descriptors=jnp.array([[0.0, 0.0], [4.0, 5.0], [9.0, 9.0], [NAN, NAN], [3.0, 3.0]]),
    valid=jnp.array([True, True, True, False, True]),
)
ACTOR = Results(
    fitness=jnp.array([10.0, 20.0, 30.0, 40.0, NAN]),
    descriptors=jnp.array([[3.0, 4.0], [1.0, 1.0], [0.0, 0.0], [2.0, 7.0], [INF, 0.0]]),
    valid=jnp.array([True, True, True, True, False]),
)


def test_scores_by_hand():
    """Elites: 1 + 3 + 5 = 9; cell 1 is |(3, 4)| = 5 off, so the mean error is 5 / 3.

    Actor: 10 + 20 + 40 = 70; errors |(3, 4)| = 5, 0 and 7, so the mean is 12 / 3 = 4.
    """
    found = score(scored_archive(), ELITES, ACTOR)
    np.testing.assert_array_equal(found.fitness, [1, 3, NAN, NAN, 5])
    np.testing.assert_array_equal(
        found.descriptors, [[0, 0], [4, 5], [NAN, NAN], [NAN, NAN], [3, 3]]
    )
    assert float(found.qd_score) == 9.0
    assert float(found.descriptor_error) == pytest.approx(5 / 3)
    np.testing.assert_array_equal(found.actor_fitness, [10, 20, NAN, 40, NAN])
    np.testing.assert_array_equal(
        found.actor_descriptors, [[3, 4], [1, 1], [NAN, NAN], [2, 7], [NAN, NAN]]
    )
    assert float(found.actor_qd_score) == 70.0
    assert float(found.actor_descriptor_error) == 4.0


def test_rebinned_scores_count_what_was_reached():
    """The elites reach cells 0, 4 and 4: of the two in cell 4 the fitter one counts, 1 + 5.

    The actor reaches cells 4, 1 and 4, with 10, 20 and 40.
    """
    found = score(scored_archive(), ELITES, ACTOR)
    np.testing.assert_array_equal(found.cells, [0, 4, -1, -1, 4])
    assert float(found.rebinned_qd_score) == 6.0
    assert float(found.rebinned_coverage) == pytest.approx(2 / 5)
    np.testing.assert_array_equal(found.actor_cells, [4, 1, -1, 4, -1])
    assert float(found.actor_rebinned_qd_score) == 60.0
    assert float(found.actor_rebinned_coverage) == pytest.approx(2 / 5)


def test_errors_are_relative_to_the_ranges():
    """The second axis is a tenth as long: there, a difference counts ten times as much."""
    found = score(scored_archive(), ELITES, ACTOR, high=(10.0, 1.0))
    expected = np.mean([np.hypot(3, 40), 0, 70])
    assert float(found.actor_descriptor_error) == pytest.approx(expected)


def test_scores_without_an_actor_are_not_numbers():
    found = score(scored_archive(), ELITES, None)
    both = score(scored_archive(), ELITES, ACTOR)
    for name, values in found._asdict().items():
        assert values.shape == getattr(both, name).shape
        assert values.dtype == getattr(both, name).dtype
        if name == "actor_cells":
            assert (values == -1).all()
        elif name.startswith("actor_"):
            assert np.isnan(values).all()
        else:
            np.testing.assert_array_equal(values, getattr(both, name))


def test_without_any_result_there_is_no_error_rather_than_a_perfect_one():
    archive = archives.empty(jnp.zeros((5, 2)), 1)
    found = score(archive, ELITES, None)
    assert np.isnan(found.fitness).all()
    assert float(found.qd_score) == 0.0
    assert np.isnan(found.descriptor_error)
    # An actor whose rollouts all diverge, of an archive that is filled.
    filled = archive._replace(fitness=jnp.ones(5))
    failed = ELITES._replace(valid=jnp.zeros(5, bool))
    found = score(filled, ELITES, failed)
    assert np.isnan(found.actor_descriptor_error)
    assert float(found.actor_qd_score) == 0.0


# ------------------------------------------------------------------------------------------ robots


# The conditioned algorithm takes long to compile: it runs on two tasks, MAP-Elites on the others.
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("task", "algorithm"),
    [
        ("ant_omni", "dcg_me"),
        ("anttrap_omni", "me"),
        ("hexapod_omni", "me"),
        ("walker_uni", "me"),
        ("arm_reach", "dcg_me"),
    ],
)
def test_reevaluation_reproduces_the_archive_of_a_robot(task, algorithm):
    """On the real robots, over whole episodes: fitness and descriptors have the same bits."""
    # Many cells: random hexapods hardly move, and a coarse archive would hold one elite.
    built = elites.build(task, algorithm, **(SMALL | {"cells": 256}))
    # Rollouts are optimised as a user's are; the rest, where little is computed, is not.
    batched = training.Batched(built, 1, compiler_options={"xla_backend_optimization_level": 0})
    optimised = training.Batched(built, 1, compiler_options=quick.usual()).compiled.evaluate
    batched.compiled = dataclasses.replace(batched.compiled, evaluate=optimised)
    keys = training.seed_keys([0])
    state = batched.start(training.iteration_keys(keys, 0))
    state, metrics = batched.step(state, training.iteration_keys(keys, 1))
    assert int(metrics.rejected[0]) == 0
    found = batched.reevaluate(state.archive, batched.algorithm.actor(state), keys)
    archive = jax.tree.map(np.asarray, state.archive)
    full = np.isfinite(archive.fitness)
    assert full.any()
    assert (np.asarray(found.fitness)[full] == archive.fitness[full]).all()
    assert (np.asarray(found.descriptors)[full] == archive.descriptors[full]).all()
    assert float(found.descriptor_error[0]) == 0.0
