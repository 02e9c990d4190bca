"""Cells: how an archive divides the descriptor space.

    Voronoi cells    a descriptor belongs to the nearest centroid, see `centroids` and `distances`
    grid             each axis is cut into equal parts, and a cell is found by arithmetic

A grid is much faster for many cells: its centroids need no k-means, and no distances are computed.
The centroids of Voronoi cells may also come from a file.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from elites import arrays
from elites.core import distances
from elites.core.centroids import box_centroids
from elites.core.hyperparameters import Hyperparameters
from elites.core.types import Problem

Array = jax.Array

MOST_VORONOI = 20_000  # beyond, k-means would take hours


@dataclasses.dataclass(frozen=True)
class Cells:
    """Division of a box of descriptors into cells."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    count: int
    """Number of cells C."""
    grid: tuple[int, ...] = ()
    """Number of parts of each axis. Voronoi cells if empty."""
    file: str = ""
    """File with the centroids of the Voronoi cells. They are found by k-means if empty."""

    def __post_init__(self):
        if self.grid and len(self.grid) != len(self.low):
            raise ValueError(
                f"grid needs one number for each of the {len(self.low)} descriptor axes, got "
                f"{self.grid}"
            )
        if not self.grid and not self.file and self.count > MOST_VORONOI:
            raise ValueError(
                f"{self.count:,} Voronoi cells would take hours to compute: use a grid, such as "
                f"grid={_similar_grid(self.count, len(self.low))}, or at most {MOST_VORONOI:,} "
                "cells"
            )

    @classmethod
    def of(cls, problem: Problem, hp: Hyperparameters) -> Cells:
        """Return the cells that the hyperparameters choose for a problem.

        Raises a ValueError if they do not fit its descriptor.
        """
        low, high = problem.descriptor_low, problem.descriptor_high
        return cls(low, high, hp.cell_count, hp.grid, hp.centroids_file)

    @property
    def weights(self) -> distances.Weights:
        """Weight of each descriptor axis in distances, see `distances`."""
        return distances.weights_of(
            tuple(high - low for low, high in zip(self.low, self.high, strict=True))
        )

    def centroids(self) -> Array:
        """Return the centroids [C, D]: of a grid, the middle of each cell."""
        if self.file:
            found = read_centroids(self.file, self.low, self.high)
            if len(found) != self.count:
                raise ValueError(
                    f"{self.file} has {len(found)} centroids, but cells is {self.count}: choose "
                    f"cells={len(found)}"
                )
            return jnp.asarray(found)
        if not self.grid:
            return box_centroids(self.low, self.high, self.count)
        middles = [
            low + (high - low) * (np.arange(parts) + 0.5) / parts
            for low, high, parts in zip(self.low, self.high, self.grid, strict=True)
        ]
        mesh = np.meshgrid(*middles, indexing="ij")  # the last axis varies fastest, as in `index`
        return jnp.asarray(np.stack(mesh, -1).reshape(self.count, len(self.grid)), jnp.float32)

    def index(self, centroids: Array, descriptors: Array) -> Array:
        """Return the index [n] of the cell that each of n descriptors [n, D] belongs to.

        `centroids` [C, D] are those of the archive. A descriptor outside of a grid belongs to the
        nearest cell of its border.
        """
        if not self.grid:
            return distances.nearest_row(descriptors, centroids, self.weights)
        parts, low, high = (
            np.array(values, descriptors.dtype)[None] for values in (self.grid, self.low, self.high)
        )
        # pyribs adds the same small number, so that cells begin at the same place.
        place = jnp.floor((parts * (descriptors - low) + 1e-6) / (high - low))
        place = jnp.clip(place, 0, parts - 1).astype(jnp.int32)  # clipped before it can overflow
        strides = [math.prod(self.grid[i + 1 :]) for i in range(len(self.grid))]
        return jnp.sum(place * jnp.array(strides, jnp.int32)[None], -1)


def read_centroids(file: str, low: tuple[float, ...], high: tuple[float, ...]) -> np.ndarray:
    """Return the centroids [C, D] of a file: an array (.npy), or numbers separated by commas.

    Raises a ValueError if the file cannot be read or does not fit a descriptor with these bounds.
    """
    found = arrays.read_table(Path(file)).astype(np.float32)
    if found.ndim != 2 or not len(found) or found.shape[1] != len(low):
        raise ValueError(
            f"{file}: centroids need {len(low)} columns, one for each descriptor axis, and at "
            f"least one row; got shape {found.shape}"
        )
    bounds = np.array(low, np.float32), np.array(high, np.float32)
    outside = ~((found >= bounds[0]) & (found <= bounds[1])).all(1)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"{file}: the centroid in row {row + 1} lies outside of the descriptor's bounds "
            f"{low} to {high}: {tuple(map(float, found[row]))}"
        )
    if len(np.unique(found, axis=0)) < len(found):
        raise ValueError(f"{file}: some centroids are equal; each cell needs its own")
    return found


def _similar_grid(count: int, axes: int) -> tuple[int, ...]:
    """Return a grid with about as many cells, and equally many parts on each axis."""
    return (max(2, round(count ** (1 / axes))),) * axes
