"""Results of training: the archive as elites to deploy, the actor to ask, metrics by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core import archive as archives
from elites.core import counter, distances, networks, td3
from elites.core.algorithm import Algorithm, Metrics, S
from elites.core.archive import Archive
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.reevaluation import Reevaluation
from elites.core.types import Array
from elites.interop import pyribs, qdax, tables
from elites.interop.record import ArchiveData
from elites.interop.tables import MetricsTable
from elites.tasks.task import Task
from elites.training import calibrating
from elites.training.builders import Builder
from elites.training.calibrating import Calibrated
from elites.training.keys import reevaluation_keys, seed_keys
from elites.training.seeds import Batched

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True, eq=False)
class Elite:
    """One policy of the archive. Call it with an observation [O] or observations [..., O]."""

    policy: np.ndarray = dataclasses.field(repr=False)  # [P]
    fitness: float
    descriptor: np.ndarray  # [D] in task units
    cell: int
    origin: str
    born: int
    network: MLP = dataclasses.field(repr=False)

    def __call__(self, observation: ArrayLike) -> Array:
        """Return the actions [..., A] of the elite at observations [..., O]."""
        seen = _checked_observation(self.network.sizes[0], observation)
        layers = networks.unflatten(self.network, jnp.asarray(self.policy))
        return networks.apply(self.network, layers, seen)


class Cells(NamedTuple):
    """An archive as NumPy arrays with one row per cell, including empty cells. See `Archive`."""

    policies: np.ndarray  # [C, P]
    fitness: np.ndarray  # [C], -inf where a cell is empty
    descriptors: np.ndarray  # [C, D]
    centroids: np.ndarray  # [C, D]
    origin: np.ndarray  # [C]
    born: np.ndarray  # [C]


class Elites(Sequence[Elite]):
    """The archive of one seed: a sequence of its elites, without the empty cells."""

    def __init__(
        self, archive: Archive, algorithm: Algorithm, descriptor_names: tuple[str, ...] = ()
    ):
        self.arrays = Cells(*map(np.asarray, archive))
        self.algorithm = algorithm
        self.descriptor_names = descriptor_names
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
        return Elite(
            policy=self.arrays.policies[cell],
            fitness=float(self.arrays.fitness[cell]),
            descriptor=self.arrays.descriptors[cell],
            cell=cell,
            origin=self.origin(cell),
            born=int(self.arrays.born[cell]),
            network=self.algorithm.policy,
        )

    def origin(self, cell: int) -> str:
        """Return the origin of the elite in a cell: the name of a variation, or "initial".

        Raises a ValueError if the algorithm has no such origin. An IndexError would silently end a
        loop over the elites.
        """
        number, names = int(self.arrays.origin[cell]), self.algorithm.origins
        if not 0 <= number < len(names):
            raise ValueError(
                f"the elite of cell {cell} has origin {number}, but {self.algorithm.name} knows "
                f"only 0 to {len(names) - 1} ({', '.join(names)}): the archive was made by "
                "another algorithm"
            )
        return names[number]

    @property
    def fitness(self) -> np.ndarray:
        """Fitness [n] of the n elites, in the order of their cells."""
        return self.arrays.fitness[self.cells]

    @property
    def descriptors(self) -> np.ndarray:
        """Descriptors [n, D] that the n elites reached, in task units."""
        return self.arrays.descriptors[self.cells]

    @property
    def policies(self) -> np.ndarray:
        """Network parameters [n, P] of the n elites."""
        return self.arrays.policies[self.cells]

    @property
    def coverage(self) -> float:
        """Share of the archive's cells that hold an elite, from 0 to 1."""
        return len(self.cells) / len(self.arrays.fitness)

    @property
    def qd_score(self) -> float:
        """QD-score of the archive: the sum of the elites' fitness minus the offset.

        The offset is 0 unless the task or a hyperparameter sets it, see `Algorithm.qd_offset`.
        """
        return float(archives.above(self.fitness, self.algorithm.qd_offset).sum())

    def nearest(self, descriptor: ArrayLike) -> Elite:
        """Return the elite whose descriptor is nearest to `descriptor` [D], given in task units.

        Distances are relative to the extents of the descriptor axes, as those of the cells are.
        Raises a ValueError if the archive is empty.
        """
        target = _checked_descriptor(self.algorithm, descriptor)
        if target.ndim != 1 or not jnp.isfinite(target).all():
            raise ValueError(f"nearest takes one descriptor of finite numbers, got {descriptor!r}")
        self._refuse_empty()
        weights = self.algorithm.problem.weights
        found = distances.nearest_row(target[None], jnp.asarray(self.descriptors), weights)
        return self[int(found[0])]

    def best(self) -> Elite:
        """Return the elite with the highest fitness.

        Raises a ValueError if the archive is empty.
        """
        self._refuse_empty()
        return self[int(np.argmax(self.fitness))]

    def to_pandas(self, parameters: bool = False) -> pandas.DataFrame:
        """Return the elites as a pandas data frame, one row each, in the order of their cells.

        The columns are cell, fitness, one for each descriptor axis, origin and born. The columns of
        the descriptor have the names of the task's axes, or else descriptor_0 and so on. With
        `parameters`, the columns parameter_0 and so on have the policies.
        """
        return tables.archive_frame(self.data(), parameters)

    def to_pyribs(self) -> Any:
        """Return an archive of pyribs with the elites: a GridArchive or a CVTArchive.

        See `elites.interop.pyribs.to_pyribs`. Needs the package ribs.
        """
        return pyribs.to_pyribs(self.data())

    def to_qdax(self) -> Any:
        """Return a MapElitesRepertoire of QDax with the elites.

        See `elites.interop.qdax.to_qdax`. Needs the package qdax.
        """
        return qdax.to_qdax(self.data())

    def data(self) -> ArchiveData:
        """Return the archive as NumPy arrays with all that other programs need to know of it.

        `elites.interop.writing.write` writes it to files of pyribs and QDax.
        """
        problem, have = self.algorithm.problem, self.arrays
        return ArchiveData(
            have.policies, have.fitness, have.descriptors, have.centroids, have.origin, have.born,
            origins=self.algorithm.origins,
            layers=self.algorithm.policy.sizes,
            low=problem.descriptor_low,
            high=problem.descriptor_high,
            weights=problem.weights,
            names=self.descriptor_names,
            qd_offset=self.algorithm.qd_offset,
        )  # fmt: skip

    def _refuse_empty(self) -> None:
        if not len(self):
            raise ValueError("the archive is empty")

    def __repr__(self) -> str:
        return f"<{len(self)} elites in {len(self.arrays.fitness)} cells>"


