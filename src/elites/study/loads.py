"""Find out what the runs of a plan compute: iterations, robots and memory. Loads JAX."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from elites import tasks, training, trust
from elites.runs import job
from elites.runs.config import Config, preset
from elites.study.packing import Pair
from elites.study.plan import Plan
from elites.study.seconds import Work


class Load(NamedTuple):
    """What a run of one algorithm on one task computes."""

    work: Work  # of one seed, in an iteration
    iterations: int  # of the whole run
    bytes_per_seed: int  # of the state and of the transitions of an iteration


def of(plan: Plan) -> dict[Pair, Load]:
    """Return what the runs of a plan compute, keyed by task and algorithm.

    Nothing is compiled or evaluated.
    """
    return {pair: _load(plan.config(*pair, plan.seed_numbers)) for pair in plan.pairs()}


def _load(config: Config) -> Load:
    """Return what a run with this configuration computes."""
    task = tasks.make(config.task)
    algorithm = training.build(task, config.algorithm, hp=config.hp)
    state = training.Batched(algorithm, 1).shapes(training.seed_keys([0]))
    size = training.size_in_bytes(state) + job.recorded_size(task, algorithm, 1)
    rows = tuple(max(each.evaluations, algorithm.padded_batch) for each in algorithm.rounds)
    work = Work(config.task, config.algorithm, rows, variant(config))
    return Load(work, training.iterations_for(algorithm, config.evaluations), size)


def variant(config: Config) -> str:
    """Return a text that identifies how a configuration differs from the paper's numbers.

    It lists hyperparameters that differ, and the digests of files of the user's own. It is empty
    for the paper's hyperparameters.
    """
    paper = vars(preset("paper", config.task).hp)
    changed = {name: value for name, value in vars(config.hp).items() if value != paper[name]}
    parts = [f"{name}={json.dumps(value)}" for name, value in sorted(changed.items())]
    parts += trust.trusted_digests(config.task, config.algorithm)
    text = " ".join(parts)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) <= 200 else f"{text[:180]}… {digest}"
