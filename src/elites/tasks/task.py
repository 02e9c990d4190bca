"""Task: a record of sizes, texts and two functions, `reset` and `step`.

A task is written for one robot and one step. `rollout` adds batches, episodes, masks and
transitions. `docs/your-own-task.md` builds a task from scratch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax

from elites.core.types import (
    Outside,
    Vectors,
    check_bounds,
    check_lengthscale,
    check_offset,
    check_ranges,
    numbers,
)
from elites.physics import Model
from elites.tasks.axes import Axis, check_texts, make_axes
from elites.tasks.scenes import Scene

Array = jax.Array


class TaskState(NamedTuple):
    """State of a task for one robot, as `reset` and `step` return it."""

    inner: Any  # the task's own state: a pytree of arrays
    observation: Array  # [O]
    reward: Array  # [] reward of the step that led to this state; 0 after reset
    done: Array  # [] bool: the task ends the episode here; the time limit does not count
    descriptor: Array  # [D] descriptor of this state, in the units of the task


@dataclasses.dataclass(frozen=True)
class Task:
    """Control problem with a behaviour descriptor: sizes, bounds, `reset` and `step`."""

    name: str
    observation_size: int
    action_size: int
    """Number of entries of an action. Each lies in [-1, 1]."""
    episode_length: int
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    reset: Callable[[Array], TaskState]
    step: Callable[[TaskState, Array], TaskState]
    episode_descriptor: Literal["final", "mean"] = "final"
    """Descriptor of an episode: that of its last state, or the mean over the states after reset."""
    deterministic: bool = True
    repeatable: bool = True
    """Whether an episode's last bits are the same in every row of a batch.

    If not, re-evaluating an archive reports a difference, even if the task is deterministic.
    """
    checks_inner: bool = True
    """Whether an episode is invalid if its inner state has numbers that are not finite.

    Observation, reward and descriptor are checked in any case. Other simulators have large states,
    whose check would take several percent of the time.
    """
    lengthscale: float = 0.1
    """Lengthscale of the descriptor similarity in DCG-MAP-Elites, for descriptors in [-1, 1]."""
    body_model: Model | None = None
    """Body model to draw. It needs `bodies` too."""
    bodies: Callable[[TaskState], Array] | None = None
    """Function that returns the state [13, B] of the bodies of the body model."""
    scene: Scene | Callable[[], Scene | None] | None = None
    """What to draw of a task without a body model, such as a robot of another simulator.

    A function is called when the scene is needed. It returns the same scene every time.
    """
    summary: str = ""
    observation_layout: tuple[tuple[str, int], ...] = ()
    """Parts of the observation, in order: what each part is, and how many numbers it has."""
    observation_ranges: tuple[tuple[int, float, float], ...] = ()
    """Entries of the observation whose range is known: index, lowest and highest value.

    Name those that show the descriptor: random policies hardly vary them. `progress_me` scales them
    by their range, and all others by their standard deviation.
    """
    qd_offset: float = 0.0
    """Fitness that counts as 0 in QD-scores, such as the lowest that a policy can have."""
    reward_text: str = ""
    termination_text: str = "never before the time limit"
    descriptor_text: str = ""
    """Description of the whole descriptor."""
    descriptor_names: tuple[str, ...] = ()
    """Name of each descriptor axis, such as "final x". Without names: "descriptor 1" and so on."""
    descriptor_units: tuple[str, ...] = ()
    """Unit of each descriptor axis, such as "m". An axis without a unit has an empty text."""
    outside: Outside | None = None
    """Runs the episodes outside of JAX. `reset` and `step` are not used then, and may raise."""
    vectors: Vectors | None = None
    """Plain vectors in place of policies, see `elites.tasks.vectors`."""

    def __post_init__(self):
        for field in ("observation_size", "action_size", "episode_length"):
            value, least = getattr(self, field), 1
            if field == "observation_size" and self.vectors is not None:
                least = 0
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"task '{self.name}': {field} must be a whole number of at least {least}, got "
                    f"{value!r}"
                )
        for field in ("descriptor_low", "descriptor_high"):
            object.__setattr__(self, field, numbers(self.name, field, getattr(self, field)))
        for field in ("observation_layout", "observation_ranges"):  # hashed with the task
            object.__setattr__(self, field, _as_tuples(getattr(self, field)))
        check_lengthscale(self.name, self.lengthscale)
        for field in ("reset", "step"):
            if not callable(getattr(self, field)):
                raise ValueError(
                    f"task '{self.name}': {field} must be a function, got {getattr(self, field)!r}"
                )
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
        check_ranges(self.name, self.observation_ranges, self.observation_size)
        check_offset(self.name, self.qd_offset)
        size = self.descriptor_size
        check_texts(self.name, "descriptor_names", self.descriptor_names, size)
        check_texts(self.name, "descriptor_units", self.descriptor_units, size, empty=True)

    @property
    def descriptor_size(self) -> int:
        return len(self.descriptor_low)

    @property
    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """Expected shape of each field of `TaskState` for one robot, by name, except `inner`."""
        return {
            "observation": (self.observation_size,),
            "reward": (),
            "done": (),
            "descriptor": (self.descriptor_size,),
        }

    @property
    def descriptor_axes(self) -> tuple[Axis, ...]:
        """Name and unit of each descriptor axis."""
        return make_axes(self.descriptor_size, self.descriptor_names, self.descriptor_units)


def _as_tuples(value: Any) -> Any:
    """Return a list as a tuple, and the same for its entries. Anything else is returned as is."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value
