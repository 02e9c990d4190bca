"""Train in one call, and build algorithms by name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import SupportsIndex

import numpy as np

from elites import tasks
from elites.core.algorithm import Algorithm, S
from elites.core.hyperparameters import Hyperparameters, Value
from elites.tasks.rollout import problem
from elites.tasks.task import Task
from elites.training.builders import Builder, build_algorithm
from elites.training.results import Run, named
from elites.training.seeds import Batched, iteration_keys, seed_keys

Progress = Callable[[int, dict[str, np.ndarray]], None]  # (iteration, metrics by name [seeds])


def build(
    task: str | Task,
    algorithm: str | Builder = "dcg_me",
    *,
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> Algorithm:
    """Build an algorithm on a task: `start(key) -> state`, `step(state, key) -> state, metrics`.

    `algorithm` is a name, FILE.py:FUNCTION, or a function of a problem and hyperparameters.
    Hyperparameters are given as a record, by name, or both: names replace fields of the record.
    """
    fields = vars(hp) if hp is not None else {}
    task = tasks.make(task) if isinstance(task, str) else task
    values = Hyperparameters.of({**fields, **hyperparameters})
    return build_algorithm(algorithm, problem(task), values)


def train(
    task: str | Task,
    algorithm: str | Builder = "dcg_me",
    *,
    seeds: int | Sequence[int] = 1,
    evaluations: int = 1_000_000,
    progress: Progress | None = None,
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> Run:
    """Train until the first iteration that reaches the budget of evaluations.

    `seeds` is their number, or the seeds themselves. `progress(iteration, metrics)` is called after
    every iteration. See `build` for the other arguments.
    """
    _check_names(hyperparameters)
    built = build(task, algorithm, hp=hp, **hyperparameters)
    return train_algorithm(built, seeds=seeds, evaluations=evaluations, progress=progress)


def _check_names(values: Mapping[str, Value]) -> None:
    """Raise a ValueError for an argument that `train` does not have."""
    if "seed" in values:
        raise ValueError(
            f"unknown argument 'seed'. seeds=[{values['seed']!r}] trains the seed of that number; "
            "seeds=N trains N seeds, from 0 on"
        )
    Hyperparameters.of(values, arguments=("seeds", "evaluations", "progress", "hp"))


def train_algorithm(
    algorithm: Algorithm[S],
    *,
    seeds: int | Sequence[int] = 1,
    evaluations: int = 1_000_000,
    progress: Progress | None = None,
) -> Run[S]:
    """Train an algorithm that is already built, from the registry or your own. See `train`."""
    chosen = seeds if isinstance(seeds, Sequence) else range(_integer("seeds", seeds))
    seeds = checked_seeds(chosen)
    count = iterations_for(algorithm, evaluations)
    batched, keys = Batched(algorithm, len(seeds)), seed_keys(seeds)
    state = batched.start(iteration_keys(keys, 0))
    history: list[dict[str, np.ndarray]] = []
    for i in range(1, count + 1):
        state, metrics = batched.step(state, iteration_keys(keys, i))
        history.append(named(metrics))
        if progress is not None:
            progress(i, history[-1])
    table = {name: np.stack([row[name] for row in history]) for name in history[0]}
    return Run(algorithm, tuple(seeds), state.archive, algorithm.actor(state), table, state)


def checked_seeds(seeds: Sequence[int]) -> list[int]:
    """Return seeds as a list, or raise a ValueError if they are no seeds or not all different."""
    found = [_integer("seeds", seed) for seed in seeds]
    if not found:
        raise ValueError("seeds must be at least 1")
    for seed in found:
        if not 0 <= seed < 2**32:
            raise ValueError(f"a seed must be between 0 and 2**32 - 1, got {seed}")
    if len(set(found)) < len(found):
        raise ValueError(f"seeds must be different from each other, got {found}")
    return found


def iterations_for(algorithm: Algorithm, evaluations: int) -> int:
    """Return the iterations until the budget is reached. The first policies count towards it."""
    evaluations = _integer("evaluations", evaluations)
    initial, each = algorithm.initial_evaluations, algorithm.evaluations_per_iteration
    if evaluations < initial + each:
        raise ValueError(
            f"evaluations must be at least {initial} + {each}, the start and one iteration of "
            f"{algorithm.name}; got {evaluations}"
        )
    return -(-(evaluations - initial) // each)


def _integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
