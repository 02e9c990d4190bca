"""Emitters of CMA-ME's family: CMA-ES that is guided by the changes of an archive.

An emitter samples solutions, and the archive says what became of each: a new cell, an improvement,
or nothing. From this, an emitter does three things with its b samples:

    rank       order the samples, best first
    select     decide how many of them are parents of the next distribution
    restart    start again from a random elite when the search is exhausted

`Rules` names one way for each. The state of CMA-ES itself is in `cma_es`, and the stages of the
algorithms are in `cma_me` and `arborescence`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from functools import cached_property
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import averaging, cma_es
from elites.core.archive import Addition, Annealing, Archive
from elites.core.cells import Cells
from elites.core.cma_es import CMA, Gaussians
from elites.core.hyperparameters import Form, Hyperparameters, Ranker, Restart, Selection
from elites.core.networks import MLP
from elites.core.td3 import TD3
from elites.core.types import Array, Problem, Results, padded_size

Gradients = Literal["exact", "es"]

_AUTO_FULL = 1_000  # most dimensions with a full covariance, where the form is chosen for the user
_MOST_FULL = 10_000  # a covariance of more dimensions does not fit: 15 emitters would take 12 GB


@dataclasses.dataclass(frozen=True)
class Rules:
    """How an emitter ranks its samples, selects parents and restarts."""

    ranker: Ranker
    """imp: fitness minus the threshold of the cell. obj: fitness. rd: a random direction of the
    descriptor space. A 2 before it ranks by status first: new cells, improvements, then the rest.
    """
    selection: Selection
    """filter: the samples that were added are parents. mu: the better half."""
    restart: Restart
    """basic: when CMA-ES cannot go on. no_improvement: also when no sample was added."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Specification of an algorithm of CMA-ME's family on a problem."""

    name: str
    problem: Problem
    hp: Hyperparameters
    rules: Rules
    sigma: float
    """Initial step size, unless the user gives one."""
    annealed: bool = False
    """Whether the archive has thresholds that rise slowly, as in CMA-MAE."""
    gradients: Gradients | None = None
    """Source of the gradients whose coefficients are searched, as in CMA-MEGA: exact, or estimated
    by an evolution strategy. None searches the policies themselves."""
    td3: TD3 | None = None
    """Learner whose critic gives the gradient of the fitness instead."""

    def __post_init__(self):
        hp = self.hp
        if hp.batch_size % hp.cma_emitters:
            raise ValueError(
                f"batch_size must be a multiple of cma_emitters for {self.name}, got "
                f"{hp.batch_size} and {hp.cma_emitters}"
            )
        if self.samples < 2:
            raise ValueError(
                f"{self.name} needs at least {3 if self.arborescent else 2} policies for each of "
                f"its {hp.cma_emitters} emitters, but batch_size {hp.batch_size} gives "
                f"{hp.batch_size // hp.cma_emitters}: raise batch_size or lower cma_emitters"
            )
        if hp.normalise_observations:
            raise ValueError(f"{self.name} cannot be combined with normalise_observations")
        if self.form != "separable" and self.dimensions > _MOST_FULL:
            raise ValueError(
                f"cma_form '{hp.cma_form}' stores a covariance of all pairs of parameters, which "
                f"needs at most {_MOST_FULL:,} of them; there are {self.dimensions:,}: use "
                "cma_form 'separable'"
            )
        if self.gradients == "es" and hp.cma_copies % 2:
            raise ValueError(f"cma_copies must be even: copies are mirrored, got {hp.cma_copies}")
        averaging.check(self.problem, hp)

    @property
    def arborescent(self) -> bool:
        """Whether the emitters search over coefficients of gradients."""
        return self.gradients is not None

    @cached_property
    def policy(self) -> MLP:
        return self.problem.policy(self.hp.policy_hidden, self.hp.activation)

    @cached_property
    def cells(self) -> Cells:
        return Cells.of(self.problem, self.hp)

    @property
    def annealing(self) -> Annealing | None:
        """The rate and the lowest threshold of an annealed archive."""
        return Annealing(self.hp.archive_rate, self.hp.archive_minimum) if self.annealed else None

    @property
    def emitters(self) -> int:
        """Number of emitters, E."""
        return self.hp.cma_emitters

    @property
    def samples(self) -> int:
        """Number of samples of an emitter in an iteration, b. In CMA-MEGA, one row is its point."""
        return self.hp.batch_size // self.hp.cma_emitters - self.arborescent

    @property
    def dimensions(self) -> int:
        """Number of dimensions of the space that the emitters search."""
        return 1 + self.problem.descriptor_size if self.arborescent else self.policy.size

    @property
    def form(self) -> Form:
        """How the covariances are stored, also where `cma_form` is auto."""
        if self.hp.cma_form != "auto":
            return self.hp.cma_form
        return "cholesky" if self.dimensions <= _AUTO_FULL else "separable"

    @cached_property
    def cma(self) -> CMA:
        """Configuration of CMA-ES."""
        sigma = self.sigma if self.hp.cma_sigma is None else self.hp.cma_sigma
        return CMA(self.dimensions, self.samples, sigma, self.form, self.hp.cma_rank_one)

    @cached_property
    def chosen(self) -> Rules:
        """The rules of the algorithm, or where the user gives one, the user's."""
        hp, own = self.hp, self.rules
        return Rules(
            hp.cma_ranker or own.ranker,
            hp.cma_selection or own.selection,
            hp.cma_restart or own.restart,
        )


