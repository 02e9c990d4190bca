"""Decide whether a Python file that a saved run names may run.

A run names the file of a task or an algorithm of the user's own as FILE.py:FUNCTION. To load the
run is to run the file, and the run may come from someone else. A file may run if its contents are
trusted:

- `record` trusts files that the user names: to train, to list a task, or with --trust-task;
- `require` raises an `UntrustedError` for files of a run that are not trusted.

Trust belongs to the contents of a file, as a SHA-256 digest, and to the user. The record is the
folder `~/.local/state/elites/trusted`, or one below `$XDG_STATE_HOME`, with a file for each digest.
Processes therefore never overwrite what others record. A damaged entry counts as missing.

Only the named file is checked, not what it imports.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from elites import references
from elites.output import warn
from elites.words import listed

REMEDY = "Read it, then repeat with --trust-task (in Python: trust_task=True)"

_approved: set[str] = set()
"""Digests that are trusted in this process only."""


class UntrustedError(ValueError):
    """A run names a file that the user has not trusted. `what` says which one."""

    def __init__(self, what: str, remedy: str):
        super().__init__(f"{what}. {remedy}")
        self.what = what


def files(*names: str) -> list[Path]:
    """Return the files that some names of tasks and algorithms refer to, each once.

    Names that are not of the form FILE.py:FUNCTION have none.
    """
    own = [references.absolute(name) for name in names if references.is_reference(name)]
    return [Path(where) for where in dict.fromkeys(name.rpartition(":")[0] for name in own)]


def record(*names: str) -> None:
    """Trust the files that some names of tasks and algorithms refer to, with their contents now.

    Warns if this cannot be recorded. The files are then trusted in this process only.
    """
    for path in files(*names):
        digest = _digest(path)
        _approved.add(digest)
        if not _is_recorded(digest):
            _write(digest, path)


def approve(digests: Iterable[str]) -> None:
    """Trust files by their digests in this process, without recording it."""
    _approved.update(digests)


def trusted_digests(*names: str) -> list[str]:
    """Return the digests of the trusted files among those that some names refer to."""
    found = [_digest(path) for path in files(*names) if path.is_file()]
    return [digest for digest in found if _is_trusted(digest)]


def require(owner: object, *names: str, remedy: str = REMEDY) -> None:
    """Raise an UntrustedError if a file that one of the names refers to is not trusted.

    `owner` says in the message whose names they are, and `remedy` what to do.
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
    """Return the SHA-256 digest of the contents of a file that run in this process."""
    return hashlib.sha256(references.source(str(path))).hexdigest()


def _is_trusted(digest: str) -> bool:
    """Return whether the user trusts a file with this digest."""
    return digest in _approved or _is_recorded(digest)


# -------------------------------------------------------------------------------- the user's record


def _folder() -> Path | None:
    """Return the folder of the record, or None if the user has no home."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "elites" / "trusted"


def _is_recorded(digest: str) -> bool:
    """Return whether the record has an intact entry of a digest."""
    folder = _folder()
    return folder is not None and _entry(folder / digest)[:1] == [digest]


def _entry(path: Path) -> list[str]:
    """Return the digest and the path in an entry of the record.

    Returns an empty list if the entry is missing or damaged, or another user wrote it.
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
    """Return the paths of all files that the record has, with any contents."""
    folder = _folder()
    if folder is None or not folder.is_dir():
        return set()
    entries = [_entry(path) for path in folder.iterdir()]
    return {entry[1] for entry in entries if len(entry) == 2}


def _write(digest: str, path: Path) -> None:
    """Add the digest of a file to the record, or warn if the record cannot be written."""
    folder = _folder()
    if folder is None:
        return warn(f"you have no home directory, so elites cannot remember that you trust {path}")
    temporary = folder / f".{digest}.writing-{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{digest}  {path}\n")
        os.replace(temporary, folder / digest)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        warn(f"{folder}: {error.strerror}, so elites cannot remember that you trust {path}")
