"""Parts of an algorithm of the MAP-Elites family.

A `Spec` lists the variations and the learners of an algorithm. `algorithms.py` holds the published
ones, `map_elites.py` runs them, and `State` is the state of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from elites.core import averaging
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.dominated_novelty import Population
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.normalisation import Statistics
from elites.core.novelty import Memory
from elites.core.progress import Progress
from elites.core.replay import Layout, Replay, transition_layout
from elites.core.schedule import Schedule
from elites.core.standardisation import Moments
from elites.core.td3 import TD3, TD3State
from elites.core.types import INITIAL, Array, Problem

_LONGEST_NAME = 100  # of a variation, so that tables with a column for it can be read


class State(NamedTuple):
    """Complete state of a run of the MAP-Elites family: training can continue from it."""

    archive: Archive
    replay: Replay | None
    learners: dict[str, TD3State]
    memory: Memory | None  # state descriptors, for a learner that is rewarded for novelty
    iteration: Array  # [] int32: -1 before the start is told, 0 after it
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    moments: Moments | None = None  # of observations, for a learner that standardises them
    statistics: Statistics | None = None  # of observations, for a run that normalises them
    population: Population | None = None  # of a search in which parents do not come from cells


class Offspring(NamedTuple):
    """Policies made by a variation, with the descriptors that they were made for."""

    policies: Array  # [n, P]
    targets: Array  # [n, D] descriptor to reach, in task units; 0 if there is none
    parent_descriptors: Array | None = None  # [n, D] of the parents of outward offspring


@dataclasses.dataclass(frozen=True)
class Variation:
    """A source of offspring.

    Its name, `origin`, is stored with each of its elites, and metrics count its offspring by it.
    """

    origin: str
    count: int
    make: Callable[[Spec, State, Array, int], Offspring]
    """(spec, state, key, count) -> that many offspring, see `variation.py`"""
    stores_target: bool = False
    """Store its transitions as attempts at their targets instead of at what they reached."""
    outward: bool = False
    """Its offspring may aim at other descriptors than their parents'. Metrics count successes."""

    def offspring(self, spec: Spec, state: State, key: Array) -> Offspring:
        """Return the `count` offspring that the variation makes in one iteration.

        Raises a ValueError if `make` returns another number of them, or policies of the wrong size,
        or if only one of `outward` and the descriptors of the parents is given.
        """
        made = self.make(spec, state, key, self.count)
        expected = (self.count, spec.policy.size), (self.count, spec.problem.descriptor_size)
        found = type(made).__name__
        if isinstance(made, Offspring):
            found = tuple(getattr(part, "shape", None) for part in made[:2])
        if found != expected:
            raise ValueError(
                f"variation '{self.origin}' must return Offspring with policies of shape "
                f"{expected[0]} and targets of shape {expected[1]}, got {found}"
            )
        parents = getattr(made.parent_descriptors, "shape", None)
        if parents != (expected[1] if self.outward else None):
            raise ValueError(
                f"variation '{self.origin}': parent_descriptors must have shape {expected[1]} if "
                f"outward is True, and be None otherwise; got {parents}, outward is {self.outward}"
            )
        return made


