"""Pack a run, or a reduced one, into a zip file, and unpack it.

Unpacking trusts nothing. It refuses names outside of the run, links, duplicate files, and more
bytes than allowed. A refused file leaves nothing behind on the disk.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from elites import files
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import lock, reducing
from elites.runs.directory import RunDirectory, RunError, path_in_errors
from elites.runs.placing import placing
from elites.runs.reducing import Excerpt
from elites.writing import sweep, sweep_folders

# The files of a run. No other file is packed or unpacked, and no code.
_LAYOUT = re.compile(
    r"(config|facts|resolved|environment)\.json|(metrics|reevaluations|reach)\.csv|summary\.md"
    r"|events/seed_\d+/events\.out\.tfevents\.[\d.]+"
    r"|checkpoints/\d{9}/(weights\.npz|state\.npz|manifest\.json)|snapshots/\d{9}\.npz"
    r"|evaluation(_\d{9})?/(metrics|cells)\.csv|(calibration|interpolation)/(metrics|requests)\.csv|figures/[a-z_]+\.(png|pdf)|kernels/[\w.-]+"
)
_DAMAGE = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OverflowError, zlib.error,
    struct.error, UnicodeDecodeError, lzma.LZMAError,
)  # fmt: skip
"""Exceptions that the module zipfile raises for a damaged file."""
_PACKING = ".packing-"  # of the names of temporary folders beside a zip file that is written
_BLOCK = 1 << 14  # bytes that are unpacked at a time
_MAX_RATIO = 20  # a run of any size may unpack to this many times the size of its zip


def belongs_to_a_run(name: str) -> bool:
    """Return whether `name` is a path that a file of a run may have, relative to the run."""
    return bool(_LAYOUT.fullmatch(name))


def pack(run: RunDirectory, output: Path, training_state: bool) -> int:
    """Write a run to the zip file `output` and return the size of that file in bytes.

    If `training_state` is False, the training state is left out. The packed run can then be read
    but not resumed.
    """
    _refuse_output(output)
    # Locked, because files of a running training would change while they are read.
    with lock.locked(run.path), directories.replacing(output) as temporary:
        _write(run, temporary, lambda name: training_state or not _is_state(name))
    return output.stat().st_size


def pack_elites(
    run: RunDirectory, output: Path, elites: int, seed: int | None, half_precision: bool = False
) -> Excerpt:
    """Write a run to the zip file `output`, reduced to some elites, and return what was kept.

    See `reducing.reduce` for the arguments. The same run gives the same file, byte by byte.
    """
    _refuse_output(output)
    parent = output.absolute().parent
    sweep(parent)
    sweep_folders(parent, _PACKING)
    prefix = f"{_PACKING}{directories.this_process()}-"
    with (
        lock.locked(run.path),
        directories.replacing(output) as temporary,
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder,
    ):
        excerpt = reducing.reduce(run, Path(folder), elites, seed, half_precision)
        pack_small(RunDirectory(Path(folder)), temporary)
    return excerpt


def pack_small(run: RunDirectory, output: Path) -> None:
    """Write a reduced run to the new zip file `output`, as small as possible."""
    _write(run, output, lambda name: True, zipfile.ZIP_LZMA)


def _refuse_output(output: Path) -> None:
    """Raise a ValueError if the zip file to write exists already, or has no directory."""
    if output.exists():
        raise ValueError(f"{output} exists already. Choose another --output")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"{output.parent}: no such directory to write {output.name} to")


def _is_state(name: str) -> bool:
    """Return whether a file of a run holds training state, which only resuming needs."""
    return name.endswith(f"/{checkpoints.STATE}")


def _write(
    run: RunDirectory, path: Path, wanted: Callable[[str], bool], method: int = zipfile.ZIP_DEFLATED
) -> None:
    """Write the files of a run whose names are wanted to the new zip file at a path.

    Times are left out, so that the same files give the same bytes. `method` compresses them.
    """
    with zipfile.ZipFile(path, "x", method) as file:
        for name in run.files():
            plain = stat.S_ISREG((run / name).lstat().st_mode)
            if belongs_to_a_run(name) and plain and wanted(name):
                info = zipfile.ZipInfo(name)
                info.compress_type, info.external_attr = method, (stat.S_IFREG | 0o644) << 16
                with (
                    files.open_file(run / name) as source,
                    file.open(info, "w", force_zip64=True) as target,
                ):
                    shutil.copyfileobj(source, target, 1 << 20)


def unpack(
    source: Path, output: Path, max_size: float = directories.MAX_UNPACKED, name: str = ""
) -> RunDirectory:
    """Unpack the zip file `source` into the directory `output` and return the run directory.

    `max_size` limits the unpacked size, in gigabytes. `name` is the path or address by which the
    user knows the file, for messages. On failure, no files are left behind.
    """
    name = name or str(source)
    directories.refuse_existing(output)
    if not source.exists():
        raise ValueError(f"{name}: no such file")
    if not max_size > 0:
        raise ValueError(f"--max-size must be above 0, got {max_size:g}")
    try:
        with (
            placing(output, ".unpacking-") as folder,
            files.open_file(source, follow=True) as opened,
            zipfile.ZipFile(opened) as file,
        ):
            members = [info for info in file.infolist() if not info.is_dir()]
            _refuse_unsafe(name, members)
            _refuse_large(name, source.stat().st_size, members, max_size, folder)
            for info in members:
                _extract(name, file, info, folder / PurePosixPath(info.filename))
            run = RunDirectory(folder)
            if not run.exists():
                raise RunError(f"{name}: not a run, it has no {directories.CONFIG}")
            _check_config(run, name)
            if last := checkpoints.complete(run.checkpoints):
                (run.checkpoints / "last").symlink_to(last[-1].name)
    except _DAMAGE as error:
        raise RunError(f"{name}: not a zip file that can be read: {error}") from None
    return RunDirectory(output)


def _check_config(run: RunDirectory, name: str) -> None:
    """Raise a RunError if the configuration of an unpacked run cannot be read.

    Its message has `name`, that of the zip file, in place of the temporary folder.
    """
    try:
        run.config()
    except (ValueError, RunError) as error:
        raise RunError(str(error).replace(str(run.path), name)) from None


def _extract(name: str, file: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    """Write one member of the zip file `name` to `target`.

    Raises a RunError if it is longer than the zip file declares.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with path_in_errors(target), file.open(info) as inside, open(target, "xb") as outside:
        while block := inside.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise RunError(f"{name}: refused, '{info.filename}' is longer than it declares")
            if block.count(0) < len(block):
                outside.write(block)
            else:  # blocks of zeros take no space on the disk: a reduced run has many
                outside.seek(len(block), os.SEEK_CUR)
        outside.truncate()


