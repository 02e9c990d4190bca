"""Collect the results of a study: curves and final metrics of every algorithm on every task.

Runs may be unfinished, seeds may be spread over several runs, and files may be growing. Files that
cannot be read are left out and listed as problems.

Results of other programs are CSV files with the columns `evaluations`, `metric` and `value`. The
columns `seed`, `task` and `label` are needed if there are several of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elites.files import read_foreign_csv, shown
from elites.names import short_name
from elites.runs import directory as directories
from elites.runs import evaluation, gaps, logs, snapshots
from elites.runs.directory import METRICS, RunDirectory, RunError
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study.study import Item, Study
from elites.words import counted

FINAL_METRICS = (
    *ARCHIVE_METRICS,
    *(
        (name, f"{title}, in %" if name.endswith("coverage") else title)
        for name, title in evaluation.COLUMNS
        if name.startswith("actor_") or name == "descriptor_error"
    ),
)
AXES = (
    ("evaluations", "evaluations"),
    ("env_steps", "environment steps"),
    ("seconds", "wall-clock seconds"),
)


@dataclasses.dataclass(eq=False)
class Group:
    """Results of one algorithm on one task, or results of another program if `imported`."""

    task: str
    label: str
    imported: bool = False
    seeds: list[int] = dataclasses.field(default_factory=list)
    planned: int = 0
    finished: int = 0
    """Number of seeds whose runs are finished."""
    budgets: set[int] = dataclasses.field(default_factory=set)
    """Budgets of its runs, in evaluations. There are several if some runs were trained longer."""
    curves: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [n, seeds], keyed by metric or axis. The rows are those that every seed has."""
    final: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Arrays [finished seeds] of the final values, keyed by metric."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    archive: dict[str, np.ndarray] | None = None
    """Archive without policies of the seed with the highest QD-score, or None if there is none."""
    archive_seed: int | None = None
    runs: list[Item] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Results:
    """Results of a study: a `Group` for each algorithm on each task, and a list of problems."""

    groups: list[Group]
    problems: list[str]
    """Messages about results that are missing or could not be read."""

    @property
    def tasks(self) -> list[str]:
        """Short names of the tasks that have results, without duplicates."""
        return tasks_of(self.groups)

    def of(self, task: str) -> list[Group]:
        """Return the groups of a task, one for each algorithm and each imported program."""
        return [group for group in self.groups if group.task == task]

    @property
    def unfinished(self) -> list[Group]:
        """Groups that have unfinished runs. Imported groups are never among them."""
        return [g for g in self.groups if not g.imported and g.finished < g.planned]


def tasks_of(groups: Sequence[Group]) -> list[str]:
    """Return the short names of the groups' tasks, in their order and without duplicates."""
    return list(dict.fromkeys(group.task for group in groups))


def collect(study: Study) -> Results:
    """Collect the results of a study from the files of its runs and from imported CSV files.

    Returns them with messages about files that are missing or damaged.
    """
    groups: dict[tuple[str, str], Group] = {}
    tables: dict[tuple[str, str], list[Mapping[str, np.ndarray]]] = defaultdict(list)
    problems: list[str] = []
    for item in study.items():
        key = (item.task, item.algorithm)
        group = groups.setdefault(key, Group(short_name(item.task), short_name(item.algorithm)))
        group.planned += item.seeds
        group.runs.append(item)
        try:
            _add_run(group, tables[key], study, item, problems)
        except (RunError, OSError, KeyError, ValueError) as error:
            problems.append(f"{item.name}: {error}")
        if study.state(item) == "failed":
            problems.append(f"{item.name} failed: {item.error}")
    for key, group in groups.items():
        group.curves = _joined(tables[key])
        if tables[key] and not group.curves:
            problems.append(
                f"curves of {group.label} on {group.task}: its runs have no evaluations in common"
            )
    found = list(groups.values())
    algorithms = {group.label for group in found}
    if study.imported.is_dir():
        for path in sorted(study.imported.glob("*.csv")):
            try:
                theirs = read_imported(path, [group.task for group in groups.values()])
                refuse_taken_labels(path, theirs, algorithms)
                algorithms |= {group.label for group in theirs}
                found += theirs
            except (ValueError, OSError) as error:
                problems.append(str(error))
    return Results(found, problems)


