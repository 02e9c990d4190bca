"""Run policies again and record their poses for display.

The page simulates at most two policies together, in the smallest batch in which the result of a
robot does not depend on its position. Everything runs on the CPU. If the run was trained on a CPU
of the same kind, the results agreed to the bit in all comparisons, although training uses larger
batches (tests/viewer compares one). A GPU rounds differently, and the difference can grow to
metres. The page therefore shows the reached descriptor beside the requested one.
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
from elites.core.types import Outside, Problem, padded_size
from elites.rendering import shapes
from elites.runs import kept
from elites.tasks import rollout
from elites.tasks.scenes import scene_of
from elites.tasks.task import Task, TaskState
from elites.training import SeedResult
from elites.viewer.data import to_lists

_FALLEN_HEIGHT = 0.75  # share of the trunk's height at the start, below which the robot fell
_FALLEN_ANGLE = 0.8  # radians between the trunk's vertical at the start and at the end


class RecordingRequest(NamedTuple):
    """Request to record a policy: its network, its parameters, and the requested descriptor."""

    network: MLP
    policy: np.ndarray  # [P]
    descriptor: np.ndarray  # [D]


class Recording(NamedTuple):
    """A recorded episode. Fitness, reached descriptor and error mean nothing if it is not valid."""

    fitness: float
    valid: bool
    steps: int
    requested: np.ndarray  # [D]
    reached: np.ndarray  # [D]
    error: float
    ending: str | None  # "fell" or "ended" if the episode ended early
    poses: np.ndarray | None  # [steps + 1, B, 7], or None if there is nothing to draw
    path: np.ndarray | None  # [steps + 1, D] descriptors of the states

    def to_json(self) -> dict[str, Any]:
        """Return the recording as a dictionary for the page."""
        return {
            "fitness": self.fitness if self.valid else None,
            "valid": self.valid,
            "steps": self.steps,
            "ending": self.ending,
            "requested": to_lists(self.requested),
            "reached": to_lists(self.reached) if self.valid else None,
            "error": self.error if self.valid else None,
            "poses": None if self.poses is None else pack_poses(self.poses),
            "path": None if self.path is None else to_lists(self.path),
        }


def record(task: Task, *requests: RecordingRequest | None) -> list[Recording | None]:
    """Return recordings of policies on a task, one for each request.

    The recording of a request that is None is None. Policies are simulated together if their
    networks have the same shape.
    """
    recordings: list[Recording | None] = [None] * len(requests)
    for network in {request.network for request in requests if request is not None}:
        chosen = [(i, r) for i, r in enumerate(requests) if r and r.network == network]
        rows = np.stack([request.policy for _, request in chosen])
        if task.outside is not None:
            batch = _outside(task.outside, network, rows)
        else:
            shown = max(len(rows), 2)  # the page, which asks for one or two, compiles only once
            rows = np.resize(rows, (padded_size(shown), network.size))
            run = _compiled(task, network, shown)
            batch = _Batch(*jax.tree.map(np.asarray, run(rows)))
        for row, (i, request) in enumerate(chosen):
            recordings[i] = _recording(task, request.descriptor, batch, row)
    return recordings


class _Batch(NamedTuple):
    """Results of n robots that were simulated together. Poses and paths may be of the first only.

    They have the time as first axis.
    """

    fitness: np.ndarray  # [n]
    valid: np.ndarray  # [n]
    steps: np.ndarray  # [n]
    reached: np.ndarray  # [n, D]
    poses: np.ndarray | None  # [T, m, B, 7]
    paths: np.ndarray  # [T, m, D]


def _recording(task: Task, requested: np.ndarray, batch: _Batch, row: int) -> Recording:
    """Return the recording of one robot of a batch, which has the position `row` in it."""
    steps, reached = int(batch.steps[row]), batch.reached[row]
    own = None if batch.poses is None else batch.poses[: steps + 1, row]
    return Recording(
        float(batch.fitness[row]),
        bool(batch.valid[row]),
        steps,
        requested,
        reached,
        float(np.linalg.norm(rollout.problem(task).weights * (reached - requested))),
        _ending(task, own) if steps < task.episode_length else None,
        own,
        # A mean descriptor has no path: those of the single states do not lead to it.
        batch.paths[: steps + 1, row] if task.episode_descriptor == "final" else None,
    )


def _ending(task: Task, poses: np.ndarray | None) -> str:
    """Return "fell" if a robot that ended early lies low or is tipped over, otherwise "ended".

    `poses` [T, B, 7] are those of its bodies, of which the first is the trunk. A task does not say
    why it ends an episode, so the trunk is compared with that of the first state.
    """
    if poses is None:
        return "ended"
    start, end, ground = poses[0, 0], poses[-1, 0], _ground(task)
    sank = end[2] - ground < _FALLEN_HEIGHT * max(start[2] - ground, 0.0)
    up = shapes.rotations(np.stack([start[3:], end[3:]]))[:, 2, :]  # "up" as the trunk sees it
    tipped = float(up[0] @ up[1]) < np.cos(_FALLEN_ANGLE)
    return "fell" if sank or tipped else "ended"


@functools.lru_cache(maxsize=8)
def _ground(task: Task) -> float:
    """Return the height of the floor of a task's scene. Scenes can be slow to make."""
    scene = scene_of(task)
    return 0.0 if scene is None else shapes.ground(scene)


