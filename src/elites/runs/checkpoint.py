"""Checkpoints: the complete state of a run, with checksums that reveal damage.

    checkpoints/000000120/
        weights.npz      archive and actors, for deployment
        state.npz        the rest of the training state: replay buffer, optimisers, counters
        manifest.json    format, iteration, and for every array its shape, type and SHA-256
    checkpoints/last -> 000000120

A checkpoint is written under a temporary name, flushed to disk, and then renamed, so it is either
complete or absent. Arrays are plain `.npy` files inside an uncompressed zip. Nothing is pickled. No
array is allocated before its header has been compared with the manifest and with the size of the
file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elites.runs.directory import RunError, flush, path_in_errors, sync_directory

FORMAT = 1
KEPT = 2
WEIGHTS, STATE = "weights.npz", "state.npz"
_MANIFEST, _LAST = "manifest.json", "last"
FILES = (WEIGHTS, STATE, _MANIFEST)

Arrays = Mapping[str, np.ndarray]
Shapes = Mapping[str, tuple[tuple[int, ...], str]]  # name -> shape, type


class CheckpointError(RunError):
    """A checkpoint cannot be used. The message names the checkpoint and the reason."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read from disk: its path, iteration, information and arrays."""

    path: Path
    iteration: int
    information: dict[str, Any]
    """Values that the run saved with the arrays, such as its configuration."""
    arrays: dict[str, np.ndarray] = dataclasses.field(repr=False)


# ----------------------------------------------------------------------------------------- writing


