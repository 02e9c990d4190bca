"""The directory of a run, and what has to be true of it before and while a process writes there.

    config.json        what was asked, completely
    resolved.json      what that came to: sizes, bounds, lengthscale, number of iterations
    environment.json   versions, device, commit: one entry for each session
    metrics.csv        one row for each iteration and seed
    reach.csv          archive and actor re-evaluated
    events/            the same for TensorBoard
    checkpoints/       the last two, and a link to the last
    snapshots/         fitness, descriptors, origin of the archive at every checkpoint
    kernels/           on GPUs: which kernels the compiler chose, so that the next process does too
    evaluation/        metrics of the paper and a table of all cells, by `elites evaluate`
    figures/           by `elites plot`
    summary.md         for people
    run.lock           names the process that is writing

One process at a time writes. The lock belongs to the operating system and ends with its process,
however that dies. A file that matters is written under another name, flushed to the disk, and then
renamed. The directory itself may be reached by a link, but links inside of it are refused: nothing
is read, overwritten or deleted elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import elites
from elites.runs import files
from elites.runs.config import Config
from elites.runs.files import RunError, read_json

CONFIG, ENVIRONMENT, METRICS, REACH = "config.json", "environment.json", "metrics.csv", "reach.csv"
RESOLVED, LOCK, SUMMARY = "resolved.json", "run.lock", "summary.md"
_FILES = (CONFIG, ENVIRONMENT, METRICS, REACH, RESOLVED, LOCK, SUMMARY)
_FOLDERS = re.compile(r"checkpoints|snapshots|kernels|events|figures|evaluation(_\d{9})?")


class InUseError(RunError):
    """Another process holds the directory."""


class OutOfMemoryError(RunError):
    """The device had no room while it computed."""


class TooLargeError(ValueError):
    """What is asked for cannot fit; known beforehand."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    path: Path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def kernels(self) -> Path:
        return self.path / "kernels"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def exists(self) -> bool:
        return (self.path / CONFIG).is_file()

    def files(self) -> list[str]:
        """The paths inside it of all files, sorted; it may be written meanwhile.

        Not by `Path.rglob`, which fails when a directory that it has seen is gone.
        """
        return sorted(
            Path(folder, name).relative_to(self.path).as_posix()
            for folder, _, names in os.walk(self.path)
            for name in names
        )

    def config(self) -> Config:
        return Config.from_json(read_json(self.path / CONFIG), str(self.path / CONFIG))


def existing(path: Path) -> RunDirectory:
    """The run at a path, or a ValueError that says what is there instead."""
    run = RunDirectory(path)
    if not path.exists():
        raise ValueError(f"{path}: no such directory. Start a run with 'elites train'")
    if not path.is_dir():
        raise ValueError(f"{path}: not a directory; a run is one")
    refuse_links(path)
    if not run.exists():
        raise ValueError(f"{path}: not a run, it has no {CONFIG}")
    return run


def refuse_links(path: Path) -> None:
    """Raise if a file or folder of the run at a path is a symbolic link.

    Writing through a link would change files outside of the run. `checkpoints/last` is a link that
    elites makes itself.
    """
    for folder, folders, names in os.walk(path):
        inside = Path(folder).relative_to(path)
        if folder == str(path):  # a user may keep other things beside the files of the run
            folders[:] = [name for name in folders if _FOLDERS.fullmatch(name)]
            names = [name for name in names if name in _FILES]
        for name in (*folders, *names):
            if os.path.islink(Path(folder, name)) and (inside / name) != Path("checkpoints/last"):
                raise RunError(
                    f"{Path(folder, name)} is a symbolic link, and elites follows none inside of a "
                    "run. Replace it by what it points to"
                )


def refuse_existing(path: Path, choose: str = "another --output") -> None:
    """Raise a ValueError if anything is there already; `choose` says what else to give."""
    if RunDirectory(path).exists():
        raise ValueError(
            f"{path} holds a run already. Continue it with 'elites resume {path}', or choose "
            f"{choose}"
        )
    if path.is_dir() and any(not _is_ours(entry.name) for entry in path.iterdir()):
        raise ValueError(f"{path} is not empty and not a run. Choose {choose}")


def _is_ours(name: str) -> bool:
    """What a process that died while it started may have left."""
    return name in (LOCK, "kernels") or (name.startswith(".") and ".writing" in name)


def discard(run: RunDirectory) -> None:
    """Remove what a new run wrote before it was refused; one that has saved anything is kept."""
    if not run.checkpoints.exists():
        for directory in (run.kernels, run.snapshots, run.path / "events"):
            shutil.rmtree(directory, ignore_errors=True)
        # The configuration last: with it, whatever is left is still known as a run.
        for name in (RESOLVED, ENVIRONMENT, METRICS, REACH, CONFIG):
            (run.path / name).unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------ files


