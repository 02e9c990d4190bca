"""Presets: budgets and hyperparameters for five purposes.

    paper   the paper's numbers, and the default for control tasks
    vectors the numbers of the literature on plain optimisation, the default for plain vectors
    short   an eighth of the paper's budget, for `progress_me`
    demo    a real robot on two CPU cores within five minutes
    smoke   seconds: everything runs, nothing is learned

`elites train --preset demo` and `elites.train(..., preset="demo")` take the same values. This
module loads without JAX.
"""

from __future__ import annotations

import dataclasses

from elites.core.catalogue import suggestion
from elites.core.hyperparameters import Hyperparameters

MAX_SEEDS = 10_000  # of one run


@dataclasses.dataclass(frozen=True)
class Preset:
    """Default values of a training run, for everything that the user does not give."""

    evaluations: int = 1_000_000
    """Budget: policies evaluated for a seed."""
    checkpoint_every: int = 100
    """Iterations between two checkpoints of a run directory."""
    reevaluate_every: int = 100
    """Iterations between two re-evaluations in a run directory; 0 for one at the end."""
    hp: Hyperparameters = dataclasses.field(default_factory=Hyperparameters)


PAPER = Preset()  # lengthscales belong to the tasks
_PRESETS = {
    "paper": PAPER,
    # Within this budget, `progress_me` passed the paper's QD-scores of a million evaluations in
    # every seed on the ants and Walker-Uni, and in seven of eight on Hexapod-Omni.
    "short": Preset(evaluations=128_000),
    "vectors": Preset(
        evaluations=540_000,
        checkpoint_every=500,
        reevaluate_every=0,
        hp=Hyperparameters(
            grid=(100, 100), batch_size=540, iso_sigma=0.5, line_sigma=0.2, cma_emitters=15
        ),
    ),
    "demo": Preset(
        evaluations=9_000,
        checkpoint_every=25,
        reevaluate_every=0,
        hp=Hyperparameters(
            cells=256,
            batch_size=64,
            critic_steps=300,
            pg_steps=50,
            policy_hidden=(64, 64),
            actor_hidden=(128, 128),
            critic_hidden=(128, 128),
            replay_size=200_000,
            pbt_episodes=4,
            pbt_steps=600,
            pbt_replay_size=20_000,
            dns_population=256,
        ),
    ),
    "smoke": Preset(
        evaluations=320,
        checkpoint_every=4,
        reevaluate_every=0,
        hp=Hyperparameters(
            cells=32,
            batch_size=32,
            policy_hidden=(8, 8),
            actor_hidden=(8, 8),
            critic_hidden=(8, 8),
            td3_batch_size=16,
            progress_batch_size=16,
            critic_steps=6,
            diversity_critic_steps=4,
            pg_steps=3,
            replay_size=3000,
            es_samples=8,
            cma_copies=8,
            cma_critic_batch=64,
            es_memory=64,
            novelty_memory=64,
            pbt_population=5,
            pbt_offspring=4,
            pbt_episodes=2,
            pbt_steps=6,
            pbt_replay_size=1000,
            dns_population=24,
        ),
    ),
}


def names() -> list[str]:
    """Return the names of the presets: paper, short, vectors, demo and smoke."""
    return list(_PRESETS)


def default(task: str) -> str:
    """Return the name of the preset that a task has by default, given the task's name."""
    return "vectors" if task in VECTORS or task.startswith("vectors:") else "paper"


VECTORS = ("sphere", "rastrigin", "arm")
"""Standard names of tasks of plain vectors."""


def get(name: str) -> Preset:
    """Return the preset with this name, or raise a ValueError that lists the known names."""
    if name not in _PRESETS:
        raise ValueError(
            f"unknown preset '{name}'.{suggestion(name, _PRESETS)} Known: {', '.join(_PRESETS)}"
        )
    return _PRESETS[name]
