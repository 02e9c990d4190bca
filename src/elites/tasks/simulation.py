"""Make a task of an environment of another simulator.

A `World` says how to run the environment of one robot, and how to read its state. `make` adds the
descriptor, the bounds and the options that all simulators share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from elites import names
from elites.names import Name
from elites.tasks import bounds, descriptors, geoms
from elites.tasks.descriptors import Descriptor, Robot
from elites.tasks.scenes import Scene
from elites.tasks.task import Array, Task, TaskState


class World(NamedTuple):
    """An environment of another simulator, for one robot. `State` is the simulator's own."""

    reset: Callable[[Array], Any]  # (key) -> state
    step: Callable[[Any, Array], Any]  # (state, action in [-1, 1]) -> state
    observation: Callable[[Any], Array]  # (state) -> [O]
    reward: Callable[[Any, Array, Any], Array]  # (state before, action, state) -> []
    done: Callable[[Any], Array]  # (state) -> [] bool
    robot: Robot | None
    action_size: int
    episode_length: int
    repeatable: bool  # see `Task.repeatable`
    summary: str
    reward_text: str
    termination_text: str


class _Inner(NamedTuple):
    """Inner state of such a task: the simulator's state, and the descriptor's memory."""

    state: Any
    memory: Any


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard what simulators print and warn of when they are imported or load a model.

    MuJoCo would write its warnings to a file in the working directory.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        mujoco: Any = importlib.import_module("mujoco")
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda text: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def load(module: str) -> Any:
    """Import a module of a simulator without what it prints and warns of, and return it."""
    with quiet():
        return importlib.import_module(module)


def make(name: Name, world: World, options: dict[str, Any]) -> Task:
    """Return the task of an environment with the options of its name.

    Unless the option `random_start` is set, every episode starts in the same state.
    """
    title = names.title(str(name))
    random_start = options.get("random_start", False)
    with in_simulator():
        example = jax.eval_shape(lambda key: _start(world, random_start, key), jax.random.key(0))
        descriptor = descriptors.make(title, world.robot, options, example)
        low, high = bounds.given(title, descriptor.low, descriptor.high, options)
        size = jax.eval_shape(world.observation, example).shape
    if len(size) != 1:
        raise ValueError(f"task '{title}': its observation must be a vector, got the shape {size}")
    episodes = _Episodes(world, descriptor, random_start)
    return Task(
        name=title,
        observation_size=size[0],
        action_size=world.action_size,
        episode_length=options.get("episode_length", world.episode_length),
        descriptor_low=low,
        descriptor_high=high,
        reset=episodes.reset,
        step=episodes.step,
        episode_descriptor=descriptor.over,
        deterministic=not random_start,
        repeatable=world.repeatable,
        checks_inner=False,
        scene=_scene(world.robot),
        summary=world.summary,
        reward_text=world.reward_text,
        termination_text=world.termination_text,
        descriptor_text=descriptor.text,
        descriptor_names=descriptor.names,
        descriptor_units=descriptor.units,
    )


def _start(world: World, random_start: bool, key: Array) -> Any:
    """Return the simulator's state at the start of an episode, the same for all keys by default."""
    return world.reset(key if random_start else jax.random.key(0))


@dataclasses.dataclass(frozen=True, eq=False)
class _Episodes:
    """The functions `reset` and `step` of a task."""

    world: World
    descriptor: Descriptor
    random_start: bool

    def reset(self, key: Array) -> TaskState:
        """Return the task's state at the start of an episode."""
        with in_simulator():
            state = _start(self.world, self.random_start, key)
            return self._seen(self.descriptor.start(state), state, state, jnp.zeros(()))

    def step(self, before: TaskState, action: Array) -> TaskState:
        """Return the task's state after one step."""
        with in_simulator():
            old, memory = before.inner
            state = self.world.step(old, action)
            return self._seen(memory, old, state, self.world.reward(old, action, state))

    def _seen(self, memory: Any, before: Any, state: Any, reward: Array) -> TaskState:
        """Return the task's state for a state of the simulator, with the descriptor measured."""
        memory, described = self.descriptor.measure(memory, before, state)
        return TaskState(
            inner=_Inner(state, memory),
            observation=jnp.asarray(self.world.observation(state), jnp.float32),
            reward=jnp.asarray(reward, jnp.float32),
            done=self.world.done(state),
            descriptor=described.astype(jnp.float32),
        )


def _scene(robot: Robot | None) -> Scene | None:
    """Return the scene of a robot in a task of this module, or None if there is no robot."""
    if robot is None:
        return None
    return geoms.scene(robot.model, robot.dt, lambda state: robot.poses(state.inner.state))


@contextlib.contextmanager
def in_simulator() -> Iterator[None]:
    """Allow what simulators do while JAX traces them: warn, and combine arrays of other rank."""
    with warnings.catch_warnings(), jax.numpy_rank_promotion("allow"):
        warnings.simplefilter("ignore")
        yield
