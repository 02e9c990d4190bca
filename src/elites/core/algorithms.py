"""Each published algorithm as a short composition, and their registry.

    me          CVT-MAP-Elites: GA alone
    me_es       MAP-Elites-ES: one parent at a time, gradients by an evolution strategy
    pga_me      PGA-MAP-Elites: GA, policy gradients of an unconditioned critic, the greedy actor
    qd_pg       QD-PG: the same with two critics, one for quality and one for novelty
    dcg_me      DCG-MAP-Elites: GA, gradients of a descriptor-conditioned critic, actor rollouts
    dcg_me_*    its three ablations
    dcrl_me     DCRL-MAP-Elites, by the same authors: the actor is injected as offspring
    progress_me the same with a reward for progress and standardised observations; not published
    cma_me*     CMA-ME: emitters that adapt a Gaussian of policies to the archive's changes
    cma_mae     CMA-MAE: the same with an annealed archive
    cma_mega*   CMA-MEGA: Gaussians over coefficients of gradients
    cma_maega   CMA-MAEGA: the same with an annealed archive
    pbt_me      PBT-MAP-Elites: a population of TD3 agents with hyperparameters of their own
    dns         dominated novelty search: GA on a population that competes without cells

The numbers come from `hyperparameters.py`; the defaults are the paper's table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from elites.core import arborescence, catalogue, emitters, map_elites, map_elites_es, pbt_map_elites
from elites.core import cma_me as emitting
from elites.core.algorithm import Algorithm
from elites.core.emitters import Gradients, Rules
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.progress import Progress
from elites.core.schedule import Schedule
from elites.core.spec import Learner, Spec, Variation
from elites.core.td3 import TD3
from elites.core.types import Problem
from elites.core.variation import ga, greedy, injection, policy_gradient

# ------------------------------------------------------------------------------------------- parts


def make_td3(
    problem: Problem,
    hp: Hyperparameters,
    *,
    critic_conditioned: bool = False,
    actor_conditioned: bool = False,
    actor_hidden: tuple[int, ...] | None = None,
    sampled_negatives: bool = False,
    lengthscale: float | None = None,
    **chosen: float,
) -> TD3:
    """Return the configuration of a TD3 learner.

    `actor_hidden` defaults to `hp.actor_hidden`, and `lengthscale` to that of the task. Where
    `hp.lengthscale` is given, it is used. `chosen` are fields of `TD3` for which the algorithm has
    values of its own, in place of the hyperparameters in `_NUMBERS`.
    """
    if sampled_negatives and hp.td3_batch_size % 2:
        raise ValueError(
            f"td3_batch_size must be even: each transition is used twice, got {hp.td3_batch_size}"
        )
    if "steps" not in chosen:
        chosen["steps"] = _checked_steps("critic_steps", hp.critic_steps, hp)
    observation, action = problem.observation_size, problem.action_size
    hidden = hp.actor_hidden if actor_hidden is None else actor_hidden
    if critic_conditioned and hp.lengthscale is not None:
        lengthscale = hp.lengthscale
    seen_by_actor = observation + actor_conditioned * problem.descriptor_size
    seen_by_critic = observation + action + critic_conditioned * problem.descriptor_size
    numbers: dict[str, Any] = {
        field: chosen[field] if field in chosen else getattr(hp, name)
        for field, name in _NUMBERS.items()
    }
    return TD3(
        actor=MLP((seen_by_actor, *hidden, action), activation=hp.activation),
        critic=MLP((seen_by_critic, *hp.critic_hidden, 1), "linear", hp.activation),
        actor_conditioned=actor_conditioned,
        critic_conditioned=critic_conditioned,
        lengthscale=problem.lengthscale if lengthscale is None else lengthscale,
        sampled_negatives=sampled_negatives,
        **numbers,
    )


_NUMBERS = {
    "actor_rate": "actor_learning_rate",
    "critic_rate": "critic_learning_rate",
    "discount": "discount",
    "target_rate": "target_update_rate",
    "smoothing_noise": "smoothing_noise",
    "smoothing_clip": "smoothing_clip",
    "delay": "actor_delay",
    "steps": "critic_steps",
    "batch_size": "td3_batch_size",
}
"""Hyperparameters of a TD3 learner, keyed by the field of `TD3`."""

conditioned_td3 = partial(make_td3, critic_conditioned=True, actor_conditioned=True)
"""The learner of DCG-MAP-Elites: actor and critics see the descriptor."""


def _checked_steps(name: str, steps: int, hp: Hyperparameters) -> int:
    """Return `steps` unchanged, or raise a ValueError if it is not a multiple of `hp.actor_delay`.

    `name` is the hyperparameter that `steps` comes from, for the message.
    """
    delay = hp.actor_delay
    if steps % delay:
        raise ValueError(f"{name} must be a multiple of actor_delay ({delay}), got {steps}")
    return steps


def _share(hp: Hyperparameters, parts: int, name: str) -> int:
    """Return `hp.batch_size` divided by `parts`. Raises a ValueError if it is not a multiple.

    `name` is the algorithm's name, for the message.
    """
    if hp.batch_size % parts:
        raise ValueError(
            f"batch_size must be a multiple of {parts} for {name}, got {hp.batch_size}"
        )
    return hp.batch_size // parts


# -------------------------------------------------------------------------------------- algorithms


def me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm CVT-MAP-Elites on a problem."""
    return map_elites.algorithm(Spec("me", problem, hp, (Variation("ga", hp.batch_size, ga),)))


