"""Run the episodes that a request asks for: its policies and its actor, in one padded batch.

The batch has these rows:

    [0, n)              the policies
    [n, size - m)       padding: copies of the first policy
    [size - m, size)    the actor rollouts

What is returned leaves the padding out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from elites.core import networks, td3
from elites.core.networks import MLP
from elites.core.td3 import TD3
from elites.core.types import Act, Array, Evaluation, Problem, Request, padded_size


def evaluate(problem: Problem, policy: MLP, main_td3: TD3 | None, request: Request) -> Evaluation:
    """Return the results of a request's n policies and m actor rollouts, as rows [n + m].

    If all actor rollouts share one trajectory, there are n + 1 rows. Without a learner nobody reads
    the transitions, and none are returned.
    """
    n = len(request.policies)
    m = actor_rows(problem, main_td3, len(request.actor_targets))
    size = padded_size(n + m)
    act = acting(problem, policy, main_td3, request, size)
    evaluation = problem.rollout(act, jax.random.split(request.key, size))
    if main_td3 is None:
        nothing = jax.tree.map(lambda a: a[:0], evaluation.transitions)
        evaluation = evaluation._replace(transitions=nothing)
    if size == n + m:
        return evaluation
    return take(evaluation, jnp.concatenate([jnp.arange(n), jnp.arange(size - m, size)]))


def actor_rows(problem: Problem, main_td3: TD3 | None, rollouts: int) -> int:
    """Return how many episodes it takes to roll the actor out at `rollouts` descriptors."""
    return min(rollouts, 1) if shares_trajectory(problem, main_td3) else rollouts


def shares_trajectory(problem: Problem, main_td3: TD3 | None) -> bool:
    """Return whether one episode of the actor serves all descriptors.

    This is so if the actor acts the same at all descriptors.
    """
    return main_td3 is not None and not main_td3.actor_conditioned and problem.deterministic


def acting(problem: Problem, policy: MLP, main_td3: TD3 | None, request: Request, size: int) -> Act:
    """Return the function from observations [size, O] to actions [size, A] of a request's policies.

    Policies come first and actor rollouts last. Rows between them are padding.
    """
    m = actor_rows(problem, main_td3, len(request.actor_targets))
    if m and (main_td3 is None or request.actor is None):
        raise ValueError("the request has descriptors for an actor, but there is no actor")
    others = size - m  # policies and padding
    any_policy = request.policies[:1] if len(request.policies) else jnp.zeros((1, policy.size))
    padding = jnp.broadcast_to(any_policy, (others - len(request.policies), policy.size))
    # Unflattened here, so that the loop over steps does not do it again every time.
    layers = networks.unflatten(policy, jnp.concatenate([request.policies, padding]))
    targets = problem.normalise(request.actor_targets[:m])

    def act(observation: Array) -> Array:
        actions = []
        if others:
            actions.append(networks.apply_each(policy, layers, observation[:others]))
        if m and main_td3 is not None and request.actor is not None:
            actions.append(td3.act(main_td3, request.actor, observation[others:], targets))
        return jnp.concatenate(actions)

    return act


def take(evaluation: Evaluation, rows: Array) -> Evaluation:
    """Return the results of the episodes with indices `rows` [k] of an evaluation."""
    return Evaluation(
        evaluation.fitness[rows],
        evaluation.descriptors[rows],
        evaluation.valid[rows],
        evaluation.steps[rows],
        jax.tree.map(lambda a: a[:, rows], evaluation.transitions),
    )
