"""The hyperparameters that each published algorithm reads. All others have no effect on it.

Loads without JAX, so that the command line can warn quickly. A test records which fields each
algorithm reads while it is built and traced, and compares them with these lists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from elites.core.hyperparameters import Hyperparameters
from elites.words import listed

_ALL = (
    "cells", "grid", "centroids_file", "policy_hidden", "activation", "normalise_observations",
    "evaluations_per_policy", "average", "qd_offset",
)  # fmt: skip
_GA = ("iso_sigma", "line_sigma")
_LEARNER = ("critic_hidden", "actor_delay", "target_update_rate", "td3_batch_size")
_STEPS = ("critic_steps", "smoothing_noise", "smoothing_clip", "replay_size")
_RATES = ("discount", "actor_learning_rate", "critic_learning_rate")
_PG = ("pg_steps", "policy_learning_rate")
_ME = (*_ALL, "batch_size", *_GA)
_PGA_ME = (*_ME, *_LEARNER, *_STEPS, *_RATES, *_PG)
_DCG_ME = (*_PGA_ME, "actor_hidden", "lengthscale")
_PROGRESS = (
    "progress_weight", "progress_final_weight", "progress_weight_start", "progress_weight_end",
    "progress_discount", "progress_batch_size", "progress_learning_rate", "progress_final_rate",
    "progress_rate_start", "progress_rate_end", "progress_reached", "progress_uniform",
    "progress_near", "progress_empty", "progress_proximity",
)  # fmt: skip
_ES = (
    "es_samples", "es_sigma", "es_learning_rate", "es_l2", "es_generations", "es_neighbours",
    "es_memory", "es_repeats",
)  # fmt: skip
_CMA_ME = (
    *_ALL, "batch_size", "cma_emitters", "cma_sigma", "cma_form", "cma_rank_one", "cma_ranker",
    "cma_selection", "cma_restart",
)  # fmt: skip
_CMA_MEGA = (*_CMA_ME, "cma_ascent")
_CMA_MEGA_ES = (*_CMA_MEGA, "cma_copies", "es_sigma")
_ANNEALED = ("archive_rate", "archive_minimum")
_PBT = (
    "pbt_population", "pbt_offspring", "pbt_episodes", "pbt_steps", "pbt_replay_size",
    "pbt_copying", "pbt_best", "pbt_drawing", "pbt_discount", "pbt_actor_learning_rate",
    "pbt_critic_learning_rate", "pbt_smoothing_noise", "pbt_smoothing_clip",
    "pbt_exploration_noise",
)  # fmt: skip

READ: dict[str, tuple[str, ...]] = {
    "me": _ME,
    "me_es": (*_ALL, *_ES),
    "pga_me": _PGA_ME,
    "qd_pg": (
        *_PGA_ME, "diversity_critic_steps", "novelty_memory", "novelty_threshold",
        "novelty_neighbours",
    ),
    "dcg_me": (*_DCG_ME, "descriptor_noise"),
    "dcg_me_no_actor_evaluation": _DCG_ME,
    "dcg_me_sampled_negatives": _DCG_ME,
    "dcg_me_unconditioned_actor": (*_DCG_ME, "descriptor_noise"),
    "dcrl_me": (*_PGA_ME, "lengthscale"),
    "progress_me": (*_ME, *_LEARNER, *_STEPS, *_PG, "lengthscale", *_PROGRESS),
    "cma_me": _CMA_ME,
    "cma_me_random": _CMA_ME,
    "cma_me_optimising": _CMA_ME,
    "cma_mae": (*_CMA_ME, *_ANNEALED),
    "cma_mega": _CMA_MEGA,
    "cma_maega": (*_CMA_MEGA, *_ANNEALED),
    "cma_mega_es": _CMA_MEGA_ES,
    "cma_mega_td3": (*_CMA_MEGA_ES, "cma_critic_batch", *_LEARNER, *_STEPS, *_RATES),
    "pbt_me": (*_ALL, *_GA, *_LEARNER, *_PBT),
    "dns": (*_ME, "dns_population", "dns_neighbours"),
}  # fmt: skip
"""Hyperparameters that an algorithm reads, keyed by the algorithm's name."""


def read_by(algorithm: str) -> list[str]:
    """Return the hyperparameters that a published algorithm reads, in their usual order."""
    names = [field.name for field in dataclasses.fields(Hyperparameters)]
    return [name for name in names if name in READ[algorithm]]


def ignored(algorithm: str, base: Hyperparameters, given: Hyperparameters) -> list[str]:
    """Return the hyperparameters that differ from `base`, but that the algorithm does not read.

    Returns an empty list for an algorithm of the user's own, about which nothing is known.
    """
    if algorithm not in READ:
        return []
    return [
        field.name
        for field in dataclasses.fields(Hyperparameters)
        if field.name not in READ[algorithm]
        and getattr(given, field.name) != getattr(base, field.name)
    ]


def no_effect(algorithm: str, names: Sequence[str]) -> str:
    """Return a warning that options or arguments have no effect on an algorithm."""
    return (
        f"{listed(names)} {'has' if len(names) == 1 else 'have'} no effect on {algorithm}. "
        f"'elites algorithms {algorithm}' lists the hyperparameters that it reads"
    )