def pga_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm PGA-MAP-Elites on a problem.

    Half of its offspring come from the GA and half from policy gradients. One of the latter is the
    greedy actor.
    """
    half = _share(hp, 2, "pga_me")
    # The greedy actor is archived, so it has a policy's layers.
    quality = Learner("quality", make_td3(problem, hp, actor_hidden=hp.policy_hidden))
    variations = (
        Variation("ga", hp.batch_size - half, ga),
        Variation("pg", half - 1, partial(policy_gradient, learner="quality")),
        Variation("greedy", 1, partial(greedy, learner="quality")),
    )
    return map_elites.algorithm(Spec("pga_me", problem, hp, variations, (quality,)))


def qd_pg(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm QD-PG on a problem.

    It has two learners: one is trained for quality, the other is rewarded for novel states.
    """
    third = hp.batch_size // 3
    if third < 2:
        raise ValueError(f"batch_size must be at least 6 for qd_pg, got {hp.batch_size}")
    quality = make_td3(problem, hp, actor_hidden=hp.policy_hidden)
    steps = _checked_steps("diversity_critic_steps", hp.diversity_critic_steps, hp)
    diversity = dataclasses.replace(quality, steps=steps)
    variations = (
        Variation("ga", hp.batch_size - 2 * third, ga),
        Variation("quality_pg", third - 1, partial(policy_gradient, learner="quality")),
        Variation("quality_greedy", 1, partial(greedy, learner="quality")),
        Variation("diversity_pg", third - 1, partial(policy_gradient, learner="diversity")),
        Variation("diversity_greedy", 1, partial(greedy, learner="diversity")),
    )
    learners = (Learner("quality", quality), Learner("diversity", diversity, rewards_novelty=True))
    return map_elites.algorithm(Spec("qd_pg", problem, hp, variations, learners))


def dcg_me(
    problem: Problem,
    hp: Hyperparameters,
    *,
    name: str = "dcg_me",
    actor_evaluation: bool = True,
    sampled_negatives: bool = False,
    actor_conditioned: bool = True,
) -> Algorithm:
    """Return the algorithm DCG-MAP-Elites on a problem.

    The last three arguments select its ablations. `name` is the name of the variant.
    """
    half = _share(hp, 2, name)
    learner = make_td3(
        problem, hp, critic_conditioned=True, actor_conditioned=actor_conditioned,
        sampled_negatives=sampled_negatives,
    )  # fmt: skip
    variations = (
        Variation("ga", half, ga),
        Variation("pg", half, partial(policy_gradient, learner="conditioned")),
    )
    rollouts = hp.batch_size if actor_evaluation else 0
    learners = (Learner("conditioned", learner),)
    return map_elites.algorithm(Spec(name, problem, hp, variations, learners, rollouts))


