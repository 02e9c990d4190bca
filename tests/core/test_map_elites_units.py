"""Archive and requests hold descriptors in task units; learners see them scaled to [-1, 1].

The task is the point, with its position reported in other units: x from -3 to 5, y from 10 to 10.5.
Scaled to [-1, 1], a descriptor is again the position, which the observation holds.
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
from elites.core import replay as replays
from elites.core.spec import Spec, State
from specs import spec_of

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
    """Return the point whose descriptors have these bounds."""
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
def start(name: str, **changes) -> tuple[Spec, State]:
    """Return an algorithm and its first state."""
    spec = spec_of(name, skewed(), **(SMALL | {"cells": 16} | changes))
    return spec, jax.jit(map_elites.algorithm(spec).start)(jax.random.key(1))


def stored(spec: Spec, state: State) -> dict[str, np.ndarray]:
    """Return the columns of the replay buffer by episode: [episodes, steps, width]."""
    filled = np.asarray(state.replay.rows)[: int(state.replay.size)]
    rows = filled.reshape(STEPS, -1, filled.shape[1]).swapaxes(0, 1)
    return replays.columns(spec.layout, rows)


def position(observation: np.ndarray) -> np.ndarray:
    """Return the position of the point, with which an observation begins."""
    return observation[..., :2]


def trained_actor(spec: Spec, state: State) -> elites.training.Actor:
    """Return the actor as users call it, at descriptors in task units."""
    algorithm = map_elites.algorithm(spec)
    return elites.training.Actor(np.asarray(algorithm.actor(state)), algorithm)


@pytest.mark.parametrize("name", ["dcg_me", "dcrl_me", "dcg_me_sampled_negatives"])
def test_replay_holds_scaled_descriptors(name):
    columns = stored(*start(name))
    reached, target = columns["descriptor"], columns["target"]
    final = np.broadcast_to(position(columns["next_observation"])[:, -1:], reached.shape)
    np.testing.assert_allclose(reached, final, atol=1e-5)
    np.testing.assert_array_equal(target[:BATCH], reached[:BATCH])


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
    """With one cell there is one elite: all targets are its descriptor, with 5 % of each range."""
    spec, state = start("dcg_me", cells=1, descriptor_noise=0.05)
    target = stored(spec, state)["target"][BATCH:, 0]
    elite = np.asarray(state.archive.descriptors)[0]
    scaled = 2 * (elite - LOW) / (HIGH - LOW) - 1
    spread = (target - scaled).std(0)
    np.testing.assert_allclose(spread, 2 * 0.05, rtol=0.35)  # 32 draws; the range is 2 when scaled
    assert np.abs((target - scaled).mean(0)).max() < 0.06


def test_injected_actor_is_asked_in_scaled_units():
    """A folded actor acts like the actor that is asked, in task units, for the same descriptor."""
    spec, state = start("dcrl_me")
    algorithm = map_elites.algorithm(spec)
    request = jax.jit(algorithm.rounds[-1].ask)(state, jax.random.key(3))
    injected = np.flatnonzero(request.origins == algorithm.origins.index("injection"))
    assert len(injected) == algorithm.offspring["injection"] == BATCH // 4
    actor = trained_actor(spec, state)
    observation = np.array([0.3, -0.4, 0.5], np.float32)
    for i in injected:
        policy, target = request.policies[i], request.targets[i]
        elite = elites.training.Elite(policy, 0.0, target, 0, "injection", 0, algorithm.policy)
        np.testing.assert_allclose(elite(observation), actor(observation, target), atol=1e-5)


def test_actor_rollouts_are_asked_in_scaled_units():
    """The first action of a rollout is the actor's for the stored, scaled target."""
    spec, state = start("dcg_me")
    first = {name: column[BATCH:, 0] for name, column in stored(spec, state).items()}
    in_task_units = LOW + (first["target"] + 1) / 2 * (HIGH - LOW)
    actor = trained_actor(spec, state)
    found = actor(first["observation"], in_task_units)
    np.testing.assert_allclose(found, first["action"], atol=1e-5)


def test_novelty_is_of_states_before_the_step_relative_to_the_ranges():
    spec, state = start("qd_pg")
    columns = stored(spec, state)
    expected = (LOW + HIGH) / 2 + position(columns["observation"]) * (HIGH - LOW) / 2
    np.testing.assert_allclose(columns["state_descriptor"], expected, atol=1e-5)
    memory = jax.tree.map(np.asarray, state.memory)
    points = memory.points[memory.age >= 0]
    visited = expected.reshape(-1, 2) * np.max(HIGH - LOW) / (HIGH - LOW)
    distance = np.linalg.norm(points[:, None] - visited[None], axis=-1).min(1)
    assert len(points) > 10
    assert distance.max() < 1e-4
    between = np.linalg.norm(points[:, None] - points[None], axis=-1)
    assert between[~np.eye(len(points), dtype=bool)].min() > SMALL["novelty_threshold"]


def test_requests_hold_targets_in_task_units():
    spec, state = start("dcg_me")
    request = jax.jit(map_elites.algorithm(spec).rounds[-1].ask)(state, jax.random.key(3))
    elites_ = np.asarray(state.archive.descriptors)[np.isfinite(state.archive.fitness)]
    for targets in (request.targets, request.actor_targets):
        distance = np.abs(np.asarray(targets)[:, None] - elites_[None]) / (HIGH - LOW)
        assert distance.max(-1).min(-1).max() < 0.0004 * 6  # noise, as a share of the range
