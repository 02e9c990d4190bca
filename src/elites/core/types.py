"""The records shared between modules, and the two loops that every algorithm runs.

An algorithm asks for policies to be evaluated and is told what they did. It does not care who
evaluates them.

    start    the first request, of random policies, is evaluated and told
    step     train, then for each round: ask, evaluate, tell

A `Problem` is what an algorithm knows of a task: sizes, bounds, and a function that runs episodes.
`elites.tasks.rollout.problem` makes one from a task; core never imports a simulator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import archive as archives
from elites.core import networks
from elites.core.archive import Archive
from elites.core.centroids import box_centroids
from elites.core.networks import MLP
from elites.core.replay import Layout
from elites.core.td3 import TD3, Losses

Array = jax.Array
Act = Callable[[Array], Array]  # observations [n, O] -> actions [n, A]

INITIAL = "initial"  # origin of the random policies that a run starts with


# ---------------------------------------------------------------------------------------- episodes


class Transitions(NamedTuple):
    """Steps of n episodes, time first. Where `mask` is False every other field is zero."""

    observation: Array  # [T, n, O]
    action: Array  # [T, n, A]
    reward: Array  # [T, n]
    next_observation: Array  # [T, n, O]
    done: Array  # [T, n] bool: the episode ended by itself
    truncation: Array  # [T, n] bool: the time limit cut it
    state_descriptor: Array  # [T, n, D] of the state before the step, in task units
    mask: Array  # [T, n] bool: the step was taken, in an episode that stayed finite


class Evaluation(NamedTuple):
    """Results of n episodes."""

    fitness: Array  # [n] undiscounted return
    descriptors: Array  # [n, D] in task units, within the bounds
    valid: Array  # [n] bool: False if the simulation diverged
    steps: Array  # [n] int: environment steps taken
    transitions: Transitions  # of no steps (T = 0) where nobody learns from them


@dataclasses.dataclass(frozen=True)
class Problem:
    """A task as the algorithms see it."""

    name: str
    observation_size: int
    action_size: int
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    deterministic: bool
    lengthscale: float
    """Of the descriptor similarity, on descriptors scaled to [-1, 1]."""
    rollout: Callable[[Act, Array], Evaluation]
    """(act, keys [n]) -> n episodes"""

    def __post_init__(self):
        for field in ("observation_size", "action_size"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"task '{self.name}': {field} must be at least 1, got {value!r}")
        check_bounds(self.name, self.descriptor_low, self.descriptor_high)

    @property
    def descriptor_size(self) -> int:
        """Dimensions of the descriptor space."""
        return len(self.descriptor_low)

    @property
    def ranges(self) -> tuple[float, ...]:
        """Extents of the descriptor space, in task units."""
        bounds = zip(self.descriptor_low, self.descriptor_high, strict=True)
        return tuple(high - low for low, high in bounds)

    def policy(self, hidden: tuple[int, ...]) -> MLP:
        """Return the network of a policy, from observations to actions in [-1, 1]."""
        return networks.policy(self.observation_size, self.action_size, hidden)

    def normalise(self, descriptors: Array) -> Array:
        """Scale descriptors [..., D] from task units to [-1, 1]."""
        shape = (1,) * (descriptors.ndim - 1) + (-1,)
        low = jnp.array(self.descriptor_low).reshape(shape)
        high = jnp.array(self.descriptor_high).reshape(shape)
        return 2.0 * (descriptors - low) / (high - low) - 1.0


def check_bounds(name: str, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    """Raise a ValueError if the bounds of a task's descriptors are not a box."""
    if not low or len(low) != len(high):
        raise ValueError(
            f"task '{name}': descriptor_low has {len(low)} entries and descriptor_high "
            f"{len(high)}; both need one for each descriptor dimension"
        )
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        # Compared as they are computed with: in 32 bits, large bounds can be equal.
        if not (math.isfinite(a) and math.isfinite(b) and np.float32(a) < np.float32(b)):
            raise ValueError(
                f"task '{name}': descriptor dimension {i} needs finite bounds with low < high in "
                f"32 bits, got {a!r} and {b!r}"
            )


def padded_size(batch: int) -> int:
    """Return how many robots are simulated together for a batch: the next multiple of 32.

    The compiled program, and with it the last bits of a trajectory, depends on this number. At
    other sizes the last few robots fall into the remainder of vectorised loops, where sums may be
    rounded differently, so a policy's result would depend on its position in the batch.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    return -(-batch // 32) * 32


# ------------------------------------------------------------------------------------ ask and tell


class Request(NamedTuple):
    """Policies to evaluate and, beside them, the actor at descriptors of its own."""

    policies: Array  # [n, P]
    origins: Array  # [n] int32: which variation made each, an index into `Algorithm.origins`
    targets: Array  # [n, D] descriptor that each policy was made for, in task units
    actor: Array | None  # [Pa]
    actor_targets: Array  # [m, D] descriptors to roll the actor out at, in task units
    key: Array  # [] of the rollouts
    noise: Array | None = None  # [n / 2, P] perturbations of an evolution strategy's copies


class Metrics(NamedTuple):
    """Metrics of one iteration. The dictionaries are keyed by variation and by learner."""

    qd_score: Array  # []
    coverage: Array  # []
    max_fitness: Array  # []
    evaluations: Array  # [] since the start: offspring, as the paper counts its budget
    env_steps: Array  # [] since the start: all steps of all rollouts, actor rollouts included
    added: dict[str, Array]  # [] offspring that entered the archive
    rejected: Array  # [] since the start: rollouts that diverged or gave a non-finite result
    critic_loss: dict[str, Array]  # []
    actor_loss: dict[str, Array]  # []

    @classmethod
    def of(cls, state: SearchState, names: Sequence[str], origins: Array, added: Array) -> Metrics:
        """Compute the metrics of a state.

        Candidates that were `added` [n] are counted by their `origins` [n], numbers of `names`.
        """
        return cls(
            **archives.summary(state.archive)._asdict(),
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
        )

    def with_losses(self, losses: Mapping[str, Losses]) -> Metrics:
        """Return these metrics completed by the losses of the iteration's training."""
        return self._replace(
            critic_loss={name: loss.critic for name, loss in losses.items()},
            actor_loss={name: loss.actor for name, loss in losses.items()},
        )


