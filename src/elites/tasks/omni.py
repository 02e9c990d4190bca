"""Ant-Omni, AntTrap-Omni and Hexapod-Omni: reach every position in the plane with little effort.

The descriptor is the final position (x, y) of the torso. The robot is rewarded for every step
before it falls, and pays for its actions and contacts. Moving is not rewarded, so the fittest
behaviour is to stand still.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp

from elites import physics
from elites.physics import rotations
from elites.tasks.models import body_model
from elites.tasks.task import Array, Task, TaskState


class _Omni(NamedTuple):
    """Settings in which the three omnidirectional tasks differ."""

    name: str
    summary: str
    model: physics.Model
    lengthscale: float
    bound: float  # descriptors lie in [-bound, bound] in x and y
    height: tuple[float, float]  # the episode ends when the z of the torso is outside
    effort: float  # cost of the squared norm of an action
    bonus: float  # added so that the reward is not negative
    observe: Any
    seen: float  # the observation begins with x and y in [-seen, seen]
    layout: tuple[tuple[str, int], ...]


@functools.cache
def ant_omni() -> Task:
    """Return the task `ant_omni`: a four-legged robot with 8 motors."""
    return _task(
        _ant("ant_omni", "A four-legged robot that must learn to reach every position", "ant")
    )


@functools.cache
def anttrap_omni() -> Task:
    """Return the task `anttrap_omni`: the robot of `ant_omni` in front of three walls."""
    return _task(_ant("anttrap_omni", "The ant, in front of a trap of three walls", "anttrap"))


@functools.cache
def hexapod_omni() -> Task:
    """Return the task `hexapod_omni`: a six-legged robot with 18 motors."""
    model = body_model("hexapod")
    return _task(
        _Omni(
            name="hexapod_omni",
            summary="A six-legged robot with 18 motors that must learn to reach every position",
            model=model,
            lengthscale=0.032,
            bound=2.0,
            height=(0.05, 0.19),
            effort=0.25,
            bonus=3.53,
            observe=_observe_hexapod,
            seen=2.0,
            layout=(
                ("torso x, y, z in m", 3),
                ("torso Euler angles x, y', z'' in rad", 3),
                *motion_layout(model),
            ),
        )
    )


def _ant(name: str, summary: str, file: str) -> _Omni:
    model = body_model(file)
    return _Omni(
        name=name,
        summary=summary,
        model=model,
        lengthscale=0.48,
        bound=30.0,
        height=(0.2, 1.0),
        effort=0.5,
        bonus=3.03,
        observe=functools.partial(_observe_ant, bound=30.0),
        seen=1.0,
        layout=(
            ("torso x, y, clipped to the bounds, over 30 m", 2),
            ("torso z in m", 1),
            ("torso quaternion w, x, y, z", 4),
            *motion_layout(model),
        ),
    )


def motion_layout(model: physics.Model) -> tuple[tuple[str, int], ...]:
    """Return the name and size of each part of what `motion` returns."""
    return (
        ("joint angles in rad", len(model.joints.names)),
        ("torso velocity in m/s", 3),
        ("torso angular velocity in rad/s", 3),
        ("joint velocities in rad/s", len(model.joints.names)),
    )


def _observe_ant(torso: physics.Bodies, sensors: physics.Sensors, bound: float) -> Array:
    position = jnp.clip(jnp.stack(torso.pos[:2]), -bound, bound) / bound
    return jnp.concatenate(
        [position, jnp.stack([torso.pos.z, *torso.rot]), *motion(torso, sensors)]
    )


def _observe_hexapod(torso: physics.Bodies, sensors: physics.Sensors) -> Array:
    pose = jnp.stack([*torso.pos, *rotations.euler(torso.rot)])
    return jnp.concatenate([pose, *motion(torso, sensors)])


def motion(torso: physics.Bodies, sensors: physics.Sensors) -> list[Array]:
    """Return joint angles, velocities of the torso and joint velocities, for observations."""
    return [sensors.angles, jnp.stack([*torso.vel, *torso.ang]), sensors.velocities]


def _task(omni: _Omni) -> Task:
    """Return the omnidirectional task with these settings."""
    model = omni.model
    low, high = omni.height

    def reset(key: Array) -> TaskState:
        del key  # the initial pose is fixed
        return state_of(*physics.reset(model), reward=jnp.float32(0.0))

    def step(state: TaskState, action: Array) -> TaskState:
        bodies, sensors = physics.step(model, state.inner, action)
        contact = jnp.clip(sensors.contact, -1.0, 1.0)
        effort = omni.effort * jnp.sum(action**2)
        reward = 1.0 - effort - 5e-4 * jnp.sum(contact**2) + omni.bonus
        return state_of(bodies, sensors, reward=jnp.maximum(reward, 0.0))

    def state_of(bodies: Array, sensors: physics.Sensors, reward: Array) -> TaskState:
        torso = physics.unpack(bodies[:, 0])
        return TaskState(
            inner=bodies,
            observation=omni.observe(torso, sensors),
            reward=reward,
            done=(torso.pos.z < low) | (torso.pos.z > high),
            descriptor=jnp.stack(torso.pos[:2]),
        )

    return Task(
        name=omni.name,
        observation_size=sum(size for _, size in omni.layout),
        action_size=model.action_size,
        episode_length=250,
        descriptor_low=(-omni.bound, -omni.bound),
        descriptor_high=(omni.bound, omni.bound),
        reset=reset,
        step=step,
        lengthscale=omni.lengthscale,
        body_model=model,
        bodies=lambda state: state.inner,
        summary=omni.summary,
        observation_layout=omni.layout,
        observation_ranges=tuple((axis, -omni.seen, omni.seen) for axis in (0, 1)),
        reward_text=(
            f"max(0, 1 - {omni.effort:g} |a|^2 - 0.0005 sum(clip(contact, -1, 1)^2) + "
            f"{omni.bonus:g}), contact being the change of each body's velocity by contacts"
        ),
        termination_text=f"torso z outside [{low:g}, {high:g}] m",
        descriptor_text="final torso x, y in m",
        descriptor_names=("final x", "final y"),
        descriptor_units=("m", "m"),
    )
