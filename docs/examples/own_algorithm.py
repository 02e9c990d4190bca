"""DCG-MAP-Elites with immigrants: every eighth offspring is a fresh random policy."""

import jax
import jax.numpy as jnp

from elites import tasks, training
from elites.core import networks
from elites.core.algorithms import conditioned_td3, genetic, gradient
from elites.core.hyperparameters import Hyperparameters
from elites.core.map_elites import Algorithm, Learner, Offspring, State, Variation, compose
from elites.core.problem import Problem
from elites.tasks.rollout import problem


def immigrants(count: int, policy: networks.MLP, descriptor_size: int) -> Variation:
    """Random policies that owe nothing to the archive."""

    def make(state: State, key: jax.Array) -> Offspring:
        keys = jax.random.split(key, count)
        policies = jax.vmap(lambda k: networks.init(policy, k))(keys)
        return Offspring(policies, targets=jnp.zeros((count, descriptor_size)))

    return Variation("immigrant", count, make)


def dcg_with_immigrants(on: Problem, hp: Hyperparameters) -> Algorithm:
    """Half GA, three eighths PG, one eighth strangers."""
    if hp.batch_size % 8:
        raise ValueError(f"batch_size must be a multiple of 8, got {hp.batch_size}")
    eighth = hp.batch_size // 8
    policy = networks.policy(on.observation_size, on.action_size, hp.policy_hidden)
    td3 = conditioned_td3(on, hp)
    return compose(
        "dcg_with_immigrants",
        on,
        policy,
        cells=hp.cells,
        learners={"conditioned": Learner(td3)},
        variations=[
            genetic(4 * eighth, hp),
            gradient(3 * eighth, on, hp, "conditioned", td3),
            immigrants(eighth, policy, on.descriptor_size),
        ],
        replay_size=hp.replay_size,
        actor_rollouts=hp.batch_size,
        descriptor_noise=hp.descriptor_noise,
    )


def run(hp: Hyperparameters, evaluations: int) -> training.Run:
    algorithm = dcg_with_immigrants(problem(tasks.make("point_omni")), hp)
    return training.train_algorithm(algorithm, seeds=(0,), evaluations=evaluations)
