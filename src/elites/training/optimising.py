"""Optimise a function of plain vectors in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elites.core.hyperparameters import Hyperparameters, Value
from elites.tasks import vectors
from elites.training.builders import Builder
from elites.training.loop import Callback, train
from elites.training.results import Run

_CELLS = 10_000  # of the default grid, as in the literature


def optimize(
    function: Callable[[Any], tuple[Any, Any]],
    dimensions: int,
    low: Sequence[float],
    high: Sequence[float],
    algorithm: str | Builder = "cma_mae",
    *,
    start: float | Sequence[float] = 0.0,
    spread: float = 0.5,
    is_numpy: bool = False,
    name: str | None = None,
    descriptor_names: Sequence[str] = (),
    seeds: int | Sequence[int] = 1,
    evaluations: int | None = None,
    progress: bool | Callback | None = None,
    callback: Callback | Sequence[Callback] = (),
    log: str | Sequence[str] = (),
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> Run:
    """Find, for every descriptor, the vector with the highest fitness. Returns the run.

    `function` maps one vector [dimensions] to its fitness [] and its descriptor [D], in JAX. It is
    compiled, and evaluated for a whole batch at once. With `is_numpy`, it is a function of NumPy
    instead, which maps all vectors [n, dimensions] of a batch to fitness [n] and descriptors
    [n, D]. Fitness is maximised. `low` and `high` are the bounds of the descriptor: the archive
    divides this box into cells.

    Emitters begin at the vector `start`, or at this number in every dimension. The first vectors of
    MAP-Elites are drawn around it with the standard deviation `spread`.

    By default, the archive is a grid of about 10,000 cells. Give `grid`, `cells` or
    `centroids_file` for another one. All other arguments are those of `elites.train`, with the
    preset `vectors`.
    """
    task = vectors.task(
        name or getattr(function, "__name__", "function"), function, dimensions, low, high,
        start=start, spread=spread, is_numpy=is_numpy, descriptor_names=tuple(descriptor_names),
    )  # fmt: skip
    if hp is None and "grid" not in hyperparameters:
        own = "cells" in hyperparameters or "centroids_file" in hyperparameters
        axes = task.descriptor_size
        hyperparameters["grid"] = () if own else (max(2, round(_CELLS ** (1 / axes))),) * axes
    return train(
        task, algorithm, preset="vectors", seeds=seeds, evaluations=evaluations, progress=progress,
        callback=callback, log=log, start_from=None, hp=hp, **hyperparameters,
    )  # fmt: skip
