"""The archive of one seed as NumPy arrays, with what other programs need to know of it."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class ArchiveData:
    """Archive of one seed: arrays with one row per cell (C), including empty cells."""

    policies: np.ndarray  # [C, P]
    fitness: np.ndarray  # [C], not finite where a cell is empty
    descriptors: np.ndarray  # [C, D] in task units
    centroids: np.ndarray  # [C, D]
    origin: np.ndarray  # [C] int: index into `origins`
    born: np.ndarray  # [C] int: the iteration in which the elite was added
    origins: tuple[str, ...]
    """Names of the variations that make elites."""
    layers: tuple[int, ...]
    """Sizes of a policy's layers: inputs, hidden layers, outputs. No inputs for plain vectors."""
    low: tuple[float, ...]
    """Lower bounds of the descriptor [D]."""
    high: tuple[float, ...]
    """Upper bounds of the descriptor [D]."""
    weights: tuple[float, ...]
    """Weight of each descriptor axis in distances [D]."""
    names: tuple[str, ...] = ()
    """Names of the descriptor axes [D]. Empty if they are not known."""
    grid: tuple[int, ...] = ()
    """Number of cells of each axis [D] of a grid. Empty for Voronoi cells."""
    qd_offset: float = 0.0
    """Fitness that counts as 0 in QD-scores."""
    threshold: np.ndarray | None = None
    """Thresholds [C] of an annealed archive. None for others."""

    @property
    def cells(self) -> np.ndarray:
        """Numbers [n] of the n cells that hold an elite."""
        return np.flatnonzero(np.isfinite(self.fitness))

    def origin_names(self) -> list[str]:
        """Return the names [n] of the origins of the n elites.

        Raises a ValueError if an elite has an origin without a name.
        """
        numbers = self.origin[self.cells]
        wrong = (numbers < 0) | (numbers >= len(self.origins))
        if wrong.any():
            raise ValueError(
                f"the elite of cell {self.cells[wrong][0]} has origin {numbers[wrong][0]}, but the "
                f"archive knows only 0 to {len(self.origins) - 1} ({', '.join(self.origins)})"
            )
        return [self.origins[number] for number in numbers]


def numbered(name: str, count: int) -> list[str]:
    """Return `count` numbered column names, such as "measures_0" and "measures_1"."""
    return [f"{name}_{i}" for i in range(count)]