def _outside(runner: Outside, network: MLP, policies: np.ndarray) -> _Batch:
    """Roll out policies [n, P] of a task outside of JAX.

    The descriptor after the last step is that of the episode.
    """
    seeds = np.zeros(len(policies), np.uint32)
    found, poses = runner.record([(network, row) for row in policies], seeds)
    path = np.concatenate([found.transitions.state_descriptor, found.descriptors[None]])
    for row, steps in enumerate(found.steps):
        path[steps:, row] = found.descriptors[row]
    fitness, valid, steps = map(np.asarray, (found.fitness, found.valid, found.steps))
    return _Batch(fitness, valid, steps, np.asarray(found.descriptors), poses, path)


@functools.lru_cache(maxsize=8)
def _compiled(task: Task, network: MLP, shown: int):
    """Return a compiled function that rolls out policies [n, P] on a task.

    It returns the fields of a `_Batch` as a tuple. The poses and paths are those of the first
    `shown` policies.
    """
    scene = scene_of(task)

    def measure(state: TaskState):
        """Return the poses [B, 7] of the bodies, None without a scene, and the descriptor [D]."""
        return None if scene is None else scene.poses(state), state.descriptor

    def run(policies):
        # All robots use one key: in a stochastic task, elite and actor start in the same state.
        keys = jnp.repeat(jax.random.key(0)[None], len(policies), axis=0)
        layers = networks.unflatten(network, policies)
        evaluation, measured = rollout.record(
            task,
            lambda observation: networks.apply_each(network, layers, observation),
            keys,
            measure,
        )
        start = jax.vmap(lambda key: measure(task.reset(key)))(keys[:shown])
        poses, paths = jax.tree.map(
            lambda a, b: jnp.concatenate([a[None], b[:, :shown]]), start, measured
        )
        found = evaluation
        return found.fitness, found.valid, found.steps, found.descriptors, poses, paths

    shape = jax.ShapeDtypeStruct((padded_size(shown), network.size), jnp.float32)
    return kept.program(task, f"rollout of {shown}, {network}", run, shape)


def actor_request(result: SeedResult, requested: np.ndarray) -> RecordingRequest | None:
    """Return a request to record a seed's actor at a descriptor [D].

    Returns None if the algorithm trains no descriptor-conditioned actor.
    """
    actor = result.actor
    if actor is None or not actor.conditioned:
        return None
    learner, problem = actor.algorithm.main_td3, actor.algorithm.problem
    assert learner is not None
    policy = _folded(learner.actor, problem, actor.parameters, requested)
    network = networks.folded(learner.actor, problem.descriptor_size)
    return RecordingRequest(network, np.asarray(policy), requested)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _folded(actor: MLP, problem: Problem, parameters: np.ndarray, requested: np.ndarray):
    """Return the policy [P] that acts as an actor does when it is asked for a descriptor [D].

    With the descriptor folded into its weights, the actor is an ordinary policy.
    """
    condition = problem.normalise(jnp.asarray(requested)[None])
    return networks.fold(actor, jnp.asarray(parameters), condition)[0]


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