@dataclasses.dataclass(frozen=True, eq=False)
class Actor:
    """Actor of the main learner.

    Call it with observations and, if it is conditioned, with descriptors.
    """

    parameters: np.ndarray
    algorithm: Algorithm = dataclasses.field(repr=False)

    @property
    def conditioned(self) -> bool:
        """Whether the actor takes a descriptor as input."""
        return self.algorithm.conditioned

    def __call__(self, observation: ArrayLike, descriptor: ArrayLike | None = None) -> Array:
        """Return the actions [..., A] at observations [..., O].

        A conditioned actor needs descriptors [..., D] in task units, or one [D] for all
        observations. Other actors take none.
        """
        learner, problem = self.algorithm.main_td3, self.algorithm.problem
        assert learner is not None
        observation = _checked_observation(problem.observation_size, observation)
        if not self.conditioned:
            if descriptor is not None:
                raise ValueError(
                    f"the actor of {self.algorithm.name} takes no descriptor: it is not conditioned"
                )
            target = jnp.zeros((*observation.shape[:-1], 0))
        else:
            if descriptor is None:
                raise ValueError("the actor needs a descriptor, in task units")
            target = problem.normalise(_checked_descriptor(self.algorithm, descriptor))
            target = jnp.broadcast_to(target, (*observation.shape[:-1], target.shape[-1]))
        return td3.act(learner, jnp.asarray(self.parameters), observation, target)


def _checked_observation(size: int, observation: ArrayLike) -> Array:
    checked = jnp.asarray(observation, jnp.float32)
    if checked.shape[-1:] != (size,):
        raise ValueError(f"observation must have {size} entries, got shape {checked.shape}")
    return checked


