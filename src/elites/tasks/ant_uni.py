"""Ant-Uni: a four-legged robot that must find every way of walking forward.

The descriptor is the share of time that each of the four feet touches the ground. The reward is
that of the Ant of MuJoCo and brax, which the literature uses under this name: forward speed, 1 for
every step before the robot falls, a cost of actions and of contacts. It can be negative.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp

from elites import physics
from elites.tasks.models import body_model
from elites.tasks.omni import motion, motion_layout
from elites.tasks.task import Array, Task, TaskState
from elites.tasks.walker import Walking, touching

_FEET = ("$ Body 4", "$ Body 7", "$ Body 10", "$ Body 13")
_QD_OFFSET = -3240.0  # 3.24 for each step, as in QDax
_LOW, _HIGH = 0.2, 1.0  # the episode ends when the z of the torso is outside


@functools.cache
def ant_uni() -> Task:
    """Return the task `ant_uni`: the robot of `ant_omni`, rewarded for walking forward."""
    model = body_model("ant")
    feet = [model.bodies.index(name) for name in _FEET]
    layout = (
        ("share of time that each foot touched the ground so far", len(feet)),
        ("torso z in m", 1),
        ("torso quaternion w, x, y, z", 4),
        *motion_layout(model),
    )

    def reset(key: Array) -> TaskState:
        del key  # the initial pose is fixed
        bodies, sensors = physics.reset(model)
        all_feet, zero = jnp.ones(len(feet)), jnp.float32(0.0)
        return _state(Walking(bodies, all_feet, zero), sensors, all_feet, zero)

    def step(state: TaskState, action: Array) -> TaskState:
        ant: Walking = state.inner
        bodies, sensors = physics.step(model, ant.bodies, action)
        feet_touch = touching(sensors, feet)
        speed = (bodies[0, 0] - ant.bodies[0, 0]) / model.dt
        contact = jnp.clip(sensors.contact, -1.0, 1.0)
        reward = speed + 1.0 - 0.5 * jnp.sum(action**2) - 5e-4 * jnp.sum(contact**2)
        return _state(
            Walking(bodies, ant.touched + feet_touch, ant.time + 1.0), sensors, feet_touch, reward
        )

    return Task(
        name="ant_uni",
        observation_size=sum(size for _, size in layout),
        action_size=model.action_size,
        episode_length=1000,
        descriptor_low=(0.0,) * len(feet),
        descriptor_high=(1.0,) * len(feet),
        reset=reset,
        step=step,
        episode_descriptor="mean",
        body_model=model,
        bodies=lambda state: state.inner.bodies,
        summary="A four-legged robot that must find every way of walking forward",
        observation_layout=layout,
        observation_ranges=tuple((foot, 0.0, 1.0) for foot in range(len(feet))),
        qd_offset=_QD_OFFSET,
        reward_text=(
            "forward speed in m/s + 1 - 0.5 |a|^2 - 0.0005 sum(clip(contact, -1, 1)^2), contact "
            "being the change of each body's velocity by contacts"
        ),
        termination_text=f"torso z outside [{_LOW:g}, {_HIGH:g}] m",
        descriptor_text="share of steps in which each of the four feet touches the ground",
        descriptor_names=tuple(f"foot {foot} contact" for foot in range(1, len(feet) + 1)),
        descriptor_units=("share of time",) * len(feet),
    )


def _state(ant: Walking, sensors: physics.Sensors, feet_touch: Array, reward: Array) -> TaskState:
    """Return the task state of the ant. `feet_touch` [4] says which feet touch the ground."""
    torso = physics.unpack(ant.bodies[:, 0])
    share = ant.touched / (ant.time + 1.0)
    posture = jnp.stack([torso.pos.z, *torso.rot])
    observation = jnp.concatenate([share, posture, *motion(torso, sensors)])
    fallen = (torso.pos.z < _LOW) | (torso.pos.z > _HIGH)
    return TaskState(ant, observation, reward, fallen, feet_touch)
