"""Tasks to look at: a robot that is simple, and points in one and in three dimensions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp

from elites import Task, TaskState, physics

DOCS = Path(__file__).parent.parent.parent / "docs"


def two_links() -> Task:
    """The box with an arm of the documentation, beside a wall; what counts is where it ends."""
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
    """A point that goes where it wants, a tenth of the action a step, for five steps."""

    def state(place, reward):
        return TaskState(place, place, reward, jnp.array(False), place)

    def reset(key: jax.Array) -> TaskState:
        del key
        return state(jnp.zeros(dimensions), jnp.float32(0.0))

    def step(before: TaskState, action: jax.Array) -> TaskState:
        return state(before.inner + 0.2 * scale * action, 1.0 - jnp.mean(action**2))

    scale = 10.0 ** jnp.arange(dimensions)  # ranges that differ, in metres and in millimetres
    low, high = (tuple(float(s) * end for s in scale) for end in (-1.0, 1.0))
    return Task(f"point_{dimensions}", dimensions, dimensions, 5, low, high, reset, step)


def line() -> Task:
    return _point(1)


def space() -> Task:
    return _point(3)


def nowhere() -> Task:
    """No evaluation is ever valid: the archive stays empty."""
    point = _point(2)

    def step(before: TaskState, action: jax.Array) -> TaskState:
        return point.step(before, action)._replace(reward=jnp.float32(jnp.nan))

    return dataclasses.replace(point, name="nowhere", step=step)
