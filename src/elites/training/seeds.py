"""Run an algorithm over a batch of seeds, with its stages compiled as `stages` says.

Every array of a state gets the seeds as its first axis. Because the stages are separate, the
rollouts that fill the archive and those that re-evaluate it run in the same executable.
Re-evaluating an elite therefore gives the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from elites.core import averaging, reevaluation
from elites.core.algorithm import Algorithm, Metrics, Round, S
from elites.core.archive import Archive
from elites.core.evaluation import rows_outside
from elites.core.reevaluation import Reevaluation
from elites.core.types import Array, Evaluation, Request, Results
from elites.training import linear_algebra
from elites.training.devices import devices_for
from elites.training.keys import iteration_keys
from elites.training.memory import keep_freed_memory
from elites.training.outside import EvaluateOutside
from elites.training.sizes import compiled_size, shapes_of, size_in_bytes
from elites.training.stages import (
    STAGES,
    CompilerOptions,
    concurrent_options,
    is_one_program,
    separated,
)

P = ParamSpec("P")
T = TypeVar("T")

SEEDS = "seeds"
"""Name of the batch axis, by which a stage can decide for all seeds of a device together."""


class Batched(Generic[S]):
    """An algorithm that runs on a batch of seeds at once.

    `compiled` is the same `Algorithm` with stages that work on all seeds at once: every array that
    a stage takes or returns has the seeds as its first axis. The seeds are spread over `devices`
    local devices, by default over as many as divide them evenly. On a CPU, only one device is used
    for plain vectors, because several cost more than they save, and where linear algebra could
    block them, see `linear_algebra`.

    On a GPU, the compiler times several kernels for an operation and takes the fastest. The choice
    differs between processes, and so do the last bits of a result. `kernels` is a directory that
    stores the choices. Processes that share the directory compute the same bits.
    """

    def __init__(
        self,
        algorithm: Algorithm[S],
        seeds: int,
        kernels: Path | None = None,
        compiler_options: CompilerOptions | None = None,
        devices: int | None = None,
    ):
        self.algorithm, self.seeds = algorithm, seeds
        self.devices = devices_for(seeds, devices)
        if self.devices > 1 and _needs_one_device(algorithm):
            self.devices = 1
        self._sharding = _over(self.devices)
        self._options = dict(compiler_options or {})
        self._kernels = kernels if jax.default_backend() == "gpu" else None
        if self._kernels is not None:
            self._options["xla_gpu_per_fusion_autotune_cache_dir"] = str(self._kernels)
        self.compiled: Algorithm[S] = dataclasses.replace(
            algorithm,
            init=self._stage("init", algorithm.init),
            first=self._stage("first", algorithm.first),
            train=self._stage("train", algorithm.train),
            evaluate=self._evaluate_stage(),
            rounds=tuple(
                Round(self._stage("ask", ask), self._stage("tell", tell), evaluations)
                for ask, tell, evaluations in algorithm.rounds
            ),
        )
        self._whole: Callable[[S, Array], tuple[S, Metrics]] | None = None
        if is_one_program(algorithm):
            keep_freed_memory()
            self._whole = self._stage("step", separated(algorithm).step)
        self._request_elites = self.over_seeds(
            functools.partial(reevaluation.request_elites, algorithm)
        )
        self._request_actor = self.over_seeds(
            functools.partial(reevaluation.request_actor, algorithm)
        )
        self._score = self.over_seeds(
            functools.partial(reevaluation.score, algorithm.division, offset=algorithm.qd_offset)
        )
        self._average = self.over_seeds(
            functools.partial(
                averaging.averaged, times=algorithm.repeats, average=algorithm.hp.average
            )
        )
        self._request_at = self.over_seeds(functools.partial(reevaluation.request_at, algorithm))
        self.constant_axes: tuple[int, ...] = ()
        """Axes of the descriptor that are constant over the initial policies, after `start`."""

    def _stage(self, name: str, function: Callable[P, T]) -> Callable[P, T]:
        return self.over_seeds(function, *STAGES[name])

    def _evaluate_stage(self) -> Callable[[Request], Evaluation]:
        """Return the compiled stage `evaluate`, or one that runs episodes outside of JAX."""
        algorithm, problem = self.algorithm, self.algorithm.problem
        if problem.outside is None:
            return self._stage("evaluate", algorithm.evaluate)
        rows = functools.partial(rows_outside, problem, algorithm.main_td3)
        return EvaluateOutside(algorithm, self._stage("evaluate", rows))

    def over_seeds(
        self, function: Callable[P, T], donate: bool = False, concurrent: bool = False
    ) -> Callable[P, T]:
        """Vectorise a function of one seed over all seeds, and return it compiled on first use.

        All arguments and results of the returned function have the seeds as first axis. `donate`
        and `concurrent` are explained in `Stage`.
        """
        mapped = jax.vmap(function, axis_name=SEEDS)
        if self._sharding is not None:
            mesh, spec = self._sharding.mesh, self._sharding.spec
            mapped = jax.shard_map(
                mapped, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
            )
        options = self._options | (concurrent_options() if concurrent else {})
        return jax.jit(
            mapped, donate_argnums=(0,) if donate else (), compiler_options=options or None
        )

    def start(self, keys: Array, archive: Archive | None = None) -> S:
        """Evaluate the initial policies of all seeds. Returns the state before the first iteration.

        `keys` [seeds] has one random key per seed. The seeds start from `archive`, whose arrays
        have the seeds as first axis, or from empty archives if it is None.
        """
        compiled = dataclasses.replace(self.compiled, evaluate=self._evaluate_initial)
        if archive is not None:
            # Copied, because the stages reuse the buffers of a state.
            copy = jax.tree.map(jnp.copy, archive)
            return compiled.start(keys, copy.centroids, copy)
        centroids = self.algorithm.centroids()
        return compiled.start(keys, jnp.broadcast_to(centroids, (self.seeds, *centroids.shape)))

    def _evaluate_initial(self, request: Request) -> Evaluation:
        """Evaluate initial policies, and note constant descriptor axes if the policies differ."""
        evaluation = self.compiled.evaluate(request)
        rows = slice(self.algorithm.initial_evaluations)
        valid = np.asarray(evaluation.valid[:, rows])
        descriptors = np.asarray(evaluation.descriptors[:, rows])[valid]
        constant = np.flatnonzero((descriptors == descriptors[:1]).all(axis=0))
        if len(descriptors) and len(constant):
            policies = request.policies[:, rows][valid]
            if (policies != policies[:1]).any():
                self.constant_axes = tuple(constant.tolist())
        return evaluation

    def step(self, state: S, keys: Array) -> tuple[S, Metrics]:
        """Run one iteration of all seeds and return the next state and the metrics.

        `keys` [seeds] come from `iteration_keys`. The input state is donated: do not use it
        afterwards.
        """
        return (self._whole or self.compiled.step)(state, keys)

    def placed(self, state: T) -> T:
        """Return a state that was read from a file, with its arrays on the devices of the seeds."""
        if self._sharding is None:
            return jax.tree.map(jnp.asarray, state)
        return jax.device_put(state, self._sharding)

    def shapes(self, keys: Array) -> S:
        """Return a state of all seeds with shapes and types in place of arrays.

        No array is computed.
        """
        size = (self.seeds, self.algorithm.cells, self.algorithm.problem.descriptor_size)
        centroids = jax.ShapeDtypeStruct(size, jnp.float32)
        return shapes_of(jax.eval_shape(self.compiled.init, keys, centroids))

    def reevaluate(self, archive: Archive, actors: Array | None, keys: Array) -> Reevaluation:
        """Evaluate the archives and actors of all seeds again and return their scores.

        All arrays have the seeds as first axis. The requests have the same shape as in training, so
        that the same compiled program runs. If training averages several episodes of a policy, so
        does this.
        """
        self._make_kernel_directory()
        elites: list[Results] = []
        actor: list[Results] = []
        for repeat in range(self.algorithm.repeats):
            repeat_keys = iteration_keys(keys, repeat) if repeat else keys
            once = self._evaluate_again(archive, actors, repeat_keys)
            elites.append(once[0])
            actor += [once[1]] if once[1] is not None else []

        def joined(parts: list[Results]) -> Results:
            return self._average(jax.tree.map(lambda *a: jnp.concatenate(a, axis=1), *parts))

        return self._score(archive, joined(elites), joined(actor) if actor else None)

    def _evaluate_again(
        self, archive: Archive, actors: Array | None, keys: Array
    ) -> tuple[Results, Results | None]:
        """Run one episode of every elite, and of the actor at its descriptor.

        Returns the results [seeds, cells] of both, or None in place of the actor's if there is no
        conditioned actor.
        """
        batch, cells = self.algorithm.batch, archive.fitness.shape[1]
        elites: list[Results] = []
        actor: list[Results] = []
        for start in range(0, cells, batch):
            chunk = jnp.minimum(jnp.arange(start, start + batch), cells - 1)
            chunk = jnp.broadcast_to(chunk, (self.seeds, batch))
            chunk_keys = iteration_keys(keys, start)  # each chunk has its own keys
            request = self._request_elites(archive, actors, chunk, chunk_keys)
            evaluation = self.compiled.evaluate(request)
            elites.append(_results(evaluation, slice(batch)))
            if not self.algorithm.conditioned or actors is None:
                continue
            if self.algorithm.actor_rollouts == batch:  # they were part of the request
                actor.append(_results(evaluation, slice(batch, 2 * batch)))
            else:
                request = self._request_actor(archive, actors, chunk, chunk_keys)
                actor.append(_results(self.compiled.evaluate(request), slice(batch)))

        return _joined(elites, cells), _joined(actor, cells) if actor else None

    def evaluate(self, policies: Array, actors: Array | None, keys: Array) -> Evaluation:
        """Run one episode of each of the policies [seeds, batch, P] and return the results.

        The results are [seeds, rows, ...]: first the policies, then the actor rollouts that a
        request of training includes. The compiled program is the one that fills the archive.
        """
        seeds, batch, problem = self.seeds, self.algorithm.batch, self.algorithm.problem
        return self.compiled.evaluate(
            Request(
                policies=policies,
                origins=jnp.zeros((seeds, batch), jnp.int32),
                targets=jnp.zeros((seeds, batch, problem.descriptor_size)),
                actor=actors,
                actor_targets=jnp.zeros(
                    (seeds, self.algorithm.actor_rollouts, problem.descriptor_size)
                ),
                key=keys,
            )
        )

    def evaluation_shapes(self, request: Request) -> Evaluation:
        """Return the results of a request with shapes and types in place of arrays.

        Nothing is computed or compiled. The arrays of the request may be shapes as well.
        """
        evaluate = self.compiled.evaluate
        if isinstance(evaluate, EvaluateOutside):
            return evaluate.shapes(jax.eval_shape(evaluate.rows, request))
        return jax.eval_shape(evaluate, request)

    def roll_out_actor(self, actors: Array, descriptors: Array, keys: Array) -> Results:
        """Roll out the actor of each seed at `descriptors` [seeds, n, D] and return the results.

        `actors` [seeds, P] and `keys` [seeds] belong to the seeds.
        """
        self._make_kernel_directory()
        batch, count = self.algorithm.batch, descriptors.shape[1]
        parts: list[Results] = []
        for start in range(0, count, batch):
            rows = jnp.minimum(jnp.arange(start, start + batch), count - 1)
            request = self._request_at(actors, descriptors[:, rows], iteration_keys(keys, start))
            parts.append(_results(self.compiled.evaluate(request), slice(batch)))
        return _joined(parts, count)

    def compile(self, state: S, keys: Array) -> int:
        """Compile the stages of an iteration and return the memory, in bytes, that it needs.

        This is the memory on all devices together. `state` is a state or its shapes. If the
        compiler does not report its memory, the result is only the size of the state.
        """
        self._make_kernel_directory()
        held, sizes = size_in_bytes(state), []
        state = shapes_of(state, self._sharding)

        def shapes_after(stage: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            lowered = cast(jax.stages.Wrapped, stage).lower(*args, **kwargs)
            sizes.append(self.devices * compiled_size(lowered.compile()))
            return shapes_of(cast(T, lowered.out_info), self._sharding)

        def evaluated(request: Request) -> Evaluation:
            evaluate = self.compiled.evaluate
            if not isinstance(evaluate, EvaluateOutside):
                return shapes_after(evaluate, request)
            evaluation = evaluate.shapes(shapes_after(evaluate.rows, request))
            sizes[-1] += size_in_bytes(evaluation)  # beside the policies
            return evaluation

        if self._whole is not None:
            shapes_after(self._whole, state, keys)
            return max(sizes)
        state, _ = shapes_after(self.compiled.train, state, keys)
        for ask, tell, _ in self.compiled.rounds:
            request = shapes_after(ask, state, keys)
            evaluation = evaluated(request.to_evaluate())
            sizes.append(sizes[-1] + held)  # the state stays in memory during rollouts
            state, _ = shapes_after(tell, state, request, evaluation)
        return max(sizes)

    def _make_kernel_directory(self) -> None:
        if self._kernels is not None:
            self._kernels.mkdir(exist_ok=True)


def _needs_one_device(algorithm: Algorithm) -> bool:
    """Return whether all seeds of an algorithm must be one batch on this kind of device."""
    if jax.default_backend() != "cpu":
        return False
    return is_one_program(algorithm) or linear_algebra.may_block(algorithm)


def _over(devices: int) -> NamedSharding | None:
    """Return the sharding of arrays whose first axis is spread over devices, None if over one."""
    if devices == 1:
        return None
    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("seed",))
    return NamedSharding(mesh, PartitionSpec("seed"))


def _results(evaluation: Evaluation, rows: slice) -> Results:
    """Return the fitness, descriptors and validity of the episodes `rows` of an evaluation.

    The arrays of the evaluation and of the result are [seeds, episodes, ...].
    """
    return Results(
        evaluation.fitness[:, rows], evaluation.descriptors[:, rows], evaluation.valid[:, rows]
    )


def _joined(parts: list[Results], count: int) -> Results:
    """Return the results of several batches as one, without the padding after `count` episodes."""
    return jax.tree.map(lambda *a: jnp.concatenate(a, axis=1)[:, :count], *parts)
