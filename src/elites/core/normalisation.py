"""Observation normalisation: running mean and variance of all observations of a run.

Every network in a run's state, archived or learning, takes raw observations. It is turned into one
for normalised observations while it is varied or trained, and turned back with the same statistics:

    parents    to_normalised -> variation -> to_raw    offspring
    learner    to_normalised -> training  -> to_raw    learner

A stored network therefore never changes its behaviour when the statistics do. Elites repeat to the
bit, and evaluation, export, replay and distillation need no statistics. `standardisation.py` has
the arithmetic. All functions accept None in place of statistics, for runs that do not normalise;
they then return their input.
"""

from __future__ import annotations

from typing import NamedTuple, overload

import jax
import jax.numpy as jnp

from elites.core import standardisation
from elites.core.networks import MLP
from elites.core.standardisation import Moments
from elites.core.types import Array, Evaluation


class Statistics(NamedTuple):
    """Number of observations so far, and the mean and variance of each of their entries."""

    number: Array  # [] float32
    mean: Array  # [O]
    variance: Array  # [O]


def none_yet(observation_size: int) -> Statistics:
    """Return the statistics of a run without observations. They leave observations unchanged."""
    nothing = jnp.zeros(observation_size)
    return Statistics(jnp.zeros(()), nothing, nothing)


@overload
def updated(statistics: Statistics, evaluation: Evaluation) -> Statistics: ...
@overload
def updated(statistics: Statistics | None, evaluation: Evaluation) -> Statistics | None: ...
def updated(statistics: Statistics | None, evaluation: Evaluation) -> Statistics | None:
    """Return statistics that include the observations before every step of an evaluation."""
    if statistics is None:
        return None
    steps = evaluation.transitions
    found, mean, variance = standardisation.mean_and_variance(steps.observation, steps.mask)
    return merged(statistics, Statistics(found.astype(jnp.float32), mean, variance))


def merged(a: Statistics, b: Statistics) -> Statistics:
    """Return the statistics of two sets of observations together."""
    number = a.number + b.number
    share = b.number / jnp.maximum(number, 1.0)
    difference = b.mean - a.mean
    between = share * (1.0 - share) * jnp.square(difference)
    variance = (1.0 - share) * a.variance + share * b.variance + between
    return Statistics(number, a.mean + share * difference, variance)


def moments(statistics: Statistics) -> Moments:
    """Return the mean and size by which observations are scaled. See `standardisation.size_of`."""
    size = standardisation.size_of(statistics.number, statistics.variance)
    return Moments(statistics.mean, size)


def normalised(statistics: Statistics | None, observations: Array) -> Array:
    """Return observations [..., O] minus the mean, divided by the size."""
    if statistics is None:
        return observations
    return standardisation.standardise(moments(statistics), observations)


def to_normalised(network: MLP, parameters: Array, statistics: Statistics | None) -> Array:
    """Return networks [n, P] for normalised observations from those for raw ones."""
    if statistics is None:
        return parameters
    scale = moments(statistics)
    return jax.vmap(lambda vector: standardisation.unfold(network, vector, scale))(parameters)


def to_raw(network: MLP, parameters: Array, statistics: Statistics | None) -> Array:
    """Return networks [n, P] for raw observations from those for normalised ones."""
    if statistics is None:
        return parameters
    scale = moments(statistics)
    return jax.vmap(lambda vector: standardisation.fold(network, vector, scale))(parameters)