def read_facts(run: RunDirectory) -> dict[str, Any]:
    """Read what a run's configuration resolved to, and check what every reader relies on."""
    path = run / RESOLVED
    facts = files.read_record(path, _FACTS)
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    if not low or len(low) != len(high) or not all(_is_number(v) for v in (*low, *high)):
        raise RunError(f"{path}: damaged: descriptor_low and descriptor_high are not a box")
    return facts


_FACTS = {
    "task": str,
    "algorithm": str,
    "iterations": int,
    "descriptor": str,
    "descriptor_low": list,
    "descriptor_high": list,
    "origins": list,
    "actor_conditioned": bool,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` if all goes well and vanishes if not.

    Each process has its own: two that write the same file do not write into each other's.
    """
    temporary = path.with_name(f".{path.stem}.writing-{this_process()}{path.suffix}")
    try:
        with naming(temporary):
            temporary.unlink(missing_ok=True)
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sweep(folder: Path) -> None:
    """Remove what processes of this machine that are gone were writing there."""
    for entry in folder.glob(".*.writing-*"):
        if is_gone(re.sub(r"(\.\w+)?$", "", entry.name.partition(".writing-")[2])):
            entry.unlink(missing_ok=True)


def this_process() -> str:
    """A name that says later whose something was."""
    return f"{platform.node()}-{os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether a process of that name was one of this machine, and is no more."""
    machine, _, number = process.rpartition("-")
    if machine != platform.node() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def write_text(path: Path, text: str) -> None:
    """Write a whole file, or leave the old one: never half of it."""
    with replacing(path) as temporary, open(temporary, "x", encoding="utf-8") as file:
        file.write(text)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1) + "\n")


def flush(file) -> None:
    """Bring what was written to rest on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """A name is safe once its directory is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """A full disk does not say where: add the path to errors that lack it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


# ------------------------------------------------------------------------------------------- lock


@contextlib.contextmanager
def locked(path: Path) -> Iterator[str | None]:
    """Hold the run for this process; yields the owner of a lock that was left behind, or None.

    A directory that did not exist is made, and removed again if nothing was written to it.
    """
    import fcntl

    made = [p for p in (path, *path.parents) if not p.exists()]
    path.mkdir(parents=True, exist_ok=True)
    refuse_links(path)
    with naming(path / LOCK), _open_lock(path / LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InUseError(
                f"{path} is in use by {file.read().strip() or 'another process'}. Wait for it, or "
                "end it"
            ) from None
        file.seek(0)
        stale = file.read().strip() or None
        file.seek(0)
        file.truncate()
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {platform.node()} since {now}\n")
        file.flush()
        try:
            yield stale
        finally:
            # Emptied, not removed: a file that vanishes could be locked twice.
            file.seek(0)
            file.truncate()
            file.flush()
            if made and [entry.name for entry in path.iterdir()] == [LOCK]:
                (path / LOCK).unlink()
                for directory in made:
                    with contextlib.suppress(OSError):
                        directory.rmdir()


def _open_lock(path: Path) -> IO[str]:
    """Open the lock file, which is made if need be, without following a link."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError(f"{path}: not a plain file. Remove it")
    return os.fdopen(handle, "r+", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Hold the run for this process, unless another does: whether it is held here."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
            held = True
        except InUseError:
            held = False
        yield held


# ------------------------------------------------------------------------------------ environment


def environment() -> dict[str, Any]:
    """What a run ran on. Loads JAX."""
    import importlib.metadata

    import jax

    packages = ("jax", "jaxlib", "numpy", "optax")
    devices = jax.local_devices()
    return {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "elites": elites.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "platform": platform.platform(),
        "device": devices[0].device_kind,
        "backend": jax.default_backend(),
        "devices": len(devices),
        "cpus": os.cpu_count(),
    }


def record_session(run: RunDirectory, command: str, **more: Any) -> None:
    """Add an entry to the run's environment: the command, versions and the device. Loads JAX."""
    path = run / ENVIRONMENT
    sessions: list[Any] = []
    with contextlib.suppress(FileNotFoundError, RunError):
        sessions = read_json(path)
    write_json(path, [*sessions, {"command": command, **environment(), **more}])


def commit() -> str | None:
    """The commit of the source that runs, '+' behind it if changed; None outside a repository."""
    source = Path(__file__).resolve().parent
    if not shutil.which("git"):
        return None

    def git(*arguments: str) -> str | None:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(source), *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's repository, which does not know its files.
    if not git("ls-files", "--error-unmatch", str(Path(__file__).resolve())):
        return None
    revision = git("rev-parse", "HEAD")
    return f"{revision}+" if revision and git("status", "--porcelain", "--", ".") else revision
