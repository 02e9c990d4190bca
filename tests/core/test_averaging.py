"""Several episodes of a policy: averages against NumPy, and against a task of known noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites import training
from elites.core import averaging
from elites.core.map_elites import StartKeys
from elites.core.types import Results
from elites.tasks.task import Task, TaskState
from small import SMALL

TIMES = 3


def noisy_task() -> Task:
    """An episode is one step. Its reward and its descriptor are what its key draws."""

    def reset(key) -> TaskState:
        drawn = jax.random.uniform(key, (2,))
        return TaskState(drawn, jnp.ones(1), jnp.float32(0.0), jnp.bool_(False), drawn)

    def step(state: TaskState, action) -> TaskState:
        del action
        drawn = state.inner
        return TaskState(drawn, jnp.ones(1), 10.0 * drawn[0], jnp.bool_(True), drawn)

    return Task(
        "noise", observation_size=1, action_size=1, episode_length=1, descriptor_low=(0.0, 0.0),
        descriptor_high=(1.0, 1.0), reset=reset, step=step, deterministic=False,
    )  # fmt: skip


@pytest.mark.parametrize("average", ["mean", "median"])
def test_averages_are_those_of_the_valid_episodes(average):
    generator = np.random.default_rng(0)
    n, times = 5, 4
    fitness = generator.normal(size=(times, n)).astype(np.float32)
    descriptors = generator.normal(size=(times, n, 2)).astype(np.float32)
    valid = np.ones((times, n), bool)
    valid[1, 0] = valid[:, 1] = False  # one failure, and nothing but failures
    fitness[2, 3] = np.nan  # reported as valid, but it has no fitness
    results = Results(
        jnp.asarray(fitness.reshape(-1)),
        jnp.asarray(descriptors.reshape(-1, 2)),
        jnp.asarray(valid.reshape(-1)),
    )
    found = averaging.averaged(results, times, average)
    np.testing.assert_array_equal(found.valid, [True, False, True, True, True])
    function = getattr(np, average)
    for i in (0, 2, 3, 4):
        good = valid[:, i] & np.isfinite(fitness[:, i])
        np.testing.assert_allclose(found.fitness[i], function(fitness[good, i]), rtol=1e-6)
        expected = function(descriptors[good, i], axis=0)
        np.testing.assert_allclose(found.descriptors[i], expected, rtol=1e-5)
    assert averaging.averaged(results, 1, average) is results


@pytest.mark.parametrize("average", ["mean", "median"])
def test_elites_have_the_average_of_a_known_noise(average):
    """The noise of each episode follows from its key, which is drawn here once more."""
    options = {**SMALL, "evaluations_per_policy": TIMES, "average": average}
    algorithm = elites.build(noisy_task(), "me", **options)
    n = SMALL["batch_size"]
    assert (algorithm.batch, algorithm.repeats) == (TIMES * n, TIMES)
    assert algorithm.evaluations_per_iteration == algorithm.initial_evaluations == TIMES * n
    batched = training.Batched(algorithm, 1)
    keys = training.iteration_keys(training.seed_keys([0]), 0)
    state = batched.start(keys)
    assert int(state.evaluations[0]) == TIMES * n
    rows = jax.random.split(StartKeys.of(keys[0]).rollouts, TIMES * n)  # a multiple of 32
    drawn = np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (2,)))(rows))
    expected = getattr(np, average)(drawn.reshape(TIMES, n, 2), axis=0)
    archive = jax.tree.map(lambda a: np.asarray(a[0]), state.archive)
    filled = np.isfinite(archive.fitness)
    assert filled.sum() > 5
    for fitness, descriptor in zip(
        archive.fitness[filled], archive.descriptors[filled], strict=True
    ):
        nearest = np.abs(expected - descriptor).max(1).argmin()
        np.testing.assert_allclose(descriptor, expected[nearest], atol=1e-6)
        np.testing.assert_allclose(fitness, 10 * expected[nearest, 0], atol=1e-5)
    again = batched.reevaluate(state.archive, None, training.seed_keys([0]))
    spread = float(np.nanstd(np.asarray(again.fitness)))
    assert 0 < spread < 10 * np.sqrt(1 / 12)  # of one episode; an average has less


def test_all_episodes_are_learned_from():
    """Actor rollouts are single episodes. Their targets and those of the policies are kept."""
    options = {**SMALL, "evaluations_per_policy": TIMES, "batch_size": 8, "replay_size": 4000}
    algorithm = elites.build("noisy_point_omni", "dcg_me", **options)
    batched, keys = training.Batched(algorithm, 1), training.seed_keys([0])
    state = batched.start(training.iteration_keys(keys, 0))
    assert int(state.replay.size[0]) == (TIMES * 8 + 8) * 25
    again = batched.reevaluate(state.archive, algorithm.actor(state), keys)
    assert np.isfinite(again.actor_qd_score).all()


def test_more_than_one_evaluation_is_refused_where_it_is_useless():
    with pytest.raises(ValueError, match="on 'point_omni', which is deterministic"):
        elites.build("point_omni", "me", evaluations_per_policy=2)
    with pytest.raises(ValueError, match="use es_repeats instead of evaluations_per_policy"):
        elites.build("noisy_point_omni", "me_es", evaluations_per_policy=2)
    with pytest.raises(ValueError, match="average must be one of mean, median, got 'mode'"):
        elites.build("noisy_point_omni", "me", average="mode")
