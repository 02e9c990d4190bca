"""Trained models: small packed runs that come with elites, from a file, or from an address.

A model is a run that `elites pack --elites` has reduced (see `reducing`). Installing unpacks it
into the cache, `~/.cache/elites/pretrained` or one below `$XDG_CACHE_HOME`:

    ant_omni-0123456789ab/     name and beginning of the SHA-256 of the packed file

A directory is complete or absent, and another version of a model has another directory. Models that
come with elites are listed in `trained/index.json`, with figures of their training.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elites import files
from elites.core.catalogue import suggestion
from elites.files import RunError
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import downloading, sharing
from elites.runs.checkpoint import UnsuitableError
from elites.runs.directory import FACTS, OutOfMemoryError, RunDirectory
from elites.runs.lock import InUseError
from elites.words import file_name, one_line
from elites.writing import sweep_folders, this_process

SHIPPED = Path(__file__).parent / "trained"
"""Folder of the models that come with elites, and of their index."""
INDEX = "index.json"
_LARGEST = 10**9  # bytes of a packed model
_FOLDER = "pretrained"  # in the user's cache
_PREFIX = ".installing-"
_NAME = re.compile(r".+-[0-9a-f]{12}")  # of the directory of a model
_FIELDS: files.Fields = {
    "file": str, "sha256": str, "bytes": int, "task": str, "algorithm": str, "evaluations": int,
    "seed": int, "elites": int, "cells": int, "device": str, "recorded": dict, "on_cpu": dict,
}  # fmt: skip


class Model(NamedTuple):
    """Description of a trained model that comes with elites, as the index of models has it."""

    name: str
    file: str
    sha256: str
    bytes: int
    task: str
    algorithm: str
    evaluations: int
    seed: int
    elites: int
    """Number of elites whose policies the model has."""
    cells: int
    """Number of elites of the whole archive."""
    device: str
    """Device that the model was trained on."""
    recorded: dict[str, float]
    """Figures of the training device. See `docs/pretrained.md` for their names."""
    on_cpu: dict[str, float]
    """The same figures, from evaluating the kept elites and the actor again on a CPU."""


class _Source(NamedTuple):
    """Where a model comes from."""

    name: str
    sha256: str
    place: str
    """Path or address of the packed file."""
    remedy: str
    """What to do if the file has another checksum."""

    @property
    def directory(self) -> Path:
        """Run directory that the model is installed in."""
        return cache() / f"{self.name}-{self.sha256[:12]}"


# ------------------------------------------------------------------------------------------- models


def models() -> dict[str, Model]:
    """Return the descriptions of the trained models that come with elites, keyed by name."""
    path = SHIPPED / INDEX
    table = files.read_record(path, {"models": dict})["models"]
    found = {}
    for name, entry in table.items():
        fields = files.check_record(entry, f"{path}, {name}", _FIELDS)
        found[name] = Model(name=name, **{field: fields[field] for field in _FIELDS})
    return found


def pretrained(model: str, reinstall: bool = False) -> Path:
    """Install a trained model, unless it is installed, and return its run directory.

    `model` is a name that `elites pretrained` lists, the path of a file of `elites pack`, or the
    address of one, with its checksum: https://host/file.zip#sha256=... . With `reinstall`, a model
    that is installed is replaced. If that fails, what was installed stays. Raises a RunError if the
    installed model is damaged, as far as `damage` finds it.

    `elites.load(elites.pretrained("ant_omni"))` returns the model as a `Run`.
    """
    source = _source(str(model))
    target = source.directory
    if os.path.lexists(target) and not reinstall:
        if reason := damage(target):
            raise RunError(f"the installed model is damaged: {reason}", _advice(target))
        return target
    with _temporary(target.parent) as folder:
        packed = folder / "model.zip"
        found = downloading.copy(source.place, packed, _LARGEST)
        if found != source.sha256:
            raise RunError(
                f"{source.place}: damaged, or not the file that was meant: its SHA-256 is {found}, "
                f"expected {source.sha256}. {source.remedy}"
            )
        sharing.unpack(packed, folder / "run", name=source.place)
        if reason := damage(folder / "run"):
            raise RunError(reason.replace(str(folder / "run"), source.place))
        _put_in_place(folder, target, reinstall)
    return target


def place(model: str) -> Path:
    """Return the run directory in which a model is installed, or would be. Installs nothing."""
    return _source(model).directory


def shown_name(directory: Path) -> str:
    """Return the name of a run for display: that of its directory or of the installed model."""
    path, folder = directory.resolve(), files.user_cache()
    if folder is not None and path.parent == (folder / _FOLDER).resolve():
        return path.name.rpartition("-")[0]  # without the checksum
    return path.name


def installed() -> list[Path]:
    """Return the run directories of all installed models, sorted by name. Some may be damaged."""
    folder = cache()
    found = sorted(folder.glob("[!.]*")) if folder.is_dir() else []
    return [path for path in found if _NAME.fullmatch(path.name)]


def cache() -> Path:
    """Return the folder of installed models. Raises a ValueError without a home directory."""
    folder = files.user_cache()
    if folder is None:
        raise ValueError(
            "you have no home directory to install models in. Name a folder in the environment "
            "variable XDG_CACHE_HOME"
        )
    return folder / _FOLDER


# ------------------------------------------------------------------------------------------- damage


def damage(directory: Path) -> str | None:
    """Return what is wrong with the files of an installed model, or None if nothing is found.

    Takes milliseconds: configuration, facts and the checkpoint's manifest must be readable, and the
    weights must have the arrays of the manifest in full length. The values of arrays and the tables
    are not read. Commands that read arrays compare them with checksums.
    """
    run = RunDirectory(directory)
    try:
        run.config()
        if os.path.lexists(run / FACTS):
            directories.read_facts(run)
        found = checkpoints.complete(run.checkpoints)
        if found:
            checkpoints.check_weights(found[-1])
        elif directories.kept_cells(run) is not None:
            return f"{run.checkpoints}: has no checkpoint"
    except (ValueError, RunError, OSError) as error:
        return None if files.is_refusal(error) else one_line(error)
    return None


def explained(error: Exception) -> Exception:
    """Return an error that says how to install a model again, if its files are damaged.

    Other errors are returned unchanged, also those about a model whose files are intact.
    """
    text = one_line(error)
    have = installed() if files.user_cache() is not None else []
    directory = next((path for path in have if str(path) in text), None)
    if directory is None or isinstance(error, UnsuitableError | InUseError | OutOfMemoryError):
        return error
    unreadable = isinstance(error, RunError | FileNotFoundError) and f"{directory}{os.sep}" in text
    if unreadable or damage(directory):
        return RunError(getattr(error, "what", text), _advice(directory))
    return error


def _advice(directory: Path) -> str:
    """Return how to install the model of a run directory again."""
    known = [model.name for model in models().values() if place(model.name) == directory]
    model = known[0] if known else "MODEL"
    text = f"Install the model again with 'elites pretrained {model} --reinstall'"
    return text if known else f"{text}, where MODEL is the file or address that it came from"


# ------------------------------------------------------------------------------------------ sources


def _source(model: str) -> _Source:
    """Return where the model comes from that a name, a path or an address stands for."""
    if downloading.is_address(model):
        return _from_address(model)
    known = models()
    if model in known:
        path = SHIPPED / known[model].file
        return _Source(model, known[model].sha256, str(path), "Install elites again")
    path = Path(model)
    if path.is_dir():
        raise ValueError(
            f"{model}: a directory, but a trained model is a zip file of 'elites pack'. Commands "
            "take a run directory without --pretrained"
        )
    if path.exists():
        sha256 = downloading.checksum(path)
        return _Source(file_name(path.stem), sha256, model, "It changed meanwhile: try again")
    raise ValueError(
        f"there is no trained model '{model}' and no such file.{suggestion(model, list(known))} "
        f"Known models: {', '.join(known)}"
    )


def _from_address(address: str) -> _Source:
    """Return the source of an address with a checksum: https://host/file.zip#sha256=..."""
    place, _, fragment = address.partition("#")
    if not re.match("https?://", place):
        raise ValueError(f"{address}: an address of a model begins with https:// or http://")
    checksum = re.fullmatch("sha256=([0-9a-f]{64})", fragment.lower())
    if not checksum:
        raise ValueError(
            f"{address}: the address needs a checksum, so that a damaged file is noticed: append "
            f"#sha256= and the 64 digits that 'elites pack' printed, as in {place}#sha256=0123..."
        )
    name = file_name(Path(place.partition("?")[0]).stem)
    return _Source(name, checksum[1], place, "Download it again, or ask for the right checksum")


# --------------------------------------------------------------------------------------- installing


@contextlib.contextmanager
def _temporary(parent: Path) -> Iterator[Path]:
    """Yield an empty folder in `parent`, and remove it afterwards.

    Also removes the folders of processes that have ended.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(parent, _PREFIX)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{this_process()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put_in_place(folder: Path, target: Path, replace: bool) -> None:
    """Move the unpacked model `folder/run` to the directory `target`.

    If another process has installed the same model meanwhile, that one stays, unless it is to be
    replaced.
    """
    if replace and os.path.lexists(target):
        target.rename(folder / "replaced")
    try:
        (folder / "run").rename(target)
    except OSError:
        if not RunDirectory(target).exists():
            if (folder / "replaced").exists():
                (folder / "replaced").rename(target)
            raise
    directories.sync_directory(target.parent)
