"""Read files that may have been truncated, edited or replaced since they were written.

Every error is one line that names the file and what is wrong with it. Only plain files are read,
because a pipe would block forever. Their size is checked first.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MEGABYTE = 10**6
Rows = list[list[str]]
Error = type[Exception]


class RunError(Exception):
    """Something is wrong with a run. The message says what, where, and what to do."""


def read_text(path: Path, most: int = 64 * MEGABYTE, error: Error = RunError) -> str:
    """Return the contents of a UTF-8 text file of at most `most` bytes.

    A byte order mark is dropped. Raises `error` if the file is too large, not a plain file, or
    damaged.
    """
    # O_NONBLOCK, because opening a pipe without a writer would block.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path}: not a plain file")
        if status.st_size > most:
            raise error(
                f"{path}: has {status.st_size / MEGABYTE:,.0f} MB, more than the "
                f"{most / MEGABYTE:,.0f} MB that such a file may have"
            )
        data = file.read(most + 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{path}: damaged: byte {problem.start} is not UTF-8 text") from None


def read_json(path: Path, error: Error = RunError) -> Any:
    """Read a JSON file and return its contents. Raises `error` if it is damaged."""
    text = read_text(path, error=error)
    try:
        return json.loads(text)
    except RecursionError:
        raise error(f"{path}: damaged: nested too deeply") from None
    except ValueError as problem:  # bad syntax, or a number with thousands of digits
        raise error(f"{path}: damaged: {problem}") from None


def read_record(
    path: Path, fields: Mapping[str, type | tuple[type, ...]], error: Error = RunError
) -> dict[str, Any]:
    """Read a JSON file that holds named fields and return them as a dictionary.

    `fields` gives the names and types that the file must have. Raises `error` if one is missing or
    has another type.
    """
    table = read_json(path, error)
    if not isinstance(table, dict):
        raise error(f"{path}: damaged: not a table of named fields")
    for name, kind in fields.items():
        if name not in table:
            raise error(f"{path}: damaged: '{name}' is missing")
        if not is_of(table[name], kind):
            raise error(f"{path}: damaged: '{name}' is {shown(table[name])}, not {_called(kind)}")
    return table


def is_of(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Return whether a value has a type, or one of several. True and False are not numbers."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


def shown(value: Any) -> str:
    """Return a value as text of at most 60 characters, for messages."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false",
          list: "a list", dict: "a table", type(None): "null"}  # fmt: skip


def _called(kind: type | tuple[type, ...]) -> str:
    """Return the types in words for messages, such as "text or null"."""
    return " or ".join(_NAMES[k] for k in (kind if isinstance(kind, tuple) else (kind,)))


def read_toml(path: Path, error: Error = ValueError) -> dict[str, Any]:
    """Read a TOML file and return its contents as a dictionary. Raises `error` if it is damaged."""
    text = read_text(path, error=error)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise error(f"{path}: nested too deeply") from None
    except ValueError as problem:
        raise error(f"{path}: {problem}") from None


def read_csv(
    path: Path, error: Error = RunError, unfinished: bool = False
) -> tuple[list[str], Rows]:
    """Read a CSV file and return its header and its rows, both as lists of text.

    Every row has as many fields as the header, otherwise `error` is raised. An `unfinished` file
    may end in an incomplete line, which is left out. The process that wrote it was killed, or is
    still writing.
    """
    text = read_text(path, 4000 * MEGABYTE, error)
    lines = text.splitlines() if not unfinished else text.split("\n")[:-1]
    try:
        header, *rows = list(csv.reader(lines)) or [[]]
    except csv.Error as problem:
        raise error(f"{path}: damaged: {problem}") from None
    for number, row in enumerate(rows, start=2):
        if len(row) == len(header):
            continue
        if unfinished and number == len(rows) + 1:
            return header, rows[:-1]
        raise error(f"{path}: line {number} has {len(row)} fields, the header {len(header)}")
    return header, rows
