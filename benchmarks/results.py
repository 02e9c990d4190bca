"""Write the results page and its figures from the recorded tables in `docs/results`.

    python benchmarks/results.py                  # write all tables and figures again
    python benchmarks/results.py --add RUN ...    # first copy tables and configurations of runs
    python benchmarks/results.py --thin TABLE ... # first keep every tenth iteration of tables
    python benchmarks/results.py --check          # say whether the pages agree with the tables

The sections stand between `<!-- begin NAME -->` and `<!-- end NAME -->` in `docs/results.md`,
`docs/cma.md`, `docs/pbt-and-dns.md` and `README.md`. All other text is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import results_data
import results_sections
from elites import files, names
from elites.files import RunError
from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded
from elites.words import one_line
from results_data import FOLDER, ROOT

EVERY = 10  # iterations between two rows of a thinned table
LONG = 400  # iterations of a table that is thinned
KEPT = ("elites", "commit", "source", "python", "jax", "device")  # of environment.json


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--unknown-source", action="store_true",
                        help="add runs that name neither commit nor source of elites")  # fmt: skip
    parser.add_argument("--thin", type=Path, nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:  # everything is checked before something is written
        runs = [addable(path, options.unknown_source) for path in options.add]
        tables = {path: thinned(metrics_of(path)) for path in options.thin}
        for run in runs:
            print(add(run))
        for path, rows in tables.items():
            write_rows(path, rows)
    except (ValueError, OSError, RunError) as error:
        print(f"results.py: {one_line(error)}", file=sys.stderr)
        return 2
    return write_pages(options.check)


def write_pages(check: bool) -> int:
    """Write the pages and the figures, and return the exit code.

    With `check`, only says which pages do not agree with the tables.
    """
    data = results_data.read()
    sections = results_sections.page(data)
    stale = [path for path, texts in sections.items() if replaced(path, texts) != text_of(path)]
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} does not agree with the tables: run this script")
        return 1 if stale else 0
    for path in stale:
        path.write_text(replaced(path, sections[path]), "utf-8")
        print(path.relative_to(ROOT))
    import results_figures  # loads Matplotlib

    for path in results_figures.draw(data, ROOT / "docs" / "images"):
        print(path.relative_to(ROOT))
    return 0


def text_of(path: Path) -> str:
    """Return the text of a page."""
    return path.read_text("utf-8")


def replaced(path: Path, sections: dict[str, str]) -> str:
    """Return the text of a page with new sections. Raises a ValueError if one has no place."""
    text = text_of(path)
    for name, section in sections.items():
        begin, end = (f"<!-- {word} {re.escape(name)} -->" for word in ("begin", "end"))
        pattern = re.compile(rf"({begin})(\n*).*?({end})", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{path}: has no place '<!-- begin {name} -->' for a section")
        text = pattern.sub(lambda found, new=section: _filled(found, new), text)
    return text


def _filled(found: re.Match[str], section: str) -> str:
    """Return a marked place with a new section, in lines of its own if its marker is in one."""
    space = "\n\n" if found[2] else ""
    return f"{found[1]}{space}{section}{space}{found[3]}"


# --------------------------------------------------------------------------------- adding tables


def addable(path: Path, unknown_source: bool = False) -> RunDirectory:
    """Return the run directory at a path. Raises a ValueError if it cannot be added.

    The source of elites must be known, with which each session of the run was computed, unless
    `unknown_source` is true.
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
    return run


def add(run: RunDirectory) -> Path:
    """Copy the tables of a run into the folder, thinned out, and return the path of its metrics.

    The table of cells has only the seed with the highest QD-score. The configuration, and the
    versions, source and device of the sessions, are kept in files beside the table.
    """
    config = run.config()
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    name = recorded.stem(config.algorithm, seeds, settings(config), tag(config))
    table = FOLDER / config.task / f"{name}.csv"
    table.parent.mkdir(exist_ok=True)
    write_rows(table, thinned(metrics_of(run / directories.METRICS)))
    for kind, source in (
        ("reevaluations", run / directories.REEVALUATIONS),
        ("cells", run.evaluation / "cells.csv"),
    ):
        rows = rows_of(source) if source.exists() else []
        if rows:  # a run that was stopped early has none
            kept = best_cells(rows) if kind == "cells" else rows
            write_rows(table.with_name(f"{name}.{kind}.csv"), kept)
    sessions = [{key: entry[key] for key in KEPT if key in entry} for entry in read_sessions(run)]
    different = [entry for i, entry in enumerate(sessions) if entry not in sessions[:i]]
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


def settings(config: Config) -> list[str]:
    """Return the hyperparameters of a run that differ from the plan's, such as discount_0.9."""
    plan = plans.read(str(FOLDER / recorded.PLAN))
    usual = vars(plan.config(config.task, config.algorithm, plan.seed_numbers).hp)
    differing = {name: v for name, v in vars(config.hp).items() if v != usual[name]}
    texts = {name: str(without_folders(v) if isinstance(v, str) else v)
             for name, v in differing.items()}  # fmt: skip
    return [f"{name}_" + re.sub(r"[^\w.+-]+", "-", text).strip("-") for name, text in texts.items()]


def tag(config: Config) -> str:
    """Return the budget of a run for the name of its tables: "1M", or "" if it is the plan's."""
    budget = config.evaluations
    if budget == plans.read(str(FOLDER / recorded.PLAN)).budget(config.task):
        return ""
    return f"{budget // 1_000_000}M" if budget % 1_000_000 == 0 else f"{round(budget / 1000)}k"


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file. An incomplete last line is left out."""
    header, rows = files.read_csv(path, unfinished=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def metrics_of(path: Path) -> list[dict[str, str]]:
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


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def thinned(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of the first, of every tenth and of the last iteration.

    A table of few iterations is returned as it is.
    """
    last = max(int(row["iteration"]) for row in rows)
    if last <= LONG:
        return rows
    return [row for row in rows if int(row["iteration"]) % EVERY == 0
            or int(row["iteration"]) in (1, last)]  # fmt: skip


def best_cells(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the cells of the seed with the highest QD-score, with the columns that are drawn."""
    scores: dict[str, float] = {}
    for row in rows:
        scores[row["seed"]] = scores.get(row["seed"], 0.0) + float(row["fitness"])
    best = max(scores, key=lambda seed: scores[seed])
    names = [n for n in rows[0] if n in ("seed", "iteration", "cell", "fitness", "origin")
             or (n.startswith("descriptor_") and n != "descriptor_error")]  # fmt: skip
    return [{name: row[name] for name in names} for row in rows if row["seed"] == best]


if __name__ == "__main__":
    sys.exit(main())
