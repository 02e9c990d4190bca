"""Tasks that misbehave, for the command line: a point on a line, and one fault each."""

from __future__ import annotations

import dataclasses
import os

import jax
import jax.numpy as jnp

from elites import Task, TaskState, tasks


def _task(name: str, outcome, low=(-1.0, -1.0), high=(1.0, 1.0)) -> Task:
    """`outcome(place [2], time) -> reward, descriptor [2]`; a tenth of the action a step."""

    def state(place, time, reward, descriptor):
        return TaskState((place, time), place, reward, jnp.array(False), descriptor)

    def reset(key: jax.Array) -> TaskState:
        del key
        return state(jnp.zeros(2), jnp.int32(0), jnp.float32(0.0), jnp.zeros(2))

    def step(before: TaskState, action: jax.Array) -> TaskState:
        place, time = before.inner
        place, time = place + 0.1 * action, time + 1
        reward, descriptor = outcome(place, time)
        return state(place, time, reward, descriptor)

    return Task(name, 2, 2, 8, low, high, reset, step)


def nan_fitness() -> Task:
    """Who ends on the right has no fitness."""
    return _task("nan_fitness", lambda p, t: (jnp.where((t == 8) & (p[0] > 0), jnp.nan, 1.0), p))


def infinite_fitness() -> Task:
    """Who ends on the right claims to be infinitely fit."""
    return _task(
        "infinite_fitness", lambda p, t: (jnp.where((t == 8) & (p[0] > 0), jnp.inf, 1.0), p)
    )


def nan_descriptor() -> Task:
    """Who ends on the right is nowhere."""
    return _task(
        "nan_descriptor",
        lambda p, t: (jnp.float32(1.0), jnp.where((t == 8) & (p[0] > 0), jnp.nan, p)),
    )


def beyond_the_bounds() -> Task:
    """Everybody ends far outside."""
    return _task(
        "beyond_the_bounds", lambda p, t: (jnp.float32(1.0), jnp.where(p < 0, -100.0, 100.0))
    )


def diverging() -> Task:
    """Who is on the right half way through an episode breaks the simulation there."""
    return _task("diverging", lambda p, t: (jnp.where((t == 4) & (p[0] > 0), jnp.nan, 1.0), p))


def paid() -> Task:
    """The reward of a step is what the environment says: enough of it overflows the critic."""
    pay = float(os.environ.get("PAY", "1"))
    return _task("paid", lambda p, t: (jnp.float32(pay), p))


nothing = 3


def not_repeatable() -> Task:
    """A task that says it does not repeat to the bit. Its second axis is always the same."""
    point = tasks.make("point_omni")

    def flat(state: TaskState) -> TaskState:
        return state._replace(descriptor=state.descriptor * jnp.array([1.0, 0.0]))

    return dataclasses.replace(
        point,
        name="not_repeatable",
        reset=lambda key: flat(point.reset(key)),
        step=lambda state, action: flat(point.step(state, action)),
        repeatable=False,
        descriptor_names=("place", "nothing"),
    )
