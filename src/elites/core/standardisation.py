"""Networks for scaled observations.

The networks of a learner can be trained on (observation - mean) / size, but stored for observations
as the task gives them. A change of the first layer turns one into the other:

    W ((s - mean) / size) + b  =  (W / size) s + (b - W mean / size)

Actors can therefore become policies of the archive, and no code outside of training needs to know
about the scaling. The learner of `progress_me` uses the moments of `measure`, which are measured
once, on the episodes of the random policies that a run starts with. `normalisation.py` measures
them during the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import networks
from elites.core.networks import MLP
from elites.core.td3 import TD3, Batch, TD3State

Array = jax.Array

SMALLEST = 1 / 30  # size of an entry that hardly varies
Range = tuple[int, float, float]  # index of an entry of the observation, lowest and highest value


class Moments(NamedTuple):
    """Mean and size (scale) of each entry of an observation."""

    mean: Array  # [O]
    size: Array  # [O]


def unit(observation_size: int) -> Moments:
    """Return moments that leave observations unchanged: mean 0 and size 1."""
    return Moments(jnp.zeros(observation_size), jnp.ones(observation_size))


def measure(observations: Array, mask: Array, ranges: Sequence[Range] = ()) -> Moments:
    """Return the mean and size of the observations [T, n, O] for which `mask` [T, n] is true.

    The size of an entry is its standard deviation, at least 1/30. Entries listed in `ranges` use
    the centre and half the width of their range instead. Without any observations, mean is 0 and
    size 1.
    """
    count, mean, variance = mean_and_variance(observations, mask)
    size = size_of(count, variance)
    for index, low, high in ranges:
        mean = mean.at[index].set((low + high) / 2)
        size = size.at[index].set((high - low) / 2)
    return Moments(mean, size)


def mean_and_variance(observations: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Return the number [], mean [O] and variance [O] of the observations that `mask` selects.

    See `measure` for the arguments. Without any observations, all three are 0.
    """
    rows = observations.reshape(-1, observations.shape[-1])
    known = mask.reshape(-1, 1)
    found = known.sum()
    count = jnp.maximum(found, 1)
    mean = jnp.sum(jnp.where(known, rows, 0.0), 0) / count
    square = jnp.sum(jnp.where(known, jnp.square(rows - mean[None]), 0.0), 0) / count
    return found, mean, square


def size_of(count: Array, variance: Array) -> Array:
    """Return the sizes [O] of entries: their standard deviation, at least 1/30.

    They are 1 if `count`, the number of observations, is 0.
    """
    return jnp.where(count > 0, jnp.maximum(jnp.sqrt(variance), SMALLEST), 1.0)


def standardise(moments: Moments, observations: Array) -> Array:
    """Return observations [..., O] after subtracting the mean and dividing by the size."""
    shape = (1,) * (observations.ndim - 1) + (-1,)
    return (observations - moments.mean.reshape(shape)) / moments.size.reshape(shape)


def standardise_batches(moments: Moments, batches: Batch) -> Batch:
    """Return minibatches with standardised observations."""
    return batches._replace(
        observation=standardise(moments, batches.observation),
        next_observation=standardise(moments, batches.next_observation),
    )


def fold(network: MLP, parameters: Array, moments: Moments) -> Array:
    """Return a network [P] for raw observations from one for standardised observations.

    The first inputs of the network are the observation. Others, such as a descriptor, are not
    scaled.
    """

    def change(kernel: Array, bias: Array) -> tuple[Array, Array]:
        kernel = kernel / moments.size[:, None]
        return kernel, bias - jnp.sum(moments.mean[:, None] * kernel, 0)

    return _changed(network, parameters, len(moments.mean), change)


def unfold(network: MLP, parameters: Array, moments: Moments) -> Array:
    """Return a network [P] for standardised observations from one for raw observations.

    Inverse of `fold`.
    """

    def change(kernel: Array, bias: Array) -> tuple[Array, Array]:
        bias = bias + jnp.sum(moments.mean[:, None] * kernel, 0)
        return kernel * moments.size[:, None], bias

    return _changed(network, parameters, len(moments.mean), change)


def _changed(
    network: MLP,
    parameters: Array,
    observations: int,
    change: Callable[[Array, Array], tuple[Array, Array]],
) -> Array:
    """Return a network [P] with a changed first layer.

    `change` maps the part of the first layer's kernel for the observation [O, H], and the bias [H],
    to new ones.
    """
    (kernel, bias), *rest = networks.unflatten(network, parameters)
    seen, bias = change(kernel[:observations], bias)
    return networks.flatten([(jnp.concatenate([seen, kernel[observations:]]), bias), *rest])


def to_raw(td3: TD3, state: TD3State, moments: Moments) -> TD3State:
    """Return a learner that acts on raw observations as `state` acts on standardised ones."""
    return _each_network(td3, state, lambda network, vector: fold(network, vector, moments))


def to_standardised(td3: TD3, state: TD3State, moments: Moments) -> TD3State:
    """Return a learner that acts on standardised observations as `state` acts on raw ones.

    Inverse of `to_raw`.
    """
    return _each_network(td3, state, lambda network, vector: unfold(network, vector, moments))


def _each_network(td3: TD3, state: TD3State, change: Callable[[MLP, Array], Array]) -> TD3State:
    """Return a learner whose networks are changed by `change`. Optimiser states are kept."""
    critics = jax.vmap(lambda parameters: change(td3.critic, parameters))
    return state._replace(
        actor=change(td3.actor, state.actor),
        target_actor=change(td3.actor, state.target_actor),
        critics=critics(state.critics),
        target_critics=critics(state.target_critics),
    )
