"""Small tasks with known optima, for tests, examples and fast experiments on a CPU."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from elites.tasks.task import Array, Task, TaskState

_SPEED = 0.1  # distance that the point moves in one step at a full action


@functools.cache
def point_omni() -> Task:
    """Return the task of a point in the plane that must reach every position with little effort.

    Moving costs reward, so the fittest behaviour is to stay at the start. The best way to a
    position d in the T steps of an episode is a straight line at constant speed. Its fitness is T -
    |d|^2 / (2 T speed^2).
    """
    return _point("point_omni", noise=0.0, length=25)


@functools.cache
def noisy_point_omni() -> Task:
    """Return the task `noisy_point_omni`: `point_omni` with a random start in every episode."""
    return _point("noisy_point_omni", noise=0.1, length=25)


def _point(name: str, noise: float, length: int) -> Task:
    def reset(key: Array) -> TaskState:
        place = noise * jax.random.uniform(key, (2,), minval=-1.0) if noise else jnp.zeros(2)
        return state_of(place, jnp.float32(0.0), jnp.float32(0.0))

    def step(state: TaskState, action: Array) -> TaskState:
        place, time = state.inner
        reward = 1.0 - 0.5 * jnp.sum(action**2)
        place = jnp.clip(place + _SPEED * action, -1.0, 1.0)
        return state_of(place, time + 1.0 / length, reward)

    def state_of(place: Array, time: Array, reward: Array) -> TaskState:
        observation = jnp.concatenate([place, time[None]])
        return TaskState((place, time), observation, reward, jnp.bool_(False), place)

    return Task(
        name=name,
        observation_size=3,
        action_size=2,
        episode_length=length,
        descriptor_low=(-1.0, -1.0),
        descriptor_high=(1.0, 1.0),
        reset=reset,
        step=step,
        deterministic=not noise,
        summary="A point that must reach every position in a square"
        + (" from a random start" if noise else ""),
        observation_layout=(("position x, y", 2), ("share of the episode that has passed", 1)),
        observation_ranges=((0, -1.0, 1.0), (1, -1.0, 1.0)),
        reward_text="1 - |a|^2 / 2",
        descriptor_text="final position x, y",
        descriptor_names=("final x", "final y"),
    )


@functools.cache
def arm_reach() -> Task:
    """Return the task of a planar arm of eight links whose hand must reach every position.

    An episode is one step: the action bends each joint by up to 90 degrees. Fitness is 1 minus the
    standard deviation of the actions. The best fitness is 1, where all joints are bent alike.
    """
    links = 8

    def reset(key: Array) -> TaskState:
        del key
        straight = jnp.array([1.0, 0.0])
        return TaskState((), jnp.ones(1), jnp.float32(0.0), jnp.bool_(False), straight)

    def step(state: TaskState, action: Array) -> TaskState:
        heading = jnp.cumsum(action * (jnp.pi / 2))
        hand = jnp.stack([jnp.cos(heading).mean(), jnp.sin(heading).mean()])
        return TaskState((), jnp.ones(1), 1.0 - jnp.std(action), jnp.bool_(True), hand)

    return Task(
        name="arm_reach",
        observation_size=1,
        action_size=links,
        episode_length=1,
        descriptor_low=(-1.0, -1.0),
        descriptor_high=(1.0, 1.0),
        reset=reset,
        step=step,
        summary="A planar arm of eight links whose hand must reach every position",
        observation_layout=(("the constant 1", 1),),
        reward_text="1 - standard deviation of the actions",
        termination_text="after one step",
        descriptor_text="hand position x, y, the arm being 1 long",
        descriptor_names=("hand x", "hand y"),
        descriptor_units=("arm lengths", "arm lengths"),
    )