def _refuse_large(
    name: str, size: int, members: list[zipfile.ZipInfo], max_size: float, folder: Path
) -> None:
    """Raise a RunError if the zip file `name` would unpack to more bytes than allowed.

    Also refuses one for which the disk has too little space. `size` is the file's own, in bytes,
    and `max_size` is in gigabytes. `folder` is the folder to unpack in.
    """
    total = sum(info.file_size for info in members)
    allowed = max(max_size * 1e9, _MAX_RATIO * size)
    if total > allowed:
        raise RunError(
            f"{name}: refused, {size / 1e6:,.1f} MB would unpack to {total / 1e9:,.2f} GB. If you "
            f"trust it, 'elites unpack FILE --max-size {total / 1e9:.2f}' allows that"
        )
    if total > (free := shutil.disk_usage(folder).free):
        raise RunError(
            f"{name}: needs {total / 1e9:,.2f} GB, but its disk has {free / 1e9:,.2f} GB free"
        )


def _refuse_unsafe(name: str, members: list[zipfile.ZipInfo]) -> None:
    """Raise a RunError if the zip file `name` contains anything but plain files of a run.

    A file that occurs twice is refused as well.
    """
    seen: set[str] = set()
    for info in members:
        inside = info.filename
        parts = PurePosixPath(inside).parts
        kind = stat.S_IFMT(info.external_attr >> 16)
        if inside.startswith("/") or "\\" in inside or ":" in inside or ".." in parts or not parts:
            raise RunError(f"{name}: refused, '{inside}' would be written outside of the run")
        if kind not in (0, stat.S_IFREG):
            raise RunError(f"{name}: refused, '{inside}' is a link or a device, not a plain file")
        if not belongs_to_a_run(inside):
            raise RunError(f"{name}: refused, '{inside}' is not a file of a run")
        if inside in seen:
            raise RunError(f"{name}: refused, it holds '{inside}' twice")
        seen.add(inside)
