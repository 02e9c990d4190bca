"""Copy the tables of runs into `docs/results`, thinned out and without folders of their machine.

Runs that differ only in their seeds become one set of tables. So the seeds of a plan can be run one
by one, wherever there is room, and are still recorded together.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elites import files, names
from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded

EVERY = 10  # iterations between two rows of a thinned table
LONG = 400  # iterations of a table that is thinned
KEPT = ("elites", "commit", "source", "python", "jax", "device")  # of environment.json
EVALUATED = "metrics.csv"  # table of `elites evaluate`, in evaluation/
Rows = list[dict[str, str]]


def addable(path: Path, unknown_source: bool = False, new_process: bool = False) -> RunDirectory:
    """Return the run directory at a path. Raises a ValueError if it cannot be added.

    The source of elites must be known, with which each session of the run was computed, unless
    `unknown_source` is true. With `new_process`, the run must have tables of `elites evaluate`.
    """
    run = directories.existing(path)
    config = run.config()
    for name in (config.task, config.algorithm):
        if names.paths(name):
            raise ValueError(f"{path}: '{name}' is not a task or an algorithm of elites")
    metrics_of(run / directories.METRICS)
    sessions = read_sessions(run)
    known = sessions and all(entry.get("commit") or entry.get("source") for entry in sessions)
    if not known and not unknown_source:
        raise ValueError(
            f"{path}: {directories.ENVIRONMENT} has neither a commit nor a source of elites, so "
            "nobody can repeat the run. Add it nevertheless with --unknown-source"
        )
    if new_process and not (run.evaluation / EVALUATED).exists():
        raise ValueError(f"{path}: was not evaluated. Run: elites evaluate {path}")
    return run


def joined(runs: Sequence[RunDirectory]) -> list[list[RunDirectory]]:
    """Return runs in groups that are recorded together, each in the order of its seeds.

    The runs of a group differ only in their seeds, which follow each other without a gap. Raises a
    ValueError if they have a seed in common or ended at different iterations.
    """
    groups: list[list[RunDirectory]] = []
    for run in sorted(runs, key=lambda run: run.config().first_seed):
        for group in groups:
            last, config = group[-1].config(), run.config()
            if shared(last) != shared(config):
                continue
            if config.first_seed < last.first_seed + last.seeds:
                raise ValueError(
                    f"{run.path}: has seed {config.first_seed}, and so has {group[-1].path}"
                )
            if config.first_seed == last.first_seed + last.seeds:
                group.append(run)
                break
        else:
            groups.append([run])
    for group in groups:
        ends = [last_iteration(metrics_of(run / directories.METRICS)) for run in group]
        if len(set(ends)) > 1:
            raise ValueError(
                f"{group[0].path}: ended at iteration {ends[0]}, and the runs with the seeds after "
                f"it at {', '.join(map(str, ends[1:]))}. Add runs of different lengths separately"
            )
    return groups


def shared(config: Config) -> Config:
    """Return a configuration without its seeds, to compare it with that of another run."""
    return dataclasses.replace(config, seeds=1, first_seed=0)


def add(folder: Path, runs: Sequence[RunDirectory], new_process: bool = False) -> Path:
    """Copy the tables of a group of `joined` runs, and return the path of their metrics.

    The table of cells has only the seed with the highest QD-score. The configuration, and the
    versions, source and device of the sessions, are kept in files beside the table. `new_process`
    says that the tables of evaluation/ are those of `elites evaluate` in a new process.
    """
    first = runs[0].config()
    config = dataclasses.replace(first, seeds=sum(run.config().seeds for run in runs))
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    plan = plans.read(str(folder / recorded.PLAN))
    name = recorded.stem(config.algorithm, seeds, settings(config, plan), tag(config, plan))
    table = folder / config.task / f"{name}.csv"
    table.parent.mkdir(exist_ok=True)
    metrics = [metrics_of(run / directories.METRICS) for run in runs]
    write_rows(table, thinned(in_order(metrics)))
    again = in_order([rows_if_any(run / directories.REEVALUATIONS) for run in runs])
    cells = [row for run in runs for row in rows_if_any(run.evaluation / "cells.csv")]
    kinds = {"reevaluations": again, "cells": best_cells(cells) if cells else []}
    if new_process:
        kinds["new_process"] = [row for run in runs for row in rows_of(run.evaluation / EVALUATED)]
    for kind, rows in kinds.items():
        if rows:  # a run that was stopped early has none
            write_rows(table.with_name(f"{name}.{kind}.csv"), rows)
    sessions = [entry for run in runs for entry in read_sessions(run)]
    kept = [{key: entry[key] for key in KEPT if key in entry} for entry in sessions]
    different = [entry for i, entry in enumerate(kept) if entry not in kept[:i]]
    write_record(table.with_name(f"{name}.environment.json"), different)
    write_record(table.with_name(f"{name}.config.json"), without_folders(config.to_json()))
    return table


def without_folders(value: Any) -> Any:
    """Return a value of a configuration in which absolute paths are reduced to their last name."""
    if isinstance(value, dict):
        return {name: without_folders(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def write_record(path: Path, record: Any) -> None:
    """Write a record as JSON."""
    path.write_text(f"{json.dumps(record, indent=1)}\n", "utf-8")


def settings(config: Config, plan: plans.Plan) -> list[str]:
    """Return the hyperparameters of a run that differ from the plan's, such as discount_0.9."""
    usual = vars(plan.config(config.task, config.algorithm, plan.seed_numbers).hp)
    differing = {name: v for name, v in vars(config.hp).items() if v != usual[name]}
    texts = {name: str(without_folders(v) if isinstance(v, str) else v)
             for name, v in differing.items()}  # fmt: skip
    return [f"{name}_" + re.sub(r"[^\w.+-]+", "-", text).strip("-") for name, text in texts.items()]


