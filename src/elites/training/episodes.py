"""Convert recorded episodes to the transitions that the algorithms learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core.types import Problem, Transitions


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """Record of one episode of t steps."""

    observations: ArrayLike
    """[t + 1, O] observations before every step, and after the last one"""
    actions: ArrayLike
    """[t, A]"""
    rewards: ArrayLike
    """[t]"""
    terminated: bool = False
    """The episode ended by itself, for instance by a fall, and not at the time limit."""
    state_descriptors: ArrayLike | None = None
    """[t, D] descriptors of the states before every step, in task units.

    Only qd_pg and progress_me need them.
    """


def transitions(
    episodes: Sequence[Episode | None], valid: np.ndarray, problem: Problem, length: int
) -> Transitions:
    """Return n recorded episodes as `Transitions`, with arrays [length, n, ...].

    Steps after the end of an episode are masked. All steps are masked if the episode is None or its
    entry in `valid` [n] is False. Use a `length` of 0 for algorithms without a learner.
    """
    rows, size = len(episodes), problem.descriptor_size
    columns = {
        "observation": np.zeros((length, rows, problem.observation_size), np.float32),
        "action": np.zeros((length, rows, problem.action_size), np.float32),
        "reward": np.zeros((length, rows), np.float32),
        "next_observation": np.zeros((length, rows, problem.observation_size), np.float32),
        "done": np.zeros((length, rows), bool),
        "truncation": np.zeros((length, rows), bool),
        "state_descriptor": np.zeros((length, rows, size), np.float32),
        "mask": np.zeros((length, rows), bool),
    }
    for row, episode in enumerate(episodes):
        if episode is None or not valid[row] or not length:
            continue
        arrays = _checked(episode, f"episode {row}", problem, length)
        steps = len(arrays["reward"])
        for name, values in arrays.items():
            columns[name][:steps, row] = values
        columns["mask"][:steps, row] = True
        last = columns["done" if episode.terminated else "truncation"]
        last[steps - 1, row] = True
    return Transitions(**{name: jnp.asarray(values) for name, values in columns.items()})


def _checked(episode: Episode, what: str, problem: Problem, length: int) -> dict[str, np.ndarray]:
    """Return the arrays of an episode, keyed by the fields of `Transitions`.

    Raises a ValueError if a shape is wrong or a number is not finite. `what` names the episode in
    the message.
    """
    rewards = numbers(episode.rewards, f"{what}: rewards")
    steps = rewards.shape[0] if rewards.ndim == 1 else 0
    if not 1 <= steps <= length:
        raise ValueError(
            f"{what}: rewards must be a vector of 1 to {length} steps, got shape {rewards.shape}"
        )
    observations = numbers(episode.observations, f"{what}: observations")
    actions = numbers(episode.actions, f"{what}: actions")
    expected = {
        "observations": (observations, (steps + 1, problem.observation_size)),
        "actions": (actions, (steps, problem.action_size)),
    }
    found = {
        "observation": observations[:-1],
        "action": actions,
        "reward": rewards,
        "next_observation": observations[1:],
    }
    if episode.state_descriptors is not None:
        places = numbers(episode.state_descriptors, f"{what}: state_descriptors")
        expected["state_descriptors"] = (places, (steps, problem.descriptor_size))
        # Clipped, as in the library's own rollouts, so that leaving the bounds is not novel.
        found["state_descriptor"] = np.clip(places, problem.descriptor_low, problem.descriptor_high)
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(
                f"{what}: {name} must have shape {shape} for {steps} rewards, got {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{what}: {name} must be finite; give None for an episode that failed")
    if not np.isfinite(rewards).all():
        raise ValueError(f"{what}: rewards must be finite; give None for an episode that failed")
    return found


def numbers(values: ArrayLike, name: str) -> np.ndarray:
    """Return values as a float32 array, or raise a ValueError if they are not real numbers.

    `name` names the values in the message.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers, got an array of type {array.dtype}")
    return array.astype(np.float32)
