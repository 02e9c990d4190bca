"""A reward for each step's progress towards the target descriptor.

The reward of DCG-MAP-Elites scales a step's reward by the outcome of its whole episode, so it does
not tell which steps brought the robot closer. This one does:

    r' = r + w (|x - d'| - |x' - d'|)

x and x' are the descriptors of the states before and after the step, d' is the target, all scaled
to [-1, 1]. The weight w is a multiple of the largest absolute fitness in the archive, and it falls
as the archive fills. The reward is known for any target, so targets can be drawn anew in each
minibatch. It needs a task whose descriptor is that of the final state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core.archive import Archive
from elites.core.distances import euclidean
from elites.core.schedule import Schedule

Array = jax.Array

_NEAR_SIGMA = 0.1  # of a target near a state, in each dimension, for descriptors in [-1, 1]


@dataclasses.dataclass(frozen=True)
class Progress:
    """Settings of the progress reward, and of the new targets for transitions of a minibatch."""

    weight: Schedule
    """Schedule of the weight w, as a multiple of the largest absolute fitness in the archive."""
    reached: float = 0.0
    """Share of transitions whose target becomes the descriptor that their episode reached."""
    uniform: float = 0.0
    """Share of transitions whose target is drawn uniformly from all descriptors."""
    near: float = 0.0
    """Share of transitions whose target is drawn near the descriptor after the step."""

    def __post_init__(self):
        shares = (self.reached, self.uniform, self.near)
        if min(shares) < 0 or sum(shares) > 1:
            raise ValueError(
                "the shares of targets that are reached, uniform and near must not be negative and "
                f"sum to at most 1, got {', '.join(map(str, shares))}"
            )


def weight_in(progress: Progress, archive: Archive) -> Array:
    """Return the weight w [] of progress for an archive: schedule times largest absolute fitness.

    The schedule depends on the share of filled cells.
    """
    largest = jnp.max(jnp.where(archives.filled(archive), jnp.abs(archive.fitness), 0.0))
    return progress.weight.at(archives.summary(archive).coverage) * largest


def relabel(progress: Progress, target: Array, reached: Array, after: Array, key: Array) -> Array:
    """Return targets [..., D], of which a random part is replaced as `progress` specifies.

    `target` has the present targets, `reached` the descriptors that the episodes reached, and
    `after` those of the states after the step.
    """
    choice_key, uniform_key, near_key = jax.random.split(key, 3)
    choice = jax.random.uniform(choice_key, (*target.shape[:-1], 1))
    uniform = jax.random.uniform(uniform_key, target.shape, minval=-1.0, maxval=1.0)
    noise = _NEAR_SIGMA * jax.random.normal(near_key, target.shape)
    near = jnp.clip(after + noise, -1.0, 1.0)
    first, second = progress.reached, progress.reached + progress.uniform
    target = jnp.where(choice < second + progress.near, near, target)
    target = jnp.where(choice < second, uniform, target)
    return jnp.where(choice < first, reached, target)


def reward(weight: Array, reward: Array, before: Array, after: Array, target: Array) -> Array:
    """Return the rewards [...] of steps, with the reward for progress towards the target added.

    `reward` has the task's rewards. `before` and `after` [..., D] are the descriptors of the states
    before and after the step.
    """
    return reward + weight * (euclidean(before, target) - euclidean(after, target))


def relabelled_columns(
    progress: Progress, weight: Array, columns: Mapping[str, Array], key: Array
) -> dict[str, Array]:
    """Return replay columns [..., width] in which targets and rewards are replaced.

    The targets are those of `relabel`, and the rewards include the progress towards them. State
    descriptors must be scaled to [-1, 1]. The column `descriptor` becomes the target as well, so
    that the similarity in TD3's critic target is 1.
    """
    before, after = columns["state_descriptor"], columns["next_state_descriptor"]
    target = relabel(progress, columns["target"], columns["descriptor"], after, key)
    paid = reward(weight, columns["reward"][..., 0], before, after, target)
    return {**columns, "target": target, "descriptor": target, "reward": paid[..., None]}
