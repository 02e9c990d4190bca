"""Find the requests at which the actor of a run hits the cells of its archive.

found = run.calibrate(rounds=16)
found.request([10.0, -5.0])       # what to ask the actor for, to reach this descriptor
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import ArrayLike

from elites.core import calibration, reevaluation
from elites.core.archive import Archive
from elites.core.distances import Weights
from elites.core.reevaluation import Reevaluation, Results
from elites.core.types import Array, Problem
from elites.training.keys import iteration_keys
from elites.training.seeds import Batched

ROUNDS = 16
_VERIFICATION = 2**30  # round number that seeds the final verification
_PROPOSALS = 2**29  # of a round's keys: those of its proposals


@dataclasses.dataclass(frozen=True, eq=False)
class Calibrated:
    """Requests for the cells of each seed's archive, and how well the actor hits the cells.

    All arrays have the seeds as first axis. Errors are distances to the centroids of the cells.
    """

    problem: Problem = dataclasses.field(repr=False)
    best: int
    """Index of the seed that `request` uses by default."""
    requests: np.ndarray  # [seeds, C, D] what to ask the actor for, in task units
    reached: np.ndarray  # [seeds, C, D] descriptor of the episode with that request
    fitness: np.ndarray  # [seeds, C]
    valid: np.ndarray  # [seeds, C]
    before: Reevaluation = dataclasses.field(repr=False)
    """Scores of the actor when it is asked for the centroids."""
    after: Reevaluation = dataclasses.field(repr=False)
    """Scores of the actor when it is asked for `requests`, in episodes of their own."""

    def request(self, descriptor: ArrayLike, seed: int | None = None) -> np.ndarray:
        """Return the descriptor [D] to ask the actor for, to reach `descriptor` in task units.

        It is the request whose episode ended nearest. `seed` is the index of a seed. By default, it
        is the one with the highest QD-score.
        """
        index = self.best if seed is None else seed
        wanted = np.asarray(descriptor, np.float32)
        if wanted.shape != (self.problem.descriptor_size,):
            raise ValueError(
                f"a descriptor has {self.problem.descriptor_size} numbers, got {descriptor!r}"
            )
        known, weights = self.valid[index], self.problem.weights
        if not known.any():
            return wanted
        return nearest(self.requests[index][known], self.reached[index][known], wanted, weights)


def nearest(
    requests: np.ndarray, reached: np.ndarray, descriptor: np.ndarray, weights: Weights
) -> np.ndarray:
    """Return the one of the `requests` [n, D] whose episode ended nearest to `descriptor` [D].

    `reached` [n, D] are the descriptors of their episodes. `weights` [D] are those of the problem's
    distances.
    """
    missed = descriptor - reached
    return requests[np.argmin(np.linalg.norm(missed * np.array(weights, np.float32), axis=-1))]


def calibrate(
    batched: Batched,
    archive: Archive,
    actors: Array,
    keys: Array,
    best: int = 0,
    rounds: int = ROUNDS,
    progress: Callable[[int], object] | None = None,
) -> Calibrated:
    """Search for the requests at which the actors [seeds, P] hit the cells of their archives.

    Every round rolls out each actor once for each cell. `keys` [seeds] are the random keys of the
    seeds, and `best` is the index of the best seed. `progress` is called with the number of rounds
    that are done.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    problem, centroids = batched.algorithm.problem, archive.centroids
    propose = batched.over_seeds(functools.partial(calibration.propose, problem))
    update = batched.over_seeds(functools.partial(calibration.update, problem))
    plain = batched.roll_out_actor(actors, centroids, iteration_keys(keys, 0))
    found = calibration.start(centroids, plain)
    for number in range(1, rounds + 1):
        round_keys = iteration_keys(keys, number)
        if not problem.deterministic:
            # Otherwise a lucky episode would keep its request for ever.
            again = batched.roll_out_actor(actors, found.requests, round_keys)
            found = found._replace(**again._asdict())
        requests = propose(centroids, found, iteration_keys(round_keys, _PROPOSALS))
        tried = batched.roll_out_actor(actors, requests, round_keys)
        found = update(centroids, found, requests, tried)
        if progress:
            jax.block_until_ready(found)
            progress(number)
    # On a task with noise, the best episode of several is better than the next one will be.
    again = batched.roll_out_actor(actors, found.requests, iteration_keys(keys, _VERIFICATION))
    return Calibrated(
        problem,
        best,
        *map(np.asarray, (found.requests, again.descriptors, again.fitness, again.valid)),
        before=_scores(batched, archive, plain),
        after=_scores(batched, archive, again),
    )


def _scores(batched: Batched, archive: Archive, results: Results) -> Reevaluation:
    """Return the scores of rollouts that were made for the centroids of all filled cells."""
    aimed = archive._replace(descriptors=archive.centroids)
    algorithm = batched.algorithm
    score = batched.over_seeds(
        functools.partial(reevaluation.score, algorithm.division, offset=algorithm.qd_offset)
    )
    return jax.tree.map(np.asarray, score(aimed, results, None))
