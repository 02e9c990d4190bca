"""Write a whole run directory beside its place, and then move it there."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elites.runs import directory as directories
from elites.runs import lock
from elites.writing import sweep_folders


@contextlib.contextmanager
def placing(path: Path, prefix: str, choose: str = "another --output") -> Iterator[Path]:
    """Yield an empty temporary folder, whose contents become the run directory `path`.

    They are moved there when the `with` block succeeds. If the block fails, they are removed. Also
    removes the temporary folders of processes that have ended. Their names begin with `prefix`.
    Raises a ValueError if the directory already holds a run or other files. `choose` completes its
    advice, as in `directories.refuse_existing`.
    """
    parent = Path(os.path.abspath(path)).parent
    parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(parent, prefix)
    # Each process has its own folder, because two may write at the same time.
    name = f"{prefix}{directories.this_process()}-"
    temporary = Path(tempfile.mkdtemp(prefix=name, dir=parent))
    try:
        contents = temporary / "run"  # with the usual permissions, unlike `temporary`
        contents.mkdir()
        yield contents
        _put_in_place(contents, path, choose)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(contents: Path, path: Path, choose: str) -> None:
    """Move a complete run to the directory `path`, which must be empty or not exist.

    A lock file and partial files of killed processes may be there.
    """
    if not path.exists():
        try:
            contents.rename(path)
            return
        except OSError:
            if not path.exists():
                raise
    with lock.locked(path):
        directories.refuse_existing(path, choose)  # another process may have written there
        # The configuration makes a directory a run, so it comes last.
        entries = sorted(contents.iterdir(), key=lambda p: p.name == directories.CONFIG)
        moved: list[Path] = []
        try:
            for entry in entries:
                entry.rename(path / entry.name)
                moved.append(entry)
        except BaseException:
            for entry in moved:
                (path / entry.name).rename(entry)
            raise