def _checked_descriptor(algorithm: Algorithm, descriptor: ArrayLike) -> Array:
    checked = jnp.asarray(descriptor, jnp.float32)
    size = algorithm.problem.descriptor_size
    if checked.shape[-1:] != (size,):
        raise ValueError(f"a descriptor has {size} entries, got shape {tuple(checked.shape)}")
    return checked


@dataclasses.dataclass(frozen=True, eq=False)
class Rollout:
    """Result of one episode: fitness, descriptor, validity and number of steps."""

    fitness: float
    descriptor: np.ndarray  # [D] in task units
    valid: bool
    """False if the simulation diverged."""
    steps: int


@dataclasses.dataclass(frozen=True, eq=False)
class SeedResult:
    """Result of one seed of a run: its archive, actor and metrics."""

    archive: Elites
    actor: Actor | None
    metrics: MetricsTable  # name -> [iterations]


@dataclasses.dataclass(frozen=True)
class Source:
    """Task, algorithm and settings that a run was trained with, which `save` needs."""

    hp: Hyperparameters
    evaluations: int
    """The budget of a seed."""
    preset: str = "paper"
    task: Task | None = None
    """None if the run was trained from an `Algorithm` that was already built."""
    given_task: str | Task | Callable[[], Task] | None = None
    """The argument `task` of `train`."""
    given_algorithm: str | Builder | None = None
    """The argument `algorithm` of `train`."""
    start_from: str = ""
    """Directory of the run whose archive the run started from. Empty if there is none."""


