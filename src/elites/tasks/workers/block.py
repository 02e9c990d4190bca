"""Memory that a worker shares with its parent: a policy's parameters, and the steps of an episode.

The parent writes the parameters before it sends an order. The worker writes the rest before it
answers. A block is anonymous memory, so the system frees it with its last user.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import NamedTuple

import numpy as np

_ALIGNMENT = 64  # bytes


class Sizes(NamedTuple):
    """Sizes of the arrays of a block."""

    parameters: int
    """Parameters of the largest network."""
    length: int
    """Steps of the longest episode, T."""
    observation: int
    action: int
    descriptor: int
    bodies: int = 0
    """Bodies of the robot whose poses are recorded, B. 0 unless it will be drawn."""
    model: int = 0
    """Bytes of the robot's MuJoCo model. 0 unless a scene is made of it."""


class Steps(NamedTuple):
    """Steps of an episode: the fields of `Transitions`, without the mask."""

    observation: np.ndarray  # [T, O]
    action: np.ndarray  # [T, A]
    reward: np.ndarray  # [T]
    next_observation: np.ndarray  # [T, O]
    done: np.ndarray  # [T] bool
    truncation: np.ndarray  # [T] bool
    state_descriptor: np.ndarray  # [T, D]


class Block(NamedTuple):
    """Arrays of a block."""

    parameters: np.ndarray  # [parameters]
    steps: Steps
    poses: np.ndarray  # [T + 1, B, 7] of the robot's bodies at the start and after every step
    model: np.ndarray  # [model] uint8


def create(sizes: Sizes) -> int:
    """Return the file descriptor of a new block, filled with zeros. The caller closes it."""
    size = _extent(sizes)
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("elites")
    else:  # a file without a name
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle


def attach(handle: int, sizes: Sizes) -> Block:
    """Return the arrays of the block with this file descriptor."""
    memory, start, arrays = mmap.mmap(handle, _extent(sizes)), 0, []
    for shape, dtype in _layout(sizes):
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(memory, dtype, count, start).reshape(shape))
        start += _aligned(count * np.dtype(dtype).itemsize)
    parameters, *steps, poses, model = arrays
    return Block(parameters, Steps(*steps), poses, model)


def _layout(sizes: Sizes) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape and the type of each array of a block, in order."""
    steps, number, flag = sizes.length, "float32", "bool"
    return [
        ((sizes.parameters,), number),
        ((steps, sizes.observation), number),
        ((steps, sizes.action), number),
        ((steps,), number),
        ((steps, sizes.observation), number),
        ((steps,), flag),
        ((steps,), flag),
        ((steps, sizes.descriptor), number),
        ((steps + 1, sizes.bodies, 7), number),
        ((sizes.model,), "uint8"),
    ]


def _extent(sizes: Sizes) -> int:
    """Return the number of bytes of a block."""
    return sum(
        _aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in _layout(sizes)
    )


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
