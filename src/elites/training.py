"""Train from Python: one call, or your own loop.

    run = elites.train("ant_omni", "dcg_me", seeds=4, evaluations=100_000)
    run.actor(observation, descriptor)     # the distilled policy; descriptor in task units
    run.archive.nearest(descriptor)        # an elite to deploy

A level below, `elites.build(task, name)` gives `init(key)` and `step(state, key)`; `AskTell`
serves evaluations that happen elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from elites import tasks
from elites.core import algorithms, archive, catalogue, networks, td3
from elites.core.archive import Archive
from elites.core.hyperparameters import Hyperparameters
from elites.core.map_elites import (
    Algorithm,
    Metrics,
    Reach,
    Reached,
    run_parts,
    score_reach,
)
from elites.core.networks import MLP
from elites.core.problem import normalise
from elites.tasks.rollout import problem
from elites.tasks.task import Task

Array = jax.Array


def build(task: str | Task, name: str = "dcg_me", **hyperparameters) -> Algorithm:
    """An algorithm on a task: `init(key) -> state`, `step(state, key) -> (state, metrics)`."""
    catalogue.check(name)
    hp = Hyperparameters.of(hyperparameters)
    task = tasks.make(task) if isinstance(task, str) else task
    return algorithms.make(name, problem(task), hp)


# ----------------------------------------------------------------------------------- many seeds


class Batched:
    """An algorithm over a batch of seeds: every array of a state has the seeds as first axis.

    Its parts are compiled one by one, so that all rollouts, those of training and those of a
    re-evaluation, are done by the same executable: an elite evaluated again gives the same bits.
    Seeds are spread over all local devices when their number divides.

    On a GPU the compiler times several kernels for an operation and takes the fastest of the day.
    Which one that is differs between processes, and the last bits of a result with it. `kernels` is
    a directory that remembers the choices: with the same one, processes come to the same bits.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        seeds: int,
        kernels: Path | None = None,
        compiler_options: dict[str, Any] | None = None,
    ):
        self.algorithm, self.seeds = algorithm, seeds
        self._spread = devices_for(seeds)
        self._options = dict(compiler_options or {})
        self._kernels = kernels if jax.default_backend() == "gpu" else None
        if self._kernels is not None:
            self._options["xla_gpu_per_fusion_autotune_cache_dir"] = str(self._kernels)
        # The state a part is given is used up: the replay buffer is changed in place.
        self._starting = [
            self.over_seeds(part, donate=i > 0) for i, part in enumerate(algorithm.starting)
        ]
        self._stepping = [
            self.over_seeds(part, donate=True, side_by_side=part is algorithm.practise)
            for part in algorithm.stepping
        ]
        self._evaluate = self.over_seeds(algorithm.evaluate)
        self._ask = self.over_seeds(algorithm.reach.ask)
        self._lead = self.over_seeds(algorithm.reach.lead) if algorithm.reach.lead else None
        self._score = self.over_seeds(score_reach)

    def over_seeds(
        self, function: Callable, donate: bool = False, side_by_side: bool = False
    ) -> jax.stages.Wrapped:
        """A function of one seed, compiled for all of them.

        With `donate` its first argument is used up. With `side_by_side`, on a GPU, kernels that do
        not wait for each other run at the same time: it gains where they are small.
        """
        mapped = jax.vmap(function)
        if self._spread > 1:
            mesh = Mesh(np.array(jax.local_devices()), ("seed",))
            spec = PartitionSpec("seed")
            mapped = jax.shard_map(
                mapped, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
            )
        donated = (0,) if donate else ()
        options = self._options | (_side_by_side() if side_by_side else {})
        return jax.jit(mapped, donate_argnums=donated, compiler_options=options or None)

    def _make_room(self) -> None:
        if self._kernels is not None:
            self._kernels.mkdir(exist_ok=True)

    def init(self, keys: Array) -> Any:
        """The first state, of keys [seeds]."""
        centroids = self.algorithm.centroids()
        for_each_seed = jnp.broadcast_to(centroids, (self.seeds, *centroids.shape))
        return run_parts(tuple(self._starting), self._evaluate, keys, for_each_seed)

    def shapes(self, keys: Array) -> Any:
        """The shapes of a state. What is traced for them, `init` and `compile` need not again."""
        shape_of = functools.partial(functools.partial, jax.eval_shape)
        parts = tuple(map(shape_of, self._starting))
        # Not the centroids themselves: a run that is read back has them already.
        places = (self.seeds, self.algorithm.cells, self.algorithm.problem.descriptor_size)
        centroids = jax.ShapeDtypeStruct(places, jnp.float32)
        return _shapes(run_parts(parts, shape_of(self._evaluate), keys, centroids))

    def step(self, state: Any, keys: Array) -> tuple[Any, Metrics]:
        """The next state and metrics, of keys [seeds]. The state handed in is used up."""
        return run_parts(tuple(self._stepping), self._evaluate, state, keys)

    def reach(self, archive: Archive, actors: Array | None, keys: Array) -> Reach:
        """Archive and actor evaluated again, in batches of the shape of training."""
        self._make_room()
        revisit = self.algorithm.reach
        cells = archive.fitness.shape[1]
        owns, leds = [], []
        for start in range(0, cells, revisit.batch):
            index = np.minimum(np.arange(start, start + revisit.batch), cells - 1)
            wanted = self._ask(archive, actors, np.tile(index, (self.seeds, 1)))
            chunk_keys = iteration_keys(keys, start)
            own, led = self._evaluate(wanted, chunk_keys)
            if self._lead is not None:
                led = self._lead(actors, archive.descriptors[:, index], chunk_keys)
            owns.append(_reached(own))
            leds.append(_reached(led))

        def joined(parts):
            return jax.tree.map(lambda *a: jnp.concatenate(a, axis=1)[:, :cells], *parts)

        led = joined(leds) if revisit.conditioned else None
        return self._score(archive, joined(owns), led)

    def compile(self, state: Any, keys: Array) -> int:
        """Compile what an iteration calls; the bytes it needs, 0 where the device does not tell."""
        self._make_room()
        held = size_in_bytes(state)
        largest, arguments = 0, (state, keys)
        for i, part in enumerate(self._stepping):
            lowered = part.lower(*arguments)
            largest = max(largest, _compiled_size(lowered.compile()))
            if i < len(self._stepping) - 1:
                pause = _shapes(lowered.out_info)
                results = None
                if pause.wanted is not None:
                    rollouts = self._evaluate.lower(pause.wanted, pause.key)
                    largest = max(largest, held + _compiled_size(rollouts.compile()))
                    results = _shapes(rollouts.out_info)
                arguments = (pause.state, pause.memo, results)
        return largest


