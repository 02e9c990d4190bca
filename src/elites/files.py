"""Read files that may have been truncated, edited or replaced since they were written.

Every file that elites reads is read here. A reader checks, in this order:

    kind       only plain files are read: a pipe would block forever, a link may lead elsewhere
    size       before anything is read
    encoding   UTF-8, with or without a byte order mark
    values     how deeply they are nested, and that numbers and texts can be used
    schema     the fields or columns that a file must have, and their types

Every error is one line that names the file, what is wrong with it, and the field if there is one.
"""

from __future__ import annotations

import collections
import csv
import errno
import io
import json
import math
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

MEGABYTE = 10**6
DEPTH = 50  # of nested lists and tables
LARGEST_JSON = 8 * MEGABYTE
_LONGEST_LINE = MEGABYTE  # of a CSV file
_LONGEST_KEY = 1000  # parts of a key of a TOML file
Rows = list[list[str]]
Error = type[Exception]


def user_cache() -> Path | None:
    """Return the folder of elites in the user's cache. It need not exist.

    It is `~/.cache/elites`, or lies below `$XDG_CACHE_HOME`. Returns None if the user has no home
    directory.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "elites"


_REFUSALS = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ESTALE)


class RunError(Exception):
    """Something is wrong with a run. The message says what, where, and what to do.

    `what` is the message without `advice`, which other advice may replace.
    """

    def __init__(self, what: str = "", advice: str = ""):
        super().__init__(f"{what}. {advice}" if advice else what)
        self.what = what


def is_refusal(problem: Exception) -> bool:
    """Return whether the system refused to open a file, which says nothing about its contents.

    Examples are missing permissions, too many open files, and a stale network file system.
    """
    return isinstance(problem, OSError) and problem.errno in _REFUSALS


# --------------------------------------------------------------------------------- kind and size


def open_file(
    path: Path, most: int | None = None, error: Error = RunError, follow: bool = False
) -> IO[bytes]:
    """Open a plain file of at most `most` bytes for reading, and return the open file.

    A symbolic link is refused unless `follow` is true, because it may lead out of a run. Raises
    `error` if the file is not plain or too large, and an OSError if it cannot be opened.
    """
    # O_NONBLOCK, because opening a pipe without a writer would block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, flags)
    except OSError as problem:
        if problem.errno == errno.ELOOP and not follow and os.path.islink(path):
            raise error(about_link(path)) from None
        if problem.errno == errno.ENXIO:  # a socket
            raise error(f"{path}: not a plain file") from None
        raise
    try:
        _check_kind(path, os.fstat(handle), most, error)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def about_link(path: Path, kind: str = "run") -> str:
    """Return the message that a path is a symbolic link, which elites does not follow.

    `kind` says what the path belongs to, "run" or "study".
    """
    return (
        f"{path} is a symbolic link, and elites follows none inside of a {kind}. Replace it by "
        "what it points to"
    )


def _check_kind(path: Path, status: os.stat_result, most: int | None, error: Error) -> None:
    """Raise `error` if a file is not a plain file, or has more than `most` bytes."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise error(f"{path}: not a plain file")
    if most is not None and status.st_size > most:
        raise error(_too_large(path, status.st_size, most))


def read_bytes(
    path: Path, most: int | None = None, error: Error = RunError, follow: bool = False
) -> bytes:
    """Return the contents of a plain file of at most `most` bytes. See `open_file` for errors."""
    with open_file(path, most, error, follow) as file:
        data = file.read(-1 if most is None else most + 1)
    if most is not None and len(data) > most:  # it has grown since it was opened
        raise error(_too_large(path, len(data), most))
    return data


def _too_large(path: Path, size: int, most: int) -> str:
    """Return the message that a file of `size` bytes has more than the `most` that are allowed."""
    return (
        f"{path}: has {size / MEGABYTE:,.0f} MB, more than the {most / MEGABYTE:,.0f} MB that such "
        "a file may have"
    )


# -------------------------------------------------------------------------------------- encoding


def read_text(
    path: Path, most: int = 64 * MEGABYTE, error: Error = RunError, follow: bool = False
) -> str:
    """Return the contents of a UTF-8 text file of at most `most` bytes, without a byte order mark.

    A symbolic link is followed only if `follow` is true. Raises `error` if the file is damaged, too
    large or not a plain file.
    """
    try:
        return read_bytes(path, most, error, follow).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise error(f"{path}: damaged: byte {problem.start} is not UTF-8 text") from None


