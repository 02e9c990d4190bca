"""Write and read metrics: a CSV table, and the same numbers as TensorBoard events.

A row of the table is one iteration of one seed. Rows are appended. A killed process may leave an
incomplete last line, which readers skip. When a run resumes, rows after its checkpoint are dropped,
so that no iteration appears twice.

Readers find a row by its columns `iteration` and `seed`, never by its position, because a table
that is older than the checkpoint has a gap (see `elites.runs.gaps`).

A TensorBoard file is a sequence of records: length, checksum, protocol-buffer message, checksum.
This module encodes the few message fields that scalars need.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from elites.files import RunError, csv_rows, read_csv, shown
from elites.runs.directory import METRICS, RunDirectory, flush, path_in_errors, write_text

# ------------------------------------------------------------------------------------------- CSV


def text_of(value: Any) -> str:
    """Return a value as text for a CSV file. Numbers can be read back from it exactly."""
    if isinstance(value, np.floating) and value.itemsize > 4:
        value = value.astype(np.float64)
    return str(value)


class Table:
    """A CSV file to which rows are appended, such as metrics.csv."""

    def __init__(self, path: Path, columns: Sequence[str], through: int | None = None):
        """Create the table at `path`, replacing an existing one.

        If `through` is given, an existing table is continued: only rows after that iteration are
        dropped.
        """
        self.path, self.columns = path, list(columns)
        if through is not None and path.exists():
            _drop_rows_after(path, self.columns, through)
        else:
            write_text(path, _line(self.columns))
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to the table. Each row maps the names of all columns to values."""
        text = "".join(_line([text_of(row[name]) for name in self.columns]) for row in rows)
        with path_in_errors(self.path):
            self._file.write(text)
            self._file.flush()

    def sync(self) -> None:
        """Write the buffered rows to disk."""
        with path_in_errors(self.path):
            flush(self._file)

    def close(self) -> None:
        """Close the file. Errors name the path of the table."""
        with path_in_errors(self.path):
            self._file.close()


