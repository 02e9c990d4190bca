"""Test that a diverging simulation is invalid and does not change others in its batch."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import physics, tasks
from elites.tasks.rollout import rollout
from elites.tasks.task import Task, TaskState
from reference_engine import model_data

ROBOTS, LENGTH = 32, 12

pytestmark = pytest.mark.usefixtures("optimised")


@functools.cache
def poisoned_rollout(name):
    """Return episodes of robots whose actions depend on observations, plus a value [ROBOTS]."""
    task = dataclasses.replace(tasks.make(name), episode_length=LENGTH)
    keys = jax.random.split(jax.random.key(0), ROBOTS)
    phase = jnp.arange(ROBOTS)[:, None] * 0.7

    def run(poison):
        def act(observation):
            return jnp.sin(3.0 * observation[:, -task.action_size :] + phase) + poison[:, None]

        return rollout(task, act, keys)

    return jax.jit(run)


def assert_only_these_failed(healthy, found, failed):
    """Check that all other robots have the same bits as without the failing ones."""
    others = np.setdiff1d(np.arange(len(healthy.valid)), failed)
    assert healthy.valid.all()
    np.testing.assert_array_equal(found.valid, ~np.isin(np.arange(len(healthy.valid)), failed))
    for field in ("fitness", "descriptors", "steps"):
        np.testing.assert_array_equal(
            getattr(found, field)[others], getattr(healthy, field)[others]
        )
    for field in found.transitions._fields:
        values, before = getattr(found.transitions, field), getattr(healthy.transitions, field)
        np.testing.assert_array_equal(values[:, others], before[:, others], err_msg=field)
        assert not values[:, failed].any(), field  # masked, and zero with it


@pytest.mark.parametrize("name", ["ant_omni", "walker_uni"])
def test_absurd_actions_fail_alone(name):
    run = poisoned_rollout(name)
    healthy = jax.tree.map(np.asarray, run(jnp.zeros(ROBOTS)))
    failed = np.array([0, 5, 9, 31])
    poison = jnp.zeros(ROBOTS).at[failed].set(jnp.array([jnp.inf, 1e30, jnp.nan, -1e30]))
    found = jax.tree.map(np.asarray, run(poison))
    assert_only_these_failed(healthy, found, failed)
    assert (found.steps[failed] < LENGTH).all()
    assert np.isfinite(found.fitness).all()
    assert np.isfinite(found.descriptors).all()


def test_motors_too_strong_for_the_integrator_fail_alone():
    """With motors of 1e29 N m, any action makes the walker diverge. Standing still does not."""
    data = model_data("walker_uni")
    for actuator in data["actuators"]:
        actuator["strength"] = 1e29
    model = physics.build(data, "strong walker")

    def state_of(bodies):
        torso = physics.unpack(bodies[:, 0])
        place = jnp.stack(torso.pos[:2])
        return TaskState(bodies, jnp.stack(torso.pos), jnp.float32(1.0), jnp.bool_(False), place)

    task = Task(
        name="strong walker",
        observation_size=3,
        action_size=model.action_size,
        episode_length=LENGTH,
        descriptor_low=(-1.0, -1.0),
        descriptor_high=(1.0, 1.0),
        reset=lambda key: state_of(physics.reset(model)[0]),
        step=lambda state, action: state_of(physics.step(model, state.inner, action)[0]),
    )
    keys = jax.random.split(jax.random.key(0), ROBOTS)
    run = jax.jit(
        lambda strength: rollout(
            task, lambda observation: jnp.repeat(strength[:, None], 6, axis=1), keys
        )
    )
    healthy = jax.tree.map(np.asarray, run(jnp.zeros(ROBOTS)))
    failed = np.array([3, 4, 30])
    found = jax.tree.map(np.asarray, run(jnp.zeros(ROBOTS).at[failed].set(1.0)))
    assert_only_these_failed(healthy, found, failed)
    np.testing.assert_array_equal(healthy.fitness, LENGTH)
