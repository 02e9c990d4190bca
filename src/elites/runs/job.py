"""A configuration made real: the algorithm it asks for, on a device that has room for it.

Everything that can be refused is refused here, before anything is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from elites import tasks, training
from elites.core.map_elites import Algorithm, Reach
from elites.runs.checkpoint import STATE, WEIGHTS
from elites.runs.config import Config
from elites.runs.directory import (
    RESOLVED,
    OutOfMemoryError,
    RunDirectory,
    RunError,
    TooLargeError,
    read_json,
)
from elites.runs.words import amount
from elites.tasks.task import Task
from elites.training import Batched


@dataclasses.dataclass(frozen=True)
class Job:
    """A configuration made real: what will be computed, and what its state looks like on disk."""

    task: Task
    algorithm: Algorithm
    batched: Batched
    total: int
    """Iterations."""
    shapes: Any
    """The state, as shapes and types."""
    names: tuple[str, ...]
    """Of its arrays, in order."""

    def facts(self) -> dict[str, Any]:
        """What the configuration came to, for readers of the run who have not got the task."""
        algorithm, task = self.algorithm, self.task
        learner = algorithm.learner
        return {
            "task": task.name,
            "algorithm": algorithm.name,
            "iterations": self.total,
            "initial_evaluations": algorithm.initial_evaluations,
            "evaluations_per_iteration": algorithm.evaluations_per_iteration,
            "evaluation_shape": algorithm.evaluation_shape,
            "observation_size": task.observation_size,
            "action_size": task.action_size,
            "episode_length": task.episode_length,
            "deterministic": task.deterministic,
            "descriptor": task.descriptor_text,
            "descriptor_low": task.descriptor_low,
            "descriptor_high": task.descriptor_high,
            "origins": algorithm.origins,
            "offspring": dict(algorithm.offspring),
            "policy_layers": algorithm.policy.sizes,
            "policy_parameters": algorithm.policy.size,
            "actor_layers": learner.actor.sizes if learner else None,
            "actor_conditioned": bool(learner and learner.actor_conditioned),
            "lengthscale": learner.lengthscale if learner else None,
            "state_bytes": self.state_size,
        }

    @property
    def state_size(self) -> int:
        return training.size_in_bytes(self.shapes)

    @property
    def expected(self) -> dict[str, tuple[tuple[int, ...], str]]:
        leaves = jax.tree.leaves(self.shapes)
        return {
            name: (tuple(leaf.shape), leaf.dtype.name)
            for name, leaf in zip(self.names, leaves, strict=True)
        }

    def arrays(self, state) -> dict[str, np.ndarray]:
        """A state as named arrays on the host: copies, for its buffers are used again."""
        return dict(zip(self.names, map(np.array, jax.tree.leaves(state)), strict=True))

    def parts(self, arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """What one deploys, apart from what only training needs."""
        weights = {name: array for name, array in arrays.items() if is_weight(name)}
        rest = {name: array for name, array in arrays.items() if not is_weight(name)}
        return {WEIGHTS: weights, STATE: rest}

    def tree(self, arrays: Mapping[str, np.ndarray]):
        """The state of named arrays."""
        return jax.tree.unflatten(
            jax.tree.structure(self.shapes), [arrays[name] for name in self.names]
        )

    def reach(self, state, keys) -> Reach:
        actors = self.algorithm.actor(state)
        reach = self.batched.reach(state.archive, actors, training.reach_keys(keys))
        return jax.tree.map(np.asarray, reach)


def is_weight(name: str) -> bool:
    """Whether an array of the state is part of what one deploys: the archive, the actors."""
    return name.startswith("archive.") or (name.startswith("learners.") and name.endswith(".actor"))


def build(config: Config, run: RunDirectory) -> Job:
    """What a configuration asks for, on whatever device JAX has."""
    task = tasks.make(config.task)
    algorithm = training.build(task, config.algorithm, **vars(config.hp))
    total = training.iterations_for(algorithm, config.evaluations)
    batched = training.Batched(algorithm, config.seeds, run.kernels)
    shapes = batched.shapes(training.seed_keys(config.seed_numbers))
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(shapes)]
    names = tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path in paths)
    return Job(task, algorithm, batched, total, shapes, names)


def prepare(config: Config, run: RunDirectory) -> Job:
    """The same for training: on the device asked for, if that has room for it."""
    choose_device(config.device)
    job = build(config, run)
    task, lanes = job.task, job.algorithm.evaluation_shape
    # What a rollout records, twice: as it is recorded, and as it is stored.
    width = 2 * task.observation_size + task.action_size + 3 * task.descriptor_size + 5
    recorded = 2 * 4 * width * task.episode_length * lanes * config.seeds
    refuse_too_much(job.state_size + recorded, config)
    return job


def refuse_changed_task(run: RunDirectory, job: Job, but: Collection[str]) -> None:
    """The file of one's own task may have changed since the run began; `but` these may differ."""
    path = run / RESOLVED
    if not path.exists():
        return
    before, now = read_json(path), json.loads(json.dumps(job.facts()))
    if not isinstance(before, dict):
        raise RunError(f"{path}: damaged: not a table of facts")
    differing = [
        f"{name} was {before[name]}, is {value}"
        for name, value in now.items()
        if name not in but and before.get(name, value) != value
    ]
    if differing:
        raise ValueError(
            f"{run.path} was begun with another task or version: {'; '.join(differing)}"
        )


# ------------------------------------------------------------------------------- device and memory


def choose_device(wanted: str) -> None:
    """Make JAX compute where the user wants; refuse what is not there."""
    if wanted == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif wanted == "gpu" and _backend() != "gpu":
        raise ValueError(
            f"--device gpu was asked for, but JAX sees none and would compute on {_backend()}. "
            "Install CUDA support with pip install 'elites[gpu]', unset JAX_PLATFORMS, or use "
            "--device cpu"
        )


def _backend() -> str:
    try:
        return jax.default_backend()
    except RuntimeError as error:
        raise ValueError(f"JAX finds no device to compute on: {error}") from None


def available_memory() -> int | None:
    """Bytes that the device can still give, None if it does not tell."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        limits = [*_host_memory(), *_container_memory()]
        return min(limits, default=None)
    statistics = device.memory_stats() or {}
    if "bytes_limit" not in statistics:
        return None
    return statistics["bytes_limit"] - statistics.get("bytes_in_use", 0)


def _host_memory() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield 1024 * int(line.split()[1])


def _container_memory() -> Iterator[int]:
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                used -= int(line.split()[1])  # a cache of files that makes room when asked
        yield max(limit - used, 0)


_LOWER = "--seeds, --hp.replay-size, --hp.batch-size or --hp.cells"


def refuse_too_much(needed: int, config: Config) -> None:
    """Refuse what cannot fit, and say what to lower."""
    available = available_memory()
    needed //= training.devices_for(config.seeds)
    if available is not None and needed > available:
        raise TooLargeError(
            f"this run needs about {amount(needed)} on {jax.local_devices()[0].platform}, which "
            f"has {amount(available)} free. Lower {_LOWER}"
        )


@contextlib.contextmanager
def memory_errors_explained() -> Iterator[None]:
    """JAX's own words for it are many and say nothing of the options."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemoryError(
            f"out of memory on {jax.default_backend()}. Lower {_LOWER}; what was saved is intact"
        ) from error


def warn(text: str) -> None:
    print(f"elites: warning: {text}", file=sys.stderr, flush=True)
