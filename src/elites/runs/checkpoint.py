"""Checkpoints: the complete state of a run, with checksums that reveal damage.

    checkpoints/000000120/
        weights.npz      archive and actors, for deployment
        state.npz        the rest of the training state: replay buffer, optimisers, counters
        manifest.json    format, iteration, and for every array its shape, type and SHA-256
    checkpoints/last -> 000000120

A checkpoint is written under a temporary name, flushed to disk, and then renamed, so it is either
complete or absent. Nothing is pickled. `elites.arrays` reads the arrays.
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

from elites import arrays, files
from elites.files import ListOf, RunError, is_of
from elites.runs.directory import flush, path_in_errors, sync_directory

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
    """A checkpoint that was read from disk: its iteration, saved information and arrays."""

    iteration: int
    information: dict[str, Any]
    """Values that the run saved with the arrays, such as its configuration and training time."""
    arrays: dict[str, np.ndarray] = dataclasses.field(repr=False)


# ----------------------------------------------------------------------------------------- writing


def save(
    directory: Path, iteration: int, parts: Mapping[str, Arrays], information: Mapping[str, Any]
) -> Path:
    """Write a checkpoint and return the path of its directory.

    `parts` maps file names to the arrays to write there. Afterwards the link `last` points to the
    new checkpoint, and all but the last two checkpoints are removed.
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


