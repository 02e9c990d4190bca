"""Results of other programs, to show them in the report of a study.

They are CSV files with the columns `evaluations`, `metric` and `value`. The columns `seed`, `task`
and `label` are needed if there are several of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elites.files import read_foreign_csv, shown
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study.groups import Group
from elites.words import counted


def read(path: Path, known_tasks: Sequence[str]) -> list[Group]:
    """Read results of another program from a CSV file and return a group for each task and label.

    `known_tasks` are the short names of the study's tasks. Raises a ValueError that names the line
    if the file has a mistake.
    """
    known_tasks = list(dict.fromkeys(known_tasks))
    known = [name for name, _ in ARCHIVE_METRICS]
    # task, label -> metric -> seed -> evaluations -> value
    points: dict[tuple[str, str], dict[str, dict[int, dict[float, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    lines: dict[tuple[Any, ...], int] = {}
    for number, row in _imported_rows(path):
        where = f"{path}, line {number}"
        task = row.get("task") or (known_tasks[0] if len(known_tasks) == 1 else "")
        if task not in known_tasks:
            raise ValueError(
                f"{where}: task '{task}' is not one of the study's: {', '.join(known_tasks)}. "
                "Give it in a column 'task'"
            )
        metric, label = row["metric"], row.get("label") or path.stem
        if metric not in known:
            raise ValueError(f"{where}: unknown metric '{metric}'. Known: {', '.join(known)}")
        try:
            seed = int(row.get("seed") or 0)
            x, y = float(row["evaluations"]), float(row["value"])
        except ValueError:
            raise ValueError(f"{where}: not a number in {shown(row)}") from None
        if not max(abs(x), abs(y)) < 1e30:  # also refuses NaN
            raise ValueError(f"{where}: not a finite number below 1e30 in {shown(row)}")
        first = lines.setdefault((task, label, metric, seed, x), number)
        if first != number:
            several = "" if "seed" in row else ". Number the seeds in a column 'seed'"
            raise ValueError(
                f"{where}: a second value of {metric} for '{label}' on {task}, seed {seed}, after "
                f"{x:,.10g} evaluations; the first is in line {first}{several}"
            )
        points[task, label][metric][seed][x] = y
    return [_imported_group(path, *key, metrics) for key, metrics in points.items()]


def _imported_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Read an imported CSV file and return its rows as pairs: line number, values by column.

    Column names are in lower case. Spaces around names and values are removed. Raises a ValueError
    if the file is not such a table.
    """
    filled = read_foreign_csv(path)
    columns = [name.lower() for name in filled[0][1]] if filled else []
    needed = ("evaluations", "metric", "value")
    if len(filled) < 2 or not set(needed) <= set(columns):
        raise ValueError(f"{path}: needs the columns {', '.join(needed)} and at least one row")
    for name in columns:
        if name and columns.count(name) > 1:
            raise ValueError(f"{path}: has {columns.count(name)} columns named '{name}'")
    for number, cells in filled:
        if len(cells) != len(columns):
            raise ValueError(
                f"{path}, line {number}: {counted(len(cells), 'field')}, but the header has "
                f"{len(columns)}"
            )
    return [(number, dict(zip(columns, cells, strict=True))) for number, cells in filled[1:]]


def refuse_taken_labels(path: Path, groups: list[Group], taken: set[str]) -> None:
    """Raise a ValueError if the label of an imported group is already in use.

    Two curves with the same label could not be told apart. `taken` has the labels in use. `path` is
    the imported file, for the message.
    """
    for group in groups:
        if group.label in taken:
            raise ValueError(
                f"{path}: '{group.label}' is the name of other results of this study. Give another "
                "in a column 'label'"
            )


def _imported_group(
    path: Path, task: str, label: str, metrics: dict[str, dict[int, dict[float, float]]]
) -> Group:
    """Return the group of one task and label of an imported file.

    `metrics` maps metric, seed and evaluations to values. The curves of all seeds are interpolated
    at the same numbers of evaluations.
    """
    seeds = sorted({seed for values in metrics.values() for seed in values})
    group = Group(task, label, imported=True, seeds=seeds, finished=len(seeds))
    # Only where every seed has values, so that no curve is extrapolated.
    curves = [points for by_seed in metrics.values() for points in by_seed.values()]
    first, last = max(min(points) for points in curves), min(max(points) for points in curves)
    if first > last:
        raise ValueError(
            f"{path}: the curves of '{label}' on {task} have no evaluations in common: one begins "
            f"after {first:,.10g} evaluations, another ends after {last:,.10g}"
        )
    grid = np.array(sorted({x for points in curves for x in points if first <= x <= last}))
    group.curves["evaluations"] = np.repeat(grid[:, None], len(seeds), axis=1)
    for name, by_seed in metrics.items():
        columns = []
        for seed in seeds:
            known = np.array(sorted(by_seed.get(seed, {}).items())).reshape(-1, 2)
            absent = np.full(len(grid), np.nan)
            columns.append(np.interp(grid, known[:, 0], known[:, 1]) if len(known) else absent)
        group.curves[name] = np.stack(columns, axis=1)
        group.final[name] = group.curves[name][-1]
    return group
