"""Re-evaluate archive and actor, and write tables: the paper's metrics, and every cell.

    evaluation/metrics.csv   one row for each seed
    evaluation/cells.csv     one row for each filled cell of each seed

These tables are written for the end of training. Tables for another iteration are in a directory
such as `evaluation_000000100`.

On a deterministic task, re-evaluating an elite reproduces its results exactly. Then
`descriptor_error` is 0, and the re-evaluated QD-score equals the stored one. Some simulators do not
repeat an episode to the last bit in another row of a batch (`Task.repeatable`). Their tables show
the difference.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elites.files import RunError, read_record
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import lock
from elites.runs.directory import FACTS, SUMMARY, RunDirectory, write_text
from elites.runs.logs import read_table, text_of
from elites.words import number

ARCHIVE_METRICS = (
    ("qd_score", "QD-score"),
    ("coverage", "coverage in %"),
    ("max_fitness", "maximum fitness"),
)
"""Metrics of an archive that training records, and their titles in figures and reports."""
COLUMNS = (
    ("qd_score", "QD-score"),
    ("coverage", "coverage"),
    ("max_fitness", "maximum fitness"),
    ("reevaluated_qd_score", "QD-score, re-evaluated"),
    ("descriptor_error", "descriptor error of the archive"),
    ("actor_qd_score", "descriptor-conditioned QD-score"),
    ("actor_descriptor_error", "descriptor error of the actor"),
    ("actor_rebinned_qd_score", "QD-score of the actor, re-binned"),
    ("actor_rebinned_coverage", "coverage of the actor, re-binned"),
)
"""Columns of metrics.csv and their titles.

