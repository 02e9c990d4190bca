"""Each published algorithm as a short composition, and their registry.

    me          CVT-MAP-Elites: GA alone
    me_es       MAP-Elites-ES: one parent at a time, an evolution strategy for gradient
    pga_me      PGA-MAP-Elites: GA, policy gradients of an unconditioned critic, the greedy actor
    qd_pg       QD-PG: as above with two critics, one for quality and one for novelty
    dcg_me      DCG-MAP-Elites: GA, gradients of a critic that knows the descriptor, actor rollouts
    dcg_me_*    its three ablations
    dcrl_me     the successor by the same authors: the actor itself is injected as offspring

The numbers are those of `hyperparameters.py`, the paper's table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import catalogue, map_elites_es, networks, novelty, variation
from elites.core import replay as replays
from elites.core.hyperparameters import Hyperparameters
from elites.core.map_elites import (
    Algorithm,
    Learner,
    Offspring,
    State,
    Variation,
    compose,
    critic_is_conditioned,
)
from elites.core.networks import MLP
from elites.core.problem import Problem, Transitions, normalise
from elites.core.td3 import TD3

# ---------------------------------------------------------------------------------------- parts


def _policy(problem: Problem, hp: Hyperparameters) -> MLP:
    return networks.policy(problem.observation_size, problem.action_size, hp.policy_hidden)


def _td3(
    problem: Problem,
    hp: Hyperparameters,
    *,
    conditioned: bool,
    actor_conditioned: bool | None = None,
    actor_hidden: tuple[int, ...] | None = None,
    steps_field: str = "critic_steps",
    sampled_negatives: bool = False,
) -> TD3:
    actor_conditioned = conditioned if actor_conditioned is None else actor_conditioned
    size = problem.descriptor_size
    observations, actions = problem.observation_size, problem.action_size
    actor_inputs = observations + (size if actor_conditioned else 0)
    critic_inputs = observations + actions + (size if conditioned else 0)
    steps = getattr(hp, steps_field)
    if steps % hp.actor_delay:
        raise ValueError(
            f"{steps_field} must be a multiple of actor_delay ({hp.actor_delay}), got {steps}"
        )
    if sampled_negatives and hp.td3_batch_size % 2:
        raise ValueError(
            f"td3_batch_size must be even: each transition is used twice, got {hp.td3_batch_size}"
        )
    return TD3(
        actor=MLP((actor_inputs, *(actor_hidden or hp.actor_hidden), actions)),
        critic=MLP((critic_inputs, *hp.critic_hidden, 1), output="linear"),
        actor_conditioned=actor_conditioned,
        actor_rate=hp.actor_learning_rate,
        critic_rate=hp.critic_learning_rate,
        discount=hp.discount,
        target_rate=hp.target_update_rate,
        smoothing_noise=hp.smoothing_noise,
        smoothing_clip=hp.smoothing_clip,
        delay=hp.actor_delay,
        steps=steps,
        batch_size=hp.td3_batch_size,
        lengthscale=problem.lengthscale if hp.lengthscale is None else hp.lengthscale,
        sampled_negatives=sampled_negatives,
    )


def conditioned_td3(problem: Problem, hp: Hyperparameters) -> TD3:
    """The learner of DCG-MAP-Elites: actor and critic both see the descriptor."""
    return _td3(problem, hp, conditioned=True)


def genetic(count: int, hp: Hyperparameters, origin: str = "ga") -> Variation:
    """GA variation: `count` children of two uniformly drawn parents each."""

    def make(state: State, key: jax.Array) -> Offspring:
        first_key, second_key, noise_key = jax.random.split(key, 3)
        first = archives.sample(state.archive, first_key, count)
        second = archives.sample(state.archive, second_key, count)
        policies = state.archive.policies
        children = variation.iso_line(
            policies[first], policies[second], noise_key, hp.iso_sigma, hp.line_sigma
        )
        return Offspring(children, state.archive.descriptors[first])

    return Variation(origin, count, make)


def gradient(
    count: int,
    problem: Problem,
    hp: Hyperparameters,
    learner: str,
    td3: TD3,
    origin: str = "pg",
    judged_by_target: bool = False,
) -> Variation:
    """PG variation: parents climb the critic of `learner`, each at its own descriptor."""
    policy = _policy(problem, hp)
    conditioned = critic_is_conditioned(problem, td3)

    def make(state: State, key: jax.Array) -> Offspring:
        parent_key, replay_key = jax.random.split(key)
        cells = archives.sample(state.archive, parent_key, count)
        targets = state.archive.descriptors[cells]
        asked = normalise(problem, targets) if conditioned else targets[:, :0]
        assert state.replay is not None
        rows = replays.sample(state.replay, replay_key, (hp.pg_steps, hp.td3_batch_size))
        children = variation.policy_gradient(
            policy,
            state.archive.policies[cells],
            asked,
            td3,
            state.learners[learner].critics[0],
            rows[..., : problem.observation_size],  # a row begins with its observation
            hp.policy_learning_rate,
        )
        return Offspring(children, targets)

    return Variation(origin, count, make, judged_by_target)


def greedy(learner: str, problem: Problem, origin: str = "greedy") -> Variation:
    """The actor of `learner` itself."""

    def make(state: State, key: jax.Array) -> Offspring:
        del key
        return Offspring(
            variation.greedy(state.learners[learner].actor),
            jnp.zeros((1, problem.descriptor_size)),
        )

    return Variation(origin, 1, make)


def injection(count: int, problem: Problem, learner: str, td3: TD3) -> Variation:
    """The conditioned actor at descriptors of the archive, as plain policies."""

    def make(state: State, key: jax.Array) -> Offspring:
        cells = archives.sample(state.archive, key, count)
        targets = state.archive.descriptors[cells]
        actor = state.learners[learner].actor
        return Offspring(variation.injection(td3, actor, normalise(problem, targets)), targets)

    return Variation("injection", count, make, judged_by_target=True)


def _share(hp: Hyperparameters, parts: int, name: str) -> int:
    if hp.batch_size % parts:
        raise ValueError(
            f"batch_size must be a multiple of {parts} for {name}, got {hp.batch_size}"
        )
    return hp.batch_size // parts


# ------------------------------------------------------------------------------------ algorithms


def me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """CVT-MAP-Elites."""
    return compose(
        "me", problem, _policy(problem, hp), cells=hp.cells, variations=[genetic(hp.batch_size, hp)]
    )


def pga_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """PGA-MAP-Elites: half GA, half gradients of one critic for all, and its actor."""
    half = _share(hp, 2, "pga_me")
    # The greedy actor is archived, so it has the policies' layers.
    td3 = _td3(problem, hp, conditioned=False, actor_hidden=hp.policy_hidden)
    return compose(
        "pga_me",
        problem,
        _policy(problem, hp),
        cells=hp.cells,
        learners={"quality": Learner(td3)},
        variations=[
            genetic(hp.batch_size - half, hp),
            gradient(half - 1, problem, hp, "quality", td3),
            greedy("quality", problem),
        ],
        replay_size=hp.replay_size,
    )


def qd_pg(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """QD-PG: a critic of quality and one of diversity, whose reward is the novelty of a state."""
    third = hp.batch_size // 3
    if third < 2:
        raise ValueError(f"batch_size must be at least 6 for qd_pg, got {hp.batch_size}")
    hidden = hp.policy_hidden
    quality = _td3(problem, hp, conditioned=False, actor_hidden=hidden)
    diversity = _td3(
        problem, hp, conditioned=False, actor_hidden=hidden, steps_field="diversity_critic_steps"
    )
    size = problem.descriptor_size

    def novelty_reward(state: State, rows: jax.Array) -> jax.Array:
        def one_step(rows: jax.Array) -> jax.Array:
            points = rows[:, -size:]  # `compose` puts the state descriptor at a row's end
            assert state.memory is not None
            return novelty.mean_distance(state.memory, points, hp.novelty_neighbours, squared=True)

        return jax.lax.map(one_step, rows)

    def remember(memory: novelty.Memory, transitions: Transitions) -> novelty.Memory:
        points = transitions.state_descriptor.reshape(-1, size)
        mask = transitions.mask.reshape(-1)
        return novelty.insert_distant(memory, points, mask, hp.novelty_threshold)

    return compose(
        "qd_pg",
        problem,
        _policy(problem, hp),
        cells=hp.cells,
        learners={"quality": Learner(quality), "diversity": Learner(diversity, novelty_reward)},
        variations=[
            genetic(hp.batch_size - 2 * third, hp),
            gradient(third - 1, problem, hp, "quality", quality, "quality_pg"),
            greedy("quality", problem, "quality_greedy"),
            gradient(third - 1, problem, hp, "diversity", diversity, "diversity_pg"),
            greedy("diversity", problem, "diversity_greedy"),
        ],
        replay_size=hp.replay_size,
        memory=remember,
        memory_size=hp.novelty_memory,
    )


def dcg_me(
    problem: Problem,
    hp: Hyperparameters,
    *,
    name: str = "dcg_me",
    actor_evaluation: bool = True,
    sampled_negatives: bool = False,
    conditioned_actor: bool = True,
) -> Algorithm:
    """DCG-MAP-Elites; its ablations are values of the last three arguments."""
    half = _share(hp, 2, name)
    td3 = _td3(
        problem,
        hp,
        conditioned=True,
        actor_conditioned=conditioned_actor,
        sampled_negatives=sampled_negatives,
    )
    return compose(
        name,
        problem,
        _policy(problem, hp),
        cells=hp.cells,
        learners={"conditioned": Learner(td3)},
        variations=[genetic(half, hp), gradient(half, problem, hp, "conditioned", td3)],
        replay_size=hp.replay_size,
        actor_rollouts=hp.batch_size if actor_evaluation else 0,
        descriptor_noise=hp.descriptor_noise,
    )


def dcrl_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """DCRL-MAP-Elites: the actor's own behaviours are offspring and replace its rollouts."""
    quarter = _share(hp, 4, "dcrl_me")
    if hp.lengthscale is None:
        hp = dataclasses.replace(hp, lengthscale=0.1)
    # The actor folds into policies, so it has their layers.
    td3 = _td3(problem, hp, conditioned=True, actor_hidden=hp.policy_hidden)
    return compose(
        "dcrl_me",
        problem,
        _policy(problem, hp),
        cells=hp.cells,
        learners={"conditioned": Learner(td3)},
        variations=[
            genetic(2 * quarter, hp),
            gradient(quarter, problem, hp, "conditioned", td3, judged_by_target=True),
            injection(quarter, problem, "conditioned", td3),
        ],
        replay_size=hp.replay_size,
    )


