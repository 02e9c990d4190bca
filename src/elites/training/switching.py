"""Switch between elites and the distilled policy, by what each is known to reach.

    switcher = run.switcher()
    chosen = switcher([0.8, 0.2])    # a Behaviour: which policy, and its known error
    chosen(observation)              # its actions

A behaviour is known if its episode was run: an elite, or the actor at one request. `Known` lists
the behaviours of one seed. The switcher chooses the one whose episode ended nearest to the
descriptor that is asked for. Distances are those of `distances`, as for the cells.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from elites.core.distances import Weights
from elites.core.reevaluation import Reevaluation
from elites.core.types import Array
from elites.training.elites import Elite, Elites, checked_descriptor

if TYPE_CHECKING:
    from elites.training.calibrating import Calibrated
    from elites.training.results import Actor

ACTOR = -1
"""Entry of `Known.cells` for a behaviour of the actor."""


class Known(NamedTuple):
    """Behaviours of one seed whose episodes were run: elites, and the actor at requests."""

    reached: np.ndarray  # [n, D] descriptors of the episodes, in task units
    fitness: np.ndarray  # [n]
    cells: np.ndarray  # [n] cells of the elites, ACTOR for the actor
    requests: np.ndarray  # [n, D] what the actor was asked for, 0 for elites

    def nearest(self, descriptor: np.ndarray, weights: Weights) -> tuple[int, float]:
        """Return the row that reached nearest to `descriptor` [D], and its distance.

        Of equally near rows, the first is chosen.
        """
        missed = (self.reached - descriptor) * np.array(weights, np.float32)
        errors = np.linalg.norm(missed, axis=-1)
        row = int(np.argmin(errors))
        return row, float(errors[row])


def known_elites(cells: np.ndarray, reached: np.ndarray, fitness: np.ndarray) -> Known:
    """Return what is known of the elites of n `cells`, from the results of their episodes."""
    return Known(reached, fitness, cells, np.zeros_like(reached))


def known_requests(requests: np.ndarray, reached: np.ndarray, fitness: np.ndarray) -> Known:
    """Return what is known of the actor, from the results of its episodes at n `requests`."""
    return Known(reached, fitness, np.full(len(requests), ACTOR), requests)


def joined(*parts: Known) -> Known:
    """Return all rows of several tables, without those of episodes that failed (NaN)."""
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    reached, fitness, cells, requests = columns
    rows = np.isfinite(reached).all(-1) & np.isfinite(fitness) & np.isfinite(requests).all(-1)
    return Known(
        reached[rows].astype(np.float32),
        fitness[rows].astype(np.float32),
        cells[rows].astype(np.int32),
        requests[rows].astype(np.float32),
    )


def from_reevaluation(archive: Elites, again: Reevaluation, index: int) -> Known:
    """Return what the re-evaluation of a run says about the elites and actor of one seed.

    `archive` is that of the seed, and `index` its position.
    """
    cells = archive.cells

    def filled(values: Array) -> np.ndarray:
        return np.asarray(values[index])[cells]

    elites = known_elites(cells, filled(again.descriptors), filled(again.fitness))
    if not archive.algorithm.conditioned:
        return joined(elites)
    reached, fitness = filled(again.actor_descriptors), filled(again.actor_fitness)
    return joined(elites, known_requests(archive.descriptors, reached, fitness))


def from_calibration(calibrated: Calibrated, index: int) -> Known:
    """Return what calibration found for one seed. `index` is the position of the seed."""
    valid = calibrated.valid[index]
    parts = (calibrated.requests, calibrated.reached, calibrated.fitness)
    return joined(known_requests(*(part[index][valid] for part in parts)))


@dataclasses.dataclass(frozen=True, eq=False)
class Behaviour:
    """Policy that a switcher chose. Call it with an observation [O] or observations [..., O]."""

    policy: Elite | Actor = dataclasses.field(repr=False)
    error: float
    """Distance between the descriptor that was asked for and the one that the policy reached."""
    reached: np.ndarray  # [D] in task units
    fitness: float
    request: np.ndarray | None
    """What the actor is asked for [D], in task units. None for an elite."""

    @property
    def is_elite(self) -> bool:
        """Whether the policy is an elite, not the actor."""
        return isinstance(self.policy, Elite)

    def __call__(self, observation: ArrayLike) -> Array:
        """Return the actions [..., A] at observations [..., O]."""
        if isinstance(self.policy, Elite):
            return self.policy(observation)
        return self.policy(observation, self.request)

    def __str__(self) -> str:
        """Return one line that says which policy was chosen, and its known error."""
        if isinstance(self.policy, Elite):
            which = f"the elite of cell {self.policy.cell}"
        else:
            which = f"the actor, asked for {_numbers(self.request)},"
        return f"{which} reached {_numbers(self.reached)}: known error {self.error:.4g}"


def _numbers(values: np.ndarray | None) -> list[float]:
    """Return the numbers of an array as a list, rounded for display."""
    return [] if values is None else [round(float(value), 4) for value in values]


@dataclasses.dataclass(frozen=True, eq=False)
class Switcher:
    """Chooses, for a descriptor, the elite or request to the actor known to come nearest."""

    archive: Elites
    actor: Actor | None
    known: Known = dataclasses.field(repr=False)

    def __post_init__(self):
        if not len(self.known.reached):
            raise ValueError("there is nothing to switch between: no episode of the run is known")

    def __call__(self, descriptor: ArrayLike) -> Behaviour:
        """Return the behaviour whose episode ended nearest to `descriptor` [D], in task units."""
        wanted = np.asarray(checked_descriptor(self.archive.algorithm, descriptor))
        if wanted.ndim != 1 or not np.isfinite(wanted).all():
            raise ValueError(
                f"a switcher takes one descriptor of finite numbers, got {descriptor!r}"
            )
        row, error = self.known.nearest(wanted, self.archive.algorithm.problem.weights)
        cell, reached = int(self.known.cells[row]), self.known.reached[row]
        fitness = float(self.known.fitness[row])
        if cell != ACTOR:
            return Behaviour(self.archive.at(cell), error, reached, fitness, None)
        assert self.actor is not None
        return Behaviour(self.actor, error, reached, fitness, self.known.requests[row])

    def __str__(self) -> str:
        """Return what the switcher chooses from, in a few words."""
        requests = int((self.known.cells == ACTOR).sum())
        return f"switcher of {len(self.known.cells) - requests} elites and {requests} requests"

    def __repr__(self) -> str:
        return f"<{self}>"
