"""What an algorithm knows of a task: sizes, bounds, and how to run episodes.

The algorithms never see a simulator. A `Problem` carries the numbers they need and one function
that runs episodes; `elites.tasks.rollout.problem` makes one from a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Act = Callable[[Array], Array]  # observations [n, O] -> actions [n, A]


class Transitions(NamedTuple):
    """Steps of n episodes, time first. Where `mask` is False every other field is zero."""

    observation: Array  # [T, n, O]
    action: Array  # [T, n, A]
    reward: Array  # [T, n]
    next_observation: Array  # [T, n, O]
    done: Array  # [T, n] bool: the episode ended by itself
    truncation: Array  # [T, n] bool: the time limit cut it
    state_descriptor: Array  # [T, n, D] of the state before the step, in task units
    mask: Array  # [T, n] bool: the step was taken, in an episode that stayed finite


class Evaluation(NamedTuple):
    """What n episodes came to."""

    fitness: Array  # [n] undiscounted return
    descriptors: Array  # [n, D] in task units, within the bounds
    valid: Array  # [n] bool: False if the simulation diverged
    steps: Array  # [n] int: environment steps taken
    transitions: Transitions


class Problem(NamedTuple):
    name: str
    observation_size: int
    action_size: int
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    deterministic: bool
    lengthscale: float  # of the descriptor similarity, on [-1, 1]
    rollout: Callable[[Act, Array], Evaluation]  # (act, keys [n]) -> n episodes

    @property
    def descriptor_size(self) -> int:
        return len(self.descriptor_low)


def normalise(problem: Problem, descriptors: Array) -> Array:
    """Descriptors in task units [..., D] to [-1, 1]."""
    low, high = jnp.array(problem.descriptor_low), jnp.array(problem.descriptor_high)
    shape = (1,) * (descriptors.ndim - 1) + (-1,)
    low, high = low.reshape(shape), high.reshape(shape)
    return 2.0 * (descriptors - low) / (high - low) - 1.0


def evaluation_shape(batch: int) -> int:
    """The number of robots simulated together for a wanted batch: the next multiple of 32.

    What XLA compiles, and with it the last bits of a trajectory, depends on this number: it belongs
    to a run. At sizes in between, the last few robots would fall into the remainder of vectorised
    loops, where a sum may be rounded differently, and a policy's bits would depend on its place in
    the batch.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    return -(-batch // 32) * 32


def random_index(key: Array, shape: tuple[int, ...], count: Array) -> Array:
    """Uniform indices below `count`; zeros where `count` is 0.

    A remainder of 32 random bits: cheaper than `randint`, which draws twice to be free of a bias of
    count / 2^32.
    """
    bits = jax.random.bits(key, shape, jnp.uint32)
    return (bits % jnp.maximum(count, 1).astype(jnp.uint32)).astype(jnp.int32)
