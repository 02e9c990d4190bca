"""Run the episodes that a request asks for: its policies and its actor, in one padded batch.

The batch has these rows:

    [0, n)              the policies
    [n, size - m)       padding: copies of the first policy
    [size - m, size)    the actor rollouts

The results do not include the padding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from elites.core import networks, outside, td3
from elites.core.networks import MLP
from elites.core.outside import Rows
from elites.core.td3 import TD3
from elites.core.types import (
    Act,
    ActionNoise,
    Array,
    Evaluation,
    Problem,
    Request,
    Transitions,
    Vectors,
    padded_size,
)

# Folding i into a key gives the i-th key of a split, so this is larger than any number of rows. It
# is not the number that `replay.thin` uses.
_NOISE = 2**32 - 2


def evaluate(
    problem: Problem,
    policy: MLP,
    main_td3: TD3 | None,
    request: Request,
    *,
    observes: bool = False,
) -> Evaluation:
    """Run the episodes of a request and return their results, without padding.

    The first n rows belong to the n policies, the next m to the m actor rollouts. If all actor
    rollouts share one trajectory (`shares_trajectory`), there is one row for all of them. The
    transitions are empty if `main_td3` is None, because nobody learns from them. With `observes`,
    the transitions keep observation and mask, which normalisation needs.

    If the episodes run outside of JAX (`Problem.outside`), this function cannot be compiled.
    """
    if problem.outside is not None:
        rows = rows_outside(problem, main_td3, request)
        return outside.evaluate(problem, policy, main_td3, rows, observes=observes)
    if problem.vectors is not None:
        return _evaluate_vectors(problem, problem.vectors, request.policies)
    n = len(request.policies)
    m = actor_rows(problem, main_td3, len(request.actor_targets))
    size = padded_size(n + m)
    act = acting(problem, policy, main_td3, request, size)
    keys = jax.random.split(request.key, size)
    if request.action_noise is None:
        evaluation = problem.rollout(act, keys)
    else:
        evaluation = problem.rollout(act, keys, jnp.pad(request.action_noise, (0, size - n)))
    if main_td3 is None:
        steps = evaluation.transitions
        kept = jax.tree.map(lambda a: a[:0], steps)
        if observes:
            kept = kept._replace(observation=steps.observation, mask=steps.mask)
        evaluation = evaluation._replace(transitions=kept)
    if size == n + m:
        return evaluation
    return take(evaluation, jnp.concatenate([jnp.arange(n), jnp.arange(size - m, size)]))


def _evaluate_vectors(problem: Problem, vectors: Vectors, rows: Array) -> Evaluation:
    """Return the results of n plain vectors [n, P]. There are no transitions."""
    assert vectors.evaluate is not None
    fitness, descriptors = jax.vmap(vectors.evaluate)(rows)
    low, high = jnp.array(problem.descriptor_low)[None], jnp.array(problem.descriptor_high)[None]
    finite = jnp.isfinite(fitness) & jnp.isfinite(descriptors).all(-1)
    nothing = no_transitions(problem, len(rows))
    clipped = jnp.clip(descriptors, low, high)
    return Evaluation(fitness, clipped, finite, jnp.ones(len(rows), jnp.int32), nothing)


def no_transitions(problem: Problem, n: int) -> Transitions:
    """Return the transitions of n rows without steps."""
    observed, acted = problem.observation_size, problem.action_size
    return Transitions(
        jnp.zeros((0, n, observed)), jnp.zeros((0, n, acted)), jnp.zeros((0, n)),
        jnp.zeros((0, n, observed)), jnp.zeros((0, n), bool), jnp.zeros((0, n), bool),
        jnp.zeros((0, n, problem.descriptor_size)), jnp.zeros((0, n), bool),
    )  # fmt: skip


def jacobian(problem: Problem, rows: Array) -> Array:
    """Return the derivatives [n, 1 + D, P] of fitness and descriptor at n plain vectors [n, P].

    Row 0 is the gradient of the fitness. Raises a ValueError if the problem is not one of plain
    vectors with a function of JAX.
    """
    if problem.vectors is None or problem.vectors.evaluate is None:
        raise ValueError(
            f"task '{problem.name}' has no exact gradients: they need plain vectors and a function "
            "of JAX"
        )
    function = problem.vectors.evaluate

    def both(vector: Array) -> Array:
        fitness, descriptor = function(vector)
        return jnp.concatenate([fitness[None], descriptor])

    return jax.vmap(jax.jacrev(both))(rows)


def actor_rows(problem: Problem, main_td3: TD3 | None, rollouts: int) -> int:
    """Return the number of episodes needed to roll out the actor at `rollouts` descriptors.

    It is 1 if all rollouts share one trajectory, see `shares_trajectory`.
    """
    return min(rollouts, 1) if shares_trajectory(problem, main_td3) else rollouts


def shares_trajectory(problem: Problem, main_td3: TD3 | None) -> bool:
    """Return whether the actor's episode is the same for all target descriptors.

    This is so if the actor is not conditioned on the descriptor and the task is deterministic.
    """
    return main_td3 is not None and not main_td3.actor_conditioned and problem.deterministic


def acting(problem: Problem, policy: MLP, main_td3: TD3 | None, request: Request, size: int) -> Act:
    """Return a function from observations [size, O] to actions [size, A] for a request's batch.

    The first rows belong to the request's policies and the last to its actor. Rows in between are
    padding.
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


def noisy(actions: Array, deviations: Array, keys: Array) -> Array:
    """Return actions [n, A] with Gaussian noise, clipped to [-1, 1].

    `deviations` [n] are the standard deviations of the rows, and `keys` [n] their random keys.
    """
    normal = jax.vmap(lambda key: jax.random.normal(key, actions.shape[1:]))(keys)
    return jnp.clip(actions + deviations[:, None] * normal, -1.0, 1.0)


def rows_outside(problem: Problem, main_td3: TD3 | None, request: Request) -> Rows:
    """Return a request's episodes as plain policies with a seed each, to run outside of JAX.

    The actor is folded into one policy for each of its targets. There is no padding.
    """
    n, m = len(request.policies), actor_rows(problem, main_td3, len(request.actor_targets))
    if m and (main_td3 is None or request.actor is None):
        raise ValueError("the request has descriptors for an actor, but there is no actor")
    actors = jnp.zeros((0, 0))
    if m and main_td3 is not None and request.actor is not None:
        if main_td3.actor_conditioned:
            targets = problem.normalise(request.actor_targets[:m])
            actors = networks.fold(main_td3.actor, request.actor, targets)
        else:
            actors = jnp.broadcast_to(request.actor, (m, len(request.actor)))
    seeds = jnp.zeros(n + m, jnp.uint32)
    if not problem.deterministic:
        seeds = jax.vmap(jax.random.bits)(jax.random.split(request.key, n + m))
    noise = None
    if request.action_noise is not None:
        noise_seeds = jax.random.bits(jax.random.fold_in(request.key, _NOISE), (n + m,))
        noise = ActionNoise(jnp.pad(request.action_noise, (0, m)), noise_seeds)
    return Rows(request.policies, actors, seeds, noise)


def take(evaluation: Evaluation, rows: Array) -> Evaluation:
    """Return an evaluation of k episodes: those at the indices `rows` [k] of another one."""
    return Evaluation(
        evaluation.fitness[rows],
        evaluation.descriptors[rows],
        evaluation.valid[rows],
        evaluation.steps[rows],
        jax.tree.map(lambda a: a[:, rows], evaluation.transitions),
    )
