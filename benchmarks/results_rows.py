"""Rows of tables: read, join, thin out and write them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from elites import files

EVERY = 10  # iterations between two rows of a thinned table
LONG = 400  # iterations of a table that is thinned
Rows = list[dict[str, str]]


def rows_of(path: Path, *needed: str) -> Rows:
    """Return the rows of a CSV file. An incomplete last line is left out.

    Raises a ValueError if a column of `needed` is missing, or if an iteration is no whole number.
    """
    header, rows = files.read_csv(path, unfinished=True)
    found = [dict(zip(header, row, strict=True)) for row in rows]
    for name in needed if rows else ():
        if name not in header:
            raise ValueError(f"{path}: not a table of this kind, it has no column '{name}'")
    for row in found:
        if not row.get("iteration", "0").isdecimal():
            raise ValueError(f"{path}: the iteration '{row['iteration']}' is not a whole number")
    return found


def rows_if_any(path: Path, *needed: str) -> Rows:
    """Return the rows of a CSV file as `rows_of` does, or an empty list if there is no file."""
    return rows_of(path, *needed) if path.exists() else []


def metrics_of(path: Path) -> Rows:
    """Return the rows of a table of metrics. Raises a ValueError if it is no such table."""
    if path.suffix != ".csv":
        raise ValueError(f"{path}: not a table of metrics, its name does not end in .csv")
    rows = rows_of(path, "iteration")
    if not rows:
        raise ValueError(f"{path}: it has no rows")
    return rows


def last_iteration(rows: Rows) -> int:
    """Return the last iteration of a table of metrics."""
    return max(int(row["iteration"]) for row in rows)


def in_order(tables: Sequence[Rows]) -> Rows:
    """Return the rows of several tables, by iteration and then in the order of the tables.

    Only iterations that are in all tables are kept.
    """
    common = set.intersection(*({row["iteration"] for row in rows} for rows in tables))
    rows = [row for table in tables for row in table if row["iteration"] in common]
    return sorted(rows, key=lambda row: int(row["iteration"]))


def write_rows(path: Path, rows: Rows) -> None:
    """Write rows as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def thinned(rows: Rows) -> Rows:
    """Return the rows of the first, of every tenth and of the last iteration.

    A table of few iterations is returned as it is.
    """
    last = last_iteration(rows)
    if last <= LONG:
        return rows
    return [row for row in rows if int(row["iteration"]) % EVERY == 0
            or int(row["iteration"]) in (1, last)]  # fmt: skip


def best_cells(cells: Rows, metrics: Rows) -> Rows:
    """Return the cells of the seed with the highest QD-score, with the columns that are drawn.

    `metrics` are the rows of the table of metrics. The QD-scores of its last iteration count.
    """
    last = last_iteration(metrics)
    scores = {row["seed"]: float(row["qd_score"]) for row in metrics
              if int(row["iteration"]) == last}  # fmt: skip
    filled = dict.fromkeys(row["seed"] for row in cells)
    best = max(filled, key=lambda seed: scores.get(seed, -float("inf")))
    kept = [n for n in cells[0] if n in ("seed", "iteration", "cell", "fitness", "origin")
            or (n.startswith("descriptor_") and n != "descriptor_error")]  # fmt: skip
    return [{name: row[name] for name in kept} for row in cells if row["seed"] == best]
