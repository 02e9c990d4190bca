"""Write an archive as a table, as a CSV file of pyribs, or as files of QDax."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from elites.interop import pyribs, qdax, tables
from elites.interop.record import ArchiveData
from elites.writing import replacing


def check(path: Path, form: str) -> None:
    """Raise a ValueError if an archive cannot be written to `path` in a format.

    Tables need a name that ends in .csv. Nothing that exists is overwritten.
    """
    if form not in _WRITERS:
        raise ValueError(f"the format of an archive must be csv, pyribs or qdax, got {form!r}")
    if form != "qdax" and path.suffix != ".csv":
        raise ValueError(f"the file must end in .csv, got '{path}'")
    for place in (path, _centroids(path)) if form == "pyribs" else (path,):
        if os.path.lexists(place):
            raise ValueError(f"{place} exists already. Choose another name")


def write(data: ArchiveData, path: Path | str, form: str) -> list[Path]:
    """Write the elites of an archive to a file or folder, and return the paths of the files.

    The formats:

    - csv: a table with cell, fitness, descriptor, origin and born of each elite, without policies
    - pyribs: a table with the columns of pyribs, and the centroids of Voronoi cells beside it
    - qdax: a folder with genotypes.npy, fitnesses.npy, descriptors.npy and centroids.npy

    Raises a ValueError for a wrong format or name, or if something exists there already.
    """
    path = Path(path)
    check(path, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    return _WRITERS[form](data, path)


def _write_table(data: ArchiveData, path: Path) -> list[Path]:
    columns = tables.archive_columns(data)
    values = [tables.texts(np.asarray(column)) for column in columns.values()]
    tables.write_csv(path, list(columns), list(zip(*values, strict=True)))
    return [path]


def _write_pyribs(data: ArchiveData, path: Path) -> list[Path]:
    tables.write_csv(path, pyribs.header(data), pyribs.rows(data))
    if data.grid:
        return [path]
    _save(_centroids(path), data.centroids)
    return [path, _centroids(path)]


def _centroids(path: Path) -> Path:
    """Return the path of the centroids that belong to a CSV file of pyribs."""
    return path.with_name(f"{path.stem}_centroids.npy")


def _write_qdax(data: ArchiveData, path: Path) -> list[Path]:
    path.mkdir()
    written = []
    for name, array in qdax.arrays(data).items():
        written.append(path / f"{name}.npy")
        _save(written[-1], array)
    return written


def _save(path: Path, array: np.ndarray) -> None:
    """Write an array to a .npy file, which appears once it is complete."""
    with replacing(path) as temporary:
        np.save(temporary, np.ascontiguousarray(array))


_WRITERS: dict[str, Callable[[ArchiveData, Path], list[Path]]] = {
    "csv": _write_table,
    "pyribs": _write_pyribs,
    "qdax": _write_qdax,
}
