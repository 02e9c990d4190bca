"""Copy the tables of runs into `docs/results`, thinned out and without folders of their machine.

Runs that differ only in their seeds become one set of tables. So the seeds of a plan can be run one
by one, wherever there is room, and are still recorded together.

The tables are first written to a temporary folder and read back from there. Nothing is written to
`docs/results` before all of them are known to be readable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elites import files, names
from elites.files import RunError
from elites.runs import directory as directories
from elites.runs import logs
from elites.runs.config import Config, flat
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded
from elites.study.recorded import Folder, Recording
from elites.words import listed
from elites.writing import write_text
from results_rows import (
    Rows,
    best_cells,
    in_order,
    metrics_of,
    rows_if_any,
    rows_of,
    thinned,
    write_rows,
)
from results_runs import Group, evaluated, iteration_of, joined_config, place, without_folders

KEPT = ("elites", "commit", "source", "python", "jax", "device")  # of environment.json
KINDS = ("reevaluations.csv", "cells.csv", "new_process.csv", "distilled.csv", "environment.json",
         "config.json")  # fmt: skip
"""Ends of the names of the files beside a recorded table."""
NEEDED = {
    "reevaluations": ("evaluations", "qd_score", "descriptor_error"),
    "new_process": ("reevaluated_qd_score", "descriptor_error"),
}
"""Columns that the results page needs, keyed by the kind of table."""


def record(folder: Path, groups: Sequence[Group], new_process: bool = False) -> list[Path]:
    """Copy the tables of groups of runs to `folder`. Returns the paths of their metrics.

    The runs of a group are recorded together, see `results_runs.joined`. `new_process` adds the
    tables that `elites evaluate` wrote in a new process. Raises a ValueError and writes nothing if
    a group cannot be read back, or if it would replace other results.
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


def write_record(path: Path, record: Any) -> None:
    """Write a record as JSON."""
    path.write_text(f"{json.dumps(record, indent=1)}\n", "utf-8")
