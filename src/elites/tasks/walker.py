"""Walker-Uni: a planar biped that must find every way of walking forward.

The descriptor is the share of time that each foot touches the ground. The robot is rewarded for its
forward speed and for every step before it falls, and pays for its actions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from elites import physics
from elites.physics import rotations
from elites.tasks.models import body_model
from elites.tasks.task import Array, Task, TaskState


class Walking(NamedTuple):
    """Inner state of a task whose descriptor is the contact of the feet."""

    bodies: Array  # [13, B]
    touched: Array  # [feet] steps in which each touched the ground; the reset counts as one
    time: Array  # [] steps taken


@functools.cache
def walker_uni() -> Task:
    """Return the task `walker_uni`: a planar biped with 6 motors."""
    model = body_model("walker")
    feet = [model.bodies.index(name) for name in ("foot", "foot_left")]
    layout = _layout(len(model.joints.names))

    def reset(key: Array) -> TaskState:
        del key  # the initial pose is fixed
        bodies, sensors = physics.reset(model)
        both = jnp.ones(2)
        return _state(Walking(bodies, both, jnp.float32(0.0)), sensors, both, jnp.float32(0.0))

    def step(state: TaskState, action: Array) -> TaskState:
        walker: Walking = state.inner
        bodies, sensors = physics.step(model, walker.bodies, action)
        feet_touch = touching(sensors, feet)
        speed = (bodies[0, 0] - walker.bodies[0, 0]) / model.dt
        reward = jnp.maximum(speed + 1.0 - 1e-3 * jnp.sum(action**2), 0.0)
        walker = Walking(bodies, walker.touched + feet_touch, walker.time + 1.0)
        return _state(walker, sensors, feet_touch, reward)

    return Task(
        name="walker_uni",
        observation_size=sum(size for _, size in layout),
        action_size=model.action_size,
        episode_length=1000,
        descriptor_low=(0.0, 0.0),
        descriptor_high=(1.0, 1.0),
        reset=reset,
        step=step,
        episode_descriptor="mean",
        lengthscale=0.016,
        body_model=model,
        bodies=lambda state: state.inner.bodies,
        summary="A planar biped that must find every way of walking forward",
        observation_layout=layout,
        observation_ranges=((0, 0.0, 1.0), (1, 0.0, 1.0)),
        reward_text="max(0, forward speed in m/s + 1 - 0.001 |a|^2)",
        termination_text="torso z outside [0.7, 2] m or |pitch| > 1 rad",
        descriptor_text="share of steps in which the right and the left foot touch the ground",
        descriptor_names=("right foot contact", "left foot contact"),
        descriptor_units=("share of time", "share of time"),
    )


def touching(sensors: physics.Sensors, feet: Sequence[int]) -> Array:
    """Return numbers [feet]: 1 for each of these bodies that touched something in the last step."""
    return jnp.any(sensors.contact[:, jnp.array(feet)] != 0.0, axis=0).astype(jnp.float32)


def _layout(joints: int) -> tuple[tuple[str, int], ...]:
    """Return the name and size of each part of the observation of a walker with `joints` joints."""
    return (
        ("share of time that each foot touched the ground so far", 2),
        ("torso z in m", 1),
        ("torso pitch in rad", 1),
        ("joint angles in rad", joints),
        ("torso velocity x, z in m/s", 2),
        ("torso pitch rate in rad/s", 1),
        ("joint velocities in rad/s", joints),
    )


def _state(
    walker: Walking, sensors: physics.Sensors, feet_touch: Array, reward: Array
) -> TaskState:
    """Return the task state of the walker. `feet_touch` [2] says which feet touch the ground."""
    torso = physics.unpack(walker.bodies[:, 0])
    pitch = rotations.euler(torso.rot).y
    share = walker.touched / (walker.time + 1.0)
    observation = jnp.concatenate(
        [
            share,
            jnp.stack([torso.pos.z, pitch]),
            sensors.angles,
            jnp.stack([torso.vel.x, torso.vel.z, torso.ang.y]),
            sensors.velocities,
        ]
    )
    fallen = (torso.pos.z < 0.7) | (torso.pos.z > 2.0) | (jnp.abs(pitch) > 1.0)
    return TaskState(walker, observation, reward, fallen, feet_touch)
