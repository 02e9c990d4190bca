"""Decide whether a Python file that a saved run names may be executed.

A run names the file of a task or an algorithm of the user's own as FILE.py:FUNCTION. Loading the
run executes that file, and the run may come from someone else. A file may be executed if its
contents are trusted:

- `record` trusts files that the user names: to train, to list a task, or with --trust-task;
- `require` raises an `UntrustedError` for files of a run that are not trusted.

Trust belongs to the contents of a file, as a SHA-256 digest, and to the user. The record of trusted
files is the folder `~/.local/state/elites/trusted`, or one below `$XDG_STATE_HOME`, with an entry
for each digest. Processes therefore never overwrite each other's entries. A damaged entry counts as
missing.

Only the named file is checked, not what it imports.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from elites import names as task_names
from elites import references
from elites.output import warn
from elites.words import listed
from elites.writing import replacing

REMEDY = "Read it, then repeat with --trust-task (in Python: trust_task=True)"

_approved: set[str] = set()
"""Digests of the files that are trusted in this process only."""


class UntrustedError(ValueError):
    """A run names a file that the user has not trusted. `what` says which one."""

    def __init__(self, what: str, remedy: str):
        super().__init__(f"{what}. {remedy}")
        self.what = what


def files(*names: str) -> list[Path]:
    """Return the files that tasks and algorithms refer to, without duplicates.

    A name of the form FILE.py:FUNCTION refers to a file, and so do options with such values in the
    name of a simulator's task. Other names are ignored.
    """
    own = [references.absolute(name) for name in task_names.code(*names)]
    return [Path(where) for where in dict.fromkeys(name.rpartition(":")[0] for name in own)]


def record(*names: str) -> None:
    """Trust the present contents of the files that tasks and algorithms refer to.

    The digests are added to the user's record. If that fails, prints a warning, and the files are
    trusted in this process only.
    """
    for path in files(*names):
        digest = _digest(path)
        _approved.add(digest)
        if not _is_recorded(digest):
            _write(digest, path)


def approve(digests: Iterable[str]) -> None:
    """Trust files with these digests in this process, without adding them to the record."""
    _approved.update(digests)


def trusted_digests(*names: str) -> list[str]:
    """Return the digests of the trusted files among those that tasks and algorithms refer to."""
    found = [_digest(path) for path in files(*names) if path.is_file()]
    return [digest for digest in found if _is_trusted(digest)]


def require(owner: object, *names: str, remedy: str = REMEDY) -> None:
    """Raise an UntrustedError if a task or an algorithm refers to a file that is not trusted.

    The message says who needs the file (`owner`), and what to do (`remedy`).
    """
    found = [path for path in files(*names) if not _is_trusted(_digest(path))]
    if not found:
        return
    before = _recorded_paths()
    which = {
        True: "which changed since you trusted it",
        False: "whose contents you have not trusted",
    }
    texts = [f"{path}, {which[str(path) in before]}" for path in found]
    raise UntrustedError(f"{owner} needs to run the code in {listed(texts)}", remedy)


def _digest(path: Path) -> str:
    """Return the SHA-256 digest of a Python file, as this process has read or executed it."""
    return hashlib.sha256(references.source(str(path))).hexdigest()


def _is_trusted(digest: str) -> bool:
    """Return whether files with this digest are trusted, in the record or in this process."""
    return digest in _approved or _is_recorded(digest)


# -------------------------------------------------------------------------------- the user's record


def _folder() -> Path | None:
    """Return the folder of the user's record, or None if the user has no home directory."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "elites" / "trusted"


def _is_recorded(digest: str) -> bool:
    """Return whether the record has an intact entry for a digest."""
    folder = _folder()
    return folder is not None and _entry(folder / digest)[:1] == [digest]


def _entry(path: Path) -> list[str]:
    """Read an entry of the record, and return the digest and the path of the trusted file.

    Returns an empty list if the entry is missing or damaged, or if another user wrote it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, encoding="utf-8", errors="surrogateescape") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                return []
            return file.read(65536).rstrip("\n").split("  ", 1)
    except OSError:
        return []


def _recorded_paths() -> set[str]:
    """Return the paths of all trusted files, also of those that were changed after that."""
    folder = _folder()
    if folder is None or not folder.is_dir():
        return set()
    entries = [_entry(path) for path in folder.iterdir()]
    return {entry[1] for entry in entries if len(entry) == 2}


def _write(digest: str, path: Path) -> None:
    """Add a file and its digest to the record. Prints a warning if that fails."""
    folder = _folder()
    if folder is None:
        return warn(f"you have no home directory, so elites cannot remember that you trust {path}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(folder / digest) as temporary:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{digest}  {path}\n")
    except OSError as error:
        warn(f"{folder}: {error.strerror}, so elites cannot remember that you trust {path}")
