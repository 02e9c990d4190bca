"""A run as one file, to hand on or to put away: a zip that holds nothing but plain files.

Unpacking trusts nothing: a name that leads outside, a link, a file twice, or more bytes than the
directory of the zip declares are refused before anything is put in place.
"""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory, RunError, naming

# What a run consists of. Nothing else travels: least of all code.
_LAYOUT = re.compile(
    r"(config|resolved|environment)\.json|(metrics|reach)\.csv|summary\.md"
    r"|events/seed_\d+/events\.out\.tfevents\.[\d.]+"
    r"|checkpoints/\d{9}/(weights\.npz|state\.npz|manifest\.json)|snapshots/\d{9}\.npz"
    r"|evaluation(_\d{9})?/(metrics|cells)\.csv|figures/[a-z_]+\.(png|pdf)|kernels/[\w.-]+"
)
_MOST = 10**12  # bytes that an unpacked run may have


def belongs_to_a_run(name: str) -> bool:
    """Whether a path inside a run's directory is that of one of its files."""
    return bool(_LAYOUT.fullmatch(name))


def pack(run: RunDirectory, output: Path, training_state: bool) -> int:
    """Write a run to a zip: its size in bytes. Without the training state it cannot be resumed."""
    if output.exists():
        raise ValueError(f"{output} exists already. Choose another --output")
    # A run that is being written has files that change under the reader.
    with (
        directories.locked(run.path),
        directories.replacing(output) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for name in run.files():
            left_out = name.endswith(f"/{checkpoints.STATE}") and not training_state
            if belongs_to_a_run(name) and (run / name).is_file() and not left_out:
                file.write(run / name, name)
    return output.stat().st_size


def unpack(source: Path, output: Path) -> RunDirectory:
    """Make a run directory of a zip, or refuse it and leave nothing behind."""
    directories.refuse_existing(output)
    if not source.is_file():
        raise ValueError(f"{source}: no such file")
    temporary = output.with_name(f".{output.name}.unpacking")
    try:
        with zipfile.ZipFile(source) as file:
            members = [info for info in file.infolist() if not info.is_dir()]
            _refuse_unsafe(source, members)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for info in members:
                target = temporary / PurePosixPath(info.filename)
                target.parent.mkdir(parents=True, exist_ok=True)
                with naming(target), file.open(info) as inside, open(target, "xb") as outside:
                    shutil.copyfileobj(inside, outside)
        if not RunDirectory(temporary).exists():
            raise RunError(f"{source}: not a run, it has no {directories.CONFIG}")
        RunDirectory(temporary).config()
        last = checkpoints.complete(temporary / "checkpoints")
        if last:
            (temporary / "checkpoints" / "last").symlink_to(last[-1].name)
        if output.exists():
            output.rmdir()
        temporary.rename(output)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise RunError(f"{source}: not a zip file that can be read: {error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return RunDirectory(output)


def _refuse_unsafe(source: Path, members: list[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for info in members:
        name = info.filename
        parts = PurePosixPath(name).parts
        kind = stat.S_IFMT(info.external_attr >> 16)
        if name.startswith("/") or "\\" in name or ":" in name or ".." in parts or not parts:
            raise RunError(f"{source}: refused, '{name}' would be written outside of the run")
        if kind not in (0, stat.S_IFREG):
            raise RunError(f"{source}: refused, '{name}' is a link or a device, not a plain file")
        if not belongs_to_a_run(name):
            raise RunError(f"{source}: refused, '{name}' is no file of a run")
        if name in seen:
            raise RunError(f"{source}: refused, it holds '{name}' twice")
        seen.add(name)
    if sum(info.file_size for info in members) > _MOST:
        raise RunError(f"{source}: refused, it claims to hold more than {_MOST:,} bytes")
