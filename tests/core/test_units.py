"""Descriptors in task units outside, in [-1, 1] inside: on a box where the two differ.

The task is the point whose place is reported in skewed units: x from -3 to 5, y from 10 to 10.5.
Scaled to [-1, 1], a descriptor is the place itself again, which the observation holds.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core import map_elites

pytestmark = pytest.mark.usefixtures("quick_compiler")

LOW, HIGH = np.array([-3.0, 10.0]), np.array([5.0, 10.5])
BATCH, STEPS = 32, 25
SMALL = {
    "batch_size": BATCH,
    "policy_hidden": (4,),
    "actor_hidden": (4,),
    "critic_hidden": (4,),
    "td3_batch_size": 8,
    "critic_steps": 2,
    "diversity_critic_steps": 2,
    "pg_steps": 1,
    "replay_size": 2000,
    "novelty_memory": 500,
    "novelty_threshold": 0.01,
}


def skewed() -> elites.Task:
    point = elites.tasks.make("point_omni")

    def in_task_units(state):
        place = jnp.array((LOW + HIGH) / 2) + state.descriptor * jnp.array((HIGH - LOW) / 2)
        return state._replace(descriptor=place)

    return dataclasses.replace(
        point,
        name="skewed_point",
        descriptor_low=tuple(LOW),
        descriptor_high=tuple(HIGH),
        reset=lambda key: in_task_units(point.reset(key)),
        step=lambda state, action: in_task_units(point.step(state, action)),
    )


@functools.cache
def start(name: str, **changes):
    algorithm = elites.build(skewed(), name, **(SMALL | {"cells": 16} | changes))
    return algorithm, jax.jit(algorithm.init)(jax.random.key(1))


def rows(state) -> dict[str, np.ndarray]:
    """The replay buffer, steps of one episode together: [lanes, steps, ...]."""
    filled = np.asarray(state.replay.rows)[: int(state.replay.size)]
    filled = filled.reshape(STEPS, -1, filled.shape[1]).swapaxes(0, 1)
    names = {"place": slice(0, 2), "next_place": slice(6, 8), "tail": slice(11, None)}
    return {name: filled[..., columns] for name, columns in names.items()}


@pytest.mark.parametrize("name", ["dcg_me", "dcrl_me", "dcg_me_sampled_negatives"])
def test_replay_holds_scaled_descriptors(name):
    _, state = start(name)
    stored = rows(state)
    reached, asked = stored["tail"][..., :2], stored["tail"][..., 2:]
    final = np.broadcast_to(stored["next_place"][:, -1:], reached.shape)
    np.testing.assert_allclose(reached, final, atol=1e-5)
    np.testing.assert_array_equal(asked[:BATCH], reached[:BATCH])


def test_archive_holds_task_units():
    _, state = start("dcg_me")
    full = np.isfinite(state.archive.fitness)
    descriptors = np.asarray(state.archive.descriptors)[full]
    assert (descriptors >= LOW).all()
    assert (descriptors <= HIGH).all()
    centroids = np.asarray(state.archive.centroids)
    assert (centroids.min(0) < LOW + 0.4 * (HIGH - LOW)).all()
    assert (centroids.max(0) > LOW + 0.6 * (HIGH - LOW)).all()


def test_noise_is_a_share_of_the_range():
    """One cell, one elite: whatever is asked is its descriptor and noise of 5 % of each range."""
    _, state = start("dcg_me", cells=1, descriptor_noise=0.05)
    stored = rows(state)
    asked = stored["tail"][BATCH:, 0, 2:]
    elite = np.asarray(state.archive.descriptors)[0]
    scaled = 2 * (elite - LOW) / (HIGH - LOW) - 1
    spread = (asked - scaled).std(0)
    np.testing.assert_allclose(spread, 2 * 0.05, rtol=0.35)  # 32 draws; the range is 2 when scaled
    assert np.abs((asked - scaled).mean(0)).max() < 0.06


def test_injected_actor_is_asked_in_scaled_units():
    """A folded actor acts like the actor asked, in task units, for the same descriptor."""
    algorithm, state = start("dcrl_me")
    offspring = jax.jit(algorithm.stages["vary"])(state, jax.random.key(3))
    count = algorithm.offspring["injection"]
    policy, target = offspring.policies[-count:], offspring.targets[-count:]
    actor = elites.training.Actor(np.asarray(algorithm.actor(state)), algorithm)
    observation = np.array([0.3, -0.4, 0.5], np.float32)
    for i in range(count):
        elite = elites.training.Elite(
            policy[i], 0.0, target[i], 0, "injection", 0, algorithm.policy
        )
        np.testing.assert_allclose(elite(observation), actor(observation, target[i]), atol=1e-5)


def test_actor_rollouts_are_asked_in_scaled_units():
    """The first action of a rollout is what the actor says for the stored, scaled target."""
    algorithm, state = start("dcg_me")
    filled = np.asarray(state.replay.rows)[: int(state.replay.size)].reshape(STEPS, -1, 15)
    first = filled[0, BATCH:]
    observation, action, target = first[:, :3], first[:, 3:5], first[:, 13:15]
    in_task_units = LOW + (target + 1) / 2 * (HIGH - LOW)
    actor = elites.training.Actor(np.asarray(algorithm.actor(state)), algorithm)
    np.testing.assert_allclose(actor(observation, in_task_units), action, atol=1e-5)


def test_novelty_is_of_states_before_the_step_in_task_units():
    _, state = start("qd_pg")
    stored = rows(state)
    states = stored["tail"]
    expected = (LOW + HIGH) / 2 + stored["place"] * (HIGH - LOW) / 2
    np.testing.assert_allclose(states, expected, atol=1e-5)
    memory = jax.tree.map(np.asarray, state.memory)
    points = memory.points[memory.age >= 0]
    visited = expected.reshape(-1, 2)
    distance = np.linalg.norm(points[:, None] - visited[None], axis=-1).min(1)
    assert len(points) > 10
    assert distance.max() < 1e-5
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    assert between[~np.eye(len(points), dtype=bool)].min() > SMALL["novelty_threshold"]


def test_state_descriptor_ends_a_row():
    """QD-PG reads it from there."""
    algorithm, _ = start("qd_pg")
    from elites.core.algorithms import _td3

    learner = map_elites.Learner(
        _td3(algorithm.problem, elites.Hyperparameters(**SMALL), conditioned=False)
    )
    layout = map_elites._layout(algorithm.problem, {"quality": learner}, states=True)
    assert list(layout)[-1] == "state_descriptor"
