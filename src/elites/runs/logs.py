"""Metrics on disk: a CSV table, and the same numbers as TensorBoard events.

A row of the table is one iteration of one seed. Rows are appended; a process that is killed may
leave half a line at the end, which readers pass over. When a run resumes, rows after its checkpoint
are dropped, so that no iteration appears twice.

Readers find a row by its columns `iteration` and `seed`, never by its position: a table that is
older than the checkpoint leaves a gap (see `elites.runs.gaps`).

TensorBoard reads files of records: length, checksum, a protocol-buffer message, checksum. The few
message fields that scalars need are written here by hand.
"""

from __future__ import annotations

import csv
import io
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from elites.runs.directory import METRICS, RunDirectory, RunError, flush, naming, write_text

# ------------------------------------------------------------------------------------------- CSV


def text_of(value: Any) -> str:
    """A number with as many digits as it has, and no more."""
    if isinstance(value, np.generic):
        value = (
            value.astype(np.float64) if value.dtype.kind == "f" and value.itemsize > 4 else value
        )
        return str(value)
    return str(value)


class _Growing:
    """A file that is appended to; its errors name it."""

    path: Path
    _file: IO[Any]

    def sync(self) -> None:
        with naming(self.path):
            flush(self._file)

    def close(self) -> None:
        with naming(self.path):
            self._file.close()


class Table(_Growing):
    """A CSV file that grows by rows."""

    def __init__(self, path: Path, columns: Sequence[str], through: int | None = None):
        """Start a table; or go on with one, keeping the rows up to iteration `through`."""
        self.path, self.columns = path, list(columns)
        if through is not None and path.exists():
            _keep_until(path, self.columns, through)
        else:
            write_text(path, _line(self.columns))
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(_line([text_of(row[name]) for name in self.columns]) for row in rows)
        with naming(self.path):
            self._file.write(text)
            self._file.flush()


def _line(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _keep_until(path: Path, columns: Sequence[str], iteration: int) -> None:
    header, rows = _rows(path)
    # Earlier versions wrote fewer columns; their rows are completed.
    if "iteration" not in header or header != [name for name in columns if name in header]:
        raise RunError(
            f"{path}: its columns are {', '.join(header) or 'none'}, this run writes "
            f"{', '.join(columns)}. Move the file away to go on without it"
        )
    place = header.index("iteration")
    kept = [row for row in rows if int(row[place]) <= iteration]
    kept.sort(key=lambda row: int(row[place]))
    named = [dict(zip(header, row, strict=True)) for row in kept]
    complete = [[row.get(name, "nan") for name in columns] for row in named]
    write_text(path, "".join(_line(row) for row in [columns, *complete]))


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and complete rows; half a last line is passed over, any other damage is an error."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    whole = lines[:-1]  # behind the last line break there is nothing, or half a line
    if not whole:
        return [], []
    header, *rows = csv.reader(whole)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            if number == len(whole):
                return header, rows[:-1]
            raise RunError(f"{path}: line {number} has {len(row)} fields, the header {len(header)}")
    return header, rows


def read_table(path: Path) -> dict[str, np.ndarray]:
    """A table by column. Numbers become numbers; half a last line is passed over."""
    header, rows = _rows(path)
    table = {}
    for i, name in enumerate(header):
        cells = [row[i] for row in rows]
        try:
            table[name] = np.array([float(cell) for cell in cells])
        except ValueError:
            table[name] = np.array(cells)
    return table


def metrics(run: RunDirectory) -> dict[str, np.ndarray]:
    """Return the metrics of a run as columns [n, seeds], or nothing before there are any.

    A row is an iteration that `metrics.csv` has for all seeds. Rows are in the order of iterations,
    but iterations may be missing: compare runs by the column `evaluations`, not by row.
    """
    path = run / METRICS
    return read_metrics(path, run.config().seeds) if path.exists() else {}


def read_metrics(path: Path, seeds: int) -> dict[str, np.ndarray]:
    """Read a table of iterations and seeds as columns [n, seeds]."""
    table = read_table(path)
    if not table:
        return {}
    for name in ("iteration", "seed"):
        if name not in table or table[name].dtype.kind != "f":
            raise RunError(f"{path}: damaged: it needs a column '{name}' of numbers")
    found = len(np.unique(table["seed"]))
    if found > seeds:
        raise RunError(f"{path}: it has rows of {found} seeds, but the run has {seeds}")
    return by_seed(table, seeds)


def by_seed(table: Mapping[str, np.ndarray], seeds: int) -> dict[str, np.ndarray]:
    """Return columns [n, seeds] of a table whose rows are given by columns iteration and seed.

    Iterations and seeds are sorted. An iteration that lacks a seed is left out: the last one of a
    table that is being written, or one where an old copy of a table ends. Of two rows of the same
    iteration and seed, the later counts.
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


class Events(_Growing):
    """A TensorBoard event file."""

    def __init__(self, directory: Path, step: int):
        """Begin at a step: what an earlier session logged beyond it is superseded."""
        directory.mkdir(parents=True, exist_ok=True)
        taken = len(list(directory.iterdir()))
        now = time.time()
        self.path = directory / f"events.out.tfevents.{int(now):010d}.{taken:04d}"
        self._file = open(self.path, "xb")  # noqa: SIM115
        self._write(_double(1, now) + _bytes(3, b"brain.Event:2"))
        # A session that starts at a step (message SessionLog, status START) purges later ones.
        self._write(_double(1, now) + _integer(2, step + 1) + _bytes(7, _integer(1, 1)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, float(value)))
            for tag, value in values.items()
        )
        self._write(_double(1, time.time()) + _integer(2, step) + _bytes(5, summary))

    def _write(self, message: bytes) -> None:
        length = struct.pack("<Q", len(message))
        with naming(self.path):
            self._file.write(length + _masked_crc(length) + message + _masked_crc(message))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _crc_table() -> Iterator[int]:
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reversed
        yield byte


_CRC = tuple(_crc_table())


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    """A checksum of a checksum would be zero; the format rotates and shifts it."""
    value = crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