@functools.cache
def _side_by_side() -> dict[str, Any]:
    """What tells the compiler for GPUs to run kernels at the same time, if it can be told."""
    options = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if jax.default_backend() != "gpu":
        return {}
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # a compiler that does not know it
        return {}
    return options


def _reached(evaluation: Any) -> Reached:
    return Reached(evaluation.fitness, evaluation.descriptors, evaluation.valid)


def devices_for(seeds: int) -> int:
    """Devices that a batch of seeds is spread over: all that are here, if its number divides."""
    count = len(jax.local_devices())
    return count if seeds % count == 0 else 1


def size_in_bytes(tree: Any) -> int:
    """Of arrays, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)


def _compiled_size(compiled: Any) -> int:
    """Bytes that an executable holds while it runs; 0 where the back end does not tell."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    fields = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    total = sum(getattr(analysis, field, 0) for field in fields)
    return total - getattr(analysis, "alias_size_in_bytes", 0)


def iteration_keys(keys: Array, iteration: int) -> Array:
    """The keys [seeds] of an iteration: a function of the seed and the iteration alone."""
    return jax.vmap(lambda key: jax.random.fold_in(key, iteration))(keys)


def reach_keys(keys: Array) -> Array:
    """The keys [seeds] of a re-evaluation: those of an iteration that no training gets to."""
    return iteration_keys(keys, 2**31 - 1)


def seed_keys(seeds: Iterable[int]) -> Array:
    return jnp.stack([jax.random.key(seed) for seed in seeds])


# -------------------------------------------------------------------------------------- results


@dataclasses.dataclass(frozen=True, eq=False)
class Elite:
    """One policy of the archive; call it on an observation, or on rows of observations."""

    policy: np.ndarray = dataclasses.field(repr=False)  # [P]
    fitness: float
    descriptor: np.ndarray  # [D] in task units
    cell: int
    origin: str
    born: int
    network: MLP = dataclasses.field(repr=False)

    def __call__(self, observation) -> Array:
        layers = networks.unflatten(self.network, jnp.asarray(self.policy))
        return networks.apply(self.network, layers, jnp.asarray(observation, jnp.float32))


