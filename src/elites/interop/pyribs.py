"""Archives of pyribs: live ones, and the columns of their tables.

`archive.data(return_type="pandas")` of pyribs has the columns solution_0, ..., objective,
measures_0, ..., threshold and index. Its method `to_csv` writes them to a file. A solution is a
policy: the parameters of a network in the order of `core/networks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elites import packages
from elites.interop.record import ArchiveData, numbered
from elites.interop.tables import texts

MEASURES = ("measures", "measure", "behavior")
"""Names of the descriptor's columns, without their number. Earlier versions had the latter two."""


def to_pyribs(data: ArchiveData) -> Any:
    """Return an archive of pyribs that holds the elites: a GridArchive or a CVTArchive.

    It has the cells, the bounds and the QD offset of the archive. pyribs computes the cell of an
    elite anew, so two elites on both sides of a border may meet in one cell, where the fitter one
    stays. The thresholds of an annealed archive are those of an archive that is not annealed.
    """
    packages.require("ribs", purpose="an archive of pyribs")
    from ribs.archives import CVTArchive, GridArchive

    shared: dict[str, Any] = {
        "solution_dim": data.policies.shape[1],
        "ranges": list(zip(data.low, data.high, strict=True)),
        "qd_score_offset": data.qd_offset,
        "dtype": np.float32,
    }
    if data.grid:
        archive = GridArchive(dims=data.grid, **shared)
    else:
        archive = CVTArchive(centroids=data.centroids, **_search(data.weights), **shared)
    cells = data.cells
    if len(cells):
        archive.add(data.policies[cells], data.fitness[cells], data.descriptors[cells])
    return archive


def _search(weights: Sequence[float]) -> dict[str, Any]:
    """Return arguments of CVTArchive for distances relative to the extents of the axes.

    None are needed if all axes are equally long.
    """
    if len(set(weights)) == 1:
        return {}
    scaled = {"metric": "minkowski", "p": 2, "metric_params": {"w": np.square(weights)}}
    return {"nearest_neighbors": "sklearn_nn", "sklearn_nn_kwargs": scaled}


def header(data: ArchiveData) -> list[str]:
    """Return the columns of the table that pyribs would write of an archive."""
    return [
        *numbered("solution", data.policies.shape[1]),
        "objective",
        *numbered("measures", len(data.low)),
        "threshold",
        "index",
    ]


def rows(data: ArchiveData) -> Iterator[list[str]]:
    """Yield the rows of the table that pyribs would write of an archive, as texts."""
    threshold = data.fitness if data.threshold is None else data.threshold
    for cell in data.cells:
        yield [
            *texts(data.policies[cell]),
            str(data.fitness[cell]),
            *texts(data.descriptors[cell]),
            str(threshold[cell]),
            str(cell),
        ]


def parse(path: Path, table: Iterable[list[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return solutions [n, P], objectives [n] and measures [n, D] of a table of pyribs.

    `table` yields the header and the rows as texts. Other columns are ignored. Raises a ValueError
    that names `path` and the line if a column is missing or a number is not finite.
    """
    lines = iter(table)
    names = next(lines)
    solution = _numbered_columns(names, "solution")
    measures = next((c for kind in MEASURES if (c := _numbered_columns(names, kind))), [])
    if not solution or not measures or "objective" not in names:
        lacking = "solution_0" if not solution else "measures_0" if not measures else "objective"
        raise ValueError(
            f"{path}: not an archive of pyribs: it has no column {lacking}. Write one with "
            "archive.data(return_type='pandas').to_csv(...)"
        )
    wanted = [*solution, names.index("objective"), *measures]
    found = [_numbers(path, i + 2, [row[j] for j in wanted]) for i, row in enumerate(lines)]
    values = np.array(found, np.float32).reshape(len(found), len(wanted))
    size = len(solution)
    return values[:, :size], values[:, size], values[:, size + 1 :]


def _numbered_columns(names: Sequence[str], kind: str) -> list[int]:
    """Return the positions of the columns kind_0, kind_1 and so on, up to the first missing one."""
    place = {name: i for i, name in enumerate(names)}
    positions = []
    while f"{kind}_{len(positions)}" in place:
        positions.append(place[f"{kind}_{len(positions)}"])
    return positions


def _numbers(path: Path, line: int, cells: list[str]) -> np.ndarray:
    """Return the cells of a row as 32-bit numbers. Raises a ValueError if one is not finite."""
    try:
        with np.errstate(over="ignore"):
            values = np.array(cells, np.float64).astype(np.float32)
    except ValueError as problem:
        raise ValueError(f"{path}, line {line}: {problem}") from None
    if not np.isfinite(values).all():
        wrong = cells[int(np.flatnonzero(~np.isfinite(values))[0])]
        raise ValueError(f"{path}, line {line}: {wrong} is not a finite 32-bit number")
    return values