def save(
    directory: Path, iteration: int, parts: Mapping[str, Arrays], information: Mapping[str, Any]
) -> Path:
    """Write a checkpoint of `parts` (file name -> arrays) and return the path of its directory.

    The link `last` then points to the new checkpoint. All but the last two checkpoints are removed.
    """
    with path_in_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"{iteration:09d}"
    temporary = directory / f".writing-{iteration:09d}"
    sweep(directory)
    try:
        temporary.mkdir()
        manifest = {
            "format": FORMAT,
            "iteration": iteration,
            "information": dict(information),
            "arrays": {name: write_arrays(temporary / name, part) for name, part in parts.items()},
        }
        manifest["sha256"] = _manifest_digest(manifest)
        path = temporary / _MANIFEST
        with path_in_errors(path), open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            flush(file)
        _move_into_place(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def receive(directory: Path, iteration: int, files: Mapping[str, bytes]) -> None:
    """Write a checkpoint that another machine saved. `files` maps file names to their contents.

    Raises a CheckpointError if the manifest among the files is damaged.
    """
    final = directory / f"{iteration:09d}"
    temporary = directory / f".writing-{iteration:09d}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name in FILES:
            with open(temporary / name, "xb") as file:
                file.write(files[name])
                flush(file)
        read_manifest(temporary)
        _move_into_place(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _move_into_place(temporary: Path, final: Path) -> None:
    """Give a complete checkpoint its final name, link `last` to it, and remove older ones."""
    directory = final.parent
    sync_directory(temporary)
    if final.exists():  # a damaged one, which training has now reached again
        final.rename(directory / f".dropped-{final.name}")
    temporary.rename(final)
    sync_directory(directory)
    _point_last(directory, final.name)
    for old in complete(directory)[:-KEPT]:
        # Renamed first, so that a process killed while deleting leaves no half of a checkpoint.
        old.rename(directory / f".dropped-{old.name}")
    sweep(directory)


def write_arrays(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Write arrays as an uncompressed .npz file and return their entries for the manifest.

    The entries are a dictionary by array name, with shape, type and SHA-256.
    """
    entries = {}
    with path_in_errors(path), open(path, "xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in arrays.items():
                array = np.asarray(array, order="C")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
                entries[name] = {
                    "shape": list(array.shape),
                    "dtype": array.dtype.str,
                    "sha256": digest(array),
                }
        flush(file)
    return entries


def digest(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's bytes, as hexadecimal text."""
    return hashlib.sha256(memoryview(_raw(np.asarray(array, order="C")))).hexdigest()


def _raw(array: np.ndarray) -> Any:
    """Return an array's bytes as a flat array of uint8, without copying them."""
    return array.reshape(-1).view(np.uint8)


def _point_last(directory: Path, name: str) -> None:
    """Replace the link `last` in `directory` by a link to the checkpoint `name`."""
    link = directory / f".{_LAST}"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(name)
    os.replace(link, directory / _LAST)
    sync_directory(directory)


def sweep(directory: Path) -> None:
    """Remove the incomplete checkpoints that a killed process was writing or deleting."""
    if directory.is_dir():
        for entry in (*directory.glob(".writing-*"), *directory.glob(".dropped-*")):
            shutil.rmtree(entry, ignore_errors=True)


def set_aside(path: Path) -> None:
    """Rename a damaged checkpoint to `damaged-...`, so that it is kept but no longer read.

    The link `last` then points to the newest remaining checkpoint.
    """
    path.rename(path.with_name(f"damaged-{path.name}-{os.getpid()}"))
    if remaining := complete(path.parent):
        _point_last(path.parent, remaining[-1].name)


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its own checksum, as hexadecimal text."""
    body = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# ----------------------------------------------------------------------------------------- reading


def complete(directory: Path) -> list[Path]:
    """Return the paths of the complete checkpoints in `directory`, oldest first."""
    if not directory.is_dir():
        return []
    named = [p for p in directory.iterdir() if p.name.isdigit() and not p.is_symlink()]
    found = [p for p in named if p.is_dir()]
    if named and not any(p.exists() for p in named):  # all dropped meanwhile: newer ones exist
        return complete(directory)
    return sorted(found, key=lambda p: int(p.name))


def newest(
    directory: Path, read: Callable[[Path], Checkpoint], warn: Callable[[str], None]
) -> Checkpoint | None:
    """Return the newest checkpoint in `directory` that the function `read` can read.

    Calls `warn` for each damaged checkpoint and tries the one before. Returns None if there are no
    checkpoints. Raises a CheckpointError if all of them are damaged.
    """
    paths = complete(directory)
    for path in reversed(paths):
        try:
            return read(path)
        except UnsuitableError:
            raise
        except CheckpointError as error:
            if not path.exists():  # dropped while it was read: newer ones exist
                return newest(directory, read, warn)
            warn(f"{error}; trying the one before")
    if paths:
        raise CheckpointError(
            f"{directory}: none of the {len(paths)} checkpoints can be used. Start again in "
            "another directory"
        )
    return None


class UnsuitableError(CheckpointError):
    """An intact checkpoint belongs to another run, or to another version of elites."""


def load(path: Path, names: Iterable[str], expected: Shapes | None = None) -> Checkpoint:
    """Read the named files of a checkpoint, verify every checksum, and return a `Checkpoint`.

    `expected` gives shape and type of the arrays that the run needs. A checkpoint with other arrays
    raises an UnsuitableError.
    """
    manifest = read_manifest(path)
    arrays: dict[str, np.ndarray] = {}
    listed: dict[str, Any] = {}
    for name in names:
        entries = manifest["arrays"].get(name)
        if not isinstance(entries, dict):
            raise CheckpointError(f"{path / _MANIFEST}: damaged: no entry for {name}")
        listed |= entries
    narrow: list[str] = []
    if expected is not None:
        narrow = [name for name in expected if _is_narrow(name, listed, expected)]
        as_saved = {name: (expected[name][0][:-1], expected[name][1]) for name in narrow}
        _compare(path, listed, {**expected, **as_saved})
    for name in names:
        arrays |= read_arrays(path / name, manifest["arrays"][name])
    for name in narrow:
        arrays[name] = np.stack([arrays[name], np.zeros_like(arrays[name])], axis=-1)
    return Checkpoint(path, manifest["iteration"], manifest["information"], arrays)


def _is_narrow(name: str, listed: Mapping[str, Any], expected: Shapes) -> bool:
    """Return whether the array `name` is a counter `env_steps` that an earlier version saved.

    Earlier versions stored one 32-bit word. It is the low one of the two words that are stored now.
    """
    shape = expected[name][0]
    return name == "env_steps" and name in listed and listed[name]["shape"] == list(shape[:-1])


def read_manifest(path: Path) -> dict[str, Any]:
    """Read `manifest.json` of the checkpoint at a path and return its contents.

    Checks everything that does not need the arrays: format, fields, checksum and iteration. Raises
    a CheckpointError if the manifest is missing or damaged.
    """
    file = path / _MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: not a checkpoint, it has no {_MANIFEST}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file}: damaged: {error}") from None
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise CheckpointError(f"{file}: damaged: no format number")
    if version > FORMAT:
        raise UnsuitableError(
            f"{path}: written in format {version} by a newer elites, this one reads up to "
            f"{FORMAT}: install a newer version of elites"
        )
    if version < FORMAT:
        raise UnsuitableError(
            f"{path}: written in format {version}, which this elites no longer reads: use the "
            "version named in environment.json"
        )
    for field, kind in (("iteration", int), ("information", dict), ("arrays", dict)):
        if not isinstance(manifest.get(field), kind):
            raise CheckpointError(f"{file}: damaged: no {field}")
    if manifest.get("sha256") != _manifest_digest(manifest):
        raise CheckpointError(f"{file}: damaged: its checksum does not match")
    if path.name.isdigit() and int(path.name) != manifest["iteration"]:
        raise CheckpointError(f"{file}: damaged: it is of iteration {manifest['iteration']}")
    for name, entries in manifest["arrays"].items():
        if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
            raise CheckpointError(f"{file}: damaged: entries of {name}")
    return manifest


def _is_entry(entry: Any) -> bool:
    """Return whether a manifest's entry for an array has a valid shape, type and SHA-256."""
    if not isinstance(entry, dict) or set(entry) != {"shape", "dtype", "sha256"}:
        return False
    sizes = entry["shape"]
    if not isinstance(sizes, list) or not all(isinstance(n, int) and n >= 0 for n in sizes):
        return False
    return isinstance(entry["dtype"], str) and isinstance(entry["sha256"], str)


def _compare(path: Path, listed: Mapping[str, Any], expected: Shapes) -> None:
    """Raise an UnsuitableError if a checkpoint's arrays do not have the expected names and shapes.

    Types are compared as well. `listed` are the entries of the manifest.
    """

    def show(name: str, shape: Iterable[int], dtype: str) -> str:
        """Return an array in words, such as "fitness float32[2, 1024]"."""
        return f"{name} {dtype}[{', '.join(map(str, shape))}]"

    needed = {name: show(name, *what) for name, what in expected.items()}
    have = {name: show(name, e["shape"], np_name(e["dtype"])) for name, e in listed.items()}
    complaints = [
        *(f"missing {text}" for name, text in needed.items() if name not in have),
        *(f"extra {text}" for name, text in have.items() if name not in needed),
        *(
            f"{have[name]} instead of {text}"
            for name, text in needed.items()
            if name in have and have[name] != text
        ),
    ]
    if complaints:
        raise UnsuitableError(f"{path}: does not fit this run: {'; '.join(complaints)}")


def np_name(dtype: str) -> str:
    """Return the plain name of an array type, such as "float32" for "<f4".

    Returns an unknown type unchanged.
    """
    try:
        return np.dtype(dtype).name
    except TypeError:
        return dtype


def read_arrays(path: Path, entries: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Read an .npz file and return its arrays by name.

    With `entries` of a manifest, shape, type and checksum of every array must match. Raises a
    CheckpointError for wrong sizes, before memory is allocated, and for other damage.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            wanted = {f"{name}.npy" for name in entries} if entries is not None else set(members)
            if set(members) != wanted or not all(name.endswith(".npy") for name in members):
                missing = ", ".join(sorted(wanted - set(members))) or "nothing"
                extra = ", ".join(sorted(set(members) - wanted)) or "nothing"
                raise CheckpointError(f"{path}: damaged: missing {missing}; extra {extra}")
            arrays = {}
            for member in sorted(wanted):
                name = member.removesuffix(".npy")
                entry = entries[name] if entries is not None else None
                arrays[name] = _read_member(path, archive, members[member], name, entry)
            return arrays
    except FileNotFoundError:
        why = "; the run was packed without its training state" if path.name == STATE else ""
        raise CheckpointError(f"{path}: missing{why}") from None
    except (
        zipfile.BadZipFile,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        ValueError,
    ) as error:
        raise CheckpointError(f"{path}: damaged: {error}") from None


def _read_member(path, archive, info: zipfile.ZipInfo, name: str, entry) -> np.ndarray:
    """Read one array of an .npz file, compare it with its manifest entry, and return it."""
    if info.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(f"{path}: {name} is compressed; checkpoints are not")
    with archive.open(info) as member:
        try:
            version = np.lib.format.read_magic(member)
            if version != (1, 0):
                raise ValueError(f"version {version} of the .npy format")
            have, fortran, kind = np.lib.format.read_array_header_1_0(member)
        except ValueError as error:
            raise CheckpointError(f"{path}: {name}: damaged: {error}") from None
        if kind.hasobject or fortran:
            raise CheckpointError(f"{path}: {name} is not a plain array of numbers")
        if entry is not None and (list(have), kind.str) != (entry["shape"], entry["dtype"]):
            raise CheckpointError(
                f"{path}: {name} is {np_name(kind.str)}{list(have)}, the manifest says "
                f"{np_name(entry['dtype'])}{entry['shape']}"
            )
        size = kind.itemsize * int(np.prod(have, dtype=object))
        if size != info.file_size - member.tell():
            raise CheckpointError(
                f"{path}: {name} claims {size:,} bytes and has {info.file_size - member.tell():,}"
            )
        if size > os.fstat(archive.fp.fileno()).st_size:
            raise CheckpointError(f"{path}: {name} claims more bytes than the file has")
        array = np.empty(have, kind)
        view = memoryview(_raw(array))
        while len(view):
            count = member.readinto(view)
            if not count:
                raise CheckpointError(f"{path}: {name}: damaged: it ends early")
            view = view[count:]
    if entry is not None and digest(array) != entry["sha256"]:
        raise CheckpointError(f"{path}: {name}: damaged: its checksum does not match")
    return array