def dcrl_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm DCRL-MAP-Elites on a problem.

    It has no actor rollouts. Instead, actors with a fixed descriptor are part of the offspring.
    """
    quarter = _share(hp, 4, "dcrl_me")
    # The actor folds into policies, so it has their layers.
    learner = conditioned_td3(problem, hp, actor_hidden=hp.policy_hidden, lengthscale=0.1)
    gradient = partial(policy_gradient, learner="conditioned")
    inject = partial(injection, learner="conditioned")
    variations = (
        Variation("ga", 2 * quarter, ga),
        Variation("pg", quarter, gradient, stores_target=True),
        Variation("injection", quarter, inject, stores_target=True),
    )
    learners = (Learner("conditioned", learner),)
    return map_elites.algorithm(Spec("dcrl_me", problem, hp, variations, learners))


def progress_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm that `docs/progress.md` derives, on a problem.

    It is DCRL-MAP-Elites whose learner sees standardised observations and is rewarded for progress
    towards the target. Where the descriptor is a mean over steps, it is rewarded for outcomes.
    """
    quarter = _share(hp, 4, "progress_me")
    rewarded = hp.rewards_progress(problem.final_descriptor)
    discount, rate = hp.progress_numbers(problem.final_descriptor).values()
    td3 = conditioned_td3(
        problem, hp, actor_hidden=hp.policy_hidden, lengthscale=0.1, discount=discount,
        batch_size=hp.progress_batch_size, actor_rate=rate, critic_rate=rate,
    )  # fmt: skip
    progress = factor = None
    if rewarded:
        weight = Schedule(
            hp.progress_weight, hp.progress_final_weight, hp.progress_weight_start,
            hp.progress_weight_end,
        )  # fmt: skip
        progress = Progress(weight, hp.progress_reached, hp.progress_uniform, hp.progress_near)
        factor = Schedule(1.0, hp.progress_final_rate, hp.progress_rate_start, hp.progress_rate_end)
    learner = Learner("conditioned", td3, progress=progress, standardised=True, rate_factor=factor)
    aim = {"learner": "conditioned", "empty": hp.progress_empty if rewarded else 0.0}
    gradient = partial(policy_gradient, **aim, proximity=hp.progress_proximity)
    variations = (
        Variation("ga", 2 * quarter, ga),
        Variation("pg", quarter, gradient, stores_target=True, outward=bool(aim["empty"])),
        Variation("injection", quarter, partial(injection, **aim), stores_target=True),
    )
    return map_elites.algorithm(Spec("progress_me", problem, hp, variations, (learner,)))


