"""Read arrays from .npz and .npy files that may be damaged or come from somebody else.

Arrays are plain `.npy` files, alone or inside an uncompressed zip. Nothing is unpickled. Before
memory is allocated for an array, its header is compared with the size of the file and with what is
expected.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from elites import files
from elites.files import Error, RunError


def read_arrays(
    path: Path, entries: Mapping[str, Any] | None = None, error: Error = RunError
) -> dict[str, np.ndarray]:
    """Read an .npz file and return its arrays, keyed by name.

    `entries`, if given, maps the name of every array to its shape, type and SHA-256, and the file
    must match them. Raises `error` if the file is damaged, and an OSError if it cannot be opened.
    Sizes are checked before memory is allocated.
    """
    with _opened(path, error) as archive:
        members = _members(path, archive, entries, error)
        return {
            name: _read_member(path, archive, info, name, (entries or {}).get(name), error)
            for name, info in members.items()
        }


def check_arrays(path: Path, entries: Mapping[str, Any], error: Error = RunError) -> None:
    """Check the names, shapes, types and sizes of the arrays in an .npz file, but not their values.

    See `read_arrays` for the arguments and errors. Takes a millisecond, whatever the size.
    """
    with _opened(path, error) as archive:
        for name, info in _members(path, archive, entries, error).items():
            with archive.open(info) as member:
                _checked_header(path, archive, info, name, member, entries[name], error)


@contextlib.contextmanager
def _opened(path: Path, error: Error) -> Iterator[zipfile.ZipFile]:
    """Open an .npz file, and raise `error` if it turns out to be damaged in the `with` block."""
    try:
        with files.open_file(path, error=error) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (error, FileNotFoundError, MemoryError):
        raise
    except Exception as problem:  # the formats have many ways to be damaged
        if files.is_refusal(problem):
            raise
        raise error(f"{path}: damaged: {problem}") from None


def _members(
    path: Path, archive: zipfile.ZipFile, entries: Mapping[str, Any] | None, error: Error
) -> dict[str, zipfile.ZipInfo]:
    """Return the zip members of an .npz file, sorted and keyed by the name of their array.

    Raises `error` if the names are not those in `entries`.
    """
    members = {info.filename: info for info in archive.infolist()}
    wanted = {f"{name}.npy" for name in entries} if entries is not None else set(members)
    if set(members) != wanted or not all(name.endswith(".npy") for name in members):
        missing = ", ".join(sorted(wanted - set(members))) or "nothing"
        extra = ", ".join(sorted(set(members) - wanted)) or "nothing"
        raise error(f"{path}: damaged: missing {missing}; extra {extra}")
    return {member.removesuffix(".npy"): members[member] for member in sorted(members)}


def _read_member(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, entry, error: Error
) -> np.ndarray:
    """Read one array of an .npz file and return it, after comparing it with its entry.

    Raises `error` if they differ or the array is damaged. If `entry` is None, nothing is compared.
    """
    with archive.open(info) as member:
        array = np.empty(*_checked_header(path, archive, info, name, member, entry, error))
        # A checksum in the entry makes that of the zip file superfluous, which takes longer.
        source = member if entry is None else _beneath(archive, info, member.tell())
        _fill(path, array, source, name, error)
    if entry is not None and digest(array) != entry["sha256"]:
        raise error(f"{path}: {name}: damaged: its checksum does not match")
    return array


def _checked_header(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, member, entry,
    error: Error,
) -> tuple[tuple[int, ...], np.dtype]:  # fmt: skip
    """Return the shape and the type of an array of an .npz file, from its open `member`.

    Raises `error` if they differ from those of `entry`, unless it is None, or from the size.
    """
    if info.compress_type != zipfile.ZIP_STORED:
        raise error(f"{path}: {name} is compressed; elites writes no such file")
    have, fortran, kind = _header(f"{path}: {name}", member, error)
    if fortran:
        raise error(f"{path}: {name} is not a plain array of numbers")
    if entry is not None and (list(have), kind.str) != (entry["shape"], entry["dtype"]):
        raise error(
            f"{path}: {name} is {type_name(kind.str)}{list(have)}, the manifest says "
            f"{type_name(entry['dtype'])}{entry['shape']}"
        )
    size = kind.itemsize * int(np.prod(have, dtype=object))
    if size != info.file_size - member.tell():
        raise error(
            f"{path}: {name} claims {size:,} bytes and has {info.file_size - member.tell():,}"
        )
    if archive.fp is not None and size > os.fstat(archive.fp.fileno()).st_size:
        raise error(f"{path}: {name} claims more bytes than the file has")
    return have, kind


def _beneath(archive: zipfile.ZipFile, info: zipfile.ZipInfo, start: int) -> IO[bytes]:
    """Return the file of a zip archive, at the byte `start` of an uncompressed member."""
    file = archive.fp
    assert file is not None
    file.seek(info.header_offset + 26)  # the lengths of two fields that precede the contents
    lengths = int.from_bytes(file.read(2), "little"), int.from_bytes(file.read(2), "little")
    file.seek(info.header_offset + 30 + sum(lengths) + start)
    return file


def read_array(path: Path, error: Error = RunError) -> np.ndarray:
    """Read one array of numbers from an .npy file and return it. Follows a symbolic link.

    Raises `error` if the file is damaged or has anything but numbers, and an OSError if it cannot
    be opened.
    """
    with files.open_file(path, error=error, follow=True) as file:
        shape, fortran, kind = _header(str(path), file, error)
        if kind.kind not in "fiu":
            raise error(f"{path}: has {kind.name}, not numbers")
        size = kind.itemsize * int(np.prod(shape, dtype=object))
        have = os.fstat(file.fileno()).st_size - file.tell()
        if size != have:
            raise error(f"{path}: damaged: it claims {size:,} bytes and has {have:,}")
        array = np.empty(shape[::-1] if fortran else shape, kind)
        _fill(path, array, file, "the array", error)
    return array.T if fortran else array


def _header(where: str, file: Any, error: Error) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of an array in the .npy format from an open file.

    Returns the shape, whether the array is stored column by column, and the type. `where` names the
    array in errors.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version} of the .npy format")
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    except (OSError, MemoryError):
        raise
    except Exception as problem:  # a header has many ways to be damaged
        raise error(f"{where}: damaged: {problem}") from None
    if kind.hasobject or kind.fields is not None or any(n < 0 for n in shape):
        raise error(f"{where} is not a plain array of numbers")
    return shape, fortran, kind


def _fill(path: Path, array: np.ndarray, member, name: str, error: Error) -> None:
    """Read the bytes of `array` from an open member of a zip file into the array.

    Raises `error` if the member ends too early.
    """
    if not array.nbytes:
        return
    view = memoryview(_raw(array))
    while len(view):
        count = member.readinto(view)
        if not count:
            raise error(f"{path}: {name}: damaged: it ends early")
        view = view[count:]


def digest(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's bytes, as hexadecimal text."""
    return hashlib.sha256(memoryview(_raw(np.asarray(array, order="C")))).hexdigest()


def _raw(array: np.ndarray) -> Any:
    """Return an array's bytes as a flat array of uint8, without copying them."""
    return array.reshape(-1).view(np.uint8)


def type_name(dtype: str) -> str:
    """Return the plain name of an array type, such as "float32" for "<f4".

    A type that NumPy does not know is returned unchanged.
    """
    try:
        return np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):
        return dtype


def read_table(path: Path, most: int = 2**28) -> np.ndarray:
    """Return the numbers of a .npy file, or of a text file with numbers separated by commas.

    Text gives a matrix with a row for each line. Raises a ValueError if the file is larger than
    `most` bytes, cannot be opened or does not hold numbers.
    """
    try:
        with files.open_file(path, most, error=ValueError, follow=True) as file:
            if path.suffix == ".npy":
                return np.asarray(np.load(file, allow_pickle=False), float)
            return np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path}: cannot be read as a table of numbers: {error}") from None
