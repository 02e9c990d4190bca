"""DCG-MAP-Elites with immigrants: every eighth offspring is a new random policy."""

from functools import partial

import jax
import jax.numpy as jnp

from elites import tasks, training
from elites.core import map_elites, networks
from elites.core.algorithms import conditioned_td3
from elites.core.hyperparameters import Hyperparameters
from elites.core.map_elites import Learner, Offspring, Spec, State, Variation
from elites.core.types import Algorithm, Problem
from elites.core.variation import ga, policy_gradient
from elites.tasks.rollout import problem


def immigrants(spec: Spec, state: State, key: jax.Array, count: int) -> Offspring:
    """Make random policies that do not descend from the archive."""
    policies = jax.vmap(partial(networks.init, spec.policy))(jax.random.split(key, count))
    return Offspring(policies, targets=jnp.zeros((count, spec.problem.descriptor_size)))


def dcg_with_immigrants(on: Problem, hp: Hyperparameters) -> Algorithm:
    """Build the algorithm: half GA, three eighths PG, one eighth immigrants."""
    if hp.batch_size % 8:
        raise ValueError(f"batch_size must be a multiple of 8, got {hp.batch_size}")
    eighth = hp.batch_size // 8
    variations = (
        Variation("ga", 4 * eighth, ga),
        Variation("pg", 3 * eighth, partial(policy_gradient, learner="conditioned")),
        Variation("immigrant", eighth, immigrants),
    )
    learners = (Learner("conditioned", conditioned_td3(on, hp)),)
    spec = Spec("dcg_with_immigrants", on, hp, variations, learners, actor_rollouts=hp.batch_size)
    return map_elites.algorithm(spec)


def run(hp: Hyperparameters, evaluations: int) -> training.Run:
    """Train it on the point."""
    algorithm = dcg_with_immigrants(problem(tasks.make("point_omni")), hp)
    return training.train_algorithm(algorithm, seeds=(0,), evaluations=evaluations)