def _add_run(
    group: Group,
    tables: list[Mapping[str, np.ndarray]],
    study: Study,
    item: Item,
    problems: list[str],
) -> None:
    """Read the results of one run from its files and add them to its group.

    Appends the columns of the run's `metrics.csv` to `tables`, and messages about missing
    iterations to `problems`.
    """
    run = study.run(item)
    table = logs.metrics(directories.existing(run.path)) if run.exists() else {}
    begun, done = len(table.get("iteration", ())) > 0, study.state(item) == "done"
    if not begun and not done:
        return
    group.facts = directories.read_facts(run)
    group.budgets.add(run.config().evaluations)
    iterations = table["iteration"][:, 0] if begun else np.zeros(0)
    if missing := gaps.within(iterations, group.facts["iterations"] if done else 0):
        problems.append(f"{item.name}: {gaps.in_words(missing)}, which {METRICS} lacks")
    if begun:
        tables.append(table)
        group.seeds += list(item.seed_numbers)
    if done:
        final = evaluation.read_metrics(run.evaluation)
        last = group.facts["iterations"]
        if len(final["seed"]) != item.seeds:
            raise RunError(
                f"{run.evaluation / 'metrics.csv'}: damaged: it has {len(final['seed'])} rows, but "
                f"the run has {counted(item.seeds, 'seed')}"
            )
        if (final.get("iteration", np.zeros(1)) != last).any():
            raise ValueError(
                f"{run.evaluation} is not of iteration {last}, the run's last. Evaluate it again "
                f"with 'elites evaluate {run.path}'"
            )
        group.finished += item.seeds
        for name, _ in FINAL_METRICS:
            before = group.final.get(name, np.zeros(0))
            # Tables of earlier versions do not have all columns.
            values = final.get(name, np.full(item.seeds, np.nan)).astype(float)
            group.final[name] = np.concatenate([before, values])
    _keep_best_archive(group, run, item)


def _joined(tables: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join the metrics of several runs, and return columns [n, seeds] keyed by name.

    `tables` has the columns of each run. Runs may be at different iterations or lack some, so only
    rows whose number of evaluations occurs in all runs are kept. Returns an empty dictionary if no
    row is left.
    """
    if not tables:
        return {}
    spent = [table["evaluations"][:, 0] for table in tables]
    common = functools.reduce(np.intersect1d, spent)
    if not len(common):
        return {}
    rows = [np.isin(x, common) for x in spent]
    return {
        name: np.concatenate(
            [table[name][kept] for table, kept in zip(tables, rows, strict=True)], axis=1
        )
        for name in tables[0]
        if all(name in table for table in tables)
    }


def _keep_best_archive(group: Group, run: RunDirectory, item: Item) -> None:
    """Store the best archive of a run in its group, if it is better than the stored one.

    The best archive is the one with the highest QD-score among the seeds of the run's newest
    snapshot.
    """
    snapshot = snapshots.newest(run)
    if snapshot is None:
        return
    best = snapshots.best_seed(snapshot, group.facts)
    mine = {name: snapshot[name][best : best + 1] for name in ("fitness", "descriptors")}
    mine["centroids"] = snapshot["centroids"]

    def score(archive: dict[str, np.ndarray]) -> float:
        """Return the QD-score of an archive."""
        return float(snapshots.qd_score(archive["fitness"][0], group.facts))

    if group.archive is None or score(mine) > score(group.archive):
        group.archive, group.archive_seed = mine, item.seed_numbers[best]


# ----------------------------------------------------------------------------- imported results


def read_imported(path: Path, known_tasks: Sequence[str]) -> list[Group]:
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
    group = Group(task, label, imported=True, seeds=seeds, planned=len(seeds), finished=len(seeds))
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
