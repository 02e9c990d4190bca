"""Run policies again and record their poses for display.

At most two policies are simulated together, in the smallest batch in which the result of a robot
does not depend on its position. Everything runs on the CPU. If the run was trained on a CPU of the
same kind, the results agreed to the bit in all comparisons, although training uses larger batches
(tests/viewer compares one). A GPU rounds differently, and the difference can grow to metres. The
page therefore shows the reached descriptor beside the requested one.
"""

from __future__ import annotations

import base64
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks
from elites.core.networks import MLP
from elites.core.types import Evaluation, Outside, padded_size
from elites.tasks import rollout
from elites.tasks.scenes import scene_of
from elites.tasks.task import Task, TaskState
from elites.viewer.data import to_lists

BATCH = padded_size(1)


class RecordingRequest(NamedTuple):
    """Request to record a policy: its network, its parameters, and the requested descriptor."""

    network: MLP
    policy: np.ndarray  # [P]
    descriptor: np.ndarray  # [D]


def record(task: Task, *requests: RecordingRequest | None) -> list[dict[str, Any] | None]:
    """Return recordings of at most two policies on a task, one for each request.

    The recording of a request that is None is None. Policies are simulated together if their
    networks have the same shape.
    """
    recordings: list[dict[str, Any] | None] = [None] * len(requests)
    for network in {request.network for request in requests if request is not None}:
        chosen = [(i, r) for i, r in enumerate(requests) if r and r.network == network]
        rows = np.stack([request.policy for _, request in chosen])
        if task.outside is not None:
            evaluation, measured = _outside(task.outside, network, rows)
        else:
            rows = np.resize(rows, (BATCH, network.size))
            evaluation, measured = jax.tree.map(np.asarray, _compiled(task, network)(rows))
        for row, (i, request) in enumerate(chosen):
            recordings[i] = _recording(task, request.descriptor, evaluation, measured, row)
    return recordings


def _recording(task: Task, requested: np.ndarray, evaluation, measured, row: int) -> dict[str, Any]:
    """Return the recording of one robot of a batch, as a dictionary for the page.

    It has the fitness, the number of steps, the reached descriptor, its error, the poses and the
    path. `evaluation` and `measured` are the results of the whole batch, and `row` is the robot's
    position in it.
    """
    steps, valid = int(evaluation.steps[row]), bool(evaluation.valid[row])
    reached = evaluation.descriptors[row]
    error = np.linalg.norm(rollout.problem(task).weights * (reached - requested))
    poses, path = measured
    return {
        "fitness": float(evaluation.fitness[row]) if valid else None,
        "valid": valid,
        "steps": steps,
        "requested": to_lists(requested),
        "reached": to_lists(reached) if valid else None,
        "error": float(error) if valid else None,
        "poses": None if poses is None else pack_poses(poses[: steps + 1, row]),
        # A mean descriptor has no path: those of the single states do not lead to it.
        "path": to_lists(path[: steps + 1, row]) if task.episode_descriptor == "final" else None,
    }


def _outside(runner: Outside, network: MLP, policies: np.ndarray) -> tuple[Evaluation, Any]:
    """Roll out policies [n, P] of a task outside of JAX. Both results are those of `_compiled`.

    The descriptor after the last step is that of the episode.
    """
    seeds = np.zeros(len(policies), np.uint32)
    found, poses = runner.record([(network, row) for row in policies], seeds)
    path = np.concatenate([found.transitions.state_descriptor, found.descriptors[None]])
    for row, steps in enumerate(found.steps):
        path[steps:, row] = found.descriptors[row]
    return found._replace(transitions=None), (poses, path)


@functools.lru_cache(maxsize=8)
def _compiled(task: Task, network: MLP):
    """Return a compiled function that rolls out policies [BATCH, P] on a task.

    The function returns the evaluation of all policies and, for the first two, the poses [T, 2, B,
    7] of the bodies and the descriptors [T, 2, D] of the states.
    """
    scene = scene_of(task)

    def measure(state: TaskState):
        """Return the poses [B, 7] of the bodies, None without a scene, and the descriptor [D]."""
        return None if scene is None else scene.poses(state), state.descriptor

    @jax.jit
    def run(policies):
        # All robots use one key: in a stochastic task, elite and actor start in the same state.
        keys = jnp.repeat(jax.random.key(0)[None], BATCH, axis=0)
        layers = networks.unflatten(network, policies)
        evaluation, measured = rollout.record(
            task,
            lambda observation: networks.apply_each(network, layers, observation),
            keys,
            measure,
        )
        start = jax.vmap(lambda key: measure(task.reset(key)))(keys[:2])
        measured = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:, :2]]), start, measured)
        return evaluation._replace(transitions=None), measured

    return run


def pack_poses(poses: np.ndarray) -> dict[str, Any]:
    """Return poses [T, B, 7] in a compact form that JSON can represent.

    Numbers are rounded to 16 bits and encoded in base64. Positions are accurate to a millimetre
    within 30 m.
    """
    poses = np.nan_to_num(np.asarray(poses, np.float64), posinf=0.0, neginf=0.0)
    scale = max(float(np.abs(poses[..., :3]).max()), 1e-6)
    scaled = np.concatenate([poses[..., :3] / scale, np.clip(poses[..., 3:], -1, 1)], axis=-1)
    numbers = np.round(scaled * 32767).astype("<i2")
    return {
        "frames": poses.shape[0],
        "bodies": poses.shape[1],
        "scale": scale,
        "numbers": base64.b64encode(numbers.tobytes()).decode("ascii"),
    }
