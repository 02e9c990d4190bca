"""An algorithm: its stages (init, first, train, ask, evaluate, tell), and the two loops over them.

    start    evaluate the first request, in most algorithms random policies, and tell the results
    step     train, then for each round: ask, evaluate, tell

`map_elites.py` and `map_elites_es.py` implement the stages, `algorithms.py` lists the algorithms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import jax.numpy as jnp

from elites.core import archive as archives
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.replay import Layout
from elites.core.td3 import TD3, Losses
from elites.core.types import INITIAL, Array, Evaluation, Problem, Request


class Metrics(NamedTuple):
    """Metrics of one iteration. `added` is keyed by variation, and the losses by learner."""

    qd_score: Array  # []
    coverage: Array  # []
    max_fitness: Array  # []
    evaluations: Array  # [] since the start: episodes of offspring, as the paper counts its budget
    env_steps: Array  # [2] since the start: steps of all rollouts, the actor's too; see `counter`
    added: dict[str, Array]  # [] offspring that entered the archive
    rejected: Array  # [] since the start: rollouts that diverged or gave a non-finite result
    critic_loss: dict[str, Array]  # []
    actor_loss: dict[str, Array]  # []
    nearer: dict[str, Array]  # [] share of outward offspring that came nearer; NaN without any
    restarts: Array | None = None  # [] since the start: of all emitters of CMA-ME's family

    @classmethod
    def of(
        cls,
        state: SearchState,
        names: Sequence[str],
        origins: Array,
        added: Array,
        offset: float = 0.0,
    ) -> Metrics:
        """Return the metrics of a state. The losses are left empty.

        `added` [n] says which candidates entered the archive. They are counted by `origins` [n],
        which are indices into `names`. `offset` is that of the QD-score.
        """
        return cls(
            **archives.summary(state.archive, offset)._asdict(),
            evaluations=state.evaluations,
            env_steps=state.env_steps,
            added={
                name: jnp.sum(added & (origins == i))
                for i, name in enumerate(names)
                if name != INITIAL
            },
            rejected=state.rejected,
            critic_loss={},
            actor_loss={},
            nearer={},
        )

    def with_losses(self, losses: Mapping[str, Losses]) -> Metrics:
        """Return a copy of these metrics with the losses, keyed by learner, filled in."""
        return self._replace(
            critic_loss={n: loss.critic for n, loss in losses.items() if loss.critic is not None},
            actor_loss={name: loss.actor for name, loss in losses.items()},
        )


class SearchState(Protocol):
    """Complete state of a run, a pytree of arrays: training can continue from it."""

    def _replace(self, **changes: Any) -> Self: ...
    @property
    def archive(self) -> Archive: ...
    @property
    def evaluations(self) -> Array: ...  # [] uint32, this and the following: see `Metrics`
    @property
    def env_steps(self) -> Array: ...  # [2] uint32
    @property
    def rejected(self) -> Array: ...  # [] uint32


S = TypeVar("S", bound=SearchState)


class Round(NamedTuple, Generic[S]):
    """One exchange of an iteration: `ask` returns a request, and `tell` receives its results."""

    ask: Callable[[S, Array], Request]  # (state, key of the iteration)
    tell: Callable[[S, Request, Evaluation], tuple[S, Metrics | None]]
    evaluations: int  # rows of policies that count; further rows only pad the batch


@dataclasses.dataclass(frozen=True, repr=False)
class Algorithm(Generic[S]):
    """An algorithm on a problem: pure functions for one seed, with their sizes and settings.

    Every function receives the key of the whole start or iteration and derives its own keys from
    it. `training.seeds.Batched` makes the same record with functions over a batch of seeds. `start`
    and `step` work with both.
    """

    name: str
    problem: Problem
    policy: MLP
    cells: int
    origins: tuple[str, ...]
    """Names of the origins of elites. `Archive.origin` holds indices into them."""
    offspring: Mapping[str, int]
    """Number of offspring that each variation makes in an iteration, by its name.

    MAP-Elites-ES makes one, in one of two ways, under a name that is not an origin.
    """
    batch: int
    """Number of rows for policies in the request that fills the archive, see `repeats`."""
    actor_rollouts: int
    """Number of descriptors at which that request rolls out the actor."""
    padded_batch: int
    """Number of robots simulated for that request. Re-evaluation needs it to repeat every bit."""
    main_td3: TD3 | None
    """Configuration of the main learner, whose actor is kept with the run."""
    replay_layout: Layout | None
    """Columns of the state's replay buffer, if there is one."""
    hp: Hyperparameters
    """The hyperparameters it was built with."""

    init: Callable[[Array, Array], S]
    """(key, centroids) -> a state in which nothing has been evaluated"""
    first: Callable[[S, Array], Request]
    """(state, key) -> first request: random policies, and the actor at archive descriptors"""
    train: Callable[[S, Array], tuple[S, dict[str, Losses]]]
    """(state, key) -> the state after the learners' gradient steps, and their mean losses"""
    rounds: tuple[Round[S], ...]
    """Exchanges of an iteration. The last one fills the archive, also after `first`."""
    evaluate: Callable[[Request], Evaluation]
    """(request) -> results: first the rows of its policies, then those of its actor rollouts"""
    actor: Callable[[S], Array | None]
    """(state) -> parameters of the main learner's actor, with the state's leading axes"""
    repeats: int = 1
    """Number of episodes over which the results of a policy are averaged.

    A request has as many rows for each policy, and re-evaluation repeats as often.
    """

    @property
    def division(self) -> Cells:
        """Division of the descriptor space into the archive's cells."""
        return Cells.of(self.problem, self.hp)

    @property
    def conditioned(self) -> bool:
        """Whether the algorithm has an actor that takes a target descriptor as input."""
        return self.main_td3 is not None and self.main_td3.actor_conditioned

    @property
    def needs_transitions(self) -> bool:
        """Whether `tell` reads the transitions of an evaluation: to learn, or to normalise."""
        return self.main_td3 is not None or self.hp.normalise_observations

    @property
    def qd_offset(self) -> float:
        """Fitness that counts as 0 in QD-scores."""
        return self.problem.offset(self.hp.qd_offset)

    @property
    def initial_evaluations(self) -> int:
        """Number of evaluations before the first iteration, without actor rollouts."""
        return self.rounds[-1].evaluations

    @property
    def evaluations_per_iteration(self) -> int:
        """Number of evaluations in one iteration. Actor rollouts are not counted."""
        return sum(round_.evaluations for round_ in self.rounds)

    def __repr__(self) -> str:
        return f"<{self.name} on {self.problem.name}>"

    def centroids(self) -> Array:
        """Return the centroids [cells, D] of the archive's cells. The first call takes seconds."""
        return self.division.centroids()

    def start(
        self, key: Array, centroids: Array | None = None, archive: Archive | None = None
    ) -> S:
        """Evaluate the initial policies and return the state before the first iteration.

        The run starts from `archive` if it is given, otherwise from an empty archive with these
        centroids.
        """
        centroids = self.centroids() if centroids is None else centroids
        tell = self.rounds[-1].tell

        def blank() -> S:
            state = self.init(key, centroids)
            if archive is None:
                return state
            own = state.archive  # the thresholds of an annealed archive start anew
            thresholds = {"threshold": own.threshold, "reached": own.reached}
            return state._replace(archive=archive._replace(**thresholds))

        state = blank()
        request = self.first(state, key)
        state, _ = tell(state, request, self.evaluate(request))
        if self.actor_rollouts and archive is None:
            # The untrained actor is asked for what those policies reached: the same request again,
            # of a blank state that has their archive to draw from.
            reached = state.archive
            del state  # so that only one replay buffer exists at a time
            state = blank()
            request = self.first(state._replace(archive=reached), key)
            state, _ = tell(state, request, self.evaluate(request))
        return state

    def step(self, state: S, key: Array) -> tuple[S, Metrics]:
        """Run one iteration and return the next state and the iteration's metrics."""
        state, losses = self.train(state, key)
        metrics = None
        for ask, tell, _ in self.rounds:
            request = ask(state, key)
            state, metrics = tell(state, request, self.evaluate(request.to_evaluate()))
        assert metrics is not None
        return state, metrics.with_losses(losses)
