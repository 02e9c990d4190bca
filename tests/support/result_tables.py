"""Read the recorded tables in docs/results, and the scripts that make pages of them."""

from __future__ import annotations

import csv
import functools
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]


@functools.cache
def page_scripts() -> SimpleNamespace:
    """Return the modules of benchmarks/results.py by the second word of their names."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        names = ("data", "sections", "claims", "differences", "additions", "progress", "figures")
        modules = {name: importlib.import_module(f"results_{name}") for name in names}
        return SimpleNamespace(results=importlib.import_module("results"), **modules)
    finally:
        sys.path.pop(0)


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a recorded table."""
    with (ROOT / "docs" / "results" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def cells_of(table: str, *first: str) -> list[str]:
    """Return the cells of the only row of a Markdown table that begins with the given cells."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    (found,) = [row for row in rows if row[: len(first)] == list(first)]
    return found