def receive(directory: Path, iteration: int, contents: Mapping[str, bytes]) -> None:
    """Write a checkpoint that another machine saved and sent.

    `contents` maps the names of the checkpoint's files to their bytes. Raises a CheckpointError if
    the manifest among them is damaged.
    """
    final = directory / f"{iteration:09d}"
    temporary = directory / f".writing-{iteration:09d}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        for name in FILES:
            with open(temporary / name, "xb") as file:
                file.write(contents[name])
                flush(file)
        read_manifest(temporary)
        _move_into_place(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _move_into_place(temporary: Path, final: Path) -> None:
    """Rename a complete checkpoint from its temporary to its final name and link `last` to it.

    Then removes all but the last two checkpoints.
    """
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


def write_arrays(path: Path, given: Arrays) -> dict[str, Any]:
    """Write arrays to an uncompressed .npz file and return their entries for the manifest.

    The entries map the name of each array to its shape, type and SHA-256.
    """
    entries = {}
    with path_in_errors(path), open(path, "xb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in given.items():
                array = np.asarray(array, order="C")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
                entries[name] = {
                    "shape": list(array.shape),
                    "dtype": array.dtype.str,
                    "sha256": arrays.digest(array),
                }
        flush(file)
    return entries


def _point_last(directory: Path, name: str) -> None:
    """Make the link `last` in `directory` point to the checkpoint called `name`."""
    link = directory / f".{_LAST}"
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(name)
    os.replace(link, directory / _LAST)
    sync_directory(directory)


def sweep(directory: Path) -> None:
    """Remove the half-written and half-deleted checkpoints that a killed process left behind."""
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
    """Return the SHA-256 of a manifest as hexadecimal text. Its field `sha256` is left out."""
    body = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


# ----------------------------------------------------------------------------------------- reading


def complete(directory: Path) -> list[Path]:
    """Return the paths of the complete checkpoints in `directory`, oldest first."""
    if not directory.is_dir():
        return []
    named = [p for p in directory.iterdir() if _is_number(p.name) and not p.is_symlink()]
    found = [p for p in named if p.is_dir()]
    if named and not any(p.exists() for p in named):  # all dropped meanwhile: newer ones exist
        return complete(directory)
    return sorted(found, key=lambda p: int(p.name))


def _is_number(name: str) -> bool:
    """Return whether a file name consists of digits, as the name of a checkpoint does."""
    return name.isascii() and name.isdigit()


def newest(
    directory: Path, read: Callable[[Path], Checkpoint], warn: Callable[[str], None]
) -> Checkpoint | None:
    """Return the newest checkpoint in `directory` that the function `read` can read.

    Calls `warn` for each damaged checkpoint and tries the one before. Returns None if there are no
    checkpoints. Raises a CheckpointError if all of them are damaged, and an OSError if the system
    refuses to open one, because that one may be intact.
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
            if path == paths[0]:
                others = f"none of the {len(paths)} checkpoints can be used"
                what = f"{error}; {others if len(paths) > 1 else 'there is no other checkpoint'}"
                raise CheckpointError(what, "Start again in another directory") from None
            warn(f"{error}; trying the one before")
    return None


class UnsuitableError(CheckpointError):
    """An intact checkpoint belongs to another run, or to another version of elites."""


def load(path: Path, names: Iterable[str], expected: Shapes | None = None) -> Checkpoint:
    """Read the files `names` of a checkpoint, verify their checksums, and return a `Checkpoint`.

    `expected` maps the names of the arrays that the run needs to their shapes and types. Raises an
    UnsuitableError if the checkpoint has other arrays.
    """
    manifest = read_manifest(path)
    found: dict[str, np.ndarray] = {}
    listed: dict[str, Any] = {}
    for name in names:
        entries = manifest["arrays"].get(name)
        if entries is None and name == STATE:
            raise UnsuitableError(
                f"{path}: has no training state, because 'elites pack --elites' reduced the run. "
                "It cannot be resumed"
            )
        if not isinstance(entries, dict):
            raise CheckpointError(f"{path / _MANIFEST}: damaged: no entry for {name}")
        listed |= entries
    narrow: list[str] = []
    if expected is not None:
        narrow = [name for name in expected if _is_narrow(name, listed, expected)]
        as_saved = {name: (expected[name][0][:-1], expected[name][1]) for name in narrow}
        _compare(path, listed, {**expected, **as_saved})
    for name in names:
        found |= read_arrays(path / name, manifest["arrays"][name])
    for name in narrow:
        found[name] = np.stack([found[name], np.zeros_like(found[name])], axis=-1)
    return Checkpoint(manifest["iteration"], manifest["information"], found)


def check_weights(path: Path) -> None:
    """Raise an error if the manifest of a checkpoint is damaged, or does not fit its weights.

    The weights must have the arrays of the manifest, with their shapes and types. The values of the
    arrays are not read, so damage to them is not found.
    """
    entries = read_manifest(path)["arrays"].get(WEIGHTS)
    if entries is None:
        raise CheckpointError(f"{path / _MANIFEST}: damaged: no entry for {WEIGHTS}")
    arrays.check_arrays(path / WEIGHTS, entries, CheckpointError)


def _is_narrow(name: str, listed: Mapping[str, Any], expected: Shapes) -> bool:
    """Return whether `name` is the counter `env_steps` in the form of an earlier version.

    Earlier versions saved one 32-bit word, the lower of the two words that are saved now.
    """
    shape = expected[name][0]
    return name == "env_steps" and name in listed and listed[name]["shape"] == list(shape[:-1])


def read_manifest(path: Path) -> dict[str, Any]:
    """Read `manifest.json` of the checkpoint at a path and return its contents.

    Checks everything that does not need the arrays: format, fields, checksum and iteration. Raises
    a CheckpointError if the manifest is missing or damaged, and an OSError if the system refuses to
    open it.
    """
    file = path / _MANIFEST
    try:
        manifest = files.read_record(file, {"format": int}, CheckpointError)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"{path}: not a checkpoint, it has no {_MANIFEST}") from None
    except OSError as error:
        if files.is_refusal(error):
            raise
        raise CheckpointError(f"{file}: {error.strerror}") from None
    version = manifest["format"]
    if version != FORMAT:
        raise UnsuitableError(f"{path}: written in format {version}{_advice(version)}")
    fields = {"iteration": int, "information": dict, "arrays": dict, "sha256": str}
    files.check_record(manifest, str(file), fields, CheckpointError)
    files.check_record(
        manifest["information"], f"{file}, information", {}, CheckpointError, _INFORMATION
    )
    if manifest["sha256"] != _manifest_digest(manifest):
        raise CheckpointError(f"{file}: damaged: its checksum does not match")
    if _is_number(path.name) and int(path.name) != manifest["iteration"]:
        raise CheckpointError(f"{file}: damaged: it is of iteration {manifest['iteration']}")
    for name, entries in manifest["arrays"].items():
        if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
            raise CheckpointError(f"{file}: damaged: entries of {name}")
    return manifest


def _advice(version: int) -> str:
    """Return the end of an error message: why a format cannot be read, and what to do about it.

    `version` is the number of the checkpoint's format.
    """
    if version > FORMAT:
        newer = "install a newer version of elites"
        return f" by a newer elites, this one reads up to {FORMAT}: {newer}"
    return ", which this elites no longer reads: use the version named in environment.json"


_ENTRY = {"shape": ListOf(int), "dtype": str, "sha256": str}
_INFORMATION = {"config": dict, "seconds": (int, float), "reevaluated": ListOf(int)}


def _is_entry(entry: Any) -> bool:
    """Return whether a manifest's entry for an array has a valid shape, type and SHA-256."""
    if not isinstance(entry, dict) or set(entry) != set(_ENTRY):
        return False
    typed = all(is_of(entry[name], kind) for name, kind in _ENTRY.items())
    return typed and all(n >= 0 for n in entry["shape"])


def _compare(path: Path, listed: Mapping[str, Any], expected: Shapes) -> None:
    """Raise an UnsuitableError unless a checkpoint has exactly the expected arrays.

    Names, shapes and types are compared. `listed` has the entries of the checkpoint's manifest.
    """

    def show(name: str, shape: Iterable[int], dtype: str) -> str:
        """Return name, type and shape of an array as text: "fitness float32[2, 1024]"."""
        return f"{name} {dtype}[{', '.join(map(str, shape))}]"

    needed = {name: show(name, *what) for name, what in expected.items()}
    have = {
        name: show(name, e["shape"], arrays.type_name(e["dtype"])) for name, e in listed.items()
    }
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


def read_arrays(path: Path, entries: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
    """Read an .npz file of a checkpoint and return its arrays, keyed by name.

    `entries` are the manifest's. If they are given, the shape, type and checksum of every array
    must match. Raises a CheckpointError for a damaged file. Sizes are checked before memory is
    allocated.
    """
    try:
        return arrays.read_arrays(path, entries, CheckpointError)
    except FileNotFoundError:
        why = "; the run was packed without its training state" if path.name == STATE else ""
        raise CheckpointError(f"{path}: missing{why}") from None
