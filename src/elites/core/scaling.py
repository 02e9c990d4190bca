"""The scaling of observations that each learner of a run is trained with.

a learner of `progress_me`     the moments of the start, which never change (`standardisation`)
others, with normalisation     the statistics of the run so far (`normalisation`)
others, without                none
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

from elites.core import normalisation, standardisation
from elites.core.spec import Learner, Spec, State
from elites.core.standardisation import Moments
from elites.core.types import Array, Evaluation

T = TypeVar("T")


def moments(state: State, learner: Learner) -> Moments | None:
    """Return the moments by which a learner's observations are scaled, or None for raw ones."""
    if learner.standardised:
        return state.moments
    return None if state.statistics is None else normalisation.moments(state.statistics)


def measured(spec: Spec, state: State, evaluation: Evaluation) -> State:
    """Return the state with the moments and the statistics of the observations.

    The moments are measured after the start, the statistics after every request. After the start,
    the untrained networks become those for raw observations: they were drawn for scaled ones.
    """
    if state.moments is None and state.statistics is None:
        return state
    started, steps = state.iteration == 0, evaluation.transitions
    if state.moments is not None:
        ranges = spec.problem.observation_ranges
        found = standardisation.measure(steps.observation, steps.mask, ranges)
        state = state._replace(moments=_either(started, found, state.moments))
    state = state._replace(statistics=normalisation.updated(state.statistics, evaluation))
    learners = dict(state.learners)
    for part in spec.learners:
        if (scale := moments(state, part)) is not None:
            learners[part.name] = standardisation.to_raw(part.td3, learners[part.name], scale)
    return state._replace(learners=_either(started, learners, state.learners))


def _either(condition: Array, a: T, b: T) -> T:
    """Return the tree `a` if the scalar `condition` is True, otherwise `b`."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