class SearchState(Protocol):
    """Complete state of a run, a pytree of arrays: training can continue from it."""

    @property
    def archive(self) -> Archive: ...
    @property
    def evaluations(self) -> Array: ...  # [] uint32, this and the following: see `Metrics`
    @property
    def env_steps(self) -> Array: ...
    @property
    def rejected(self) -> Array: ...


S = TypeVar("S", bound=SearchState)


class Round(NamedTuple, Generic[S]):
    """One exchange of an iteration: a request out, its results in."""

    ask: Callable[[S, Array], Request]  # (state, key of the iteration)
    tell: Callable[[S, Request, Evaluation], tuple[S, Metrics | None]]
    evaluations: int  # policies of the request that count; further rows only pad the batch


@dataclasses.dataclass(frozen=True, repr=False)
class Algorithm(Generic[S]):
    """An algorithm on a problem: pure functions for one seed, and facts about them.

    Each function is given the whole key of the start or of the iteration and derives its own. The
    same record with functions over a batch of seeds is made by `training.seeds.Batched`: `start`
    and `step` work on both.
    """

    name: str
    problem: Problem
    policy: MLP
    cells: int
    origins: tuple[str, ...]
    """Names by the number that `Archive.origin` holds."""
    offspring: Mapping[str, int]
    """Number of offspring of an iteration, by name."""
    batch: int
    """Policies of the request that fills the archive."""
    actor_rollouts: int
    """Descriptors at which that request rolls the actor out."""
    padded_batch: int
    """Robots simulated together for that request. Re-evaluation at this size repeats its bits."""
    main_td3: TD3 | None
    """Configuration of the main learner, whose actor is kept with the run."""
    replay_layout: Layout | None
    """Columns of the state's replay buffer, if there is one."""
    configuration: str
    """Hyperparameters as text, to recognise the same algorithm again."""

    init: Callable[[Array, Array], S]
    """(key, centroids) -> a state in which nothing has been evaluated"""
    first: Callable[[S, Array], Request]
    """(state, key) -> random policies, and the actor at descriptors of the state's archive"""
    train: Callable[[S, Array], tuple[S, dict[str, Losses]]]
    """(state, key) -> the state after the learners' gradient steps, and their mean losses"""
    rounds: tuple[Round[S], ...]
    """The exchanges of an iteration. The last one fills the archive, and is also told `first`."""
    evaluate: Callable[[Request], Evaluation]
    """(request) -> results, in rows of its policies and then of its actor rollouts"""
    actor: Callable[[S], Array | None]
    """(state) -> parameters of the main learner's actor, with the state's leading axes"""

    @property
    def conditioned(self) -> bool:
        """Whether there is an actor that can be asked for descriptors."""
        return self.main_td3 is not None and self.main_td3.actor_conditioned

    @property
    def initial_evaluations(self) -> int:
        """Evaluations of the start."""
        return self.rounds[-1].evaluations

    @property
    def evaluations_per_iteration(self) -> int:
        """Evaluations of an iteration, actor rollouts not counted."""
        return sum(round_.evaluations for round_ in self.rounds)

    def __repr__(self) -> str:
        return f"<{self.name} on {self.problem.name}>"

    def centroids(self) -> Array:
        """Return the centroids [C, D] of the archive's cells. The first call takes seconds."""
        low, high = self.problem.descriptor_low, self.problem.descriptor_high
        return box_centroids(low, high, self.cells)

    def start(self, key: Array, centroids: Array | None = None) -> S:
        """Evaluate the random policies that a run starts with and return the first state."""
        centroids = self.centroids() if centroids is None else centroids
        tell = self.rounds[-1].tell
        state = self.init(key, centroids)
        request = self.first(state, key)
        state, _ = tell(state, request, self.evaluate(request))
        if self.actor_rollouts:
            # The untrained actor is asked for what those policies reached: the same request again,
            # now with an archive to draw from, told to a blank state.
            request = self.first(state, key)
            del state  # so that only one replay buffer exists at a time
            evaluation = self.evaluate(request)
            state, _ = tell(self.init(key, centroids), request, evaluation)
        return state

    def step(self, state: S, key: Array) -> tuple[S, Metrics]:
        """Run one iteration and return the next state and the iteration's metrics."""
        state, losses = self.train(state, key)
        metrics = None
        for ask, tell, _ in self.rounds:
            request = ask(state, key)
            state, metrics = tell(state, request, self.evaluate(request))
        assert metrics is not None
        return state, metrics.with_losses(losses)