def _line(cells: Sequence[str]) -> str:
    """Return the text of cells as one line of a CSV file, including the line break."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _drop_rows_after(path: Path, columns: Sequence[str], iteration: int) -> None:
    """Rewrite the table at a path without the rows after an iteration.

    The new table has the given `columns`.
    """
    header, rows = read_csv(path, unfinished=True)
    # Earlier versions wrote fewer columns. The others become NaN.
    if "iteration" not in header or header != [name for name in columns if name in header]:
        raise RunError(
            f"{path}: its columns are {', '.join(header) or 'none'}, this run writes "
            f"{', '.join(columns)}. Move the file away to continue without it"
        )
    place = header.index("iteration")
    numbers = _column(path, "iteration", [row[place] for row in rows])
    kept = [rows[i] for i in np.argsort(numbers, kind="stable") if numbers[i] <= iteration]
    named = [dict(zip(header, row, strict=True)) for row in kept]
    complete = [[row.get(name, "nan") for name in columns] for row in named]
    write_text(path, "".join(_line(row) for row in [columns, *complete]))


_CELLS = 100_000  # that are held as texts while a table is read
_TEXTS = ("origin",)  # columns of text; all others hold numbers
_LIMITS = {
    "iteration": (0, 2**31 - 1),
    "seed": (0, 2**32 - 1),
    "cell": (0, 2**31 - 1),
    "actor_cell": (-1, 2**31 - 1),
    "evaluations": (0, 2**53),
    "env_steps": (0, 2**63),
    "seconds": (0, 10**12),
}
"""Lowest and highest allowed value of some columns. All but `seconds` hold whole numbers."""


def read_table(path: Path, needed: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Read a CSV file and return its columns as arrays [rows] of floats, keyed by name.

    The column `origin` is an array of texts. An incomplete last line is skipped. Raises a RunError
    if a column of `needed` is missing, or if a value is not a number.
    """
    rows = csv_rows(path, unfinished=True)
    header = next(rows)
    for name in needed:
        if name not in header:
            raise RunError(f"{path}: damaged: it needs a column '{name}' of numbers")
    parts: list[list[np.ndarray]] = []
    line = 2
    # Texts take far more memory than numbers, so only some rows of them are held at a time.
    while some := list(itertools.islice(rows, 1 + _CELLS // max(1, len(header)))):
        columns = zip(header, zip(*some, strict=True), strict=True)
        parts.append([_column(path, name, cells, line) for name, cells in columns])
        line += len(some)
    if not parts:
        return {name: _column(path, name, []) for name in header}
    return {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(header)}


def _column(path: Path, name: str, cells: Sequence[str], line: int = 2) -> np.ndarray:
    """Return cells of a column as an array. `line` is the line of the first one.

    Raises a RunError that names the line if a cell is not a number, exceeds the column's limits in
    `_LIMITS`, or is a text of more than 200 characters.
    """
    if name in _TEXTS:
        if (longest := max(map(len, cells), default=0)) > 200:
            raise RunError(f"{path}: damaged: '{name}' has a text of {longest} characters")
        return np.array(cells, str)
    try:
        values = np.array([float(cell) for cell in cells], float)
    except ValueError:
        i = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        raise RunError(
            f"{path}: damaged: line {i + line}: a column '{name}' of numbers has {shown(cells[i])}"
        ) from None
    if name in _LIMITS:
        low, high = _LIMITS[name]
        whole = name != "seconds"
        allowed = (values >= low) & (values <= high) & (not whole or values == np.floor(values))
        if not allowed.all():
            i = int(np.argmin(allowed))
            raise RunError(
                f"{path}: damaged: line {i + line}: '{name}' must be a {'whole ' * whole}number "
                f"from {low} to {high}, got {shown(cells[i])}"
            )
    return values


def _is_number(text: str) -> bool:
    """Return whether Python can read a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def metrics(run: RunDirectory) -> dict[str, np.ndarray]:
    """Return the columns of a run's metrics.csv as arrays [n, seeds], keyed by name.

    Returns an empty dictionary before the first iteration. The n rows are the iterations that
    `metrics.csv` has for all seeds, in order. Iterations may be missing, so compare runs by the
    column `evaluations`, not by row.
    """
    path = run / METRICS
    if not os.path.lexists(path):
        return {}
    return read_metrics(path, run.config().seeds, SHOWN)


SHOWN = ("evaluations", "qd_score", "coverage", "max_fitness", "seconds")
"""Columns of metrics.csv that are shown to users. Readers also need `iteration` and `seed`."""


def read_metrics(path: Path, seeds: int, needed: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Read a CSV table of metrics and return its columns as arrays [n, seeds], keyed by name.

    Raises a RunError if the file is damaged, has more than `seeds` seeds, or lacks a column of
    `needed`.
    """
    table = read_table(path, ("iteration", "seed", *needed))
    if (table["iteration"] < 1).any():
        raise RunError(f"{path}: damaged: 'iteration' is 0, and the first iteration is 1")
    found = len(np.unique(table["seed"]))
    if found > seeds:
        raise RunError(f"{path}: it has rows of {found} seeds, but the run has {seeds}")
    return by_seed(table, seeds)


def by_seed(table: Mapping[str, np.ndarray], seeds: int) -> dict[str, np.ndarray]:
    """Return the columns [rows] of a table as arrays [n, seeds], keyed by name.

    The table has the columns `iteration` and `seed`, by which the result is sorted. An iteration
    that lacks a seed is left out. This happens at the end of a table that is being written, and
    where an old copy of a table ended. If there are two rows for the same iteration and seed, the
    later one is used.
    """
    if not table:
        return {}
    iterations, row = np.unique(table["iteration"], return_inverse=True)
    numbers, column = np.unique(table["seed"], return_inverse=True)
    places = np.full((len(iterations), max(seeds, len(numbers))), -1)
    places[row, column] = np.arange(len(row))
    whole = places[(places >= 0).all(axis=1)]
    return {name: values[whole] for name, values in table.items()}


# ----------------------------------------------------------------------------------- TensorBoard


class Events:
    """A TensorBoard event file to which scalars are appended.

    The events repeat what the tables have. After the first operating system error, which is passed
    to `report`, nothing more is written.
    """

    def __init__(self, directory: Path, step: int, report: Callable[[OSError], None]):
        """Create a new event file in `directory`, for the steps after `step`.

        It makes TensorBoard discard events after `step` that an earlier session logged.
        """
        self.path, self._report = directory, report
        self._file: IO[bytes] | None = None
        now = time.time()
        with self._errors_reported():
            directory.mkdir(parents=True, exist_ok=True)
            taken = len(list(directory.iterdir()))
            self.path = directory / f"events.out.tfevents.{int(now):010d}.{taken:04d}"
            self._file = open(self.path, "xb")  # noqa: SIM115
        self._write(_double(1, now) + _bytes(3, b"brain.Event:2"))
        # The message SessionLog with status START makes TensorBoard discard later steps.
        self._write(_double(1, now) + _integer(2, step + 1) + _bytes(7, _integer(1, 1)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write the scalar values of a step, keyed by tag, to the event file."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode("utf-8", "backslashreplace")) + _float(2, float(value)))
            for tag, value in values.items()
        )
        self._write(_double(1, time.time()) + _integer(2, step) + _bytes(5, summary))

    def sync(self) -> None:
        """Write the buffered events to disk."""
        with self._errors_reported():
            if self._file:
                flush(self._file)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        with self._errors_reported():
            if file:
                file.close()

    def _write(self, message: bytes) -> None:
        """Append a message to the event file as a record with its length and checksums."""
        length = struct.pack("<Q", len(message))
        with self._errors_reported():
            if self._file:
                self._file.write(length + _masked_crc(length) + message + _masked_crc(message))

    @contextlib.contextmanager
    def _errors_reported(self) -> Iterator[None]:
        """Report operating system errors in the `with` block instead of raising them.

        The event file is closed after the first error.
        """
        try:
            with path_in_errors(self.path):
                yield
        except OSError as error:
            self._report(error)
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                if file:
                    file.close()


def _varint(value: int) -> bytes:
    """Return a non-negative integer in the variable-length encoding of protocol buffers."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _integer(field: int, value: int) -> bytes:
    """Return the protocol-buffer encoding of an integer field with number `field`."""
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    """Return the protocol-buffer encoding of a 64-bit float field with number `field`."""
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    """Return the protocol-buffer encoding of a bytes field with number `field`."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    """Return the protocol-buffer encoding of a 32-bit float field with number `field`."""
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _crc_table() -> Iterator[int]:
    """Yield the 256 entries of the lookup table for CRC-32C."""
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reversed
        yield byte


_CRC = tuple(_crc_table())


def crc32c(data: bytes) -> int:
    """Return the CRC-32C checksum of `data` as a 32-bit integer."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    """Return the four checksum bytes of a TensorBoard record.

    The CRC-32C of `data` is rotated and offset, as the format requires.
    """
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
