"""An elite or the actor, rolled out once more for the eye.

A few robots are simulated together, on the CPU, at the smallest batch whose bits do not depend on a
robot's place in it. A run that was trained on a CPU like this one came out the same to the bit in
all comparisons, although training uses larger batches (tests/viewer compares one). From a GPU the
bits differ, and a robot makes metres of that. The page shows what was reached here beside what was
asked for, so the difference is seen.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites import tasks
from elites.core import networks
from elites.core.networks import MLP
from elites.core.types import padded_size
from elites.runs import checkpoint as checkpoints
from elites.runs import saved
from elites.runs.checkpoint import WEIGHTS, CheckpointError
from elites.runs.directory import RunDirectory, RunError
from elites.tasks import rollout
from elites.tasks.task import Task, TaskState
from elites.training import Elites, Run, SeedResult
from elites.viewer import data
from elites.viewer.data import NotThereError, plain

BATCH = padded_size(1)


class Player:
    """Recordings of one run. Calls from several threads take turns."""

    def __init__(self, run: RunDirectory):
        self.run, self.identity = run, data.identity(run)
        self.task = tasks.make(run.config().task)
        self._reader = saved.Reader(run)
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._latest: dict[str, int] = {}  # questions of each page, counted
        self._loaded: dict[int, Run] = {}
        self._load_newest()

    def _load_newest(self) -> None:
        """It must be whole: an older one would be shown as if it were the newest."""
        place = next(reversed(checkpoints.complete(self.run.checkpoints)), None)
        if place is None:
            found, iteration = self._reader.load()  # refused, unless one has come meanwhile
        else:
            weights = place / WEIGHTS
            if weights.exists() and not data.inside(self.run, weights):
                raise RunError(f"{weights} leads out of the run")
            try:
                found, iteration = self._reader.load(int(place.name))
            except (CheckpointError, ValueError):
                if place.exists():
                    raise
                return self._load_newest()  # dropped meanwhile: the run goes on fast
        self._loaded = {iteration: found}

    @property
    def newest(self) -> int:
        """The newest iteration that is loaded: it can be played, whatever is dropped meanwhile."""
        return max(self._loaded)

    def scene(self) -> dict[str, Any] | None:
        """What to draw: the colliders of the body model; None for a task without one."""
        model = self.task.body_model
        if model is None or self.task.bodies is None:
            return None
        return {
            "dt": model.dt,
            "bodies": list(model.bodies),
            "shapes": [
                {
                    "body": shape.body,
                    "kind": shape.kind,
                    "position": [float(v) for v in shape.position],
                    "rotation": [float(v) for v in shape.rotation],
                    "size": [float(v) for v in shape.size],
                }
                for shape in model.shapes
            ],
        }

    def warm(self) -> None:
        """Compile, so that the first click need not wait for it."""
        with self._turn:
            result = next(iter(self._loaded.values())).seed(0)
            network = result.archive.algorithm.policy
            asked = np.array(self.task.descriptor_low, np.float32)
            blank = _Part(network, np.zeros(network.size, np.float32), asked)
            self._played(blank, _actor(result, asked))

    @contextlib.contextmanager
    def _in_turn(self, page: str, count: int) -> Iterator[None]:
        """One rollout at a time; of a page that has asked something newer meanwhile, none."""
        with self._counting:
            self._latest[page] = max(count, self._latest.pop(page, 0))
            if len(self._latest) > 100:
                del self._latest[
                    next(iter(self._latest))
                ]  # of the page that has asked for nothing longest
        with self._turn:
            with self._counting:
                superseded = self._latest.get(page, count) > count
            if superseded:
                raise RunError("the page has asked for something else meanwhile")
            yield

    def watch(
        self, iteration: int, seed: int, cell: int, page: str = "", count: int = 0
    ) -> dict[str, Any]:
        """The elite of a cell, and the actor asked for what that elite reaches."""
        with self._in_turn(page, count):
            result = self._load(iteration).seed(data.seed_index(self.run, seed))
            stored = result.archive.arrays
            if not 0 <= cell < len(stored.fitness):
                raise NotThereError(
                    f"there is no cell {cell}: they are numbered 0 to {len(stored.fitness) - 1}"
                )
            if not np.isfinite(stored.fitness[cell]):
                raise NotThereError(f"cell {cell} is empty: no elite lives there")
            asked = stored.descriptors[cell]
            own = _Part(result.archive.algorithm.policy, stored.policies[cell], asked)
            elite, actor = self._played(own, _actor(result, asked))
            return {"elite": {**(elite or {}), **_as_stored(result.archive, cell)}, "actor": actor}

    def ask(
        self, iteration: int, seed: int, descriptor: list[float], page: str = "", count: int = 0
    ) -> dict[str, Any]:
        """The actor asked for any descriptor, beside the elite that lives nearest to it."""
        task = self.task
        if len(descriptor) != task.descriptor_size:
            raise ValueError(
                f"a descriptor of {task.name} has {task.descriptor_size} numbers, "
                f"got {len(descriptor)}"
            )
        asked = np.array(descriptor, np.float32)
        if not np.isfinite(asked).all():
            raise ValueError("a descriptor is made of finite numbers")
        if (asked < task.descriptor_low).any() or (asked > task.descriptor_high).any():
            low, high = task.descriptor_low, task.descriptor_high
            raise ValueError(f"a descriptor of {task.name} lies between {low} and {high}")
        with self._in_turn(page, count):
            result = self._load(iteration).seed(data.seed_index(self.run, seed))
            led = _actor(result, asked)
            if led is None:
                name = result.archive.algorithm.name
                raise NotThereError(f"{name} trains no policy that can be asked for a descriptor")
            if not len(result.archive):
                return {"elite": None, "actor": self._played(led)[0]}
            nearest = result.archive.nearest(asked)
            elite, actor = self._played(_Part(nearest.network, nearest.policy, asked), led)
            stored = _as_stored(result.archive, nearest.cell)
            return {"elite": {**(elite or {}), **stored}, "actor": actor}

    def _load(self, iteration: int) -> Run:
        """The run at an iteration that still has its policies."""
        if iteration not in self._loaded:
            self._refuse_dropped(iteration)
            try:
                found, _ = self._reader.load(iteration)
            except (CheckpointError, ValueError):
                self._refuse_dropped(iteration)  # while it was read
                raise
            # One more than is looked at, to go back and forth; an archive can be large.
            self._loaded = {**dict(list(self._loaded.items())[-1:]), iteration: found}
        return self._loaded[iteration]

    def _refuse_dropped(self, iteration: int) -> None:
        kept = data.kept(self.run)
        if iteration not in kept:
            raise NotThereError(
                f"the policies of iteration {iteration} are not kept, only those of "
                f"{' and '.join(map(str, kept)) or 'none'}"
            )

    def _played(self, *parts: _Part | None) -> list[dict[str, Any] | None]:
        """Recordings of at most two policies; together, if their networks are of one shape."""
        recordings: list[dict[str, Any] | None] = [None] * len(parts)
        for network in {part.network for part in parts if part is not None}:
            chosen = [(i, part) for i, part in enumerate(parts) if part and part.network == network]
            rows = np.stack([part.policy for _, part in chosen])
            rows = np.resize(rows, (BATCH, network.size))
            evaluation, film = jax.tree.map(np.asarray, _compiled(self.task, network)(rows))
            for row, (i, part) in enumerate(chosen):
                recordings[i] = self._recording(part.asked, evaluation, film, row)
        return recordings

    def _recording(self, asked: np.ndarray, evaluation, film, row: int) -> dict[str, Any]:
        steps, valid = int(evaluation.steps[row]), bool(evaluation.valid[row])
        reached = evaluation.descriptors[row]
        poses, path = film
        return {
            "fitness": float(evaluation.fitness[row]) if valid else None,
            "valid": valid,
            "steps": steps,
            "asked": plain(asked),
            "reached": plain(reached) if valid else None,
            "distance": float(np.linalg.norm(reached - asked)) if valid else None,
            "poses": None if poses is None else pack_poses(poses[: steps + 1, row]),
            # Where the way to a descriptor can be drawn: each state has one, the last counts.
            "path": plain(path[: steps + 1, row])
            if self.task.episode_descriptor == "final"
            else None,
        }


class _Part(NamedTuple):
    """A policy to play, and what it is asked for."""

    network: MLP
    policy: np.ndarray  # [P]
    asked: np.ndarray  # [D]


def _actor(result: SeedResult, asked: np.ndarray) -> _Part | None:
    """The actor at a descriptor; None where there is none that can be asked."""
    actor = result.actor
    if actor is None or not actor.conditioned:
        return None
    learner, problem = actor.algorithm.main_td3, actor.algorithm.problem
    assert learner is not None
    # With its descriptor folded in, the actor is a policy like any other.
    wish = problem.normalise(jnp.asarray(asked)[None])
    policy = networks.fold(learner.actor, jnp.asarray(actor.parameters), wish)[0]
    sizes = (problem.observation_size, *learner.actor.sizes[1:])
    return _Part(dataclasses.replace(learner.actor, sizes=sizes), np.asarray(policy), asked)


def _as_stored(archive: Elites, cell: int) -> dict[str, Any]:
    """What the archive says of an elite."""
    return {
        "cell": cell,
        "stored_fitness": float(archive.arrays.fitness[cell]),
        "stored_descriptor": plain(archive.arrays.descriptors[cell]),
    }


@functools.lru_cache(maxsize=8)
def _compiled(task: Task, network: MLP):
    """Evaluation of policies [BATCH, P], and a film of two: poses [T, 2, B, 7], path [T, 2, D]."""

    def look(world: TaskState):
        return _poses(task, world), world.descriptor

    @jax.jit
    def run(policies):
        # One key: in a task with chance, elite and actor begin alike.
        keys = jnp.repeat(jax.random.key(0)[None], BATCH, axis=0)
        layers = networks.unflatten(network, policies)
        evaluation, seen = rollout.record(
            task, lambda observation: networks.apply_each(network, layers, observation), keys, look
        )
        start = jax.vmap(lambda key: look(task.reset(key)))(keys[:2])
        film = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:, :2]]), start, seen)
        return evaluation._replace(transitions=None), film

    return run


def _poses(task: Task, world: TaskState):
    """Place and rotation of each body [B, 7]."""
    if task.body_model is None or task.bodies is None:
        return None
    return task.bodies(world)[:7].T


def pack_poses(poses: np.ndarray) -> dict[str, Any]:
    """Poses [T, B, 7] as 16-bit numbers: places to a millimetre in 30 m, for drawing."""
    poses = np.nan_to_num(np.asarray(poses, np.float64), posinf=0.0, neginf=0.0)
    reach = max(float(np.abs(poses[..., :3]).max()), 1e-6)
    scaled = np.concatenate([poses[..., :3] / reach, np.clip(poses[..., 3:], -1, 1)], axis=-1)
    words = np.round(scaled * 32767).astype("<i2")
    return {
        "frames": poses.shape[0],
        "bodies": poses.shape[1],
        "reach": reach,
        "words": base64.b64encode(words.tobytes()).decode("ascii"),
    }
