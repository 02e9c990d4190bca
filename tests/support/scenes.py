"""Tasks for tests of the page: a simple robot, and points in one and three dimensions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp

from elites import Task, TaskState, physics

DOCS = Path(__file__).parent.parent.parent / "docs"


def two_links() -> Task:
    """Return the task of a box with an arm beside a wall. The descriptor is the arm's position."""
    data = json.loads((DOCS / "examples" / "two_links.json").read_text())
    wall = {"capsule": {"radius": 0.1, "length": 1.0}, "position": {"x": 1.0, "z": 0.5}}
    data["bodies"].append({"name": "wall", "frozen": {"all": True}, "colliders": [wall]})
    model = physics.build(data, "two_links")

    def state(bodies, sensors, reward):
        arm = bodies[:3, 1]
        observation = jnp.concatenate([sensors.angles, sensors.velocities, arm])
        return TaskState(bodies, observation, reward, jnp.array(False), arm[jnp.array([0, 2])])

    def reset(key: jax.Array) -> TaskState:
        del key
        return state(*physics.reset(model), jnp.float32(0.0))

    def step(before: TaskState, action: jax.Array) -> TaskState:
        bodies, sensors = physics.step(model, before.inner, action)
        return state(bodies, sensors, 100.0 - 50.0 * jnp.sum(action**2))

    return Task(
        "two_links", 5, 1, 100, (0.0, 0.0), (0.8, 0.8), reset, step, body_model=model,
        bodies=lambda world: world.inner, descriptor_names=("final x", "final height"),
        descriptor_units=("m", "m"),
    )  # fmt: skip


def _point(dimensions: int) -> Task:
    """Return the task of a point that moves by its action for five steps."""

    def state(place, reward):
        return TaskState(place, place, reward, jnp.array(False), place)

    def reset(key: jax.Array) -> TaskState:
        del key
        return state(jnp.zeros(dimensions), jnp.float32(0.0))

    def step(before: TaskState, action: jax.Array) -> TaskState:
        return state(before.inner + 0.2 * scale * action, 1.0 - jnp.mean(action**2))

    scale = 10.0 ** jnp.arange(dimensions)  # axes with different ranges
    low, high = (tuple(float(s) * end for s in scale) for end in (-1.0, 1.0))
    return Task(f"point_{dimensions}", dimensions, dimensions, 5, low, high, reset, step)


def plane() -> Task:
    """Return a task with two axes, the second ten times as long as the first."""
    return _point(2)


def line() -> Task:
    return _point(1)


def space() -> Task:
    return _point(3)


def nowhere() -> Task:
    """Return a task whose episodes all fail late, so the archive stays empty."""
    point = _point(2)

    def reset(key: jax.Array) -> TaskState:
        state = point.reset(key)
        return state._replace(inner=(state.inner, jnp.int32(0)))

    def step(before: TaskState, action: jax.Array) -> TaskState:
        inner, time = before.inner
        state = point.step(before._replace(inner=inner), action)
        reward = jnp.where(time > 24, jnp.nan, state.reward)
        return state._replace(inner=(state.inner, time + 1), reward=reward)

    return dataclasses.replace(point, name="nowhere", reset=reset, step=step, episode_length=30)
