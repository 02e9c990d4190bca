"""A problem whose results can be computed by hand: an episode reports its own actions.

Row i of a batch observes the same numbers in every episode and has no dynamics:

    fitness        sum of all actions of the episode
    descriptor     the last action, scaled from [-1, 1] to the bounds
    valid          False where an action is not finite

The bounds are x from -3 to 5 and y from 10 to 10.5, so task units differ from [-1, 1].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import algorithms
from elites.core.hyperparameters import Hyperparameters
from elites.core.spec import Learner, Spec, Variation
from elites.core.types import Act, Array, Evaluation, Problem, Transitions
from elites.core.variation import ga

OBSERVATION, ACTION, STEPS = 3, 2, 4
LOW, HIGH = (-3.0, 10.0), (5.0, 10.5)

HP = Hyperparameters(
    batch_size=4, cells=16, policy_hidden=(5,), actor_hidden=(6,), critic_hidden=(7,),
    td3_batch_size=8, critic_steps=2, pg_steps=3, replay_size=500,
)  # fmt: skip


def observations(keys: Array, deterministic: bool) -> Array:
    """Return the observations [T, n, O] of all episodes."""
    rows = np.random.default_rng(0).normal(size=(STEPS, 1, OBSERVATION))
    seen = jnp.broadcast_to(jnp.asarray(rows, jnp.float32), (STEPS, len(keys), OBSERVATION))
    if deterministic:
        return seen
    return seen + jax.vmap(lambda key: jax.random.normal(key, (OBSERVATION,)))(keys)[None]


def problem(deterministic: bool = True) -> Problem:
    """Return the problem. Unless it is deterministic, an episode's key shifts its observations."""

    def rollout(act: Act, keys: Array) -> Evaluation:
        seen = observations(keys, deterministic)
        actions = jnp.stack([act(observation) for observation in seen])
        valid = jnp.isfinite(actions).all((0, 2))
        mask = jnp.broadcast_to(valid[None], (STEPS, len(keys)))
        low, high = jnp.array([LOW]), jnp.array([HIGH])
        descriptors = low + (actions[-1] + 1) / 2 * (high - low)
        time = jnp.broadcast_to(jnp.arange(STEPS)[:, None], mask.shape)
        transitions = Transitions(
            observation=seen, action=actions, reward=actions.sum(-1), next_observation=seen,
            done=jnp.zeros_like(mask), truncation=time == STEPS - 1,
            state_descriptor=low[None] + (actions + 1) / 2 * (high - low)[None], mask=mask,
        )  # fmt: skip
        masked = jax.tree.map(
            lambda a: jnp.where(mask.reshape(*mask.shape, *[1] * (a.ndim - 2)), a, 0), transitions
        )
        steps = jnp.where(valid, STEPS, 1)
        return Evaluation(actions.sum((0, 2)), descriptors, valid, steps, masked)

    return Problem(
        name="probe", observation_size=OBSERVATION, action_size=ACTION, descriptor_low=LOW,
        descriptor_high=HIGH, deterministic=deterministic, lengthscale=0.1, rollout=rollout,
    )  # fmt: skip


def spec(
    *,
    actor_rollouts: int = 0,
    actor_conditioned: bool = True,
    deterministic: bool = True,
    learns: bool = True,
    hp: Hyperparameters = HP,
) -> Spec:
    """Return an algorithm of GA offspring, with a conditioned critic if it learns."""
    made = problem(deterministic)
    config = algorithms.make_td3(
        made, hp, critic_conditioned=True, actor_conditioned=actor_conditioned,
        actor_hidden=hp.policy_hidden,
    )  # fmt: skip
    learners = (Learner("conditioned", config),) if learns else ()
    variations = (Variation("ga", hp.batch_size, ga),)
    return Spec("probe", made, hp, variations, learners, actor_rollouts)


def centroids(cells: int = HP.cells) -> Array:
    """Return centroids [C, D] drawn at random: faster than k-means."""
    return jnp.asarray(np.random.default_rng(1).uniform(LOW, HIGH, (cells, 2)), jnp.float32)


def random_policies(count: int, size: int, seed: int = 0) -> Array:
    """Return policies [count, size] whose actions differ clearly."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, size)), jnp.float32)