def padded(spec: Spec, rows: int) -> int:
    """Return the number of robots that are simulated for a request of this many rows."""
    return padded_size(rows) if spec.problem.vectors is None else rows


class Keys(NamedTuple):
    """Random keys that belong to a request, derived from its key.

    The rollouts of a request split its key into as many keys as there are rows. These are derived
    with numbers above any row, so that they differ from those.
    """

    samples: Array
    restarts: Array
    directions: Array
    starts: Array

    @classmethod
    def of(cls, key: Array) -> Keys:
        return cls(*(jax.random.fold_in(key, 2**31 - i) for i in (1, 2, 3, 4)))


class Ranked(NamedTuple):
    """Samples of E emitters in order, and what the restarts depend on."""

    order: Array  # [E, b] indices of the samples, best first
    better: Array  # [E] number of samples that were better than their cells
    parents: Array  # [E] number of samples that the next distribution is made from
    best: Array  # [E, values] what the best one was ranked by
    worst: Array  # [E, values]


def rank(
    spec: Spec, addition: Addition, results: Results, directions: Array | None = None
) -> Ranked:
    """Return the order of the samples, given what became of them in the archive.

    Addition and results have E * b rows, the samples of the first emitter first. `directions`
    [E, D] are those of random direction emitters, in task units.
    """
    rules, e, b = spec.chosen, spec.emitters, spec.samples
    status = addition.status.reshape(e, b)
    failed = addition.rejected.reshape(e, b)
    if rules.ranker.endswith("imp"):
        value = addition.value.reshape(e, b)
    elif rules.ranker.endswith("obj"):
        value = results.fitness.reshape(e, b)
    else:
        assert directions is not None
        reached = results.descriptors.reshape(e, b, -1)
        value = jnp.einsum("ekd,ed->ek", reached, directions, precision="highest")
    value = jnp.where(failed, -jnp.inf, value)
    keys = [value, status.astype(value.dtype)] if rules.ranker.startswith("2") else [value]
    order = jnp.flip(jnp.lexsort(keys, axis=-1), axis=-1)
    values = in_order(jnp.stack(keys, -1), order)
    better = (status > 0).sum(1)
    parents = better if rules.selection == "filter" else jnp.full(e, b // 2, better.dtype)
    return Ranked(order, better, parents, values[:, 0], values[:, -1])


def in_order(samples: Array, order: Array) -> Array:
    """Return samples [E, b, ...] in an order [E, b] of their indices."""
    return jnp.take_along_axis(samples, order[..., None], axis=1)


def exhausted(spec: Spec, gaussians: Gaussians, ranked: Ranked) -> Array:
    """Return a boolean array [E]: whether an emitter restarts."""
    stopped = cma_es.stopped(gaussians, ranked.best, ranked.worst)
    if spec.chosen.restart == "no_improvement":
        stopped |= ranked.better == 0
    return stopped


def random_elites(archive: Archive, key: Array, otherwise: Array) -> Array:
    """Return the policies [E, P] of random elites, or `otherwise` [E, P] if there is no elite."""
    drawn = archive.policies[archives.sample(archive, key, len(otherwise))]
    return jnp.where(archives.filled(archive).any(), drawn, otherwise)


def random_directions(spec: Spec, key: Array) -> Array:
    """Return random directions [E, D] of the descriptor space, scaled by its extents."""
    extents = jnp.array(spec.problem.ranges)
    return jax.random.normal(key, (spec.emitters, len(extents))) * extents[None]


def decomposed_when_due(spec: Spec, gaussians: Gaussians, iteration: Array) -> Gaussians:
    """Return the distributions with new factors, every `CMA.gap` iterations.

    The decomposition is due at the same time in all seeds. Told so, the compiler runs it only then;
    otherwise it would run it always, and choose between the results.
    """
    cma = spec.cma
    if cma.gap == 1:
        return cma_es.decomposed(cma, gaussians)
    due = (iteration + 1) % cma.gap == 0
    with contextlib.suppress(NameError):  # one seed alone
        due = jax.lax.pmax(due.astype(jnp.int32), "seeds") > 0
    return jax.lax.cond(due, lambda g: cma_es.decomposed(cma, g), lambda g: g, gaussians)
