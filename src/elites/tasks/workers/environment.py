"""Make a Gymnasium environment, check that it can be trained on, and map actions to its box.

`Environment` hides what differs between environments: actions are in [-1, 1], observations are
vectors of 32-bit numbers, and a descriptor of the current state is available after every step.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from elites import references
from elites.tasks.workers import descriptors, robots
from elites.tasks.workers.descriptors import Choice


class Spec(NamedTuple):
    """What a worker is told of its environment, as JSON."""

    environment: str
    """Identifier of an environment, or FILE.py:FUNCTION for a function that returns one."""
    choice: Choice
    episode_length: int | None = None
    """Largest number of steps of an episode, or None for the environment's own limit."""
    sources: tuple[tuple[str, bytes], ...] = ()
    """Files of the user's own that may run: their absolute paths and contents.

    A worker does not read these files, so one that is started later runs the same code.
    """

    def as_json(self) -> str:
        """Return the specification as JSON. A character of a file's contents is one byte."""
        sources = [(path, contents.decode("latin-1")) for path, contents in self.sources]
        return json.dumps(self._replace(sources=sources))

    @classmethod
    def of_json(cls, text: str) -> Spec:
        """Return the specification that `as_json` has written."""
        environment, choice, length, sources = json.loads(text)
        contents = tuple((path, source.encode("latin-1")) for path, source in sources)
        return cls(environment, Choice(*choice), length, contents)


class Environment:
    """An environment with actions in [-1, 1] and a descriptor of each state."""

    def __init__(self, spec: Spec):
        self.made = _make(spec)
        self.observation_size = _observation_size(self.made.observation_space)
        self._centre, self._half = _action_box(self.made.action_space)
        self.episode_length = _episode_length(spec, self.made)
        self._seen, _ = self.made.reset(seed=0)
        own = _own(spec, spec.choice.descriptor)
        self._descriptor = descriptors.make(spec.choice, own, self.made)
        self.robot = robots.find(self.made)

    def facts(self) -> dict[str, Any]:
        """Return the sizes of the environment, and what is known of descriptor and robot, by name.

        The robot is None if there is nothing to draw.
        """
        return {
            "observation_size": self.observation_size,
            "action_size": len(self._centre),
            "episode_length": self.episode_length,
            "descriptor": self._descriptor.facts(),
            "robot": self.robot.facts() if self.robot else None,
        }

    @property
    def final_descriptor(self) -> bool:
        """Whether the descriptor of an episode is that of its last state, not the mean."""
        return self._descriptor.over == "final"

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode from a seed and return the first observation [O]."""
        self._seen, _ = self.made.reset(seed=seed)
        self._descriptor.reset()
        return self._vector()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take a step with an action [A] in [-1, 1].

        Returns the observation [O], the reward, and whether the environment ended the episode by
        itself or by a time limit.
        """
        box = self.made.action_space
        scaled = (self._centre + self._half * action).astype(box.dtype).reshape(box.shape)
        self._seen, reward, done, cut, _ = self.made.step(scaled)
        return self._vector(), float(reward), bool(done), bool(cut)

    def descriptor(self) -> np.ndarray:
        """Return the descriptor [D] of the current state. It is called once after every step."""
        value = np.asarray(self._descriptor.value(self._seen), np.float64)
        if value.shape != (len(self._descriptor.low),):
            raise ValueError(
                f"its descriptor must have {len(self._descriptor.low)} numbers, as after reset, "
                f"got the shape {value.shape}"
            )
        return value

    def _vector(self) -> np.ndarray:
        """Return the last observation as a vector of 32-bit numbers."""
        vector = np.asarray(self._seen, np.float32).reshape(-1)
        if len(vector) != self.observation_size:
            raise ValueError(
                f"its observation has {len(vector)} numbers, its observation_space "
                f"{self.observation_size}"
            )
        return vector


# ---------------------------------------------------------------------------------- make and check


def _make(spec: Spec) -> Any:
    """Return the environment of a specification. Raises a ValueError if there is no such one."""
    import gymnasium

    own = _own(spec, spec.environment)
    if own is not None:
        made = references.call(spec.environment, own)
        if not isinstance(made, gymnasium.Env):
            raise ValueError(
                f"{spec.environment} must return a gymnasium.Env, got {references.kind(made)}"
            )
        if spec.episode_length is not None:
            made = gymnasium.wrappers.TimeLimit(made, spec.episode_length)
        return made
    try:
        return gymnasium.make(
            spec.environment, max_episode_steps=spec.episode_length, disable_env_checker=True
        )
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(" ".join(str(error).split()).replace("`", "'").rstrip(".")) from error


def _own(spec: Spec, name: str) -> Any:
    """Return the function that FILE.py:FUNCTION names, or None if `name` is no such reference.

    Only code of `spec.sources` runs. Raises a ValueError if there is no function.
    """
    if not references.is_reference(name):
        return None
    where = references.absolute(name).rpartition(":")[0]
    references.give(where, dict(spec.sources)[where])
    function = references.load(name)
    if not callable(function):
        raise ValueError(f"{name} must be a function, found {references.kind(function)}")
    return function


def _observation_size(space: Any) -> int:
    """Return the number of entries of an observation. Raises a ValueError unless it is a box."""
    import gymnasium

    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(
            f"its observations are a {type(space).__name__}, and elites needs a Box: wrap it with "
            "gymnasium.wrappers.FlattenObservation in a function, and name FILE.py:FUNCTION"
        )
    return int(np.prod(space.shape))


def _action_box(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the centre [A] and half the width [A] of the actions' box.

    Raises a ValueError if the actions are not continuous or not bounded.
    """
    import gymnasium

    if not isinstance(space, gymnasium.spaces.Box):
        raise ValueError(
            f"its actions are a {type(space).__name__}, and elites needs continuous ones: a Box"
        )
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(
            "its actions have no bounds: wrap it with gymnasium.wrappers.RescaleAction in a "
            "function, and name FILE.py:FUNCTION"
        )
    return (low + high) / 2, (high - low) / 2


def _episode_length(spec: Spec, made: Any) -> int:
    """Return the largest number of steps of an episode. Raises a ValueError if it is unknown."""
    own = made.spec.max_episode_steps if made.spec is not None else None
    length = own if spec.episode_length is None else spec.episode_length
    if length is None:
        raise ValueError("it has no time limit: add ,episode_length=STEPS to the task's name")
    return int(length)
