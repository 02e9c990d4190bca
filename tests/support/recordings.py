"""Load recordings of the original tasks (brax 0.0.15), and run the engine from their states.

`data/README.md` describes the recordings. All functions run `ROBOTS` robots at a time, so that the
step of each task is compiled once per test session.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from elites import tasks

DATA = Path(__file__).parents[1] / "data"
TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")
ROBOTS = 32
TIME_LIMIT = 250  # of all recorded episodes, also those of the Walker


@functools.cache
def recording(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


@functools.cache
def compiled_step(name: str):
    """Return `task.step` of `ROBOTS` robots, compiled."""
    task, world = tasks.make(name), first_world(name)
    action = jnp.zeros((ROBOTS, task.action_size))
    return jax.jit(jax.vmap(task.step)).lower(world, action).compile()


@functools.cache
def first_world(name: str):
    """Return the initial state of `ROBOTS` robots."""
    keys = jax.random.split(jax.random.key(0), ROBOTS)
    return jax.jit(jax.vmap(tasks.make(name).reset))(keys)


def advance(name: str, bodies: np.ndarray, action: np.ndarray, touch_share=None, time=None):
    """Advance the task by one step from body states [K, 13, B]. Returns NumPy arrays.

    `touch_share` and `time` are the rest of the Walker's state: the running mean of the contacts of
    its feet, and the number of steps taken.
    """
    world = first_world(name)
    parts = []
    for start in range(0, len(bodies), ROBOTS):
        rows = np.minimum(np.arange(start, start + ROBOTS), len(bodies) - 1)
        inner = jnp.asarray(bodies[rows])
        if name == "walker_uni":
            steps = np.zeros(ROBOTS) if time is None else time[rows]
            share = np.ones((ROBOTS, 2)) if touch_share is None else touch_share[rows]
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
    """Repeat every recorded transition from its recorded start."""
    data = recording(name)
    return advance(name, data["state"], data["action"], data.get("touch_share"), data["time"])


def bodies_of(name: str, world) -> np.ndarray:
    """Return the body states [K, 13, B] of a TaskState."""
    return np.asarray(tasks.make(name).bodies(world))


def worst_body(a: np.ndarray, b: np.ndarray, rows: slice) -> np.ndarray:
    """Return for each transition [K] the largest distance of a body, in the vectors of `rows`."""
    return np.linalg.norm(a[:, rows].astype(np.float64) - b[:, rows], axis=1).max(-1)


POSITION, ROTATION, VELOCITY, SPIN = slice(0, 3), slice(3, 7), slice(7, 10), slice(10, 13)