# ---------------------------------------------------------------------------------------- values


def read_json(path: Path, error: Error = RunError, follow: bool = False) -> Any:
    """Read a JSON file and return its contents. Raises `error` if the file is damaged."""
    text = read_text(path, LARGEST_JSON, error, follow)
    try:
        values = json.loads(text)
    except RecursionError:
        raise error(f"{path}: damaged: nested too deeply") from None
    except ValueError as problem:  # bad syntax, or a number with thousands of digits
        raise error(f"{path}: damaged: not valid JSON: {problem}") from None
    _check_values(path, values, error)
    return values


def read_toml(path: Path, error: Error = ValueError) -> dict[str, Any]:
    """Read a TOML file and return its contents as a dictionary. Raises `error` if it is damaged."""
    text = read_text(path, LARGEST_JSON, error, follow=True)
    # The parser's time and memory grow with the square of the parts of a key, as in a.b.c = 1.
    if any(line.partition("=")[0].count(".") > _LONGEST_KEY for line in text.splitlines()):
        raise error(f"{path}: nested too deeply")
    try:
        values = tomllib.loads(text)
    except (RecursionError, MemoryError):
        raise error(f"{path}: nested too deeply") from None
    except ValueError as problem:
        raise error(f"{path}: {problem}") from None
    _check_values(path, values, error)
    return values


def _check_values(path: Path, values: Any, error: Error) -> None:
    """Raise `error` if values read from a file are nested too deeply or cannot be used.

    Numbers must be finite, and whole numbers must fit in 64 bits. Texts must be valid Unicode.
    """
    if found := _fault(values):
        keys, what = found
        name = ".".join(map(str, reversed(keys)))
        raise error(f"{path}: damaged: {f'{name[:60]!a} is ' if name else ''}{what}")


def _fault(value: Any, depth: int = 0) -> tuple[list[Any], str] | None:
    """Return where the first value that cannot be used is, and what is wrong with it.

    Where it is, is said by the keys and indices that lead to it, the innermost first. Returns None
    if all values can be used.
    """
    if not isinstance(value, dict | list):
        return None if _is_usable(value) else ([], _unusable(value))
    if depth > DEPTH:
        return [], "nested too deeply"
    if isinstance(value, dict) and not all(map(_is_usable, value)):
        return [], "not valid Unicode text"
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if found := _fault(inner, depth + 1):
            found[0].append(key)
            return found
    return None


def _is_usable(value: Any) -> bool:
    """Return whether a number is finite and fits in 64 bits, or whether a text is valid Unicode.

    Returns True for values of other types.
    """
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return not isinstance(value, float) or math.isfinite(value)


def _unusable(value: Any) -> str:
    """Return in words what is wrong with a number or text that cannot be used."""
    if isinstance(value, float):
        return f"{value}, not a finite number"
    return "too large a number" if isinstance(value, int) else "not valid Unicode text"


# ---------------------------------------------------------------------------------------- schema


class ListOf(NamedTuple):
    """Type of a field that holds a list whose entries all have the type `kind`."""

    kind: type | tuple[type, ...]


Kind = type | tuple[type, ...] | ListOf
Fields = Mapping[str, Kind]


def read_record(
    path: Path, fields: Fields, error: Error = RunError, optional: Fields | None = None
) -> dict[str, Any]:
    """Read a JSON file that holds named fields, and return them as a dictionary.

    `fields` maps the names of required fields to their types, and `optional` those of optional
    fields. Raises `error` if a field is missing or has another type.
    """
    return check_record(read_json(path, error), str(path), fields, error, optional)


def check_record(
    table: Any, where: str, fields: Fields, error: Error = RunError, optional: Fields | None = None
) -> dict[str, Any]:
    """Check that `table` is a dictionary with the given fields, and return it.

    `where` says in errors where the table comes from. See `read_record` for the other arguments.
    """
    if not isinstance(table, dict):
        raise error(f"{where}: damaged: not a table of named fields")
    for name in fields:
        if name not in table:
            raise error(f"{where}: damaged: '{name}' is missing")
    for name, kind in {**fields, **(optional or {})}.items():
        if name in table and not is_of(table[name], kind):
            raise error(f"{where}: damaged: '{name}' is {shown(table[name])}, not {_called(kind)}")
    return table


