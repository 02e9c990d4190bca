"""Write the results page and its figures from the recorded tables in `docs/results`.

    python benchmarks/results.py                  # write all tables and figures again
    python benchmarks/results.py --add RUN ...    # first copy the tables of runs there
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

import results_data
import results_sections
from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded
from results_data import FOLDER, ROOT

EVERY = 10  # iterations between two rows of a thinned table
LONG = 400  # iterations of a table that is thinned
KEPT = ("elites", "commit", "python", "jax", "device")  # of environment.json


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--thin", type=Path, nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    for path in options.add:
        print(add(directories.existing(path)))
    for path in options.thin:
        write_rows(path, thinned(rows_of(path)))
    data = results_data.read()
    sections = results_sections.page(data)
    stale = [path for path, texts in sections.items() if replaced(path, texts) != text_of(path)]
    if options.check:
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


def add(run: RunDirectory) -> Path:
    """Copy the tables of a run into the folder, thinned out, and return the path of its metrics.

    The table of cells has only the seed with the highest QD-score. Versions and device are kept in
    a file beside the table.
    """
    config = run.config()
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    name = recorded.stem(config.algorithm, seeds, settings(config), tag(config))
    table = FOLDER / config.task / f"{name}.csv"
    table.parent.mkdir(exist_ok=True)
    write_rows(table, thinned(rows_of(run / directories.METRICS)))
    for kind, source in (
        ("reevaluations", run / directories.REEVALUATIONS),
        ("cells", run.evaluation / "cells.csv"),
    ):
        rows = rows_of(source) if source.exists() else []
        if rows:  # a run that was stopped early has none
            kept = best_cells(rows) if kind == "cells" else rows
            write_rows(table.with_name(f"{name}.{kind}.csv"), kept)
    session = read_sessions(run)[-1:]
    kept = [{key: entry[key] for key in KEPT if key in entry} for entry in session]
    text = json.dumps(kept, indent=1)
    table.with_name(f"{name}.environment.json").write_text(f"{text}\n", "utf-8")
    return table


def settings(config: Config) -> list[str]:
    """Return the hyperparameters of a run that differ from the plan's, such as discount_0.9."""
    plan = plans.read(str(FOLDER / recorded.PLAN))
    usual = vars(plan.config(config.task, config.algorithm, plan.seed_numbers).hp)
    differing = {name: str(v) for name, v in vars(config.hp).items() if v != usual[name]}
    return [
        f"{name}_" + re.sub(r"[^\w.+-]+", "-", text).strip("-") for name, text in differing.items()
    ]


def tag(config: Config) -> str:
    """Return the budget of a run for the name of its tables: "1M", or "" if it is the plan's."""
    budget = config.evaluations
    if budget == plans.read(str(FOLDER / recorded.PLAN)).budget(config.task):
        return ""
    return f"{budget // 1_000_000}M" if budget % 1_000_000 == 0 else f"{round(budget / 1000)}k"


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


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