class Elites(Sequence[Elite]):
    """The archive of one seed: a sequence of its elites, without the empty cells."""

    def __init__(self, archive_: Archive, algorithm: Algorithm):
        self.arrays: Any = jax.tree.map(np.asarray, archive_)
        """The `Archive` as NumPy arrays: all cells; empty ones have fitness -inf."""
        self.algorithm = algorithm
        self.cells = np.flatnonzero(np.isfinite(self.arrays.fitness))

    def __len__(self) -> int:
        return len(self.cells)

    @overload
    def __getitem__(self, index: int) -> Elite: ...
    @overload
    def __getitem__(self, index: slice) -> list[Elite]: ...
    def __getitem__(self, index: int | slice) -> Elite | list[Elite]:
        if isinstance(index, slice):
            return [self._elite(int(cell)) for cell in self.cells[index]]
        return self._elite(int(self.cells[index]))

    def _elite(self, cell: int) -> Elite:
        a = self.arrays
        return Elite(
            policy=a.policies[cell],
            fitness=float(a.fitness[cell]),
            descriptor=a.descriptors[cell],
            cell=int(cell),
            origin=self.algorithm.origins[int(a.origin[cell])],
            born=int(a.born[cell]),
            network=self.algorithm.policy,
        )

    @property
    def fitness(self) -> np.ndarray:
        """[n] of the elites."""
        return self.arrays.fitness[self.cells]

    @property
    def descriptors(self) -> np.ndarray:
        """[n, D] reached by the elites, in task units."""
        return self.arrays.descriptors[self.cells]

    @property
    def policies(self) -> np.ndarray:
        """[n, P]"""
        return self.arrays.policies[self.cells]

    @property
    def coverage(self) -> float:
        return len(self.cells) / len(self.arrays.fitness)

    @property
    def qd_score(self) -> float:
        return float(self.fitness.sum())

    def nearest(self, descriptor) -> Elite:
        """The elite whose descriptor is nearest to the one asked for, in task units."""
        asked = np.asarray(_checked_descriptor(self.algorithm, descriptor))
        if asked.ndim != 1 or not np.isfinite(asked).all():
            raise ValueError(f"nearest takes one descriptor of finite numbers, got {descriptor!r}")
        self._refuse_empty()
        distance = np.sum((self.descriptors - asked) ** 2, axis=-1)
        return self[int(np.argmin(distance))]

    def _refuse_empty(self) -> None:
        if not len(self):
            raise ValueError("the archive is empty")

    def best(self) -> Elite:
        """The fittest elite."""
        self._refuse_empty()
        return self[int(np.argmax(self.fitness))]

    def __repr__(self) -> str:
        return f"<{len(self)} elites in {len(self.arrays.fitness)} cells>"


@dataclasses.dataclass(frozen=True)
class Actor:
    """The policy a learner trained, of an observation and, if conditioned, a descriptor."""

    parameters: np.ndarray
    algorithm: Algorithm = dataclasses.field(repr=False)

    @property
    def conditioned(self) -> bool:
        learner = self.algorithm.learner
        return bool(learner and learner.actor_conditioned)

    def __call__(self, observation, descriptor=None) -> Array:
        learner = self.algorithm.learner
        assert learner is not None
        observation = jnp.asarray(observation, jnp.float32)
        if observation.shape[-1:] != (self.algorithm.problem.observation_size,):
            raise ValueError(
                f"observation must have {self.algorithm.problem.observation_size} entries, got "
                f"shape {observation.shape}"
            )
        if not self.conditioned:
            if descriptor is not None:
                raise ValueError(
                    f"the actor of {self.algorithm.name} takes no descriptor: it is not conditioned"
                )
            asked = jnp.zeros((*observation.shape[:-1], 0))
        else:
            if descriptor is None:
                raise ValueError("the actor needs a descriptor, in task units")
            asked = normalise(
                self.algorithm.problem, _checked_descriptor(self.algorithm, descriptor)
            )
            shape = (*observation.shape[:-1], asked.shape[-1])
            asked = jnp.broadcast_to(asked, shape)
        return td3.act(learner, jnp.asarray(self.parameters), observation, asked)


def _checked_descriptor(algorithm: Algorithm, descriptor) -> Array:
    descriptor = jnp.asarray(descriptor, jnp.float32)
    size = algorithm.problem.descriptor_size
    if descriptor.shape[-1:] != (size,):
        raise ValueError(f"a descriptor has {size} entries, got shape {tuple(descriptor.shape)}")
    return descriptor