def is_of(value: Any, kind: Kind) -> bool:
    """Return whether a value is of a type, or of one of several. True and False are not numbers."""
    if isinstance(kind, ListOf):
        return isinstance(value, list) and all(is_of(entry, kind.kind) for entry in value)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


def shown(value: Any) -> str:
    """Return a value as text for messages, shortened to at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false",
          list: "a list", dict: "a table", type(None): "null"}  # fmt: skip


def _called(kind: Kind) -> str:
    """Return the name of a type, or of several, for messages, such as "text or null"."""
    if isinstance(kind, ListOf):
        return f"a list of which each entry is {_called(kind.kind)}"
    return " or ".join(_NAMES[k] for k in (kind if isinstance(kind, tuple) else (kind,)))


# ---------------------------------------------------------------------------------------- tables


def read_csv(
    path: Path, error: Error = RunError, unfinished: bool = False
) -> tuple[list[str], Rows]:
    """Read a CSV file and return its header and its rows, all as lists of texts.

    Raises `error` if two columns have the same name, or if a row is not as long as the header. With
    `unfinished`, an incomplete last line is left out: the process that wrote the file may have been
    killed, or is still writing.
    """
    header, *rows = csv_rows(path, error, unfinished)
    return header, rows


def csv_rows(
    path: Path, error: Error = RunError, unfinished: bool = False, follow: bool = False
) -> Iterator[list[str]]:
    """Yield the header and the rows of a CSV file, while the file is being read.

    See `read_csv` for errors, which are raised at the first row with a fault, and for `unfinished`.
    A symbolic link is followed only if `follow` is true. The header of an empty file is an empty
    list.
    """
    with open_file(path, 4000 * MEGABYTE, error, follow) as file:
        lines = _lines(path, file, error, unfinished)
        parsed = _parsed(path, lines, error)
        number, header = next(parsed, (0, []))
        if number and not header:
            raise error(f"{path}: damaged: line 1 is empty, it must name the columns")
        for name, count in collections.Counter(header).items():
            if count > 1:
                raise error(f"{path}: damaged: it has {count} columns named {shown(name)}")
        yield header
        for number, row in parsed:
            if len(row) == len(header):
                yield row
            elif not unfinished or next(lines, None) is not None:
                raise error(
                    f"{path}: line {number} has {len(row)} fields, the header {len(header)}"
                )


def _lines(path: Path, file: IO[bytes], error: Error, unfinished: bool) -> Iterator[str]:
    """Yield the lines of an open UTF-8 text file without line breaks.

    With `unfinished`, a last line without a line break is left out. Raises `error` if a line is too
    long or not UTF-8.
    """
    start, encoding = 0, "utf-8-sig"
    while line := file.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            if len(line) == _LONGEST_LINE:
                raise error(f"{path}: damaged: the line at byte {start} is longer than 1 MB")
            if unfinished:
                return
        try:
            yield line.decode(encoding).removesuffix("\n")
        except UnicodeDecodeError as problem:
            place = start + problem.start
            raise error(f"{path}: damaged: byte {place} is not UTF-8 text") from None
        start, encoding = start + len(line), "utf-8"


def read_foreign_csv(path: Path, error: Error = ValueError) -> list[tuple[int, list[str]]]:
    """Read a CSV file of another program, and return pairs of line number and cells.

    The header is included as the first pair. Spaces around cells are removed, and empty rows are
    left out. Raises `error` if the file is damaged.
    """
    text = read_text(path, error=error, follow=True)
    rows = []
    for number, cells in _parsed(path, io.StringIO(text, newline=""), error):
        if any(letter < " " and letter != "\t" for cell in cells for letter in cell):
            raise error(f"{path}, line {number}: has a control character or a line break in a cell")
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            rows.append((number, stripped))
    return rows


def _parsed(path: Path, lines: Iterable[str], error: Error) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row of a CSV file.

    Raises `error` if the syntax is wrong.
    """
    reader = csv.reader(lines)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as problem:
        raise error(f"{path}: damaged: line {reader.line_num}: {problem}") from None
