"""The algorithms of pyribs that `beside_pyribs.py` runs, and the problems in NumPy.

The problems are those of Fontaine et al. (2020): the optimum is moved by 2.048 along every axis,
and fitness is scaled so that it is 100 there and 0 at the farthest corner of the box. A descriptor
is the sum of one half of the vector, where entries x beyond 5.12 count as 5.12 / x.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DIMENSIONS, EMITTERS, BATCH, GRID = 100, 15, 540, (100, 100)
BOUND = DIMENSIONS / 2 * 5.12  # of both descriptor axes
OPTIONS: dict[str, dict[str, Any]] = {
    "cma_me": {"ranker": "2imp", "selection_rule": "filter", "restart_rule": "no_improvement"},
    "cma_mae": {"ranker": "imp", "selection_rule": "mu", "restart_rule": "basic"},
    "cma_mega": {"selection_rule": "mu"},
    "cma_maega": {"ranker": "imp", "restart_rule": "basic"},
}


def scheduler(algorithm: str, seed: int, grid: tuple[int, int] = GRID, batch: int = BATCH) -> Any:
    """Return an algorithm of pyribs with the options of its example for these problems."""
    from ribs.archives import GridArchive
    from ribs.emitters import EvolutionStrategyEmitter, GradientArborescenceEmitter, IsoLineEmitter
    from ribs.schedulers import Scheduler

    def archive(number: int, **options: Any) -> Any:
        ranges = [(-BOUND, BOUND)] * 2
        return GridArchive(
            solution_dim=DIMENSIONS, dims=grid, ranges=ranges, seed=number, **options
        )

    annealed = algorithm in ("cma_mae", "cma_maega")
    main = archive(seed, **({"learning_rate": 0.01, "threshold_min": 0.0} if annealed else {}))
    start, seeds = np.zeros(DIMENSIONS), [1000 * seed + i for i in range(EMITTERS)]
    each = batch // EMITTERS
    if algorithm == "me":
        emitter = IsoLineEmitter(
            main, x0=start, iso_sigma=0.5, line_sigma=0.2, batch_size=batch, seed=seed
        )
        return Scheduler(main, [emitter])
    if algorithm in ("cma_mega", "cma_maega"):
        options = {"grad_opt": "gradient_ascent", "lr": 1.0, "sigma0": 10.0, **OPTIONS[algorithm]}
        made = [
            GradientArborescenceEmitter(main, x0=start, batch_size=each - 1, seed=s, **options)
            for s in seeds
        ]
    else:
        options = {"sigma0": 0.5, **OPTIONS[algorithm]}
        made = [
            EvolutionStrategyEmitter(main, x0=start, batch_size=each, seed=s, **options)
            for s in seeds
        ]
    return Scheduler(main, made, result_archive=archive(seed + 500) if annealed else None)


def advance(search: Any, algorithm: str, problem: str) -> None:
    """Run one iteration of pyribs."""
    if algorithm in ("cma_mega", "cma_maega"):
        points = search.ask_dqd()
        search.tell_dqd(*evaluated(problem, points), jacobian(problem, points))
    search.tell(*evaluated(problem, search.ask()))


SHIFT = 5.12 * 0.4  # of the optimum
FAR = 5.12 + SHIFT  # distance of the optimum from the farthest bound


def evaluated(problem: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fitness [n] and descriptors [n, 2] of vectors [n, P]."""
    outside = np.abs(x) > 5.12
    clipped = np.where(outside, 5.12 / np.where(outside, x, 1.0), x)
    half = x.shape[1] // 2
    descriptors = np.stack([clipped[:, :half].sum(1), clipped[:, half:].sum(1)], 1)
    return 100 * (1 - _cost(problem, x - SHIFT) / _worst(problem, x.shape[1])), descriptors


def _cost(problem: str, z: np.ndarray) -> np.ndarray:
    if problem == "sphere":
        return (z**2).sum(1)
    return (10 + z**2 - 10 * np.cos(2 * np.pi * z)).sum(1)


def _worst(problem: str, dimensions: int) -> float:
    return float(_cost(problem, np.full((1, dimensions), -FAR))[0])


def jacobian(problem: str, x: np.ndarray) -> np.ndarray:
    """Return the derivatives [n, 3, P] of fitness and descriptor at vectors [n, P]."""
    n, dimensions = x.shape
    z, half = x - SHIFT, dimensions // 2
    slope = 2 * z if problem == "sphere" else 2 * z + 20 * np.pi * np.sin(2 * np.pi * z)
    outside = np.abs(x) > 5.12
    along = np.where(outside, -5.12 / np.where(outside, x, 1.0) ** 2, 1.0)
    made = np.zeros((n, 3, dimensions))
    made[:, 0] = -100 * slope / _worst(problem, dimensions)
    made[:, 1, :half], made[:, 2, half:] = along[:, :half], along[:, half:]
    return made