The paper's five metrics are the first three, `actor_qd_score` and `actor_descriptor_error`.
"""


NOT_REPEATABLE = (
    "This simulator may round an episode differently in another row of a batch. Re-evaluation can "
    "therefore differ from the archive. The descriptor error of the archive shows by how much."
)
"""Note beside the results of a run whose task is deterministic, but not repeatable."""


def note(run: RunDirectory) -> str | None:
    """Return the note beside the results of a run, or None if there is nothing to note.

    That is so if its task is repeatable, or not deterministic: then every episode differs anyway.
    """
    facts = read_record(run / FACTS, {})
    rounds = facts.get("deterministic", True) and not facts.get("repeatable", True)
    return NOT_REPEATABLE if rounds else None


def reevaluate(run: RunDirectory, checkpoint: int | None = None) -> Path:
    """Re-evaluate a run at a checkpoint and return the directory with the tables. Loads JAX.

    `checkpoint` is the iteration of the checkpoint, by default the newest one. The tables are
    written to `evaluation/` if `checkpoint` is not given, the checkpoint is still the newest when
    they are written, and no other process is training the run. Otherwise they go to a directory
    with the iteration in its name. So do the tables of a reduced run: `evaluation/` is only for
    tables of the whole archive.
    """
    from elites.runs import job, saved

    separate = checkpoint is not None or directories.kept_cells(run) is not None
    with job.memory_errors_explained():
        results, iteration = saved.load_checkpoint(run, checkpoint)
        folder = apart(run, iteration) if separate else run.evaluation
        folder.mkdir(exist_ok=True)  # fails early if it cannot be written
        again = results.reevaluate()
    with lock.locked_if_free(run.path) as is_free:
        newest = [int(place.name) for place in checkpoints.complete(run.checkpoints)[-1:]]
        if not is_free or newest != [iteration]:
            folder = apart(run, iteration)
        write(folder, results, again, iteration)
    return folder


def apart(run: RunDirectory, iteration: int) -> Path:
    """Return the path of the separate directory of a run for the tables of an iteration."""
    return run / f"evaluation_{iteration:09d}"


def write(directory: Path, results: Any, again: Any, iteration: int) -> None:
    """Write metrics.csv and cells.csv to `directory`.

    `results` is a `Run`, `again` the `Reevaluation` of it, and `iteration` the run's iteration.
    """
    directory.mkdir(exist_ok=True)
    rows, cells = [], []
    for i, seed in enumerate(results.seeds):
        archive = results.seed(i).archive
        best = float(archive.fitness.max()) if len(archive) else float("nan")
        rows.append(
            [
                seed,
                iteration,
                np.float32(archive.qd_score),
                np.float32(archive.coverage),
                np.float32(best),
                again.qd_score[i],
                again.descriptor_error[i],
                again.actor_qd_score[i],
                again.actor_descriptor_error[i],
                again.actor_rebinned_qd_score[i],
                again.actor_rebinned_coverage[i],
            ]
        )
        cells += [[seed, iteration, *_cell_row(i, cell, archive, again)] for cell in archive.cells]
    size = results.archives.centroids.shape[-1]
    write_csv(
        directory / "cells.csv",
        [
            "seed",
            "iteration",
            "cell",
            *numbered("centroid", size),
            "fitness",
            *numbered("descriptor", size),
            "origin",
            "born",
            "reevaluated_fitness",
            *numbered("reevaluated_descriptor", size),
            "descriptor_error",
            "actor_fitness",
            *numbered("actor_descriptor", size),
            "actor_descriptor_error",
            "actor_cell",
        ],
        cells,
    )
    write_csv(
        directory / "metrics.csv", ["seed", "iteration", *(name for name, _ in COLUMNS)], rows
    )


def _cell_row(i: int, cell: int, archive: Any, again: Any) -> list[Any]:
    """Return one row of cells.csv: the values of a filled cell of the i-th seed.

    The row lacks the columns `seed` and `iteration`. `again` is the re-evaluation of the run.
    """
    stored = archive.arrays

    weights = np.float32(archive.algorithm.problem.weights)

    def error(reached: np.ndarray) -> np.float32:
        """Return the weighted distance between a reached descriptor and the elite's stored one."""
        return np.float32(np.linalg.norm(weights * (reached - stored.descriptors[cell])))

    return [
        int(cell),
        *stored.centroids[cell],
        stored.fitness[cell],
        *stored.descriptors[cell],
        archive.origin(cell),
        int(stored.born[cell]),
        again.fitness[i][cell],
        *again.descriptors[i][cell],
        error(again.descriptors[i][cell]),
        again.actor_fitness[i][cell],
        *again.actor_descriptors[i][cell],
        error(again.actor_descriptors[i][cell]),
        again.actor_cells[i][cell],
    ]


def numbered(name: str, count: int) -> list[str]:
    """Return `count` numbered column names, such as "centroid_0" and "centroid_1"."""
    return [f"{name}_{i}" for i in range(count)]


