"""The archive of a run as a sequence of elites: policies to call, fitness, descriptors, origins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from elites.core import archive as archives
from elites.core import distances, networks
from elites.core.algorithm import Algorithm
from elites.core.archive import Archive
from elites.core.networks import MLP
from elites.core.types import Array
from elites.interop import pyribs, qdax, tables
from elites.interop.record import ArchiveData
from elites.words import listed

if TYPE_CHECKING:
    import pandas

_SHOWN = 8  # cells that a message names


@dataclasses.dataclass(frozen=True, eq=False)
class Elite:
    """One policy of the archive. Call it with an observation [O] or observations [..., O]."""

    policy: np.ndarray = dataclasses.field(repr=False)  # [P]
    fitness: float
    descriptor: np.ndarray  # [D] in task units
    cell: int
    origin: str
    born: int
    network: MLP = dataclasses.field(repr=False)

    def __call__(self, observation: ArrayLike) -> Array:
        """Return the actions [..., A] of the elite at observations [..., O]."""
        seen = checked_observation(self.network.sizes[0], observation)
        layers = networks.unflatten(self.network, jnp.asarray(self.policy))
        return networks.apply(self.network, layers, seen)


class ArchiveArrays(NamedTuple):
    """An archive as NumPy arrays with one row per cell, including empty cells. See `Archive`."""

    policies: np.ndarray  # [C, P]
    fitness: np.ndarray  # [C], -inf where a cell is empty
    descriptors: np.ndarray  # [C, D]
    centroids: np.ndarray  # [C, D]
    origin: np.ndarray  # [C]
    born: np.ndarray  # [C]


class Elites(Sequence[Elite]):
    """The archive of one seed: a sequence of its elites, without the empty cells."""

    def __init__(
        self, archive: Archive, algorithm: Algorithm, descriptor_names: tuple[str, ...] = ()
    ):
        columns = (getattr(archive, name) for name in ArchiveArrays._fields)
        self.arrays = ArchiveArrays(*map(np.asarray, columns))
        self.threshold = None if archive.threshold is None else np.asarray(archive.threshold)
        self.algorithm = algorithm
        self.descriptor_names = descriptor_names
        self.cells = np.flatnonzero(np.isfinite(self.arrays.fitness))

    def __len__(self) -> int:
        return len(self.cells)

    @overload
    def __getitem__(self, index: int) -> Elite: ...
    @overload
    def __getitem__(self, index: slice) -> list[Elite]: ...
    def __getitem__(self, index: int | slice) -> Elite | list[Elite]:
        if isinstance(index, slice):
            return [self._elite(int(cell)) for cell in self.cells[index]]
        return self._elite(int(self.cells[index]))

    def _elite(self, cell: int) -> Elite:
        return Elite(
            policy=self.arrays.policies[cell],
            fitness=float(self.arrays.fitness[cell]),
            descriptor=self.arrays.descriptors[cell],
            cell=cell,
            origin=self.origin(cell),
            born=int(self.arrays.born[cell]),
            network=self.algorithm.policy,
        )

    def at(self, cell: int) -> Elite:
        """Return the elite of a cell. Raises a ValueError if the cell is empty or unknown."""
        total = len(self.arrays.fitness)
        if not 0 <= cell < total:
            raise ValueError(f"cell {cell} does not exist. Cells have the numbers 0 to {total - 1}")
        if not np.isfinite(self.arrays.fitness[cell]):
            self._refuse_empty()
            some = [str(i) for i in np.flatnonzero(np.isfinite(self.arrays.fitness))[:_SHOWN]]
            more = [f"{len(self) - _SHOWN} others"] if len(self) > _SHOWN else []
            raise ValueError(f"cell {cell} is empty. These have an elite: {listed(some + more)}")
        return self._elite(cell)

    def origin(self, cell: int) -> str:
        """Return the origin of the elite in a cell: the name of a variation, or "initial".

        Raises a ValueError if the algorithm has no such origin. An IndexError would silently end a
        loop over the elites.
        """
        number, names = int(self.arrays.origin[cell]), self.algorithm.origins
        if not 0 <= number < len(names):
            raise ValueError(
                f"the elite of cell {cell} has origin {number}, but {self.algorithm.name} knows "
                f"only 0 to {len(names) - 1} ({', '.join(names)}): the archive was made by "
                "another algorithm"
            )
        return names[number]

    @property
    def fitness(self) -> np.ndarray:
        """Fitness [n] of the n elites, in the order of their cells."""
        return self.arrays.fitness[self.cells]

    @property
    def descriptors(self) -> np.ndarray:
        """Descriptors [n, D] that the n elites reached, in task units."""
        return self.arrays.descriptors[self.cells]

    @property
    def policies(self) -> np.ndarray:
        """Network parameters [n, P] of the n elites."""
        return self.arrays.policies[self.cells]

    @property
    def coverage(self) -> float:
        """Share of the archive's cells that hold an elite, from 0 to 1."""
        return len(self.cells) / len(self.arrays.fitness)

    @property
    def qd_score(self) -> float:
        """QD-score of the archive: the sum of the elites' fitness minus the offset.

        The offset is 0 unless the task or a hyperparameter sets it, see `Algorithm.qd_offset`.
        """
        return float(archives.above(self.fitness, self.algorithm.qd_offset).sum())

    def nearest(self, descriptor: ArrayLike) -> Elite:
        """Return the elite whose descriptor is nearest to `descriptor` [D], given in task units.

        Distances are relative to the extents of the descriptor axes, as those of the cells are.
        Raises a ValueError if the archive is empty.
        """
        target = self._one_descriptor(descriptor)
        self._refuse_empty()
        weights = self.algorithm.problem.weights
        found = distances.nearest_row(target[None], jnp.asarray(self.descriptors), weights)
        return self[int(found[0])]

    def cell_of(self, descriptor: ArrayLike) -> int:
        """Return the number of the cell that `descriptor` [D], given in task units, belongs to."""
        target, centroids = self._one_descriptor(descriptor), jnp.asarray(self.arrays.centroids)
        return int(self.algorithm.division.index(centroids, target[None])[0])

    def best(self) -> Elite:
        """Return the elite with the highest fitness.

        Raises a ValueError if the archive is empty.
        """
        self._refuse_empty()
        return self[int(np.argmax(self.fitness))]

    def to_pandas(self, parameters: bool = False) -> pandas.DataFrame:
        """Return the elites as a pandas data frame, one row each, in the order of their cells.

        The columns are cell, fitness, one for each descriptor axis, origin and born. The columns of
        the descriptor have the names of the task's axes, or else descriptor_0 and so on. With
        `parameters`, the columns parameter_0 and so on have the policies.
        """
        return tables.archive_frame(self.data(), parameters)

    def to_pyribs(self) -> Any:
        """Return an archive of pyribs with the elites: a GridArchive or a CVTArchive.

        See `elites.interop.pyribs.to_pyribs`. Needs the package ribs.
        """
        return pyribs.to_pyribs(self.data())

    def to_qdax(self) -> Any:
        """Return a MapElitesRepertoire of QDax with the elites.

        See `elites.interop.qdax.to_qdax`. Needs the package qdax.
        """
        return qdax.to_qdax(self.data())

    def data(self) -> ArchiveData:
        """Return the archive as NumPy arrays with all that other programs need to know of it.

        `elites.interop.writing.write` writes it to files of pyribs and QDax.
        """
        problem, have = self.algorithm.problem, self.arrays
        return ArchiveData(
            have.policies, have.fitness, have.descriptors, have.centroids, have.origin, have.born,
            origins=self.algorithm.origins,
            layers=self.algorithm.policy.sizes,
            low=problem.descriptor_low,
            high=problem.descriptor_high,
            weights=problem.weights,
            names=self.descriptor_names,
            grid=self.algorithm.division.grid,
            qd_offset=self.algorithm.qd_offset,
            threshold=self.threshold,
        )  # fmt: skip

    def _one_descriptor(self, descriptor: ArrayLike) -> Array:
        """Return a descriptor [D] as an array. Raises a ValueError if it is not one."""
        target = checked_descriptor(self.algorithm, descriptor)
        if target.ndim != 1 or not jnp.isfinite(target).all():
            raise ValueError(f"expected one descriptor of finite numbers, got {descriptor!r}")
        return target

    def _refuse_empty(self) -> None:
        if not len(self):
            raise ValueError("the archive is empty")

    def __repr__(self) -> str:
        return f"<{len(self)} elites in {len(self.arrays.fitness)} cells>"


def checked_observation(size: int, observation: ArrayLike) -> Array:
    """Return observations [..., size] as an array, or raise a ValueError for another size."""
    checked = jnp.asarray(observation, jnp.float32)
    if checked.shape[-1:] != (size,):
        raise ValueError(f"observation must have {size} entries, got shape {checked.shape}")
    return checked


def checked_descriptor(algorithm: Algorithm, descriptor: ArrayLike) -> Array:
    """Return descriptors [..., D] of a task as an array, or raise a ValueError for another size."""
    checked = jnp.asarray(descriptor, jnp.float32)
    size = algorithm.problem.descriptor_size
    if checked.shape[-1:] != (size,):
        given = checked.shape[-1] if checked.ndim else "one number"
        raise ValueError(f"a descriptor has {size} entries, got {given}")
    return checked