@dataclasses.dataclass(frozen=True)
class Learner:
    """An actor-critic learner and the reward that it is trained on."""

    name: str
    td3: TD3
    rewards_novelty: bool = False
    """Replace the task's reward by the novelty of the state, as in QD-PG."""
    progress: Progress | None = None
    """Reward progress towards the target instead of the episode's outcome, see `progress`."""
    standardised: bool = False
    """Train on standardised observations, see `standardisation`."""
    rate_factor: Schedule | None = None
    """Factor of both learning rates as the archive fills. None keeps them constant."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Specification of an algorithm of the MAP-Elites family: its variations and learners."""

    name: str
    problem: Problem
    hp: Hyperparameters
    variations: tuple[Variation, ...]
    learners: tuple[Learner, ...] = ()
    """The first is the main one: its actor is kept with the run, and rolled out."""
    actor_rollouts: int = 0
    """Descriptors of the archive at which each iteration rolls the main actor out."""
    population: int = 0
    """Solutions of the population that the GA draws parents from, see `dominated_novelty`.

    0 draws them from the archive.
    """

    def __post_init__(self):
        if not self.variations:
            raise ValueError(f"{self.name}: there must be at least one variation")
        learners = [learner.name for learner in self.learners]
        for what, names in (("origin", self.origins), ("learner", learners)):
            if len(set(names)) < len(names):
                raise ValueError(f"{self.name}: the same {what} twice in {', '.join(names)}")
        for variation in self.variations:
            if len(variation.origin) > _LONGEST_NAME:
                raise ValueError(
                    f"{self.name}: the name of a variation has at most {_LONGEST_NAME} characters, "
                    f"got {len(variation.origin)}"
                )
            if variation.count < 1:
                raise ValueError(
                    f"{self.name}: variation '{variation.origin}' must make at least 1 offspring, "
                    f"got {variation.count}; raise batch_size"
                )
        if not isinstance(self.actor_rollouts, int) or self.actor_rollouts < 0:
            raise ValueError(
                f"{self.name}: actor_rollouts must be a whole number of at least 0, got "
                f"{self.actor_rollouts!r}"
            )
        if self.actor_rollouts and not self.learners:
            raise ValueError(f"{self.name}: actor_rollouts needs a learner")
        if self.learners and self.problem.vectors is not None:
            raise ValueError(
                f"{self.name} learns from the steps of episodes, and task '{self.problem.name}' "
                "has none: use me, cma_me, cma_mae or cma_mega"
            )
        for learner in self.learners:
            self._check_progress(learner)
        averaging.check(self.problem, self.hp)

    def _check_progress(self, learner: Learner) -> None:
        """Raise a ValueError if a learner cannot be rewarded for progress."""
        if learner.progress is None:
            return
        if not learner.td3.critic_conditioned or learner.rewards_novelty:
            raise ValueError(
                f"{self.name}: learner '{learner.name}' cannot be rewarded for progress: it needs "
                "a critic that sees the descriptor, and no reward for novelty"
            )
        if not self.problem.final_descriptor:
            raise ValueError(
                f"{self.name}: a reward for progress needs a task whose descriptor is that of the "
                f"final state; that of '{self.problem.name}' is a mean over steps"
            )

    @property
    def origins(self) -> tuple[str, ...]:
        """Possible origins of an elite: the initial policies (index 0), then each variation's name.

        `Archive.origin` holds indices into this tuple.
        """
        return (INITIAL, *(variation.origin for variation in self.variations))

    @property
    def cells(self) -> Cells:
        """Division of the descriptor space into the archive's cells."""
        return Cells.of(self.problem, self.hp)

    @property
    def policy(self) -> MLP:
        """Network shape of the archive's policies."""
        return self.problem.policy(self.hp.policy_hidden, self.hp.activation)

    @property
    def batch(self) -> int:
        """Number of offspring of an iteration: the sum of the variations' counts.

        The sum may differ from `hp.batch_size`.
        """
        return sum(variation.count for variation in self.variations)

    @property
    def episodes(self) -> int:
        """Number of episodes of the offspring of an iteration."""
        return self.hp.evaluations_per_policy * self.batch

    @property
    def main_td3(self) -> TD3 | None:
        """Configuration of the main learner, or None if the algorithm has no learner."""
        return self.learners[0].td3 if self.learners else None

    @property
    def rewards_novelty(self) -> bool:
        """Whether any learner is rewarded for novelty and needs a memory of visited states."""
        return any(learner.rewards_novelty for learner in self.learners)

    @property
    def rewards_progress(self) -> bool:
        """Whether any learner is rewarded for progress, so that state descriptors are stored."""
        return any(learner.progress is not None for learner in self.learners)

    @property
    def standardises(self) -> bool:
        """Whether any learner is trained on standardised observations."""
        return any(learner.standardised for learner in self.learners)

    def td3_of(self, learner: str) -> TD3:
        """Return the TD3 configuration of the learner with this name."""
        found = {part.name: part.td3 for part in self.learners}
        if learner not in found:
            known = ", ".join(found) or "none"
            raise ValueError(f"{self.name} has no learner '{learner}'; known: {known}")
        return found[learner]

    @property
    def layout(self) -> Layout:
        """Width of each column of the replay buffer, by name.

        The columns "descriptor" and "target", scaled to [-1, 1], exist only if a critic is
        conditioned. The column "state_descriptor" exists only if a learner is rewarded for novelty
        or progress, and "next_state_descriptor" only for progress. Both are in task units.
        """
        problem = self.problem
        layout = transition_layout(problem.observation_size, problem.action_size)
        if any(learner.td3.critic_conditioned for learner in self.learners):
            layout |= {"descriptor": problem.descriptor_size, "target": problem.descriptor_size}
        if self.rewards_novelty or self.rewards_progress:
            layout |= {"state_descriptor": problem.descriptor_size}
        if self.rewards_progress:
            layout |= {"next_state_descriptor": problem.descriptor_size}
        return layout
