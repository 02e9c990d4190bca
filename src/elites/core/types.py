"""The records shared between modules: episodes, problems, requests.

A `Problem` is what an algorithm knows of a task: sizes, bounds, and a function that runs episodes.
`elites.tasks.rollout.problem` makes one from a task; core never imports a simulator.

An algorithm asks for policies to be evaluated by a `Request`, and is told what they did by an
`Evaluation`. It does not care who evaluates them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import distances, networks
from elites.core.hyperparameters import Activation
from elites.core.networks import MLP

Array = jax.Array
Act = Callable[[Array], Array]  # observations [n, O] -> actions [n, A]

INITIAL = "initial"  # origin of the random policies that a run starts with


# ---------------------------------------------------------------------------------------- episodes


class Transitions(NamedTuple):
    """Steps of n episodes, time axis first. Where `mask` is False, all other fields are zero."""

    observation: Array  # [T, n, O]
    action: Array  # [T, n, A]
    reward: Array  # [T, n]
    next_observation: Array  # [T, n, O]
    done: Array  # [T, n] bool: the episode ended by itself
    truncation: Array  # [T, n] bool: the time limit cut it
    state_descriptor: Array  # [T, n, D] of the state before the step, in task units
    mask: Array  # [T, n] bool: the step was taken, in an episode that stayed finite


class Evaluation(NamedTuple):
    """Results of n episodes: fitness, descriptors, validity, steps and transitions."""

    fitness: Array  # [n] undiscounted return
    descriptors: Array  # [n, D] in task units, within the bounds
    valid: Array  # [n] bool: False if the simulation diverged
    steps: Array  # [n] int: environment steps taken
    transitions: Transitions  # of no steps (T = 0) where nobody learns from them


class ActionNoise(NamedTuple):
    """Noise on the actions of n episodes that run outside of JAX."""

    deviations: Any  # [n] standard deviation, 0 for none
    seeds: Any  # [n] uint32


class Outside(Protocol):
    """Runs the episodes of a task outside of JAX, for example in other processes."""

    @property
    def episode_length(self) -> int:
        """Largest number of steps of an episode, T."""
        ...

    def run(
        self,
        policies: Sequence[tuple[MLP, np.ndarray]],
        seeds: np.ndarray,
        record: bool,
        noise: ActionNoise | None = None,
    ) -> Evaluation:
        """Run n episodes and return their results as NumPy arrays.

        `policies` has the network and the parameters [P] of each episode's policy, and `seeds` [n]
        the seed of its start. The transitions are [T, n, ...], or of no steps unless `record`.
        Actions with `noise` are clipped to [-1, 1]. Only `pbt_me` asks for it.
        """
        ...

    def record(
        self, policies: Sequence[tuple[MLP, np.ndarray]], seeds: np.ndarray
    ) -> tuple[Evaluation, np.ndarray | None]:
        """Run n episodes and return their results with all steps, and poses to draw.

        The poses [T + 1, n, B, 7] are those of the bodies of the task's scene, at the start and
        after every step. They are None if there is nothing to draw.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Vectors:
    """Plain vectors in place of policies: an optimisation problem without steps.

    A vector is stored where other problems store the parameters of a policy.
    """

    size: int
    """Number of dimensions P of a vector."""
    evaluate: Callable[[Array], tuple[Array, Array]] | None
    """(vector [P]) -> fitness [] and descriptor [D], or None if it is evaluated outside of JAX"""
    start: tuple[float, ...]
    """Vector [P] at which emitters begin, and around which the first vectors are drawn."""
    spread: float = 0.5
    """Standard deviation of the first vectors of MAP-Elites around the start."""

    def __post_init__(self):
        if not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"a vector needs at least 1 dimension, got {self.size!r}")
        if len(self.start) != self.size or not all(map(math.isfinite, self.start)):
            raise ValueError(
                f"start must be {self.size} finite numbers, one for each dimension, got "
                f"{len(self.start)} values"
            )


