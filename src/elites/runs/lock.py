"""Lock a run directory, so that only one process at a time writes to it.

The operating system holds the lock and releases it when the process ends, in whatever way.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from elites.runs.directory import LOCK, RunError, path_in_errors, refuse_links


class InUseError(RunError):
    """Another process has locked the run directory."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[str | None]:
    """Hold the lock of the run directory at a path inside the `with` block.

    Yields the text of the lock file if a killed process left one behind, otherwise None. Creates
    the directory if needed, and removes it again if nothing was written to it. Raises an InUseError
    if another process holds the lock.
    """
    import fcntl

    made = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    refuse_links(path)
    with _open_lock(path / LOCK) as file:
        try:
            with path_in_errors(path / LOCK):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(
                f"{path} is in use by {_text(file) or 'another process'}. Wait for it, or end it"
            ) from None
        if not _is_at(file, path / LOCK):
            raise InUseError(f"{path}: another process has just removed its lock. Try again")
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        try:
            with path_in_errors(path / LOCK):
                stale = _text(file) or None
                _replace(file, f"process {os.getpid()} on {platform.node()} since {now}\n")
            yield stale
        finally:
            # Emptied, not removed: two processes could lock a removed file and its successor. If
            # that fails, the text is recognised as that of a process that has ended.
            with contextlib.suppress(OSError):
                _replace(file, "")
            if made and [entry.name for entry in path.iterdir()] == [LOCK]:
                (path / LOCK).unlink()
                for directory in made:
                    with contextlib.suppress(OSError):
                        directory.rmdir()


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is the one at a path now. Another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except FileNotFoundError:
        return False


def _text(file: IO[bytes]) -> str:
    """Return the text of an open lock file as one line of at most 200 printable characters."""
    file.seek(0)
    text = " ".join(file.read(200).decode("utf-8", "replace").split())
    return "".join(letter for letter in text if letter.isprintable())


def _replace(file: IO[bytes], text: str) -> None:
    """Overwrite an open lock file with `text`."""
    file.seek(0)
    file.truncate()
    file.write(text.encode())


def _open_lock(path: Path) -> IO[bytes]:
    """Open the lock file at a path for reading and writing, and return the open file.

    Creates the file if needed. Does not follow a link. The file has no buffer, so that closing it
    writes nothing and cannot fail.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path}: not a plain file. Remove it")
    return os.fdopen(handle, "r+b", buffering=0)


@contextlib.contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock of the run directory at a path, unless another process holds it.

    Yields True if this process has the lock, otherwise False.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
            held = True
        except InUseError:
            held = False
        yield held
