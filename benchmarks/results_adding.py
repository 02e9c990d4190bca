"""Copy the tables of runs into `docs/results`, thinned out and without folders of their machine.

Runs that differ only in their seeds become one set of tables. So the seeds of a plan can be run one
by one, wherever there is room, and are still recorded together.

The tables are first written to a temporary folder and read back from there. Nothing is written to
`docs/results` before all of them are known to be readable.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elites import files, names
from elites.files import RunError
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import logs
from elites.runs.config import Config, flat
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded
from elites.study.recorded import Folder, Recording
from elites.words import listed, quoted
from elites.writing import write_text

EVERY = 10  # iterations between two rows of a thinned table
LONG = 400  # iterations of a table that is thinned
LONGEST = 180  # bytes of the name of a table, without its end
KEPT = ("elites", "commit", "source", "python", "jax", "device")  # of environment.json
EVALUATED = re.compile(r"evaluation_(\d{9})")  # folders of `elites evaluate --checkpoint`
KINDS = ("reevaluations.csv", "cells.csv", "new_process.csv", "distilled.csv", "environment.json",
         "config.json")  # fmt: skip
"""Ends of the names of the files beside a recorded table."""
NEEDED = {
    "reevaluations": ("evaluations", "qd_score", "descriptor_error"),
    "new_process": ("reevaluated_qd_score", "descriptor_error"),
}
"""Columns that the results page needs, keyed by the kind of table."""
Rows = list[dict[str, str]]
Group = Sequence[RunDirectory]  # runs that are recorded together


# -------------------------------------------------------------------------------------------- runs


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
    if config.start_from:
        raise ValueError(
            f"{path}: it started from the archive {config.start_from}, so it is no run of the "
            "plan. Add runs that started without an archive"
        )
    if list(config.seed_numbers) != list(consecutive(config)):
        raise ValueError(
            f"{path}: its seeds are {', '.join(map(str, config.seed_numbers))}, and a table has "
            "consecutive seeds. Train the seeds in runs of their own, and add those"
        )
    metrics_of(run / directories.METRICS)
    logs.metrics(run)  # raises an error if the page could not read the table
    sessions = read_sessions(run)
    known = sessions and all(entry.get("commit") or entry.get("source") for entry in sessions)
    if not known and not unknown_source:
        raise ValueError(
            f"{path}: {directories.ENVIRONMENT} has neither a commit nor a source of elites, so "
            "nobody can repeat the run. Add it nevertheless with --unknown-source"
        )
    if new_process:
        if directories.kept_cells(run) is not None:
            raise ValueError(
                f"{path}: it has kept only some of its elites, so a new process cannot evaluate "
                "the whole archive. Evaluate the complete run, and add that"
            )
        evaluated(run)
    return run


def evaluated(run: RunDirectory) -> Path:
    """Return the newest folder of a run with tables of `elites evaluate` for a given iteration.

    Training writes tables to `evaluation/` at its end, so these do not show that a new process
    evaluated the run. Only `elites evaluate` writes a folder with an iteration in its name. Raises
    a ValueError if there is none.
    """
    found = [p for p in sorted(run.path.glob("evaluation_*/metrics.csv"))
             if EVALUATED.fullmatch(p.parent.name)]  # fmt: skip
    if not found:
        kept = [int(place.name) for place in checkpoints.complete(run.checkpoints)]
        last = max(kept, default=0) or last_iteration(metrics_of(run / directories.METRICS))
        raise ValueError(
            f"{run.path}: no process evaluated it after training. "
            f"Run: elites evaluate {quoted(run.path)} --checkpoint {last}"
        )
    folder = found[-1].parent
    iterations = {int(row["iteration"]) for row in rows_of(found[-1], "seed", "iteration")}
    if iterations != {iteration_of(folder)}:
        raise ValueError(
            f"{found[-1]}: damaged: its rows are not of iteration {iteration_of(folder)}. Remove "
            f"the folder, and run: elites evaluate {quoted(run.path)}"
            f" --checkpoint {iteration_of(folder)}"
        )
    return folder


def iteration_of(folder: Path) -> int:
    """Return the iteration in the name of a folder of `elites evaluate --checkpoint`."""
    return int(folder.name.removeprefix("evaluation_"))


def consecutive(config: Config) -> range:
    """Return as many consecutive seeds as a run has, from its first one on."""
    return range(config.first_seed, config.first_seed + config.seeds)


def joined(runs: Group) -> list[list[RunDirectory]]:
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
    return dataclasses.replace(config, seeds=1, first_seed=0, seed_list=())


# ------------------------------------------------------------------------------------- recording


def add(folder: Path, runs: Group, new_process: bool = False) -> Path:
    """Record a group of `joined` runs, and return the path of their metrics. See `record`."""
    return record(folder, [runs], new_process)[0]


def record(folder: Path, groups: Sequence[Group], new_process: bool = False) -> list[Path]:
    """Copy the tables of groups of `joined` runs to `folder`. Returns the paths of their metrics.

    `new_process` adds the tables that `elites evaluate` wrote in a new process. Raises a ValueError
    and writes nothing if a group cannot be read back, or if it would replace other results.
    """
    plan = plans.read(str(folder / recorded.PLAN))
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        shutil.copyfile(folder / recorded.PLAN, temporary / recorded.PLAN)
        staged: dict[Path, Group] = {}
        for runs in groups:
            refuse_other_tasks(runs[0], plan, folder)
            table = temporary / place(runs, plan)
            if table in staged:
                raise ValueError(alike(staged[table][0], runs[0], place(runs, plan)))
            stage(table, runs, new_process)
            staged[table] = runs
        read_back(temporary, staged)
        for table, runs in staged.items():
            refuse_replacing(table, folder / table.relative_to(temporary), runs[0])
        for table in staged:
            move(table, folder / table.relative_to(temporary))
        return [folder / table.relative_to(temporary) for table in staged]


def refuse_other_tasks(run: RunDirectory, plan: plans.Plan, folder: Path) -> None:
    """Raise a ValueError if the plan of a folder does not have the task of a run."""
    task = run.config().task
    if names.short_name(task) not in map(names.short_name, plan.tasks):
        raise ValueError(
            f"{run.path}: its task '{task}' is not in {folder / recorded.PLAN}. Add the task to "
            "the plan first"
        )


def joined_config(runs: Group) -> Config:
    """Return the configuration of a group of runs, with the seeds of all of them."""
    seeds = sum(run.config().seeds for run in runs)
    return dataclasses.replace(runs[0].config(), seeds=seeds, seed_list=())


def place(runs: Group, plan: plans.Plan) -> Path:
    """Return the path of the recorded metrics of a group of runs, relative to the plan's folder.

    Raises a ValueError if the name is too long for a file.
    """
    config = joined_config(runs)
    differing = settings(config, plan)
    name = recorded.stem(config.algorithm, consecutive(config), differing, tag(config, plan))
    if len(name.encode()) > LONGEST:
        raise ValueError(
            f"{runs[0].path}: it differs from the plan in {len(differing)} hyperparameters, which "
            "are too many for the name of a file. Add runs with the preset of the plan"
        )
    return Path(names.short_name(config.task), f"{name}.csv")


def alike(first: RunDirectory, second: RunDirectory, table: Path) -> str:
    """Return the message that two runs would be recorded in the same table."""
    a, b = (flat(run.config()) for run in (first, second))
    differing = [name for name in a if a[name] != b[name] and name != "seed_list"]
    return (
        f"{second.path}: it would be recorded as {table}, and so would {first.path}. They differ "
        f"in {listed(differing)}, which the name does not say. Add only one of them"
    )


def companions(table: Path) -> list[Path]:
    """Return the paths of the files that may lie beside a recorded table."""
    return [table.with_name(f"{table.name.removesuffix('.csv')}.{kind}") for kind in KINDS]


def stage(table: Path, runs: Group, new_process: bool) -> None:
    """Write the tables of a group of runs, of which `table` is that of the metrics.

    The table of cells has only the seed with the highest QD-score. The configuration, and the
    versions, source and device of the sessions, are kept in files beside the table.
    """
    name = table.name.removesuffix(".csv")
    table.parent.mkdir(exist_ok=True)
    metrics = in_order([metrics_of(run / directories.METRICS) for run in runs])
    write_rows(table, thinned(metrics))
    again = in_order([rows_if_any(run / directories.REEVALUATIONS, "iteration") for run in runs])
    cells = [row for run in runs for row in cells_of(run, new_process)]
    kinds = {"reevaluations": again, "cells": best_cells(cells, metrics) if cells else []}
    if new_process:
        kinds["new_process"] = new_results(runs)
    for kind, rows in kinds.items():
        if rows:  # a run that was stopped early has none
            write_rows(table.with_name(f"{name}.{kind}.csv"), rows)
    sessions = [entry for run in runs for entry in read_sessions(run)]
    kept = [{key: entry[key] for key in KEPT if key in entry} for entry in sessions]
    different = [entry for i, entry in enumerate(kept) if entry not in kept[:i]]
    if different:
        write_record(table.with_name(f"{name}.environment.json"), different)
    # Callbacks are files of the machine. A configuration with their names could not be read.
    kept_config = dataclasses.replace(joined_config(runs), callback=())
    config = without_folders(kept_config.to_json())
    write_record(table.with_name(f"{name}.config.json"), config)


def cells_of(run: RunDirectory, new_process: bool) -> Rows:
    """Return the table of the cells of a run, or an empty list if it has none.

    A run that was stopped early has it only where `elites evaluate` wrote it, with `new_process`.
    """
    needed = ("seed", "cell", "fitness")
    rows = rows_if_any(run.evaluation / "cells.csv", *needed)
    if not rows and new_process:
        rows = rows_if_any(evaluated(run) / "cells.csv", *needed)
    return rows


def new_results(runs: Group) -> Rows:
    """Return what `elites evaluate` found for a group of runs, a row for each seed.

    Raises a ValueError if the runs were evaluated at different iterations.
    """
    folders = [evaluated(run) for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if folder.name != folders[0].name:
            raise ValueError(
                f"{run.path}: evaluated at iteration {iteration_of(folder)}, and {runs[0].path} at "
                f"{iteration_of(folders[0])}. Evaluate both at the same one with --checkpoint"
            )
    return [row for folder in folders for row in rows_of(folder / "metrics.csv", "seed")]


def read_back(folder: Path, staged: Mapping[Path, Group]) -> None:
    """Read the tables of runs in a temporary folder as the results page does.

    Raises a ValueError that names the run if its tables cannot be read.
    """
    for table, runs in staged.items():
        with run_named(runs[0], folder):
            check_columns(table)
    problems: list[str] = []
    found = {recording.path: recording for recording in Folder(folder).read(problems)}
    for table, runs in staged.items():
        paths = (table, *companions(table))
        own = [text for text in problems if any(text.startswith(f"{path}:") for path in paths)]
        with run_named(runs[0], folder):
            if own or table not in found:
                raise ValueError("; ".join(own) or f"{table}: not the name of a table")
            check_companions(found[table])


@contextlib.contextmanager
def run_named(run: RunDirectory, folder: Path) -> Iterator[None]:
    """Name a run instead of the temporary folder in the errors of the `with` block."""
    try:
        yield
    except (ValueError, RunError) as error:
        what = str(error).replace(f"{folder}/", "")
        raise ValueError(f"{run.path}: its tables cannot be recorded: {what}") from None


def check_columns(table: Path) -> None:
    """Raise a RunError if a table beside recorded metrics lacks a column that the page needs."""
    for kind, needed in NEEDED.items():
        path = table.with_name(f"{table.name.removesuffix('.csv')}.{kind}.csv")
        if path.exists():
            logs.read_table(path, ("iteration", "seed", *needed))


def check_companions(recording: Recording) -> None:
    """Raise a ValueError or RunError if the page cannot use the tables beside recorded metrics."""
    seeds = recording.seeds
    for kind in NEEDED:
        path = recording.table(kind)
        if path.exists():
            found = logs.read_metrics(path, len(seeds))["seed"]
            if len(found) == 0 or found[0].tolist() != seeds:
                raise ValueError(f"{path}: damaged: no iteration has all seeds of its name")
    _ = recording.new_process  # raises an error if the metrics lack its iteration
    path = recording.path.with_suffix(".config.json")
    if path.exists():
        Config.from_json(files.read_json(path, follow=True), str(path))
    path = recording.table("cells")
    if path.exists():
        strange = set(logs.read_table(path, ("seed", "cell", "fitness"))["seed"]) - set(seeds)
        if strange:
            raise ValueError(f"{path}: damaged: seed {min(strange):.0f} is not in its name")


def check_folder(folder: Path) -> None:
    """Raise a ValueError or RunError if a file beside a readable table of a folder is damaged."""
    for table in sorted(folder.glob("*/*.csv")):
        check_columns(table)
    for recording in Folder(folder).read([]):
        check_companions(recording)


def refuse_replacing(table: Path, target: Path, run: RunDirectory) -> None:
    """Raise a ValueError if recording a run would change results, or leave those of another run.

    `table` is the new table of metrics, and `target` its future path. Files beside a table with the
    same contents belong to the run, and are kept.
    """
    pairs = list(zip([table, *companions(table)], [target, *companions(target)], strict=True))
    in_the_way = [
        str(there)
        for here, there in pairs
        if there.exists()
        and (here.read_bytes() != there.read_bytes() if here.exists() else not target.exists())
    ]
    if in_the_way:
        raise ValueError(
            f"{run.path}: it would replace other results. Delete them first, if they are not "
            f"needed: {listed(in_the_way)}"
        )


def move(table: Path, target: Path) -> None:
    """Write a table and the files beside it to their place, the table last."""
    target.parent.mkdir(exist_ok=True)
    for here, there in zip(companions(table), companions(target), strict=True):
        if here.exists():
            write_text(there, here.read_text("utf-8"))
    write_text(target, table.read_text("utf-8"))


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
    return [f"{name}_{setting_text(value)}" for name, value in differing.items()]


def setting_text(value: Any) -> str:
    """Return the value of a hyperparameter for the name of a table. Numbers keep their sign."""
    if isinstance(value, list | tuple):
        return "-".join(map(setting_text, value))
    if isinstance(value, str):
        return re.sub(r"[^\w.+-]+", "-", without_folders(value)).strip("-")
    return str(value)


def tag(config: Config, plan: plans.Plan) -> str:
    """Return the budget of a run for the name of its tables: "1M", or "" if it is the plan's."""
    budget = config.evaluations
    if budget == plan.budget(config.task):
        return ""
    return f"{budget // 1_000_000}M" if budget % 1_000_000 == 0 else f"{round(budget / 1000)}k"


# ------------------------------------------------------------------------------------------ tables


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
