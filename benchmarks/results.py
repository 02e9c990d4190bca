"""Write the results page and its figures from the recorded tables in `docs/results`.

    python benchmarks/results.py                  # write all tables and figures again
    python benchmarks/results.py --add RUN ...    # first copy tables and configurations of runs
    python benchmarks/results.py --add RUN ... --new-process    # runs that were evaluated again
    python benchmarks/results.py --thin TABLE ... # first keep every tenth iteration of tables
    python benchmarks/results.py --check          # say whether the pages agree with the tables

The sections stand between `<!-- begin NAME -->` and `<!-- end NAME -->` in `docs/results.md`,
`docs/progress.md`, `docs/cma.md`, `docs/pbt-and-dns.md` and `README.md`. All other text is written
by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import results_adding as adding
import results_data
import results_figures
import results_sections
from elites import files
from elites.files import RunError
from elites.words import one_line
from results_data import FOLDER, ROOT
from results_rows import metrics_of, thinned, write_rows
from results_runs import addable, joined


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="RUN")
    parser.add_argument("--unknown-source", action="store_true",
                        help="add runs that name neither commit nor source of elites")  # fmt: skip
    parser.add_argument("--new-process", action="store_true",
                        help="added runs were evaluated in a new process")  # fmt: skip
    parser.add_argument("--thin", type=Path, nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    try:  # everything is checked before something is written
        if options.check and (options.add or options.thin):
            raise ValueError("--check writes nothing. Give it without --add and --thin")
        runs = [addable(path, options.unknown_source, options.new_process)
                for path in options.add]  # fmt: skip
        groups = joined(runs)
        tables = {path: thinned(metrics_of(path)) for path in options.thin}
        for path in adding.record(FOLDER, groups, options.new_process) if groups else ():
            print(path)
        for path, rows in tables.items():
            write_rows(path, rows)
        return write_pages(options.check)
    except (ValueError, OSError, RunError) as error:
        print(f"results.py: {one_line(error)}", file=sys.stderr)
        return 2


def write_pages(check: bool) -> int:
    """Write the pages and the figures, and return the exit code.

    With `check`, only says which pages do not agree with the tables. Raises a ValueError or
    RunError if a recorded table is damaged, or if a page has no place for a section.
    """
    adding.check_folder(FOLDER)
    data = results_data.read()
    sections = results_sections.page(data)
    stale = [path for path, texts in sections.items() if replaced(path, texts) != text_of(path)]
    if check:
        stale += results_figures.stale(data)
        for path in stale:
            print(f"{path.relative_to(ROOT)} does not agree with the tables: run this script")
        return 1 if stale else 0
    for path in stale:
        path.write_text(replaced(path, sections[path]), "utf-8")
        print(path.relative_to(ROOT))
    for path in results_figures.draw(data):
        print(path.relative_to(ROOT))
    return 0


def text_of(path: Path) -> str:
    """Return the text of a page."""
    return files.read_text(path, error=ValueError, follow=True)


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


if __name__ == "__main__":
    sys.exit(main())
