"""Recorded behaviour of the original tasks (brax 0.0.15), and the engine run from its states.

`data/README.md` says what the recordings hold. Everything here runs `LANES` robots at a time, so
that each task's step is compiled once for the whole test session.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from elites import tasks

DATA = Path(__file__).parent / "data"
TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")
LANES = 32
TIME_LIMIT = 250  # of the recorded episodes, the Walker's included


@functools.cache
def recording(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


@functools.cache
def compiled_step(name: str):
    """`task.step` of `LANES` robots."""
    task, world = tasks.make(name), first_world(name)
    action = jnp.zeros((LANES, task.action_size))
    return jax.jit(jax.vmap(task.step)).lower(world, action).compile()


@functools.cache
def first_world(name: str):
    """`LANES` robots at their start."""
    keys = jax.random.split(jax.random.key(0), LANES)
    return jax.jit(jax.vmap(tasks.make(name).reset))(keys)


def advance(name: str, bodies: np.ndarray, action: np.ndarray, touch_share=None, time=None):
    """One step of the task from given body states [K, 13, B]; a TaskState of NumPy arrays.

    `touch_share` and `time` are what the Walker remembers beside its bodies: the running mean of
    its feet's contacts and the number of steps taken.
    """
    world = first_world(name)
    parts = []
    for start in range(0, len(bodies), LANES):
        rows = np.minimum(np.arange(start, start + LANES), len(bodies) - 1)
        inner = jnp.asarray(bodies[rows])
        if name == "walker_uni":
            steps = np.zeros(LANES) if time is None else time[rows]
            share = np.ones((LANES, 2)) if touch_share is None else touch_share[rows]
            inner = world.inner._replace(
                bodies=inner,
                touched=jnp.asarray(share * (steps[:, None] + 1), jnp.float32),
                time=jnp.asarray(steps, jnp.float32),
            )
        following = compiled_step(name)(world._replace(inner=inner), jnp.asarray(action[rows]))
        parts.append(jax.tree.map(np.asarray, following))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(bodies)], *parts)


@functools.cache
def recorded_steps_repeated(name: str):
    """Every recorded transition repeated from its recorded start."""
    data = recording(name)
    return advance(name, data["state"], data["action"], data.get("touch_share"), data["time"])


def bodies_of(name: str, world) -> np.ndarray:
    """Body states [K, 13, B] of a TaskState."""
    return np.asarray(tasks.make(name).bodies(world))


def worst_body(a: np.ndarray, b: np.ndarray, rows: slice) -> np.ndarray:
    """Per transition [K]: the largest distance over the bodies, of the vectors in `rows`."""
    return np.linalg.norm(a[:, rows].astype(np.float64) - b[:, rows], axis=1).max(-1)


POSITION, ROTATION, VELOCITY, SPIN = slice(0, 3), slice(3, 7), slice(7, 10), slice(10, 13)
