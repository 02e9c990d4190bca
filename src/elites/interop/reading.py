"""Read the elites of an archive that pyribs or QDax made, to start a run from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from elites import arrays, files
from elites.interop import pyribs, qdax

Kind = Literal["pyribs", "qdax"]


class ForeignArchive(NamedTuple):
    """Elites of an archive that another program made, without its empty cells."""

    path: Path
    kind: Kind
    solutions: np.ndarray  # [n, P] float32, in the order of the program
    fitness: np.ndarray  # [n]
    descriptors: np.ndarray  # [n, D]

    def policies(self, layers: Sequence[int]) -> np.ndarray:
        """Return the solutions as policies [n, P] of a network with these layers.

        `layers` are the sizes of inputs, hidden layers and outputs.
        """
        return qdax.from_flax(layers, self.solutions) if self.kind == "qdax" else self.solutions


def kind_of(path: Path) -> Kind | None:
    """Return which program's archive is at a path, or None if it is neither pyribs' nor QDax's.

    A file whose name ends in .csv is a table of pyribs. A folder with the file genotypes.npy is a
    repertoire of QDax.
    """
    if path.suffix.lower() == ".csv" and path.is_file():
        return "pyribs"
    return "qdax" if (path / "genotypes.npy").is_file() else None


def read(path: Path | str) -> ForeignArchive:
    """Read the archive of pyribs or QDax at a path, and return its elites.

    Raises a ValueError if the path holds neither, if the files are damaged, or if the archive is
    empty.
    """
    path = Path(path)
    kind = kind_of(path)
    if kind is None:
        raise ValueError(
            f"{path}: neither a CSV file of pyribs nor a folder of QDax with genotypes.npy"
        )
    if kind == "pyribs":
        parts = pyribs.parse(path, files.csv_rows(path, ValueError, follow=True))
    else:
        parts = _read_qdax(path)
    if not len(parts[0]):
        raise ValueError(f"{path}: the archive is empty")
    return ForeignArchive(path, kind, *parts)


def _read_qdax(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return genotypes [n, P], fitness [n] and descriptors [n, D] of a repertoire's elites."""
    found = {}
    for name in qdax.FILES[:3]:  # the centroids are not needed
        path = folder / f"{name}.npy"
        if not path.exists():
            raise ValueError(f"{folder}: not a repertoire of QDax: it has no file {name}.npy")
        found[name] = arrays.read_array(path, ValueError)
    genotypes, fitness, descriptors = (found[name] for name in qdax.FILES[:3])
    if fitness.ndim == 2 and fitness.shape[1] == 1:  # of version 0.5
        fitness = fitness[:, 0]
    count = (len(fitness),) if fitness.ndim == 1 else ()
    if {genotypes.shape[:1], descriptors.shape[:1]} != {count} or (
        genotypes.ndim != 2 or descriptors.ndim != 2
    ):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in found.items())
        raise ValueError(
            f"{folder}: the arrays do not fit together: {shapes}. A repertoire has genotypes "
            "[cells, parameters], fitnesses [cells] and descriptors [cells, axes]"
        )
    full = fitness != -np.inf
    values = [array[full].astype(np.float32) for array in (genotypes, fitness, descriptors)]
    for name, array in zip(qdax.FILES, values, strict=False):
        if not np.isfinite(array).all():
            raise ValueError(f"{folder / name}.npy: an elite has a number that is not finite")
    return values[0], values[1], values[2]