@dataclasses.dataclass(frozen=True, eq=False)
class Run(Generic[S]):
    """Result of a training run: archives, actors and metrics of all seeds.

    `archive` and `actor` belong to the seed with the highest QD-score.
    """

    algorithm: Algorithm[S]
    seeds: tuple[int, ...]
    archives: Archive = dataclasses.field(repr=False)
    """Archives of all seeds: every array has the seeds as first axis."""
    actors: Array | None = dataclasses.field(repr=False)
    """Parameters [seeds, P] of the main learner's actors, or None if there is no learner."""
    metrics: MetricsTable = dataclasses.field(repr=False)
    """name -> [iterations, seeds]. `run.metrics.to_pandas()` returns them as a data frame."""
    state: S | None = dataclasses.field(default=None, repr=False)
    """Final state, with the seeds as first axis. None for a run loaded without its state."""
    kernels: Path | None = dataclasses.field(default=None, repr=False)
    """Directory with the compiler's choices on a GPU, see `Batched`."""
    source: Source | None = dataclasses.field(default=None, repr=False)
    """Settings that the run was trained with. None for a run that was loaded."""
    descriptor_names: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """Names of the descriptor axes. Empty if they are not known."""

    @functools.cached_property
    def best(self) -> int:
        """Index in `seeds` of the seed with the highest QD-score."""
        offset = self.algorithm.qd_offset
        scores = jax.vmap(lambda archive: archives.summary(archive, offset).qd_score)(self.archives)
        return int(np.argmax(np.asarray(scores)))

    @functools.cached_property
    def _best_result(self) -> SeedResult:
        return self.seed(self.best)

    @property
    def archive(self) -> Elites:
        """Archive of the seed with the highest QD-score, as a sequence of elites."""
        return self._best_result.archive

    @property
    def actor(self) -> Actor | None:
        """Actor of the seed with the highest QD-score, or None if the algorithm trains none."""
        return self._best_result.actor

    def seed(self, index: int) -> SeedResult:
        """Return the archive, actor and metrics of the seed at position `index` of `seeds`."""
        if not -len(self.seeds) <= index < len(self.seeds):
            raise ValueError(
                f"there is no seed at position {index}: this run has {len(self.seeds)} seeds, "
                f"at positions 0 to {len(self.seeds) - 1}"
            )
        archive = jax.tree.map(lambda a: a[index], self.archives)
        actors = self.actors
        return SeedResult(
            archive=Elites(archive, self.algorithm, self.descriptor_names),
            actor=None if actors is None else Actor(np.asarray(actors[index]), self.algorithm),
            metrics=MetricsTable({name: row[:, index] for name, row in self.metrics.items()}),
        )

    def __str__(self) -> str:
        """Return a summary of a few lines: algorithm, task, seeds, QD-scores, archive and actor."""
        best = self.seeds[self.best]
        scores = [round(self.seed(i).archive.qd_score, 1) for i in range(len(self.seeds))]
        lines = [
            f"{self.algorithm.name} on {self.algorithm.problem.name}, seeds "
            f"{', '.join(map(str, self.seeds))}",
            f"QD-score {', '.join(map(str, scores))}; shown below is seed {best}, the best",
            f"archive: {self.archive!r}, coverage {100 * self.archive.coverage:.1f} %",
        ]
        if len(spent := self.metrics.get("evaluations", np.zeros((0, 0)))):
            lines.append(f"{len(spent)} iterations, {int(spent[-1, 0])} evaluations of each seed")
        if self.actor is not None:
            kind = "takes a descriptor" if self.actor.conditioned else "takes no descriptor"
            lines.append(f"actor: {kind}")
        return "\n".join(lines)

    @functools.cached_property
    def _batched(self) -> Batched[S]:
        return Batched(self.algorithm, len(self.seeds), self.kernels)

    def rollout(self, elite: Elite) -> Rollout:
        """Run an episode of an elite and return its fitness, descriptor, validity and steps.

        The episode runs in the compiled program that evaluated the elite in training. On a
        deterministic task and the same kind of device, the result therefore equals the archive's
        entry to the last bit, unless the task's simulator does not repeat (`Task.repeatable`).
        """
        if not isinstance(elite, Elite) or elite.policy.shape != (self.algorithm.policy.size,):
            raise ValueError(
                f"rollout takes an elite with {self.algorithm.policy.size} parameters, one of this "
                f"run's archives; got {elite!r}"
            )
        shape = (len(self.seeds), self.algorithm.batch)
        policies = jnp.broadcast_to(jnp.asarray(elite.policy), (*shape, len(elite.policy)))
        keys = reevaluation_keys(seed_keys(self.seeds))
        evaluation = self._batched.evaluate(policies, self.actors, keys)
        steps = int(evaluation.steps[0, 0])
        return Rollout(
            fitness=float(evaluation.fitness[0, 0]),
            descriptor=np.asarray(evaluation.descriptors[0, 0]),
            valid=bool(evaluation.valid[0, 0]),
            steps=steps,
        )

    def reevaluate(self) -> Reevaluation:
        """Evaluate the archives and actors of all seeds again and return their scores.

        The scores are QD-scores, coverages and descriptor errors. They are NumPy arrays with the
        seeds as first axis.
        """
        keys = reevaluation_keys(seed_keys(self.seeds))
        return jax.tree.map(np.asarray, self._batched.reevaluate(self.archives, self.actors, keys))

    def calibrate(
        self, rounds: int = calibrating.ROUNDS, progress: Callable[[int], object] | None = None
    ) -> Calibrated:
        """Search, for each cell, for the request at which the actor reaches it, and return all.

        Every round rolls out the actor once for each cell. `progress` is called with the number of
        rounds that are done. Raises a ValueError if the run has no actor that takes a descriptor.
        """
        if self.actors is None or not self.algorithm.conditioned:
            raise ValueError(
                f"{self.algorithm.name} trains no actor that takes a descriptor, so there is "
                "nothing to calibrate. 'elites distil' fits one to the archive"
            )
        keys = reevaluation_keys(seed_keys(self.seeds))
        return calibrating.calibrate(
            self._batched, self.archives, self.actors, keys, self.best, rounds, progress
        )

    def save(
        self, directory: Path | str, *, task: str | None = None, algorithm: str | None = None
    ) -> Path:
        """Write the run to a directory that all commands accept, and return the directory's path.

        `elites resume` can continue the run there. See `elites.save`, which this method calls, for
        the arguments.
        """
        import elites  # the package knows where runs are saved; training itself does not

        return elites.save(self, directory, task=task, algorithm=algorithm)


def named(metrics: Metrics) -> dict[str, np.ndarray]:
    """Return the metrics as NumPy arrays by name.

    Entries of dictionaries get a dotted name, such as "added.ga" or "critic_loss.quality".
    """
    table = {}
    for name, value in metrics._asdict().items():
        if name == "env_steps":
            table[name] = counter.value(value)
        elif isinstance(value, dict):
            table |= {f"{name}.{part}": np.asarray(v) for part, v in value.items()}
        else:
            table[name] = np.asarray(value)
    return table
