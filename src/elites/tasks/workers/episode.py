"""Run one episode of one policy in an environment.

The rules are those of `elites.tasks.rollout`: the episode ends when the environment terminates it
or at the time limit, and an episode with a number that is not finite is invalid.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from elites.tasks.workers.block import Block
from elites.tasks.workers.environment import Environment

Activation = Callable[[np.ndarray], np.ndarray]

_HALF = np.float32(0.5)  # 32-bit numbers stay 32-bit numbers
_GELU = np.float32((2.0 / np.pi) ** 0.5), np.float32(0.044715)

ACTIVATIONS: dict[str, Activation] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: _HALF * x * (1 + np.tanh(_GELU[0] * (x + _GELU[1] * x**3))),
    "silu": lambda x: x * (_HALF * (1 + np.tanh(_HALF * x))),
}
"""Functions of `elites.core.networks` between layers and after the last one, in NumPy."""


class Network(NamedTuple):
    """Shape of a policy network: the fields of `elites.core.networks.MLP`."""

    sizes: Sequence[int]
    output: str
    activation: str = "relu"


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
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(network.sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        layers.append((parameters[start:middle].reshape(inputs, outputs), parameters[middle:end]))
        start = end
    hidden, output = ACTIVATIONS[network.activation], ACTIVATIONS[network.output]
    *inner, (last_kernel, last_bias) = layers

    def act(x: np.ndarray) -> np.ndarray:
        for kernel, bias in inner:
            x = hidden(x @ kernel + bias)
        return output(x @ last_kernel + last_bias)

    return act


def run(
    environment: Environment,
    act: Callable[[np.ndarray], np.ndarray],
    seed: int,
    length: int,
    block: Block | None,
) -> Outcome:
    """Run one episode of at most `length` steps. Its steps are written to `block`, unless None."""
    observation = environment.reset(seed)
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
            _write(block, step, observation, action, reward, following, done, cut, place)
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


def _write(block: Block, step: int, *values: Any) -> None:
    """Write the values of one step in the order of the fields of `Block`."""
    for array, value in zip(block[1:], values, strict=True):
        array[step] = value