@dataclasses.dataclass(frozen=True)
class SeedResult:
    archive: Elites
    actor: Actor | None
    metrics: dict[str, np.ndarray]  # name -> [iterations]


@dataclasses.dataclass(frozen=True)
class Run:
    """What training came to. `archive` and `actor` are those of the seed with the best QD-score."""

    algorithm: Algorithm
    seeds: tuple[int, ...]
    archives: Archive = dataclasses.field(repr=False)
    """Of all seeds: every array has them as first axis."""
    actors: Array | None = dataclasses.field(repr=False)
    """[seeds, P], None where the algorithm trains no actor"""
    metrics: dict[str, np.ndarray] = dataclasses.field(repr=False)
    """name -> [iterations, seeds]"""
    state: Any = dataclasses.field(default=None, repr=False)
    """The final state, seeds first; None for a run that was loaded for its results alone."""
    kernels: Path | None = dataclasses.field(default=None, repr=False)
    """Where a saved run remembers how it was compiled, see `Batched`."""

    @functools.cached_property
    def best(self) -> int:
        """Index of the seed with the best QD-score."""
        scores = jax.vmap(lambda a: archive.summary(a).qd_score)(self.archives)
        return int(np.argmax(np.asarray(scores)))

    @functools.cached_property
    def _best_result(self) -> SeedResult:
        return self.seed(self.best)

    @property
    def archive(self) -> Elites:
        return self._best_result.archive

    @property
    def actor(self) -> Actor | None:
        return self._best_result.actor

    def seed(self, index: int) -> SeedResult:
        """Archive, actor and metrics of one seed, by its place in `seeds`."""
        if not -len(self.seeds) <= index < len(self.seeds):
            raise ValueError(f"seed {index} is not one of the {len(self.seeds)} of this run")
        cells = jax.tree.map(lambda a: a[index], self.archives)
        actors = self.actors
        return SeedResult(
            archive=Elites(cells, self.algorithm),
            actor=None if actors is None else Actor(np.asarray(actors[index]), self.algorithm),
            metrics={name: values[:, index] for name, values in self.metrics.items()},
        )

    @functools.cached_property
    def _reach(self) -> Callable[..., Reach]:
        return Batched(self.algorithm, len(self.seeds), self.kernels).reach

    def reach(self) -> Reach:
        """Archive and actor re-evaluated now, seeds first: the paper's two further metrics."""
        keys = reach_keys(seed_keys(self.seeds))
        return jax.tree.map(np.asarray, self._reach(self.archives, self.actors, keys))


# -------------------------------------------------------------------------------------- training


def train(
    task: str | Task,
    algorithm: str = "dcg_me",
    *,
    seeds: int | Sequence[int] = 1,
    evaluations: int = 1_000_000,
    progress: Callable[[int, dict[str, np.ndarray]], None] | None = None,
    **hyperparameters,
) -> Run:
    """Train until the first iteration that reaches the budget of evaluations.

    `seeds` is their number, or the seeds themselves. `progress(iteration, metrics)` is called after
    every iteration with values [seeds]. Everything else is a field of `Hyperparameters`; the
    defaults are the paper's.
    """
    chosen = seeds if isinstance(seeds, Sequence) else range(_whole("seeds", seeds))
    built = build(task, algorithm, **hyperparameters)
    return train_algorithm(built, seeds=chosen, evaluations=evaluations, progress=progress)


def train_algorithm(
    algorithm: Algorithm,
    *,
    seeds: Sequence[int],
    evaluations: int,
    progress: Callable[[int, dict[str, np.ndarray]], None] | None = None,
) -> Run:
    """`train` for an algorithm that is built already, of the registry or your own."""
    seeds = [_whole("seeds", seed) for seed in seeds]
    if not seeds:
        raise ValueError("seeds must be at least 1")
    count = iterations_for(algorithm, evaluations)
    batched = Batched(algorithm, len(seeds))
    keys = seed_keys(seeds)
    state = batched.init(iteration_keys(keys, 0))
    history: list[dict[str, np.ndarray]] = []
    for i in range(1, count + 1):
        state, metrics = batched.step(state, iteration_keys(keys, i))
        history.append(named(metrics))
        if progress is not None:
            progress(i, history[-1])
    table = {name: np.stack([row[name] for row in history]) for name in history[0]}
    return Run(algorithm, tuple(seeds), state.archive, algorithm.actor(state), table, state)


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None


