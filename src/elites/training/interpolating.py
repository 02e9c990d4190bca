"""Measure how well the actor performs behaviours between and beyond those of the archive.

found = run.interpolate(points=2500)
found.error[0], found.distance[0]     # of the first seed, for each request
"""

from __future__ import annotations

import dataclasses
import math
import operator

import jax.numpy as jnp
import numpy as np

from elites.core.archive import Archive
from elites.core.types import Array, Problem
from elites.training.seeds import Batched

POINTS = 2500
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


@dataclasses.dataclass(frozen=True, eq=False)
class Interpolated:
    """Episodes of the actor for requests that are spread evenly over the descriptor space.

    Arrays of results have the seeds as first axis. Errors and distances are those of
    `core.distances`: in task units, relative to the longest axis.
    """

    problem: Problem = dataclasses.field(repr=False)
    spacing: float
    """Median distance between the centroid of a cell and the nearest other centroid."""
    requests: np.ndarray  # [n, D] in task units
    cells: np.ndarray  # [n] cell of each request
    reached: np.ndarray  # [seeds, n, D]
    fitness: np.ndarray  # [seeds, n]
    valid: np.ndarray  # [seeds, n]
    error: np.ndarray  # [seeds, n] distance between request and reached descriptor
    distance: np.ndarray  # [seeds, n] distance between request and nearest elite; inf without one
    filled: np.ndarray  # [seeds, n] whether the cell of the request has an elite


def interpolate(
    batched: Batched, archive: Archive, actors: Array, keys: Array, points: int = POINTS
) -> Interpolated:
    """Roll out the actors [seeds, P] for about `points` requests and return what they reach.

    `archive` has the archives of the seeds, and `keys` [seeds] are their random keys.
    """
    if operator.index(points) < 1:  # raises a TypeError for 2.5
        raise ValueError(f"points must be at least 1, got {points}")
    problem, seeds = batched.algorithm.problem, archive.fitness.shape[0]
    requests = spread(problem, points)
    asked = jnp.broadcast_to(jnp.asarray(requests), (seeds, *requests.shape))
    found = batched.roll_out_actor(actors, asked, keys)
    weights = np.array(problem.weights, np.float32)
    centroids = np.asarray(archive.centroids[0])
    cells, _ = _nearest(requests, centroids, weights)
    reached = np.asarray(found.descriptors)
    measured = Interpolated(
        problem,
        _spacing(centroids, weights),
        requests,
        cells,
        reached,
        np.asarray(found.fitness),
        np.asarray(found.valid),
        np.linalg.norm(weights * (reached - requests), axis=-1),
        np.full(reached.shape[:2], np.inf),
        np.zeros(reached.shape[:2], bool),
    )
    return beside(measured, np.asarray(archive.fitness), np.asarray(archive.descriptors))


def beside(found: Interpolated, fitness: np.ndarray, descriptors: np.ndarray) -> Interpolated:
    """Return results with the distances of the requests to the elites of other archives.

    The archives have `fitness` [seeds, C], -inf in empty cells, and `descriptors` [seeds, C, D].
    """
    filled, weights = np.isfinite(fitness), np.array(found.problem.weights, np.float32)
    distance = [
        _nearest(found.requests, of_seed[cells], weights)[1]
        for of_seed, cells in zip(descriptors, filled, strict=True)
    ]
    return dataclasses.replace(found, distance=np.stack(distance), filled=filled[:, found.cells])


def spread(problem: Problem, points: int) -> np.ndarray:
    """Return about `points` descriptors [n, D] that are spread evenly over the descriptor space.

    With one or two dimensions they are a grid, with more a Halton sequence.
    """
    size = problem.descriptor_size
    low, high = np.array(problem.descriptor_low), np.array(problem.descriptor_high)
    if size <= 2:
        parts = max(round(points ** (1 / size)), 1)
        axis = (np.arange(parts) + 0.5) / parts
        shares = np.stack(np.meshgrid(*[axis] * size, indexing="ij"), -1).reshape(-1, size)
    else:
        shares = np.stack([_halton(points, base) for base in _bases(size)], -1)
    return (low + shares * (high - low)).astype(np.float32)


def _bases(count: int) -> list[int]:
    """Return the first `count` primes."""
    found: list[int] = [*_PRIMES[:count]]
    candidate = _PRIMES[-1] + 2
    while len(found) < count:
        if all(candidate % divisor for divisor in range(3, math.isqrt(candidate) + 1, 2)):
            found.append(candidate)
        candidate += 2
    return found


def _halton(count: int, base: int) -> np.ndarray:
    """Return the first `count` numbers of the Halton sequence with a base: its digits mirrored."""
    numbers, shares, unit = np.arange(1, count + 1), np.zeros(count), 1.0
    while numbers.any():
        unit /= base
        shares += unit * (numbers % base)
        numbers = numbers // base
    return shares


def _spacing(centroids: np.ndarray, weights: np.ndarray) -> float:
    """Return the median distance between a centroid [C, D] and the nearest other one."""
    if len(centroids) < 2:
        return math.inf
    chosen = centroids[:: max(len(centroids) // 1024, 1)]
    found = [np.sort(_distances(row[None], centroids, weights)[0])[1] for row in chosen]
    return float(np.median(found))


def _nearest(
    points: np.ndarray, rows: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the row [R, D] nearest to each point [n, D], and its distance.

    Without rows, the distances are infinite.
    """
    if not len(rows):
        return np.full(len(points), -1), np.full(len(points), np.inf)
    numbers, distances = [], []
    for part in np.array_split(points, max(len(points) * len(rows) // 4_000_000, 1)):
        found = _distances(part, rows, weights)
        numbers.append(found.argmin(1))
        distances.append(found.min(1))
    return np.concatenate(numbers), np.concatenate(distances)


def _distances(points: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weighted distances [n, R] between points [n, D] and rows [R, D]."""
    return np.sqrt(sum(((points[:, None, i] - rows[:, i]) * w) ** 2 for i, w in enumerate(weights)))