def tag(config: Config, plan: plans.Plan) -> str:
    """Return the budget of a run for the name of its tables: "1M", or "" if it is the plan's."""
    budget = config.evaluations
    if budget == plan.budget(config.task):
        return ""
    return f"{budget // 1_000_000}M" if budget % 1_000_000 == 0 else f"{round(budget / 1000)}k"


# ------------------------------------------------------------------------------------------ tables


def rows_of(path: Path) -> Rows:
    """Return the rows of a CSV file. An incomplete last line is left out."""
    header, rows = files.read_csv(path, unfinished=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def rows_if_any(path: Path) -> Rows:
    """Return the rows of a CSV file, or an empty list if there is no such file."""
    return rows_of(path) if path.exists() else []


def metrics_of(path: Path) -> Rows:
    """Return the rows of a table of metrics. Raises a ValueError if it is no such table."""
    if path.suffix != ".csv":
        raise ValueError(f"{path}: not a table of metrics, its name does not end in .csv")
    rows = rows_of(path)
    if not rows:
        raise ValueError(f"{path}: it has no rows")
    if "iteration" not in rows[0]:
        raise ValueError(f"{path}: not a table of metrics, it has no column 'iteration'")
    for row in rows:
        if not row["iteration"].isdecimal():
            raise ValueError(f"{path}: the iteration '{row['iteration']}' is not a whole number")
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


def best_cells(rows: Rows) -> Rows:
    """Return the cells of the seed with the highest QD-score, with the columns that are drawn."""
    scores: dict[str, float] = {}
    for row in rows:
        scores[row["seed"]] = scores.get(row["seed"], 0.0) + float(row["fitness"])
    best = max(scores, key=lambda seed: scores[seed])
    kept = [n for n in rows[0] if n in ("seed", "iteration", "cell", "fitness", "origin")
            or (n.startswith("descriptor_") and n != "descriptor_error")]  # fmt: skip
    return [{name: row[name] for name in kept} for row in rows if row["seed"] == best]
