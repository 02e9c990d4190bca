"""Distillation: labels are the elites' actions, and the policy comes to imitate the elites."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from elites import training
from elites.core import archive as archives
from elites.core import distillation, networks
from elites.core import replay as replays
from elites.core.algorithms import conditioned_td3
from small import SMALL

KEYS = training.seed_keys([0])


@pytest.fixture(scope="module")
def distilled():
    """A source of random policies on the point task, its distillation, and states of both."""
    source = training.build("point_omni", "me", **{**SMALL, "batch_size": 64})
    state, step = jax.jit(source.start)(KEYS[0]), jax.jit(source.step)
    for i in range(1, 5):
        state, _ = step(state, jax.random.fold_in(KEYS[0], i))
    hp = dataclasses.replace(
        source.hp, actor_hidden=(32, 32), distil_steps=200, distil_batch_size=64, replay_size=20_000
    )
    spec = distillation.Spec(
        source.problem, hp, conditioned_td3(source.problem, hp), source.origins
    )
    batched = training.Batched(distillation.algorithm(spec), 1)
    sources = jax.tree.map(lambda a: a[None], state.archive)
    return spec, batched, sources, batched.start(training.iteration_keys(KEYS, 0), sources)


def test_labels_are_the_actions_of_the_elite_of_the_target(distilled):
    """Stored rows are compared with the elite of that descriptor, computed in NumPy."""
    spec, _, sources, state = distilled
    replay = jax.tree.map(lambda a: np.asarray(a[0]), state.replay)
    rows = replays.columns(spec.layout, replay.rows[: int(replay.size)])
    filled = np.isfinite(np.asarray(sources.fitness[0]))
    descriptors = np.asarray(spec.problem.normalise(sources.descriptors[0]))[filled]
    policies = np.asarray(sources.policies[0])[filled]
    layers = networks.unflatten(spec.policy, policies)
    assert len(rows["target"]) > 200
    for i in np.linspace(0, len(rows["target"]) - 1, 40).astype(int):
        (elite,) = np.flatnonzero(np.abs(descriptors - rows["target"][i]).max(1) < 1e-6)[:1]
        x = np.asarray(rows["observation"][i], np.float64)
        for kernel, bias in layers[:-1]:
            x = np.maximum(x @ np.asarray(kernel[elite]) + np.asarray(bias[elite]), 0)
        kernel, bias = layers[-1]
        expected = np.tanh(x @ np.asarray(kernel[elite]) + np.asarray(bias[elite]))
        np.testing.assert_allclose(rows["action"][i], expected, atol=1e-5)


def test_both_the_elites_and_the_policy_are_visited(distilled):
    """A batch of 64 elites and 64 rollouts of the policy was evaluated; only elites are counted."""
    spec, batched, _, state = distilled
    assert int(state.evaluations[0]) == spec.hp.batch_size
    request = batched.compiled.first(state, KEYS)
    evaluation = batched.compiled.evaluate(request)
    assert evaluation.fitness.shape == (1, 2 * spec.hp.batch_size)
    np.testing.assert_array_equal(request.actor_targets, request.targets)


def test_the_policy_learns_and_the_archive_stays(distilled):
    _, batched, sources, state = distilled
    before = batched.reevaluate(state.archive, batched.algorithm.actor(state), KEYS)
    state = jax.tree.map(lambda a: a.copy(), state)
    losses = []
    for i in range(1, 13):
        state, metrics = batched.step(state, training.iteration_keys(KEYS, i))
        losses.append(float(metrics.actor_loss[distillation.LEARNER][0]))
    after = batched.reevaluate(state.archive, batched.algorithm.actor(state), KEYS)
    for old, new in zip(sources, state.archive, strict=True):
        np.testing.assert_array_equal(old, new)
    assert losses[-1] < 0.2 * losses[0]
    assert float(after.actor_descriptor_error[0]) < 0.1 * float(before.actor_descriptor_error[0])
    assert float(after.actor_rebinned_coverage[0]) > 2 * float(before.actor_rebinned_coverage[0])
    assert metrics.critic_loss == {}
    assert metrics.added == {}


def test_a_full_buffer_holds_many_iterations(distilled):
    """An iteration stores at most one part in 32 of the replay buffer, give or take the draw."""
    spec, _, _, state = distilled
    share = int(state.replay.size[0]) / spec.hp.replay_size
    assert 0.8 / 32 < share < 1.2 / 32


def test_an_archive_to_start_from_is_kept_by_other_algorithms():
    """Elites of a given archive stay unless better ones are found."""
    algorithm = training.build("point_omni", "me", **SMALL)
    start = jax.jit(algorithm.start)
    first = start(KEYS[0])
    again = start(jax.random.key(7), archive=first.archive)
    assert float(archives.summary(again.archive).qd_score) >= float(
        archives.summary(first.archive).qd_score
    )
    kept = np.isfinite(np.asarray(first.archive.fitness))
    assert np.isfinite(np.asarray(again.archive.fitness))[kept].all()
