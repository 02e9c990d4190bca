"""Tables of archives and metrics: columns by name, for pandas and for CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elites import packages
from elites.interop.record import ArchiveData, numbered
from elites.writing import replacing

if TYPE_CHECKING:
    import pandas

_FIXED = ("cell", "fitness", "origin", "born")


class MetricsTable(dict[str, np.ndarray]):
    """Metrics by name: arrays [iterations, seeds] of a run, or [iterations] of one seed."""

    def __init__(self, metrics: Mapping[str, np.ndarray], seeds: Sequence[int] | None = None):
        """Make a table of metrics. `seeds` are those of the arrays, None for arrays of one seed."""
        super().__init__(metrics)
        self.seeds = seeds

    def to_pandas(self) -> pandas.DataFrame:
        """Return the metrics as a pandas data frame with a row for each iteration and seed.

        The columns iteration and, for several seeds, seed come first, as in metrics.csv.
        """
        pandas = _pandas()
        count = len(next(iter(self.values()), ()))
        iterations = np.arange(1, count + 1)
        if self.seeds is None:
            return pandas.DataFrame({"iteration": iterations, **self})
        columns = {
            "iteration": np.repeat(iterations, len(self.seeds)),
            "seed": np.tile(np.asarray(self.seeds, np.int64), count),
        }
        return pandas.DataFrame(
            columns | {name: values.reshape(-1) for name, values in self.items()}
        )


def archive_columns(data: ArchiveData) -> dict[str, Any]:
    """Return the columns of an archive's table, keyed by name. A row is an elite.

    They are cell, fitness, one for each descriptor axis, origin and born.
    """
    cells = data.cells
    described = dict(zip(axis_columns(data), data.descriptors[cells].T, strict=True))
    return {
        "cell": cells,
        "fitness": data.fitness[cells],
        **described,
        "origin": data.origin_names(),
        "born": data.born[cells],
    }


def axis_columns(data: ArchiveData) -> list[str]:
    """Return the column names of the descriptor axes: their own, or descriptor_0 and so on.

    Names that are not known, occur twice, or are those of other columns are replaced.
    """
    names = data.names
    if len(set(names) - set(_FIXED)) == len(data.low):
        return list(names)
    return numbered("descriptor", len(data.low))


def archive_frame(data: ArchiveData, parameters: bool = False) -> pandas.DataFrame:
    """Return the elites of an archive as a data frame, see `archive_columns`.

    With `parameters`, the columns parameter_0, parameter_1 and so on have the policies.
    """
    pandas = _pandas()
    frame = pandas.DataFrame(archive_columns(data))
    if not parameters:
        return frame
    names = numbered("parameter", data.policies.shape[1])
    policies = pandas.DataFrame(data.policies[data.cells], columns=names)
    return pandas.concat([frame, policies], axis=1)


def _pandas() -> Any:
    """Return the module pandas. Raises a ValueError if it is not installed."""
    packages.require("pandas", purpose="a data frame")
    import pandas

    return pandas


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write rows of texts below a header to a CSV file, which appears once it is complete."""
    with replacing(path) as temporary, open(temporary, "x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def texts(values: np.ndarray) -> np.ndarray:
    """Return numbers [...] as an array of texts, from which they can be read back exactly."""
    return np.asarray(values).astype(str)