def dns(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm dominated novelty search on a problem.

    Its parents come from its population. The archive only records what it finds.
    """
    variations = (Variation("ga", hp.batch_size, ga),)
    return map_elites.algorithm(Spec("dns", problem, hp, variations, population=hp.dns_population))


def me_es(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm MAP-Elites-ES on a problem."""
    if hp.es_samples % 2:
        raise ValueError(f"es_samples must be even: copies are mirrored, got {hp.es_samples}")
    return map_elites_es.algorithm(map_elites_es.Spec(problem, hp))


_IMPROVEMENT = Rules("2imp", "filter", "no_improvement")
_DIRECTION = Rules("2rd", "filter", "no_improvement")
_OPTIMISING = Rules("obj", "mu", "basic")
_ANNEALED = Rules("imp", "mu", "basic")
_ARBORESCENT = Rules("2imp", "mu", "no_improvement")


def cma_me(
    problem: Problem,
    hp: Hyperparameters,
    *,
    name: str = "cma_me",
    rules: Rules = _IMPROVEMENT,
    annealed: bool = False,
) -> Algorithm:
    """Return the algorithm CMA-ME on a problem, or CMA-MAE if its archive is `annealed`.

    `rules` are those of its emitters. `name` is the name of the variant.
    """
    sigma = 0.02 if problem.vectors is None else 0.5
    return emitting.algorithm(emitters.Spec(name, problem, hp, rules, sigma, annealed))


def cma_mega(
    problem: Problem,
    hp: Hyperparameters,
    *,
    name: str = "cma_mega",
    rules: Rules = _ARBORESCENT,
    annealed: bool = False,
    gradients: Gradients = "exact",
    critic: bool = False,
) -> Algorithm:
    """Return the algorithm CMA-MEGA on a problem, or CMA-MAEGA if its archive is `annealed`.

    `rules` are those of its emitters, and `gradients` is the source of the gradients. With
    `critic`, a TD3 learner gives that of the fitness. `name` is the name of the variant.
    """
    vectors = problem.vectors
    if critic and vectors is not None:
        raise ValueError(
            f"{name} learns from the steps of episodes, which '{problem.name}' does not have: use "
            "cma_mega or cma_mega_es"
        )
    if gradients == "exact" and (vectors is None or vectors.evaluate is None):
        raise ValueError(
            f"{name} needs exact gradients of fitness and descriptor, which '{problem.name}' does "
            "not have: use cma_mega_es, which estimates them"
        )
    sigma = 1.0 if vectors is None else 10.0
    td3 = make_td3(problem, hp, actor_hidden=hp.policy_hidden) if critic else None
    spec = emitters.Spec(name, problem, hp, rules, sigma, annealed, gradients, td3)
    return arborescence.algorithm(spec)


def pbt_me(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Return the algorithm PBT-MAP-Elites on a problem."""
    steps = _checked_steps("pbt_steps", hp.pbt_steps, hp)
    # Actors are archived, so they have a policy's layers. Each agent has numbers of its own, which
    # replace the lowest ones here.
    learner = make_td3(
        problem, hp, actor_hidden=hp.policy_hidden, steps=steps, discount=hp.pbt_discount[0],
        actor_rate=hp.pbt_actor_learning_rate[0], critic_rate=hp.pbt_critic_learning_rate[0],
        smoothing_noise=hp.pbt_smoothing_noise[0], smoothing_clip=hp.pbt_smoothing_clip[0],
    )  # fmt: skip
    return pbt_map_elites.algorithm(pbt_map_elites.Spec(problem, hp, learner))


def _ablation(name: str, **choices: bool) -> Callable[[Problem, Hyperparameters], Algorithm]:
    return partial(dcg_me, name=name, **choices)


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
    "dcg_me_unconditioned_actor": _ablation("dcg_me_unconditioned_actor", actor_conditioned=False),
    "dcrl_me": dcrl_me,
    "progress_me": progress_me,
    "cma_me": cma_me,
    "cma_me_random": partial(cma_me, name="cma_me_random", rules=_DIRECTION),
    "cma_me_optimising": partial(cma_me, name="cma_me_optimising", rules=_OPTIMISING),
    "cma_mae": partial(cma_me, name="cma_mae", rules=_ANNEALED, annealed=True),
    "cma_mega": cma_mega,
    "cma_maega": partial(cma_mega, name="cma_maega", rules=_ANNEALED, annealed=True),
    "cma_mega_es": partial(cma_mega, name="cma_mega_es", gradients="es"),
    "cma_mega_td3": partial(cma_mega, name="cma_mega_td3", gradients="es", critic=True),
    "pbt_me": pbt_me,
    "dns": dns,
}


def make(name: str, problem: Problem, hp: Hyperparameters | None = None) -> Algorithm:
    """Return the published algorithm with this name on a problem.

    `hp` defaults to the paper's hyperparameters.
    """
    return ALGORITHMS[catalogue.check_published(name)](problem, hp or Hyperparameters())
