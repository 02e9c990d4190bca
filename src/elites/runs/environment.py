"""Record what a session of a run computes with: versions, device, and the source of elites."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import elites
from elites import files, packages
from elites.files import Fields, ListOf, RunError
from elites.runs.directory import ENVIRONMENT, RunDirectory, write_json
from elites.words import counted

SIMULATOR = "simulator"
"""Entry of a session with the versions of the packages of the task's simulator, if it has one."""


def environment() -> dict[str, Any]:
    """Return the versions, the source and the device of this session, keyed by name. Loads JAX."""
    import importlib.metadata

    import jax

    used = ("jax", "jaxlib", "numpy", "optax")
    devices = jax.local_devices()
    return {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "elites": elites.__version__,
        "commit": commit(),
        "source": source_digest(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in used},
        "platform": platform.platform(),
        "device": devices[0].device_kind,
        "backend": jax.default_backend(),
        "devices": len(devices),
        "cpus": os.cpu_count(),
    }


SEED_DEVICES = "seed_devices"
"""Entry of a session with the number of devices that the seeds were spread over."""

_repeatable: list[str] = []
"""The command line to repeat, if this process was not started by a user's command."""


def started_by(*words: str) -> None:
    """Name the command whose process started this one. Sessions of this process record it."""
    _repeatable[:] = words


def command() -> str:
    """Return the command line with which a user can repeat what this process does."""
    return shlex.join(_repeatable or ["elites", *sys.argv[1:]])


def record_session(run: RunDirectory, command: str, **more: Any) -> None:
    """Append an entry for this session to `environment.json` of a run. Loads JAX.

    The entry has the command, the versions, the device, and `more` fields.
    """
    path = run / ENVIRONMENT
    entry = {"command": command, **environment(), **more}
    write_json(path, [*read_sessions(run), entry])


def read_sessions(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the entries of `environment.json` of a run, one for each session.

    Returns an empty list if the file is missing. Raises a RunError if it is damaged.
    """
    path = run / ENVIRONMENT
    try:
        sessions = files.read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(sessions, list):
        raise RunError(f"{path}: damaged: not a list of sessions. Move it away to continue")
    for number, session in enumerate(sessions, start=1):
        files.check_record(session, f"{path}, session {number}", _TEXTS, optional=_OPTIONAL)
    return sessions


_TEXTS: Fields = dict.fromkeys(("command", "time", "elites", "jax", "device", "backend"), str)
_OPTIONAL: Fields = {
    "accepted_changes": ListOf(str),
    SIMULATOR: dict,
    SEED_DEVICES: int,  # since version 0.2.0
    "commit": (str, type(None)),
    "source": (str, type(None)),  # since version 0.2.0
}


def provide_devices(run: RunDirectory, seeds: int) -> None:
    """Divide the CPU into as many devices as the seeds of a run need, if JAX has not started yet.

    These are as many as in the last session of the run, if that was on a CPU. Loads JAX.
    """
    from elites.training import devices

    before = _last_devices(run, seeds)
    devices.provide(before.number if before and before.backend == "cpu" else seeds)


def seed_devices(run: RunDirectory, seeds: int) -> int | None:
    """Return the number of devices that the last session of a run spread the seeds over.

    Returns None if there was no session, or if it was on another kind of device. Starts JAX.
    """
    import jax

    before = _last_devices(run, seeds)
    return before.number if before and before.backend == jax.default_backend() else None


class _Devices(NamedTuple):
    """Devices that a session spread the seeds over."""

    number: int
    kind: str
    backend: str


def _last_devices(run: RunDirectory, seeds: int) -> _Devices | None:
    """Return the devices of the last session of a run, or None if they are not known.

    Older versions of elites recorded the number of devices that there were. They used all of them
    if they divided the seeds evenly, and otherwise one.
    """
    try:
        last = read_sessions(run)[-1]
        count = last["devices"] if seeds % last["devices"] == 0 else 1
        count = last.get(SEED_DEVICES, count)
        return _Devices(count, last["device"], last["backend"]) if 1 <= count <= seeds else None
    except (OSError, RunError, LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


def note_on_devices(run: RunDirectory, seeds: int, count: int) -> str | None:
    """Return a note if this session uses other devices than the last session of a run.

    `count` is the number of devices in use now. The note is one line. Returns None if kind and
    number of the devices are the same, or if the last session is unknown. Starts JAX.
    """
    import jax

    last = _last_devices(run, seeds)
    if last is None:
        return None
    now = f"{counted(count, 'device')} ({jax.local_devices()[0].device_kind})"
    before = f"{counted(last.number, 'device')} ({last.kind})"
    if before == now:
        return None
    return (
        f"{run.path} was trained on {before} and continues on {now}: the last bits of its results "
        "may differ from those of a run without interruption"
    )


def note_on_simulator(run: RunDirectory, versions: Mapping[str, str]) -> str | None:
    """Return a note if the simulator's packages are of other versions than in the last session.

    `versions` are the present ones, keyed by name. The note is one line. Returns None if nothing
    has changed, or if the last session is unknown.
    """
    try:
        before = read_sessions(run)[-1].get(SIMULATOR, {})
    except (RunError, LookupError):
        return None
    changed = packages.changes(before, versions)
    if not changed:
        return None
    return f"{run.path} was trained with another version of its simulator: {'; '.join(changed)}"


def commit() -> str | None:
    """Return the Git commit of the elites source, followed by "+" if files have changed since.

    Returns None if the source is not in a Git repository.
    """
    source = Path(__file__).resolve().parent
    if not shutil.which("git"):
        return None

    def git(*arguments: str) -> str | None:
        """Run git with these arguments in the source folder. Returns its output, or None."""
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(source), *arguments],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside another repository, which does not track its files.
    if not git("ls-files", "--error-unmatch", str(Path(__file__).resolve())):
        return None
    revision = git("rev-parse", "HEAD")
    return f"{revision}+" if revision and git("status", "--porcelain", "--", ".") else revision


def source_digest() -> str | None:
    """Return the first 16 digits of the SHA-256 of the Python files of elites.

    The digest is over the name of each file relative to the package, its size and its contents, in
    the order of the names. It identifies the source of a copy that is not in a Git repository.
    Returns None if the files cannot be found, for example in a zip file.
    """
    package = Path(elites.__file__).resolve().parent
    paths = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    digest, found = hashlib.sha256(), False
    for name, path in sorted(paths.items()):
        if path.is_file():  # not a dangling link, which some editors use as a lock
            contents, found = files.read_bytes(path, follow=True), True
            digest.update(b"%s\0%d\0%s" % (name.encode(), len(contents), contents))
    return digest.hexdigest()[:16] if found else None
