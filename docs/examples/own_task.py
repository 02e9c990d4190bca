"""A pendulum that must find every mix of height and motion, with little effort."""

import functools

import jax.numpy as jnp

from elites import Task, TaskState


@functools.cache
def pendulum() -> Task:
    def reset(key):
        return state_of(jnp.float32(0.0), jnp.float32(0.0), reward=jnp.float32(0.0))

    def step(state, action):
        angle, speed = state.inner
        speed = speed + 0.05 * (5.0 * action[0] - 9.81 * jnp.sin(angle))
        return state_of(angle + 0.05 * speed, speed, reward=1.0 - action[0] ** 2)

    def state_of(angle, speed, reward):
        height, energy = -jnp.cos(angle), speed**2 / 2
        observation = jnp.stack([height, jnp.sin(angle), speed])
        descriptor = jnp.stack([height, energy])
        return TaskState((angle, speed), observation, reward, jnp.bool_(False), descriptor)

    return Task(
        name="pendulum",
        observation_size=3,
        action_size=1,
        episode_length=200,
        descriptor_low=(-1.0, 0.0),
        descriptor_high=(1.0, 20.0),
        episode_descriptor="mean",
        reset=reset,
        step=step,
    )