def iterations_for(built: Algorithm, evaluations: int) -> int:
    """Iterations until the budget is reached; the evaluations before the first count."""
    evaluations = _whole("evaluations", evaluations)
    if evaluations < built.initial_evaluations + built.evaluations_per_iteration:
        raise ValueError(
            f"evaluations must be at least {built.initial_evaluations}"
            f" + {built.evaluations_per_iteration}, the start and one iteration of {built.name}; "
            f"got {evaluations}"
        )
    return -(-(evaluations - built.initial_evaluations) // built.evaluations_per_iteration)


def named(metrics: Metrics) -> dict[str, np.ndarray]:
    """Metrics by name; those of a variation or a learner as `added.ga`, `critic_loss.quality`."""
    table = {}
    for name, value in metrics._asdict().items():
        if isinstance(value, dict):
            table |= {f"{name}.{part}": np.asarray(v) for part, v in value.items()}
        else:
            table[name] = np.asarray(value)
    return table


# ---------------------------------------------------------------------------------------- ask/tell


class AskTell:
    """An algorithm whose policies are evaluated elsewhere: another simulator, a real robot.

        search = AskTell(elites.build(task, "me"), seed=0)
        while ...:
            policies = search.ask()                    # [n, P]
            search.tell(fitness, descriptors)          # [n], [n, D] in task units

    For algorithms that learn from results alone (`me`, `me_es`); n may differ between calls.
    """

    def __init__(self, algorithm: Algorithm, seed: int = 0):
        if algorithm.outside is None:
            raise ValueError(
                f"{algorithm.name} learns from the transitions of its own rollouts and cannot be "
                "driven by ask and tell; me and me_es can"
            )
        self.algorithm = algorithm
        self._outside = algorithm.outside
        self._key = jax.random.key(seed)
        self._calls = 0
        self._pending: Any = None
        self._asked: int | None = None
        self._ask = [jax.jit(phase.ask) for phase in (self._outside.first, *self._outside.cycle)]
        self._tell = [jax.jit(phase.tell) for phase in (self._outside.first, *self._outside.cycle)]
        self.state = jax.jit(self._outside.blank)(
            jax.random.fold_in(self._key, 0), algorithm.centroids()
        )
        self.metrics: dict[str, np.ndarray] = {}
        """Of the last completed iteration."""

    @property
    def archive(self) -> Elites:
        return Elites(self.state.archive, self.algorithm)

    def _phase(self) -> int:
        cycle = len(self._outside.cycle)
        return 0 if self._calls == 0 else 1 + (self._calls - 1) % cycle

    def ask(self) -> np.ndarray:
        """Policies [n, P] to evaluate."""
        if self._asked is not None:
            raise ValueError("ask was called twice: tell the results of the first batch before")
        key = jax.random.fold_in(self._key, self._calls + 1)
        policies, self._pending = self._ask[self._phase()](self.state, key)
        self._asked = len(policies)
        return np.asarray(policies)

    def tell(self, fitness, descriptors, valid=None) -> None:
        """Results of the last `ask`, in its order; failed evaluations by NaN or `valid` False."""
        if self._asked is None:
            raise ValueError("tell was called before ask")
        n, problem_ = self._asked, self.algorithm.problem
        fitness = jnp.asarray(fitness, jnp.float32)
        descriptors = jnp.asarray(descriptors, jnp.float32)
        valid = jnp.ones(n, bool) if valid is None else jnp.asarray(valid, bool)
        expected = {"fitness": (n,), "descriptors": (n, problem_.descriptor_size), "valid": (n,)}
        given = {"fitness": fitness, "descriptors": descriptors, "valid": valid}
        for name, shape in expected.items():
            if given[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {given[name].shape}")
        low, high = (
            jnp.array(b)[None] for b in (problem_.descriptor_low, problem_.descriptor_high)
        )
        # An infinite descriptor is a failure, not a place beyond the bounds.
        inside = jnp.clip(descriptors, low, high)
        descriptors = jnp.where(jnp.isfinite(descriptors), inside, jnp.nan)
        self.state, metrics = self._tell[self._phase()](
            self.state, self._pending, fitness, descriptors, valid
        )
        self._calls += 1
        self._asked = self._pending = None
        if metrics is not None:
            self.metrics = named(metrics)
