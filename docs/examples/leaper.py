"""Functions for the model leaper.xml: a reward and a descriptor from the state of the simulator."""

import jax.numpy as jnp


def reward(data, before, action):
    """Return 1 for staying up, minus the effort."""
    return 1.0 - 0.1 * jnp.sum(action**2)


def posture(data):
    """Return the angle of the hip and how far the leg is stretched."""
    return data.qpos[2:4]
