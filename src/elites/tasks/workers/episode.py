"""Run one episode of one policy in an environment.

The rules are those of `elites.tasks.rollout`: the episode ends when the environment terminates it
or at the time limit, and an episode with a number that is not finite is invalid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from elites.core import numpy_networks
from elites.core.hyperparameters import Activation
from elites.tasks.workers.block import Block, Steps
from elites.tasks.workers.environment import Environment


class Network(NamedTuple):
    """Shape of a policy network, see `elites.core.networks.MLP`. Its last function is tanh."""

    sizes: Sequence[int]
    activation: Activation


class Outcome(NamedTuple):
    """Results of an episode, without its steps."""

    fitness: float
    valid: bool
    steps: int
    descriptor: list[float]


def policy(network: Network, parameters: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from an observation [O] to an action [A] of a network.

    `parameters` is a vector of at least as many numbers as the network has parameters.
    """
    size = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(network.sizes))
    layers = numpy_networks.unflatten(network.sizes, parameters[:size])
    return lambda observation: numpy_networks.forward(layers, observation, network.activation)


def noisy(
    act: Callable[[np.ndarray], np.ndarray], deviation: float, seed: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Return `act` with Gaussian noise on its actions, which stay within [-1, 1]."""
    generator = np.random.default_rng(seed)

    def acting(observation: np.ndarray) -> np.ndarray:
        action = act(observation)
        noise = deviation * generator.standard_normal(action.shape)
        return np.clip(action + noise, -1.0, 1.0).astype(action.dtype)

    return acting


def run(
    environment: Environment,
    act: Callable[[np.ndarray], np.ndarray],
    seed: int,
    length: int,
    block: Block | None,
) -> Outcome:
    """Run one episode of at most `length` steps. Its steps are written to `block`, unless None.

    If the block has room for them, the robot's model and its poses are written too.
    """
    observation = environment.reset(seed)
    if block is not None:
        _draw(block, environment, 0)
    place = environment.descriptor()
    total, mean, step = 0.0, np.zeros(len(place)), 0
    valid = _finite(observation, place)
    while valid and step < length:
        action = act(observation)
        following, reward, done, cut = environment.step(action)
        next_place = environment.descriptor()
        valid = _finite(action, following, reward, next_place)
        if not valid:
            break
        cut = not done and (cut or step == length - 1)
        if block is not None:
            _write(block.steps, step, observation, action, reward, following, done, cut, place)
            _draw(block, environment, step + 1)
        total, mean, step = total + reward, mean + next_place, step + 1
        observation, place = following, next_place
        if done or cut:
            break
    descriptor = place if environment.final_descriptor else mean / max(step, 1)
    return Outcome(total, valid and _finite(total), step, [float(value) for value in descriptor])


def _finite(*values: Any) -> bool:
    """Return whether all numbers are finite, also as 32-bit numbers."""
    with np.errstate(over="ignore"):
        return all(np.isfinite(np.asarray(value, np.float32)).all() for value in values)


def _write(steps: Steps, step: int, *values: Any) -> None:
    """Write the values of one step in the order of the fields of `Steps`."""
    for array, value in zip(steps, values, strict=True):
        array[step] = value


def _draw(block: Block, environment: Environment, frame: int) -> None:
    """Write the poses of the robot in a frame and, in the first one, its model.

    Whatever the block has no room for is left out.
    """
    robot = environment.robot
    if robot is not None and block.poses.size:
        block.poses[frame] = robot.poses()
    if robot is not None and block.model.size and frame == 0:
        robot.save(block.model)
