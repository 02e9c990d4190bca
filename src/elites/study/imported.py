"""Import results of other programs into a study, to show them in its report."""

from __future__ import annotations

from pathlib import Path

from elites import files, tasks
from elites.runs import directory as directories
from elites.study import collect
from elites.study.study import Study


def add(study: Study, path: Path) -> None:
    """Check a CSV file with results of another program, and copy it into a study.

    The copy is in the study's folder `imported`. Its name always ends in `.csv`, because `collect`
    reads such files. `collect.read_imported` explains the format. Adding the same file again
    changes nothing. Raises a ValueError if the file has a mistake, or if one of its labels is
    already in use.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    groups = collect.read_imported(path, [tasks.short_name(item.task) for item in study.items()])
    text = files.read_text(path, error=ValueError, follow=True)
    copy = study.imported / f"{path.stem}.csv"
    if copy.exists():
        if files.read_text(copy) != text:
            raise ValueError(f"{copy} exists already, with other contents. Rename {path}")
        return
    taken = {group.label for group in collect.collect(study).groups}
    collect.refuse_taken_labels(path, groups, taken)
    study.imported.mkdir(exist_ok=True)
    directories.write_text(copy, text)
