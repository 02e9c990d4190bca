"""Build the algorithm of a configuration, on a device with enough memory.

Everything that can be rejected is rejected here, before anything is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from elites import tasks, training
from elites.core import catalogue, usage
from elites.core.algorithm import Algorithm
from elites.core.reevaluation import Reevaluation
from elites.runs import distilling, environment, starting
from elites.runs.checkpoint import STATE, WEIGHTS
from elites.runs.config import Config
from elites.runs.directory import (
    OutOfMemoryError,
    RunDirectory,
    TooLargeError,
)
from elites.tasks import checking
from elites.tasks.task import Task
from elites.training import Batched
from elites.words import amount, plain


@dataclasses.dataclass(frozen=True)
class Job:
    """The algorithm that a configuration describes, ready to train."""

    task: Task
    algorithm: Algorithm
    batched: Batched
    total: int
    """Number of iterations of the whole run."""
    shapes: Any
    """Training state in which shapes and types take the place of arrays."""
    names: tuple[str, ...]
    """Names of the training state's arrays on disk, in the order of the leaves of its pytree."""
    start_from: str = ""
    """Directory of the run whose archive this one starts from. Empty if there is none."""

    def facts(self) -> dict[str, Any]:
        """Return the facts about the run, the entries of `facts.json`, keyed by name.

        With these facts a run can be shown without loading its task. Texts are made plain, so that
        any reader can show them.
        """
        algorithm, task = self.algorithm, self.task
        learner = algorithm.main_td3
        return {
            "task": plain(task.name),
            "algorithm": plain(algorithm.name),
            "iterations": self.total,
            "initial_evaluations": algorithm.initial_evaluations,
            "evaluations_per_iteration": algorithm.evaluations_per_iteration,
            "evaluation_shape": algorithm.padded_batch,
            "observation_size": task.observation_size,
            "action_size": task.action_size,
            "episode_length": task.episode_length,
            "episode_descriptor": task.episode_descriptor,
            "deterministic": task.deterministic,
            "repeatable": task.repeatable,
            "descriptor": plain(task.descriptor_text),
            "descriptor_names": tuple(plain(axis.name) for axis in task.descriptor_axes),
            "descriptor_units": tuple(plain(axis.unit) for axis in task.descriptor_axes),
            "descriptor_low": task.descriptor_low,
            "descriptor_high": task.descriptor_high,
            "descriptor_weights": algorithm.problem.weights,
            "origins": tuple(map(plain, algorithm.origins)),
            "offspring": dict(algorithm.offspring),
            "qd_offset": algorithm.qd_offset,
            "evaluations_per_policy": algorithm.repeats,
            "policy_layers": algorithm.policy.sizes,
            "activation": algorithm.policy.activation,
            "policy_parameters": algorithm.policy.size,
            "actor_layers": learner.actor.sizes if learner else None,
            "actor_conditioned": algorithm.conditioned,
            "lengthscale": learner.lengthscale if learner else None,
            "state_bytes": self.state_size,
            **({"start_from": plain(self.start_from)} if self.start_from else {}),
        }

    @property
    def state_size(self) -> int:
        """Size of the training state in bytes."""
        return training.size_in_bytes(self.shapes)

    @property
    def expected_arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each array of the training state, keyed by name."""
        return shapes_by_name(self.shapes)

    def arrays(self, state) -> dict[str, np.ndarray]:
        """Return the arrays of a training state as NumPy arrays, keyed by name.

        They are copies, because training reuses the memory of the state.
        """
        return dict(zip(self.names, map(np.array, jax.tree.leaves(state)), strict=True))

    def by_file(self, arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
        """Return arrays grouped by file name.

        Arrays of the archive and the actors belong to weights.npz, all others to state.npz.
        """
        weights = {name: array for name, array in arrays.items() if is_weight(name)}
        rest = {name: array for name, array in arrays.items() if not is_weight(name)}
        return {WEIGHTS: weights, STATE: rest}

    def state_of(self, arrays: Mapping[str, np.ndarray | None]):
        """Return the training state that consists of these arrays, which are keyed by name.

        Arrays that the caller does not need may be None.
        """
        return jax.tree.unflatten(
            jax.tree.structure(self.shapes), [arrays[name] for name in self.names]
        )

    def reevaluate(self, state, keys) -> Reevaluation:
        """Evaluate the archive and the actor of a training state again and return the results.

        `keys` are the random keys of the seeds.
        """
        actors, keys = self.algorithm.actor(state), training.reevaluation_keys(keys)
        return jax.tree.map(np.asarray, self.batched.reevaluate(state.archive, actors, keys))


def is_weight(name: str) -> bool:
    """Return whether an array of the training state is saved in weights.npz, for deployment.

    These are the arrays of the archive and of the actors.
    """
    return name.startswith("archive.") or (name.startswith("learners.") and name.endswith(".actor"))


def build(config: Config, run: RunDirectory, devices: int | None = None) -> Job:
    """Return the job of a configuration, on the device that JAX uses already.

    `run` is the directory of the run, in which GPU kernels are kept. `devices` is the number of
    devices to spread the seeds over, if there are so many.
    """
    task = tasks.make(config.task)
    if config.algorithm == catalogue.DISTIL:
        algorithm = distilling.build(task, config, run)
    else:
        algorithm = training.build(task, config.algorithm, hp=config.hp)
        if config.start_from:
            algorithm = starting.extended(algorithm, config, run)
    return assemble(task, algorithm, config, run, devices)


def assemble(
    task: Task, algorithm: Algorithm, config: Config, run: RunDirectory, devices: int | None = None
) -> Job:
    """Return the job for a task and an algorithm that have already been built.

    See `build` for the arguments.
    """
    total = training.iterations_for(algorithm, config.evaluations)
    batched = training.Batched(algorithm, config.seeds, run.kernels, devices=devices)
    keys = jax.eval_shape(lambda: training.seed_keys(config.seed_numbers))
    shapes = batched.shapes(keys)
    names = tuple(shapes_by_name(shapes))
    return Job(task, algorithm, batched, total, shapes, names, config.start_from)


def shapes_by_name(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and type of each array of a training state, keyed by the array's name.

    `tree` is a training state, or one with shapes in place of arrays.
    """
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): (tuple(leaf.shape), leaf.dtype.name)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def prepare(config: Config, run: RunDirectory) -> Job:
    """Choose the device that a configuration requests, and return the job to train on it.

    Raises a ValueError if the device is missing, and a TooLargeError if it has too little memory.
    """
    choose_device(config.device)
    checking.check_own(tasks.make(config.task))
    job = build(config, run, environment.seed_devices(run, config.seeds))
    recorded = recorded_size(job.task, job.algorithm, config.seeds)
    refuse_too_much(job.state_size + recorded, job.batched.devices, config)
    return job


