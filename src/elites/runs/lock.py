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
    """Lock the run directory at a path for this process while the `with` block runs.

    Yields the text of a lock that a killed process left behind, or None. Creates the directory if
    needed, and removes it again if nothing was written to it. Raises an InUseError if another
    process holds the lock.
    """
    import fcntl

    made = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    refuse_links(path)
    with path_in_errors(path / LOCK), _open_lock(path / LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InUseError(
                f"{path} is in use by {file.read().strip() or 'another process'}. Wait for it, or "
                "end it"
            ) from None
        file.seek(0)
        stale = file.read().strip() or None
        file.seek(0)
        file.truncate()
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {platform.node()} since {now}\n")
        file.flush()
        try:
            yield stale
        finally:
            # Emptied, not removed: two processes could lock a removed file and its successor. If
            # that fails, the text is recognised as that of a process that has ended.
            with contextlib.suppress(OSError):
                file.seek(0)
                file.truncate()
                file.flush()
            if made and [entry.name for entry in path.iterdir()] == [LOCK]:
                (path / LOCK).unlink()
                for directory in made:
                    with contextlib.suppress(OSError):
                        directory.rmdir()


def _open_lock(path: Path) -> IO[str]:
    """Open the lock file at a path for reading and writing, and return the open file.

    Creates the file if needed. Does not follow a link.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path}: not a plain file. Remove it")
    return os.fdopen(handle, "r+", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def locked_if_free(path: Path) -> Iterator[bool]:
    """Lock the run directory at a path, unless another process has locked it.

    Yields whether this process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
            held = True
        except InUseError:
            held = False
        yield held
