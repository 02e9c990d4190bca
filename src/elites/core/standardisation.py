"""Training on standardised observations.

The networks of a learner are trained on (observation - mean) / size, but stored for observations as
the task gives them. A change of the first layer turns one into the other:

    W ((s - mean) / size) + b  =  (W / size) s + (b - W mean / size)

Actors can therefore become policies of the archive, and no code outside of training needs to know
about the scaling. Mean and size are measured once, on the episodes of the random policies that a
run starts with. Entries with a known range use its centre as mean and half its width as size.
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
    rows = observations.reshape(-1, observations.shape[-1])
    known = mask.reshape(-1, 1)
    count = jnp.maximum(known.sum(), 1)
    mean = jnp.sum(jnp.where(known, rows, 0.0), 0) / count
    square = jnp.sum(jnp.where(known, jnp.square(rows - mean[None]), 0.0), 0) / count
    size = jnp.where(known.any(), jnp.maximum(jnp.sqrt(square), SMALLEST), 1.0)
    for index, low, high in ranges:
        mean = mean.at[index].set((low + high) / 2)
        size = size.at[index].set((high - low) / 2)
    return Moments(mean, size)


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


def to_raw(td3: TD3, state: TD3State, moments: Moments) -> TD3State:
    """Return a learner that acts on raw observations as `state` acts on standardised ones."""

    def change(kernel: Array, bias: Array) -> tuple[Array, Array]:
        kernel = kernel / moments.size[:, None]
        return kernel, bias - jnp.sum(moments.mean[:, None] * kernel, 0)

    return _changed(td3, state, len(moments.mean), change)


def to_standardised(td3: TD3, state: TD3State, moments: Moments) -> TD3State:
    """Return a learner that acts on standardised observations as `state` acts on raw ones.

    Inverse of `to_raw`.
    """

    def change(kernel: Array, bias: Array) -> tuple[Array, Array]:
        bias = bias + jnp.sum(moments.mean[:, None] * kernel, 0)
        return kernel * moments.size[:, None], bias

    return _changed(td3, state, len(moments.mean), change)


def _changed(
    td3: TD3,
    state: TD3State,
    observations: int,
    change: Callable[[Array, Array], tuple[Array, Array]],
) -> TD3State:
    """Return a learner whose networks have a changed first layer. Optimiser states are kept.

    `change` maps the part of the first layer's kernel for the observation [O, H], and the bias [H],
    to new ones.
    """

    def network(shape: MLP, parameters: Array) -> Array:
        (kernel, bias), *rest = networks.unflatten(shape, parameters)
        seen, bias = change(kernel[:observations], bias)
        return networks.flatten([(jnp.concatenate([seen, kernel[observations:]]), bias), *rest])

    critics = jax.vmap(lambda parameters: network(td3.critic, parameters))
    return state._replace(
        actor=network(td3.actor, state.actor),
        target_actor=network(td3.actor, state.target_actor),
        critics=critics(state.critics),
        target_critics=critics(state.target_critics),
    )
