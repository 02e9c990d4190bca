"""Write files so that readers and later processes never see a part of one.

A file is written under a temporary name, flushed to disk, and then renamed. The temporary name
contains the process, so that the next process can remove what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from elites.files import RunError, about_link


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path for writing, which replaces `path` when the `with` block succeeds.

    If the block fails, the temporary file is removed. Its name contains the process id, so that two
    processes can write the same file. Errors of the operating system name `path`.
    """
    temporary = path.with_name(f".{path.stem}.writing-{this_process()}{path.suffix}")
    try:
        with path_in_errors(temporary):
            temporary.unlink(missing_ok=True)
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException as error:
        if isinstance(error, OSError) and str(error.filename) == str(temporary):
            error.filename = str(path)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove the temporary files in `folder` that were left by processes which have ended.

    Only processes of this machine are considered. Folders are kept, because none is written this
    way.
    """
    for entry in folder.glob(".*.writing-*"):
        owner = re.sub(r"(\.\w+)?$", "", entry.name.partition(".writing-")[2])
        if is_gone(owner) and (entry.is_symlink() or not entry.is_dir()):
            entry.unlink(missing_ok=True)


def sweep_folders(parent: Path, prefix: str) -> None:
    """Remove the temporary folders in `parent` that were left by processes which have ended.

    Their names are `prefix`, the name of the process, "-", and a random part.
    """
    for entry in parent.glob(f"{prefix}*"):
        owner = entry.name.removeprefix(prefix).rpartition("-")[0]
        if is_gone(owner) and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)


def this_process() -> str:
    """Return a name for this process as text: the name of the machine, "-", and the process id."""
    return f"{platform.node()}-{os.getpid()}"


def is_gone(process: str) -> bool:
    """Return whether a process of this machine has ended. False for processes of other machines.

    `process` is a name that `this_process` returned.
    """
    machine, _, number = process.rpartition("-")
    if machine != platform.node() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def write_text(path: Path, text: str) -> None:
    """Write `text` to a file atomically: readers see the old contents or the new ones."""
    # A text may have halves of surrogate pairs, which UTF-8 does not have.
    with (
        replacing(path) as temporary,
        open(temporary, "x", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.write(text)


def write_json(path: Path, data: Any) -> None:
    """Write `data` to a JSON file atomically: readers see the old contents or the new ones."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to write at its end, and return the open file. Creates the file if needed.

    Raises a RunError if the path is a symbolic link, a pipe or a device.
    """
    # O_NONBLOCK, because opening a pipe without a reader would block.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(about_link(path, "study")) from None
        if error.errno == errno.ENXIO:
            raise RunError(f"{path}: not a plain file. Remove it") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path}: not a plain file. Remove it")
    os.set_blocking(handle, True)
    return os.fdopen(handle, "ab")


def flush(file) -> None:
    """Write the buffered contents of an open file to disk (fsync)."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Write a directory to disk (fsync), so that new file names in it survive a power loss."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Add `path` to operating system errors in the `with` block that name no file.

    The error of a full disk is an example.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