def me_es(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """MAP-Elites-ES."""
    if hp.es_samples % 2:
        raise ValueError(f"es_samples must be even: copies are mirrored, got {hp.es_samples}")
    return map_elites_es.build(
        problem,
        _policy(problem, hp),
        cells=hp.cells,
        samples=hp.es_samples,
        sigma=hp.es_sigma,
        rate=hp.es_learning_rate,
        l2=hp.es_l2,
        generations=hp.es_generations,
        neighbours=hp.es_neighbours,
        memory_size=hp.es_memory,
        repeats=hp.es_repeats,
    )


def _ablation(name: str, **choices: bool) -> Callable[[Problem, Hyperparameters], Algorithm]:
    return lambda problem, hp: dcg_me(problem, hp, name=name, **choices)


ALGORITHMS: dict[str, Callable[[Problem, Hyperparameters], Algorithm]] = {
    "me": me,
    "me_es": me_es,
    "pga_me": pga_me,
    "qd_pg": qd_pg,
    "dcg_me": dcg_me,
    "dcg_me_no_actor_evaluation": _ablation("dcg_me_no_actor_evaluation", actor_evaluation=False),
    "dcg_me_sampled_negatives": _ablation(
        "dcg_me_sampled_negatives", actor_evaluation=False, sampled_negatives=True
    ),
    "dcg_me_unconditioned_actor": _ablation("dcg_me_unconditioned_actor", conditioned_actor=False),
    "dcrl_me": dcrl_me,
}


def make(name: str, problem: Problem, hp: Hyperparameters | None = None) -> Algorithm:
    """The algorithm of that name on a problem, with the paper's numbers unless told otherwise."""
    return ALGORITHMS[catalogue.check(name)](problem, hp or Hyperparameters())