def recorded_size(task: Task, algorithm: Algorithm, seeds: int) -> int:
    """Return the bytes of the transitions that the rollouts of an iteration record."""
    if not algorithm.needs_transitions:  # then nobody reads them, and none are recorded
        return 0
    robots = max(algorithm.padded_batch, *(each.evaluations for each in algorithm.rounds))
    # A rollout's transitions exist twice: as they are recorded, and as they are stored.
    width = 2 * task.observation_size + task.action_size + 3 * task.descriptor_size + 5
    return 2 * 4 * width * task.episode_length * robots * seeds


# ------------------------------------------------------------------------------- device and memory


def choose_device(wanted: str) -> None:
    """Make JAX use a device: "auto", "cpu" or "gpu". Raises a ValueError if it is missing."""
    if wanted == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif wanted == "gpu" and _backend() != "gpu":
        raise ValueError(
            f"--device gpu was asked for, but JAX sees none and would compute on {_backend()}. "
            "Install CUDA support with pip install 'elites[gpu]', unset JAX_PLATFORMS, or use "
            "--device cpu"
        )


def _backend() -> str:
    """Return the name of JAX's default backend. Raises a ValueError if JAX finds no device."""
    try:
        return jax.default_backend()
    except RuntimeError as error:
        raise ValueError(f"JAX finds no device to compute on: {error}") from None


def available_memory() -> int | None:
    """Return the free memory of the device in bytes, or None if it is unknown."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        limits = [*_host_memory(), *_container_memory()]
        return min(limits, default=None)
    statistics = device.memory_stats() or {}
    if "bytes_limit" not in statistics:
        return None
    return statistics["bytes_limit"] - statistics.get("bytes_in_use", 0)


def _host_memory() -> Iterator[int]:
    """Yield the available memory of the machine in bytes. Yields nothing if it is unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield 1024 * int(line.split()[1])


def _container_memory() -> Iterator[int]:
    """Yield one number, the free memory of the container in bytes, or nothing without a limit."""
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                used -= int(line.split()[1])  # cached files, which the system drops on demand
        yield max(limit - used, 0)


_SIZES = ("replay_size", "pbt_replay_size", "pbt_population", "batch_size", "es_samples", "cells")
"""Hyperparameters that decide how much memory a run needs."""


def _to_lower(read: Collection[str]) -> str:
    """Return the options to lower in a run that needs too much memory, if it reads `read`."""
    *options, last = (f"--hp.{name.replace('_', '-')}" for name in _SIZES if name in read)
    return f"{', '.join(['--seeds', *options])} or {last}"


_LOWER = _to_lower(("replay_size", "batch_size", "cells"))  # of most algorithms


def refuse_too_much(needed: int, devices: int, config: Config) -> None:
    """Raise a TooLargeError if a run that needs `needed` bytes does not fit in memory.

    GPUs each have their own memory for their share of the seeds. The devices of a CPU share one.
    The message names the options to lower.
    """
    available = available_memory()
    if jax.default_backend() != "cpu":
        needed //= devices
    if available is not None and needed > available:
        read = usage.READ.get(config.algorithm)
        lower = _LOWER if read is None else _to_lower(read)
        raise TooLargeError(
            f"this run needs about {amount(needed)} on {jax.local_devices()[0].platform}, which "
            f"has {amount(available)} free. Lower {lower}"
        )


@contextlib.contextmanager
def memory_errors_explained() -> Iterator[None]:
    """Turn out-of-memory errors inside the `with` block into an OutOfMemoryError.

    Its message names the options to lower.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemoryError(
            f"out of memory on {jax.default_backend()}. Lower {_LOWER}; what was saved is intact"
        ) from error