class Results(NamedTuple):
    """Evaluation results of n policies or episodes without the transitions."""

    fitness: Array  # [n]
    descriptors: Array  # [n, D]
    valid: Array  # [n]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A task as the algorithms see it: sizes, bounds and a function that runs episodes."""

    name: str
    observation_size: int
    action_size: int
    descriptor_low: tuple[float, ...]
    descriptor_high: tuple[float, ...]
    deterministic: bool
    lengthscale: float
    """Lengthscale of the descriptor similarity, on descriptors scaled to [-1, 1]."""
    rollout: Callable[..., Evaluation] = dataclasses.field(repr=False)  # JAX prints functions
    """(act, keys [n], noise=None) -> n episodes

    `noise` [n] is the standard deviation of the noise on the actions of each episode. It is only
    given for requests with `Request.action_noise`.
    """
    final_descriptor: bool = True
    """The descriptor of an episode is that of its final state."""
    observation_ranges: tuple[tuple[int, float, float], ...] = ()
    """Entries of the observation with a known range: index, lowest and highest value."""
    outside: Outside | None = None
    """Runs the episodes outside of JAX. `rollout` is not used then, and raises an error."""
    qd_offset: float = 0.0
    """Fitness that counts as 0 in QD-scores, unless a run chooses another, see `offset`."""
    vectors: Vectors | None = None
    """Plain vectors to optimise. There are no episodes then, and `rollout` is not used."""

    def __post_init__(self):
        for field in ("observation_size", "action_size"):
            value, least = getattr(self, field), 1 if self.vectors is None else 0
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"task '{self.name}': {field} must be at least {least}, got {value!r}"
                )
        for field in ("descriptor_low", "descriptor_high"):
            object.__setattr__(self, field, numbers(self.name, field, getattr(self, field)))
        check_lengthscale(self.name, self.lengthscale)
        check_bounds(self.name, self.descriptor_low, self.descriptor_high)
        check_ranges(self.name, self.observation_ranges, self.observation_size)
        check_offset(self.name, self.qd_offset)

    @property
    def descriptor_size(self) -> int:
        """Number of dimensions D of the descriptor space."""
        return len(self.descriptor_low)

    @property
    def ranges(self) -> tuple[float, ...]:
        """Extent of each descriptor axis, high minus low, in task units."""
        bounds = zip(self.descriptor_low, self.descriptor_high, strict=True)
        return tuple(high - low for low, high in bounds)

    @property
    def weights(self) -> distances.Weights:
        """Weight of each descriptor axis in distances, see `distances`."""
        return distances.weights_of(self.ranges)

    def policy(self, hidden: tuple[int, ...], activation: Activation = "relu") -> MLP:
        """Return the network shape of a policy, from observations to actions in [-1, 1].

        A plain vector is the bias of a network without inputs.
        """
        if self.vectors is not None:
            return MLP((0, self.vectors.size), output="linear")
        return networks.policy(self.observation_size, self.action_size, hidden, activation)

    def offset(self, chosen: float | None) -> float:
        """Return the offset of QD-scores: the run's choice or, if that is None, the task's own."""
        return self.qd_offset if chosen is None else chosen

    def normalise(self, descriptors: Array) -> Array:
        """Return descriptors [..., D] scaled from task units to [-1, 1]."""
        shape = (1,) * (descriptors.ndim - 1) + (-1,)
        low = jnp.array(self.descriptor_low).reshape(shape)
        high = jnp.array(self.descriptor_high).reshape(shape)
        return 2.0 * (descriptors - low) / (high - low) - 1.0


def numbers(task: str, field: str, values: Any) -> tuple[float, ...]:
    """Return `values` as a tuple of floats. Tuples, lists and arrays of numbers are accepted.

    Anything else raises a ValueError. `task` and `field` are names for the message.
    """
    found = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(found, list | tuple) or not all(map(_is_number, found)):
        raise ValueError(f"task '{task}': {field} must be a tuple of numbers, got {values!r}")
    return tuple(map(float, found))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_lengthscale(name: str, lengthscale: Any) -> None:
    """Raise a ValueError if the lengthscale of a task is not a finite number above 0."""
    if not _is_number(lengthscale) or not 0 < lengthscale < math.inf:
        raise ValueError(
            f"task '{name}': lengthscale must be a finite number above 0, got {lengthscale!r}"
        )


def check_offset(name: str, offset: Any) -> None:
    """Raise a ValueError if the offset of a task's QD-scores is not a finite number."""
    if not _is_number(offset) or not math.isfinite(offset):
        raise ValueError(f"task '{name}': qd_offset must be a finite number, got {offset!r}")


def check_bounds(name: str, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    """Raise a ValueError if a task's descriptor bounds do not form a box.

    Both need the same length, and finite numbers with low < high on every axis. `name` is the
    task's name, for the message.
    """
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


def check_ranges(name: str, ranges: tuple[tuple[int, float, float], ...], size: int) -> None:
    """Raise a ValueError if the known ranges of a task's observation are not valid."""
    for entry in ranges:
        valid = isinstance(entry, tuple) and len(entry) == 3 and isinstance(entry[0], int)
        if not (valid and 0 <= entry[0] < size and -math.inf < entry[1] < entry[2] < math.inf):
            raise ValueError(
                f"task '{name}': observation_ranges needs tuples of an index below {size} and "
                f"finite bounds with low < high, got {entry!r}"
            )


def padded_size(batch: int) -> int:
    """Return the number of robots simulated for a batch: `batch` rounded up to a multiple of 32.

    The compiled program, and with it the last bits of a trajectory, depends on this number. At
    other sizes the last few robots fall into the remainder of vectorised loops, where sums may be
    rounded differently, so a policy's result would depend on its position in the batch.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    return -(-batch // 32) * 32


# ------------------------------------------------------------------------------------ ask and tell


class Request(NamedTuple):
    """Policies to evaluate, and descriptors at which to roll out the actor in the same batch."""

    policies: Array  # [n, P]
    origins: Array  # [n] int32: which variation made each, an index into `Algorithm.origins`
    targets: Array  # [n, D] descriptor that each was made for, in task units; 0 if there is none
    actor: Array | None  # [Pa]
    actor_targets: Array  # [m, D] descriptors to roll the actor out at, in task units
    key: Array  # [] of the rollouts
    noise: Array | None = None  # [n / 2, P] perturbations of an evolution strategy's copies
    parent_descriptors: Array | None = None  # [n, D] the target where there is no parent
    action_noise: Array | None = None  # [n] deviation of the noise on each policy's actions

    def to_evaluate(self) -> Request:
        """Return the request for evaluation: without `parent_descriptors`, which only `tell` reads.

        All evaluated requests then have the same structure, so one compiled program evaluates them.
        """
        return self if self.parent_descriptors is None else self._replace(parent_descriptors=None)
