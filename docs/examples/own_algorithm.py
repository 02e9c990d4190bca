"""DCG-MAP-Elites with crossover: every eighth offspring mixes the parameters of two parents."""

from functools import partial

import jax
import jax.numpy as jnp

import elites
from elites.core import archive, map_elites
from elites.core.algorithm import Algorithm
from elites.core.algorithms import conditioned_td3
from elites.core.hyperparameters import Hyperparameters
from elites.core.spec import Learner, Offspring, Spec, State, Variation
from elites.core.types import Problem
from elites.core.variation import ga, policy_gradient


def crossover(spec: Spec, state: State, key: jax.Array, count: int) -> Offspring:
    """Take every parameter from one of two parents, chosen at random."""
    first_key, second_key, choice_key = jax.random.split(key, 3)
    first = archive.sample(state.archive, first_key, count)  # cells
    second = archive.sample(state.archive, second_key, count)
    choice = jax.random.bernoulli(choice_key, 0.5, (count, spec.policy.size))
    policies = state.archive.policies
    children = jnp.where(choice, policies[first], policies[second])
    return Offspring(children, targets=state.archive.descriptors[first])


def dcg_with_crossover(on: Problem, hp: Hyperparameters) -> Algorithm:
    """Build the algorithm: half GA, three eighths PG, one eighth crossover."""
    if hp.batch_size % 8:
        raise ValueError(f"batch_size must be a multiple of 8, got {hp.batch_size}")
    eighth = hp.batch_size // 8
    variations = (
        Variation("ga", 4 * eighth, ga),
        Variation("pg", 3 * eighth, partial(policy_gradient, learner="conditioned")),
        Variation("crossover", eighth, crossover),
    )
    learners = (Learner("conditioned", conditioned_td3(on, hp)),)
    spec = Spec("dcg_with_crossover", on, hp, variations, learners, actor_rollouts=hp.batch_size)
    return map_elites.algorithm(spec)


def run(hp: Hyperparameters, evaluations: int) -> elites.Run:
    """Train it on the point, with one seed."""
    return elites.train("point_omni", dcg_with_crossover, hp=hp, evaluations=evaluations)
