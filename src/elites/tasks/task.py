"""What a task is: numbers and two functions.

A task is written for one robot and one step; batches, episodes, masks and replay are the business
of `rollout`. `docs/your-own-task.md` builds one from scratch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax

from elites.core.types import check_bounds
from elites.physics import Model

Array = jax.Array


class TaskState(NamedTuple):
    """The world after a step, as `step` returns it."""

    inner: Any  # whatever the task needs to go on: a pytree of arrays
    observation: Array  # [O]
    reward: Array  # [] of the step that led here; 0 after reset
    done: Array  # [] bool: the episode ended here by itself (the time limit is not the task's)
    descriptor: Array  # [D] of this state, in task units


@dataclasses.dataclass(frozen=True)
class Task:
    """A deterministic or stochastic control problem whose behaviours are told apart."""

    name: str
    observation_size: int
    action_size: int
    """Actions lie in [-1, 1]."""
    episode_length: int
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    reset: Callable[[Array], TaskState]
    step: Callable[[TaskState, Array], TaskState]
    episode_descriptor: Literal["final", "mean"] = "final"
    """An episode's descriptor: of the state it ends in, or the mean over the states it reaches."""
    deterministic: bool = True
    lengthscale: float = 0.1
    """Of the descriptor similarity in DCG-MAP-Elites, on descriptors scaled to [-1, 1]."""
    body_model: Model | None = None
    """How to draw the robot; then `bodies` says where its parts are."""
    bodies: Callable[[TaskState], Array] | None = None
    """State [13, B] of the body model's parts."""
    summary: str = ""
    observation_layout: tuple[tuple[str, int], ...] = ()
    """What the entries of the observation are, in order, with their number."""
    reward_text: str = ""
    termination_text: str = "never before the time limit"
    descriptor_text: str = ""

    def __post_init__(self):
        for field in ("observation_size", "action_size", "episode_length"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"task '{self.name}': {field} must be at least 1, got {value!r}")
        check_bounds(self.name, self.descriptor_low, self.descriptor_high)
        if self.episode_descriptor not in ("final", "mean"):
            raise ValueError(
                f"task '{self.name}': episode_descriptor must be 'final' or 'mean', got "
                f"{self.episode_descriptor!r}"
            )
        described = sum(size for _, size in self.observation_layout)
        if self.observation_layout and described != self.observation_size:
            raise ValueError(
                f"task '{self.name}': observation_layout describes {described} entries, "
                f"observation_size is {self.observation_size}"
            )

    @property
    def descriptor_size(self) -> int:
        return len(self.descriptor_low)