def write_csv(path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a CSV file atomically: readers see the old file or the complete new one."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([text_of(value) for value in row] for row in rows)
    write_text(path, buffer.getvalue())


def error_in_new_process(run: RunDirectory) -> float | None:
    """Return the largest descriptor error that `elites evaluate` found in the archives of a run.

    It is over all seeds with elites, at the newest checkpoint. Returns None if there are none, or
    if no process has evaluated that checkpoint by its number. Training does not write these tables.
    """
    for place in checkpoints.complete(run.checkpoints)[-1:]:
        folder = apart(run, int(place.name))
        if (folder / "metrics.csv").exists():
            errors = read_metrics(folder).get("descriptor_error", np.zeros(0))
            return float(np.nanmax(errors)) if np.isfinite(errors).any() else None
    return None


def rebinned(cells: np.ndarray, fitness: np.ndarray, count: int) -> np.ndarray:
    """Return the best fitness [count] of the actor's rollouts that reached each cell.

    Cells that no rollout reached are NaN. `cells` and `fitness` [n] are the columns `actor_cell`
    and `actor_fitness` of cells.csv.
    """
    best, known = np.full(count, np.nan), cells >= 0
    np.fmax.at(best, cells[known].astype(int), fitness[known])
    return best


def iteration_of(directory: Path) -> int | None:
    """Return the iteration for which metrics.csv in a directory was written.

    Returns None if the file is missing, or if its rows have different iterations.
    """
    path = directory / "metrics.csv"
    if not os.path.lexists(path):
        return None
    rows = read_metrics(directory).get("iteration", np.zeros(0))
    return int(rows[0]) if len(rows) and bool((rows == rows[0]).all()) else None


def read_metrics(directory: Path) -> dict[str, np.ndarray]:
    """Read metrics.csv in a directory and return its columns [seeds], keyed by name."""
    return read_table(directory / "metrics.csv", ("seed",))


def read_cells(directory: Path, cells: int, size: int) -> dict[str, np.ndarray]:
    """Read cells.csv in a directory and return its columns [rows], keyed by name.

    `cells` is the number of cells of the archive, and `size` the number of descriptor dimensions.
    Raises a RunError if the table does not fit them.
    """
    path = directory / "cells.csv"
    described = (*numbered("descriptor", size), *numbered("actor_descriptor", size))
    errors = ("descriptor_error", "actor_descriptor_error")
    table = read_table(path, ("seed", "cell", "fitness", "actor_fitness", *described, *errors))
    for name in ("cell", "actor_cell"):
        highest = max(table.get(name, np.zeros(0)), default=0)
        if highest >= cells:
            raise RunError(
                f"{path}: damaged: '{name}' is {highest:.0f}, but the archive has {cells} cells, "
                "numbered from 0"
            )
    return table


def has_tables(run: RunDirectory, iteration: int) -> bool:
    """Return whether the tables in `evaluation/` of a run were written for an iteration."""
    return iteration_of(run.evaluation) == iteration


def is_done(run: RunDirectory) -> bool:
    """Return whether a run is done: its last checkpoint and its tables are written.

    A summary is written after them, so a run with a summary is done as well. Figures may be
    missing. A run whose tables say that all archives are empty is not done.
    """
    try:
        if (run.evaluation / "metrics.csv").exists():
            coverage = read_metrics(run.evaluation).get("coverage", np.ones(1))
            if len(coverage) and not (coverage > 0).any():
                return False
        if (run / SUMMARY).exists():
            return True
        total = read_record(run / FACTS, {"iterations": int})["iterations"]
        last = [int(place.name) for place in checkpoints.complete(run.checkpoints)[-1:]]
        return last == [total] and has_tables(run, total)
    except (OSError, RunError):
        return (run / SUMMARY).exists()


def table(directory: Path) -> list[list[str]]:
    """Return the metrics of metrics.csv in a directory as a table: rows of texts, the header first.

    Each row has the title of a metric and its value or, with several seeds, the median, lowest and
    highest value. Metrics without values are left out.
    """
    values = read_metrics(directory)
    seeds = len(values["seed"])
    rows = [["", "median" if seeds > 1 else "value", *(["lowest", "highest"] if seeds > 1 else [])]]
    for name, title in COLUMNS:
        column = values.get(name, np.full(seeds, np.nan)).astype(float)  # older tables lack some
        if np.isnan(column).all():
            continue
        with np.errstate(invalid="ignore"):  # infinities of both signs have no median
            spread = [np.nanmedian(column), np.nanmin(column), np.nanmax(column)]
        cells = [_number(name, value) for value in spread]
        rows.append([title, *(cells if seeds > 1 else cells[:1])])
    return rows


def _number(name: str, value: float) -> str:
    """Return the value of the metric `name` as text. Coverage is given in per cent."""
    return f"{100 * value:.1f} %" if name.endswith("coverage") else number(value)


def markdown(directory: Path) -> list[str]:
    """Return the metrics of metrics.csv in a directory as the lines of a Markdown table."""
    header, *rows = table(directory)
    line = "|" + "---|" + "---:|" * (len(header) - 1)
    return [f"| {' | '.join(header)} |", line, *(f"| {' | '.join(row)} |" for row in rows)]
