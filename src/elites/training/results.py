"""Results of training: the archive as elites to deploy, the actor to ask, metrics by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core import archive as archives
from elites.core import counter, td3
from elites.core.algorithm import Algorithm, Metrics, S
from elites.core.archive import Archive
from elites.core.hyperparameters import Hyperparameters
from elites.core.reevaluation import Reevaluation
from elites.core.types import Array
from elites.interop.tables import MetricsTable
from elites.output import warn
from elites.tasks.task import Task
from elites.training import calibrating, interpolating
from elites.training.builders import Builder
from elites.training.calibrating import Calibrated
from elites.training.elites import Elite, Elites, checked_descriptor, checked_observation
from elites.training.interpolating import Interpolated
from elites.training.keys import reevaluation_keys, seed_keys
from elites.training.seeds import Batched
from elites.training.switching import Switcher, from_calibration, from_reevaluation, joined
from elites.words import counted


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
        observation = checked_observation(problem.observation_size, observation)
        if not self.conditioned:
            if descriptor is not None:
                raise ValueError(
                    f"the actor of {self.algorithm.name} takes no descriptor: it is not conditioned"
                )
            target = jnp.zeros((*observation.shape[:-1], 0))
        else:
            if descriptor is None:
                raise ValueError("the actor needs a descriptor, in task units")
            target = problem.normalise(checked_descriptor(self.algorithm, descriptor))
            target = jnp.broadcast_to(target, (*observation.shape[:-1], target.shape[-1]))
        return td3.act(learner, jnp.asarray(self.parameters), observation, target)


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
    logged: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Identities of the runs of W&B and MLflow that training was logged to, keyed by logger."""


class Place(NamedTuple):
    """Run directory and iteration that a run was loaded from."""

    directory: Path
    iteration: int


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
    devices: int | None = dataclasses.field(default=None, repr=False)
    """Number of devices that the seeds were spread over, or None if it does not matter here."""
    source: Source | None = dataclasses.field(default=None, repr=False)
    """Settings that the run was trained with. None for a run that was loaded."""
    descriptor_names: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    """Names of the descriptor axes. Empty if they are not known."""
    place: Place | None = dataclasses.field(default=None, repr=False)
    """Where the run was loaded from. None for a run that was trained in this process."""

    @functools.cached_property
    def best(self) -> int:
        """Index in `seeds` of the seed with the highest QD-score."""
        fitness = np.asarray(self.archives.fitness)  # [seeds, C]
        scores = archives.above(fitness, self.algorithm.qd_offset)
        return int(np.argmax(np.where(np.isfinite(fitness), scores, 0.0).sum(1)))

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
        batched = Batched(self.algorithm, len(self.seeds), self.kernels, devices=self.devices)
        if self.devices not in (None, batched.devices):
            warn(
                f"the seeds were computed on {counted(self.devices, 'device')}, and are now on "
                f"{batched.devices}, so the last bits of results may differ"
                f"{_advice_on_devices(self.devices)}"
            )
        return batched

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

    def interpolate(self, points: int = interpolating.POINTS) -> Interpolated:
        """Ask the actor for about `points` descriptors all over the space and return its results.

        They show how well it performs behaviours between and beyond the elites. Raises a ValueError
        if the run has no actor that takes a descriptor.
        """
        if self.actors is None or not self.algorithm.conditioned:
            raise ValueError(
                f"{self.algorithm.name} trains no actor that takes a descriptor, so there is "
                "nothing to interpolate. 'elites distil' fits one to the archive"
            )
        keys = reevaluation_keys(seed_keys(self.seeds))
        return interpolating.interpolate(self._batched, self.archives, self.actors, keys, points)

    def switcher(self, seed: int | None = None, calibrated: Calibrated | None = None) -> Switcher:
        """Return a switcher, which performs a descriptor by the elite or actor that comes nearest.

        A loaded run takes the results from the tables of `elites evaluate`, with --interpolate too,
        and of `elites calibrate`, if it has them for this checkpoint. Without those of `evaluate`,
        elites and actor are evaluated again now. `calibrated` adds the requests of `calibrate`.
        `seed` is the index of a seed, by default the one with the highest QD-score.
        """
        import elites  # the package knows where the tables are; training itself does not

        index = self.best if seed is None else seed
        result = self.seed(index)
        known = elites.known_behaviours(self, index)
        if known is None:
            known = from_reevaluation(result.archive, self.reevaluate(), index)
        if calibrated is not None:
            known = joined(known, from_calibration(calibrated, index))
        return Switcher(result.archive, result.actor, known)

    def save(
        self, directory: Path | str, *, task: str | None = None, algorithm: str | None = None
    ) -> Path:
        """Write the run to a directory that all commands accept, and return the directory's path.

        `elites resume` can continue the run there. See `elites.save`, which this method calls, for
        the arguments.
        """
        import elites  # the package knows where runs are saved; training itself does not

        return elites.save(self, directory, task=task, algorithm=algorithm)


def _advice_on_devices(wanted: int) -> str:
    """Return advice on how to get a number of CPU devices, or "" if there are enough."""
    count = jax.local_device_count()
    if jax.default_backend() != "cpu" or count >= wanted:
        return ""
    return (
        f". The CPU has {counted(count, 'device')} in this process: load the run before JAX "
        "computes anything else, and leave the number of devices to elites"
    )


def named(metrics: Metrics) -> dict[str, np.ndarray]:
    """Return the metrics as NumPy arrays by name.

    Entries of dictionaries get a dotted name, such as "added.ga" or "critic_loss.quality". Metrics
    that an algorithm does not have are left out.
    """
    table = {}
    for name, value in metrics._asdict().items():
        if name == "env_steps":
            table[name] = counter.value(value)
        elif isinstance(value, dict):
            table |= {f"{name}.{part}": np.asarray(v) for part, v in value.items()}
        elif value is not None:
            table[name] = np.asarray(value)
    return table
