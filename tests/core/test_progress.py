"""The reward for progress, its targets and its weight, and the algorithm that uses it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
import probe
from elites.core import archive as archives
from elites.core import map_elites, progress
from elites.core import replay as replays
from elites.core.progress import Progress
from elites.core.schedule import Schedule
from elites.core.spec import Learner
from elites.core.types import Evaluation
from small import SMALL
from specs import spec_of

WEIGHT = Schedule(3.0, 0.7, 0.2, 0.5)


# ---------------------------------------------------------------------------------------- schedule


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.0, 3.0), (0.2, 3.0), (0.35, 2.1**0.5), (0.5, 0.7), (1.0, 0.7)]
)
def test_a_schedule_changes_evenly_in_the_logarithm(coverage, expected):
    np.testing.assert_allclose(WEIGHT.at(jnp.float32(coverage)), expected, rtol=1e-5)


@pytest.mark.parametrize("values", [(0.0, 1.0, 0.2, 0.5), (1.0, 1.0, 0.5, 0.5), (1, 1, 0.2, 1.1)])
def test_impossible_schedules_are_refused(values):
    with pytest.raises(ValueError, match="a schedule needs"):
        Schedule(*values)


# ------------------------------------------------------------------------------ reward and targets


def test_the_reward_pays_for_coming_closer():
    rng = np.random.default_rng(0)
    before, after, target = rng.uniform(-1, 1, (3, 50, 2))
    task = rng.normal(size=50)
    paid = progress.reward(*map(jnp.float32, (7.0, task, before, after, target)))
    expected = [
        r + 7.0 * (np.hypot(*(x - d)) - np.hypot(*(y - d)))
        for r, x, y, d in zip(task, before, after, target, strict=True)
    ]
    np.testing.assert_allclose(paid, expected, atol=1e-5)


def test_targets_are_drawn_anew_in_their_shares():
    rng = np.random.default_rng(0)
    n = 20_000
    target, reached, after = (jnp.float32(rng.uniform(-0.5, 0.5, (n, 2))) for _ in range(3))
    settings = Progress(WEIGHT, reached=0.2, uniform=0.3, near=0.1)
    drawn = np.asarray(progress.relabel(settings, target, reached, after, jax.random.key(0)))

    def equal(to):
        return (drawn == np.asarray(to)).all(1)

    new = ~equal(target) & ~equal(reached)
    np.testing.assert_allclose([equal(target).mean(), equal(reached).mean()], [0.4, 0.2], atol=0.02)
    # Of the others a quarter lies near the state after the step, at a distance of 0.1 or so.
    distance = np.linalg.norm(drawn - np.asarray(after), axis=1)[new]
    uniform = rng.uniform(-1, 1, (n, 2)) - np.asarray(after)
    far = np.mean(np.linalg.norm(uniform, axis=1) > 0.4)
    np.testing.assert_allclose(np.mean(distance > 0.4), 0.75 * far, atol=0.03)
    assert np.abs(drawn).max() <= 1
    assert np.abs(drawn[new]).max() > 0.95


@pytest.mark.parametrize("shares", [(0.5, 0.4, 0.2), (-0.1, 0.2, 0.2)])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="sum to at most 1"):
        Progress(WEIGHT, *shares)


def test_the_weight_is_a_multiple_of_the_largest_fitness():
    archive = archives.empty(probe.centroids(10), 3)
    fitness = archive.fitness.at[:3].set(jnp.float32([5.0, -40.0, 8.0]))  # coverage 0.3
    weight = progress.weight_in(Progress(WEIGHT), archive._replace(fitness=fitness))
    np.testing.assert_allclose(weight, 40 * 3.0 * (0.7 / 3.0) ** (1 / 3), rtol=1e-5)
    np.testing.assert_array_equal(progress.weight_in(Progress(WEIGHT), archive), 0)


def test_columns_are_judged_by_their_new_target():
    rng = np.random.default_rng(1)
    names = ("target", "descriptor", "state_descriptor", "next_state_descriptor")
    columns = {name: jnp.float32(rng.uniform(-1, 1, (4, 30, 2))) for name in names}
    columns["reward"] = jnp.float32(rng.normal(size=(4, 30, 1)))
    settings = Progress(WEIGHT, 0.3, 0.3, 0.3)
    made = progress.relabelled_columns(settings, jnp.float32(5.0), columns, jax.random.key(2))
    np.testing.assert_array_equal(made["descriptor"], made["target"])  # similarity 1
    assert (np.asarray(made["target"]) != np.asarray(columns["target"])).any(-1).mean() > 0.8
    x, y, d = (np.float64(made[n]) for n in (names[2], names[3], "target"))
    closer = np.linalg.norm(x - d, axis=-1) - np.linalg.norm(y - d, axis=-1)
    expected = np.float64(columns["reward"][..., 0]) + 5 * closer
    np.testing.assert_allclose(made["reward"][..., 0], expected, atol=1e-5)


# ------------------------------------------------------------------------------------- what is kept


def test_progress_of_an_episode_is_that_of_its_end():
    """Summed over an episode: the distance at the start minus the distance at the end."""
    spec = spec_of("progress_me", **SMALL)
    state = jax.jit(map_elites.algorithm(spec).start)(jax.random.key(0))
    rows = np.asarray(state.replay.rows)[: int(state.replay.size)]
    columns = replays.columns(spec.layout, rows.reshape(25, -1, rows.shape[1]))
    before, after = columns["state_descriptor"], columns["next_state_descriptor"]
    np.testing.assert_array_equal(after[:-1], before[1:])
    np.testing.assert_allclose(after[-1], columns["descriptor"][-1], atol=1e-6)
    target = np.float32([0.3, -0.8])
    length = functools.partial(np.linalg.norm, axis=-1)
    closer = (length(before - target) - length(after - target)).sum(0)
    expected = length(before[0] - target) - length(columns["descriptor"][0] - target)
    np.testing.assert_allclose(closer, expected, atol=1e-5)


def test_the_last_step_of_a_short_episode_leads_to_its_descriptor():
    algorithm = map_elites.algorithm(probe.spec())

    @jax.jit
    def evaluated(key):
        state = algorithm.init(key, probe.centroids())
        return algorithm.evaluate(algorithm.first(state, key))

    evaluation = evaluated(jax.random.key(0))
    steps = evaluation.transitions
    ended = steps._replace(mask=steps.mask.at[2:, 1].set(False))
    evaluation = jax.tree.map(np.asarray, evaluation._replace(transitions=ended))
    found = np.asarray(jax.jit(map_elites.next_descriptors)(evaluation))
    np.testing.assert_array_equal(found[1, 1], evaluation.descriptors[1])
    np.testing.assert_array_equal(found[0, 1], steps.state_descriptor[1, 1])
    np.testing.assert_array_equal(found[-1], evaluation.descriptors)


# ------------------------------------------------------------------------------------ the algorithm


def test_it_is_rewarded_for_progress_where_the_descriptor_is_a_final_one():
    final, mean = (spec_of("progress_me", task) for task in ("ant_omni", "walker_uni"))
    (learner,) = final.learners
    assert learner.standardised
    assert learner.progress == Progress(WEIGHT, 0.2, 0.3, 0.1)
    assert learner.rate_factor == Schedule(1.0, 0.2, 0.6, 0.95)
    assert (learner.td3.discount, learner.td3.batch_size) == (0.95, 256)
    assert learner.td3.actor_rate == learner.td3.critic_rate == 1e-3

    (learner,) = mean.learners
    assert learner.standardised
    assert learner.progress is None
    assert learner.rate_factor is None
    assert (learner.td3.discount, learner.td3.lengthscale) == (0.99, 0.1)
    assert learner.td3.actor_rate == learner.td3.critic_rate == 3e-4
    assert "next_state_descriptor" not in mean.layout


def test_hyperparameters_choose_the_reward_and_the_discount():
    (learner,) = spec_of("progress_me", progress_weight=0.0).learners
    assert learner.progress is None
    (learner,) = spec_of("progress_me", progress_discount=0.5, progress_weight=2.0).learners
    assert learner.td3.discount == 0.5
    assert learner.progress is not None
    assert learner.progress.weight.first == 2.0


def test_a_mean_descriptor_or_a_blind_critic_cannot_be_rewarded_for_progress():
    spec = probe.spec()
    learner = dataclasses.replace(spec.learners[0], progress=Progress(WEIGHT))
    mean = dataclasses.replace(spec.problem, final_descriptor=False)
    with pytest.raises(ValueError, match="'probe' is a mean over steps"):
        dataclasses.replace(spec, problem=mean, learners=(learner,))
    blind = elites.core.algorithms.make_td3(spec.problem, probe.HP)
    with pytest.raises(ValueError, match="'blind' cannot be rewarded for progress"):
        dataclasses.replace(spec, learners=(Learner("blind", blind, progress=Progress(WEIGHT)),))


def test_metrics_count_the_outward_offspring_that_came_nearer():
    spec = spec_of("progress_me", **SMALL)
    count = [variation.count for variation in spec.variations]
    origins = jnp.repeat(jnp.arange(1, 4), jnp.array(count), total_repeat_length=sum(count))
    n = sum(count)
    targets = jnp.zeros((n, 2)).at[:, 0].set(1.0)
    parents = jnp.zeros((n, 2)).at[::2].set(targets[::2])  # every second aims at its own place
    reached = jnp.zeros((n, 2)).at[:, 0].set(jnp.cos(1.1 * jnp.arange(n)))
    request = map_elites.Request(
        jnp.zeros((n, 1)), origins, targets, None, targets[:0], jax.random.key(0), None, parents
    )
    pg = slice(count[0], count[0] + count[1])
    valid = jnp.ones(n, bool).at[count[0] + 3].set(False)  # a failed episode does not count
    found = Evaluation(jnp.zeros(n), reached, valid, jnp.zeros(n, int), None)
    shares = map_elites.nearer(spec, request, found)
    closer = np.asarray((reached[:, 0] > 0) & valid)[pg]
    expected = np.mean(closer[1::2])
    assert list(shares) == ["pg"]
    np.testing.assert_allclose(shares["pg"], expected)
    assert 0 < expected < 1
    nobody = map_elites.nearer(spec, request._replace(parent_descriptors=targets), found)
    assert np.isnan(nobody["pg"]), "no offspring was sent anywhere"
    assert map_elites.nearer(spec, request._replace(parent_descriptors=None), found) == {}
    assert request.to_evaluate().parent_descriptors is None

    run = elites.train("point_omni", "progress_me", seeds=2, evaluations=96, **SMALL)
    share = run.metrics["nearer.pg"]
    assert share.shape == run.metrics["qd_score"].shape
    assert ((share >= 0) & (share <= 1)).all()
    assert not [name for name in run.metrics if name.startswith("nearer.") and "pg" not in name]


def test_the_actor_learns_to_reach_what_it_is_asked_for():
    """After training, injected actors come nearer to their targets than the untrained one."""
    sizes = SMALL | {
        "policy_hidden": (32, 32), "critic_hidden": (32, 32), "critic_steps": 200,
        "progress_batch_size": 64, "replay_size": 20_000, "progress_final_rate": 1.0, "cells": 64,
    }  # fmt: skip
    algorithm = elites.build("point_omni", "progress_me", **sizes)
    state = jax.jit(algorithm.start)(jax.random.key(0))
    step, ask = jax.jit(algorithm.step), jax.jit(algorithm.rounds[-1].ask)
    evaluate = jax.jit(algorithm.evaluate)

    def miss(state):
        request = ask(state, jax.random.key(9))
        injected = np.asarray(request.origins) == algorithm.origins.index("injection")
        away = np.asarray(evaluate(request).descriptors - request.targets)[injected]
        return np.linalg.norm(away, axis=1).mean()

    untrained = miss(state)
    for i in range(30):
        state, metrics = step(state, jax.random.key(i))
    assert np.isfinite(float(metrics.critic_loss["conditioned"]))
    assert miss(state) < 0.35 * untrained
