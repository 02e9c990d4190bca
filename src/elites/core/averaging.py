"""Several episodes of each policy, and the average of their results.

A request for n policies that are evaluated N times has N n rows: all policies once, then all of
them again, and so on. Each row has a random key of its own. Every row is one episode, so whoever
evaluates a request need not know about the averages.
"""

from __future__ import annotations

import jax.numpy as jnp

from elites.core.hyperparameters import Average, Hyperparameters
from elites.core.types import Array, Evaluation, Problem, Request, Results


def check(problem: Problem, hp: Hyperparameters) -> None:
    """Raise a ValueError if several evaluations of a policy are wanted on a deterministic task."""
    if hp.evaluations_per_policy > 1 and problem.deterministic:
        raise ValueError(
            f"evaluations_per_policy is {hp.evaluations_per_policy}, but all episodes of a policy "
            f"are the same on '{problem.name}', which is deterministic. Use 1"
        )


def repeated(request: Request, times: int) -> Request:
    """Return a request in which each policy is asked for `times` times."""
    if times == 1:
        return request

    def rows(array: Array | None) -> Array | None:
        return None if array is None else jnp.concatenate([array] * times)

    return request._replace(
        policies=rows(request.policies),
        origins=rows(request.origins),
        targets=rows(request.targets),
        parent_descriptors=rows(request.parent_descriptors),
    )


def of_policies(evaluation: Evaluation, rows: int, times: int, average: Average) -> Results:
    """Return the averaged results of the policies of a request.

    The policies have the first `rows` rows of the evaluation, `times` rows each.
    """
    fitness, descriptors, valid = (array[:rows] for array in evaluation[:3])
    return averaged(Results(fitness, descriptors, valid), times, average)


def averaged(results: Results, times: int, average: Average) -> Results:
    """Return results [n] from those of `times` episodes of each policy [times * n].

    Fitness and each axis of the descriptor are averaged over the valid episodes. A policy is valid
    if one of its episodes is.
    """
    if times == 1:
        return results
    good = ~failed(results).reshape(times, -1)

    def over_episodes(values: Array) -> Array:
        values = values.reshape(times, -1, *values.shape[1:])
        known = good.reshape(*good.shape, *[1] * (values.ndim - 2))
        function = jnp.nanmean if average == "mean" else jnp.nanmedian
        return function(jnp.where(known, values, jnp.nan), axis=0)

    return Results(over_episodes(results.fitness), over_episodes(results.descriptors), good.any(0))


def failed(results: Results) -> Array:
    """Return booleans [n]: whether an episode is invalid or has a result that is not finite."""
    finite = jnp.isfinite(results.fitness) & jnp.isfinite(results.descriptors).all(-1)
    return ~(results.valid & finite)
