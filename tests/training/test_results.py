"""What training returns: elites to deploy, an actor to ask, metrics of every seed."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core.archive import Archive
from small import SMALL


@pytest.fixture(scope="module")
def run() -> elites.Run:
    return elites.train("point_omni", "dcg_me", seeds=(5, 6), evaluations=32 * 4, **SMALL)


@pytest.fixture(scope="module")
def tall() -> elites.Run:
    """The point whose second coordinate is reported in a range ten times as long."""
    point = elites.tasks.make("point_omni")

    def stretched(state: elites.TaskState) -> elites.TaskState:
        place = state.descriptor
        return state._replace(descriptor=jnp.stack([place[0], 10.0 + 10.0 * place[1]]))

    task = dataclasses.replace(
        point,
        name="tall",
        descriptor_low=(-1.0, 0.0),
        descriptor_high=(1.0, 20.0),
        reset=lambda key: stretched(point.reset(key)),
        step=lambda state, action: stretched(point.step(state, action)),
    )
    return elites.train(task, "dcg_me", evaluations=32 * 8, **SMALL)


def test_best_seed_is_shown(run):
    scores = run.metrics["qd_score"][-1]
    assert run.best == int(np.argmax(scores))
    np.testing.assert_allclose(run.archive.qd_score, scores.max(), rtol=1e-6)
    np.testing.assert_allclose(run.seed(0).archive.qd_score, scores[0], rtol=1e-6)
    assert run.seed(1).metrics["qd_score"].shape == (3,)


def test_archive_is_a_sequence_of_elites(run):
    archive = run.archive
    assert len(archive) == len(list(archive)) == round(archive.coverage * SMALL["cells"])
    assert archive.best().fitness == archive.fitness.max()
    asked = np.array([0.4, -0.2])
    nearest = archive.nearest(asked)
    distances = np.linalg.norm(archive.descriptors - asked, axis=1)
    np.testing.assert_allclose(np.linalg.norm(nearest.descriptor - asked), distances.min())
    assert nearest.origin in ("initial", "ga", "pg")
    assert np.asarray(nearest(np.zeros(3))).shape == (2,)
    assert np.asarray(nearest(np.zeros((7, 3)))).shape == (7, 2)
    assert "elites in 32 cells" in repr(archive)
    with pytest.raises(ValueError, match="2 entries, got 3"):
        archive.nearest([1.0, 2.0, 3.0])


def test_distances_are_relative_to_the_ranges(tall):
    """Cells, the nearest elite and errors count an axis of [0, 20] like one of [-1, 1]."""
    archive, ranges = tall.archive, np.array([2.0, 20.0])
    reached = archive.arrays.descriptors[archive.cells] / ranges
    away = np.linalg.norm(reached[:, None] - archive.arrays.centroids[None] / ranges, axis=-1)
    np.testing.assert_array_equal(away.argmin(axis=1), archive.cells)
    in_task_units = archive.arrays.descriptors[archive.cells]
    away = np.linalg.norm(in_task_units[:, None] - archive.arrays.centroids[None], axis=-1)
    assert (away.argmin(axis=1) != archive.cells).any(), "the test would not notice"

    rng = np.random.default_rng(0)
    for asked in rng.uniform((-1, 0), (1, 20), (20, 2)):
        nearest = np.linalg.norm((archive.descriptors - asked) / ranges, axis=1).argmin()
        assert archive.nearest(asked).cell == archive.cells[nearest]

    again = tall.reevaluate()
    off = (again.actor_descriptors[0][archive.cells] - archive.descriptors) * [10.0, 1.0]
    error = np.linalg.norm(off, axis=1).mean()
    np.testing.assert_allclose(again.actor_descriptor_error[0], error, rtol=1e-5)


def test_rebinned_scores_are_those_of_an_archive_of_the_actors_rollouts(run):
    again, size = run.reevaluate(), SMALL["cells"]
    for i in range(2):
        best: dict[int, float] = {}
        for cell, fitness in zip(again.actor_cells[i], again.actor_fitness[i], strict=True):
            if cell >= 0:
                best[cell] = max(best.get(cell, -np.inf), fitness)
        np.testing.assert_allclose(again.actor_rebinned_qd_score[i], sum(best.values()), rtol=1e-5)
        np.testing.assert_allclose(again.actor_rebinned_coverage[i], len(best) / size, rtol=1e-6)
        # Every elite is in the cell it reached, so nothing changes for the archive.
        np.testing.assert_allclose(again.rebinned_qd_score[i], again.qd_score[i], rtol=1e-6)
    assert (again.actor_rebinned_qd_score < again.actor_qd_score).all()


def test_environment_steps_are_counted_beyond_32_bits(run):
    nearly = np.array([[2**32 - 1, 0]] * 2, np.uint32)
    state = jax.tree.map(jnp.copy, run.state)._replace(env_steps=jnp.asarray(nearly))
    batched = elites.training.Batched(run.algorithm, 2)
    keys = elites.training.seed_keys(run.seeds)
    _, metrics = batched.step(state, elites.training.iteration_keys(keys, 4))
    steps = elites.training.named(metrics)["env_steps"]
    taken = run.metrics["env_steps"][-1] - run.metrics["env_steps"][-2]
    np.testing.assert_array_equal(steps, 2**32 - 1 + taken)


@pytest.mark.parametrize("origin", [3, -1])
def test_an_archive_of_another_algorithm_is_not_shown_as_empty(run, origin):
    """An IndexError inside a sequence would end a loop over it without a word."""
    archive = run.seed(0).archive
    arrays = archive.arrays._replace(origin=archive.arrays.origin.copy())
    cell = archive.cells[0]
    arrays.origin[cell] = origin
    foreign = elites.training.Elites(Archive(*arrays), run.algorithm)
    assert len(foreign) == len(archive)
    said = rf"cell {cell} has origin {origin}, but dcg_me knows only 0 to 2 \(initial, ga, pg\)"
    with pytest.raises(ValueError, match=said):
        list(foreign)
    assert foreign[-1].origin in run.algorithm.origins


def test_a_rollout_of_something_else_is_refused(run):
    for other in (0, dataclasses.replace(run.archive[0], policy=np.zeros(3))):
        with pytest.raises(ValueError, match=r"rollout takes an elite with \d+ parameters"):
            run.rollout(other)


def test_actor_takes_descriptors_in_task_units():
    """The same place asked in the units of two boxes gives the same action."""
    actions = {}
    for bound in (1.0, 30.0):
        task = elites.tasks.make("point_omni")
        task = elites.Task(**{**task.__dict__, "descriptor_low": (-bound,) * 2,
                              "descriptor_high": (bound,) * 2})  # fmt: skip
        algorithm = elites.build(task, "dcg_me", **SMALL)
        parameters = np.linspace(-1, 1, algorithm.main_td3.actor.size, dtype=np.float32)
        actor = elites.training.Actor(parameters, algorithm)
        actions[bound] = np.asarray(actor(np.array([0.1, 0.2, 0.5]), np.array([0.5, -1.0]) * bound))
    np.testing.assert_allclose(actions[1.0], actions[30.0], rtol=1e-6)


def test_actor_refuses_what_does_not_fit(run):
    actor = run.actor
    assert np.asarray(actor(np.zeros((4, 3)), np.zeros((4, 2)))).shape == (4, 2)
    assert np.asarray(actor(np.zeros((4, 3)), [0.1, 0.2])).shape == (4, 2)
    with pytest.raises(ValueError, match="needs a descriptor"):
        actor(np.zeros(3))
    with pytest.raises(ValueError, match="3 entries, got shape"):
        actor(np.zeros(4), [0.0, 0.0])


def test_reevaluation_measures_archive_and_actor(run):
    again = run.reevaluate()
    assert (again.descriptor_error == 0).all()
    full = np.isfinite(np.asarray(run.state.archive.fitness))
    error = np.linalg.norm(
        again.actor_descriptors - np.asarray(run.state.archive.descriptors), axis=-1
    )
    expected = [np.mean(error[i][full[i]]) for i in range(2)]
    np.testing.assert_allclose(again.actor_descriptor_error, expected, rtol=1e-5)
    np.testing.assert_allclose(
        again.actor_qd_score, np.nansum(again.actor_fitness, axis=1), rtol=1e-5
    )


def test_a_rollout_of_an_elite_repeats_what_the_archive_says():
    found = elites.train("ant_omni", "me", seeds=(1, 2), evaluations=66, **SMALL)
    for elite in (found.archive.best(), found.seed(0).archive[0], found.seed(1).archive[-1]):
        again = found.rollout(elite)
        assert again.valid
        assert again.fitness == elite.fitness
        np.testing.assert_array_equal(again.descriptor, elite.descriptor)
        assert 1 <= again.steps <= 1000


def test_an_elite_refuses_an_observation_of_another_size(run):
    with pytest.raises(ValueError, match=r"observation must have 3 entries, got shape \(2,\)"):
        run.archive.best()(np.zeros(2))


def test_a_run_says_what_it_is(run):
    text = str(run)
    assert "dcg_me on point_omni, seeds 5, 6" in text
    assert "elites in 32 cells" in text
    assert "3 iterations, 128 evaluations" in text
    assert "actor: takes a descriptor" in text
    assert len(text) < 400
    assert len(repr(run)) < 400


def test_runs_are_compared_as_objects(run):
    assert run == run
    assert run != 3
    assert {run: 1, run.seed(0): 2, run.actor: 3}[run] == 1
