"""Record what a session of a run computes with: versions, device, and the commit of the source."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import elites
from elites import files
from elites.files import Fields, ListOf, RunError
from elites.runs.directory import ENVIRONMENT, RunDirectory, write_json
from elites.words import counted


def environment() -> dict[str, Any]:
    """Return versions, commit and device of this session as a dictionary by name. Loads JAX."""
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
    """Add an entry to `environment.json` of a run: command, versions and device. Loads JAX.

    `more` are further fields of the entry.
    """
    path = run / ENVIRONMENT
    entry = {"command": command, **environment(), **more}
    write_json(path, [*read_sessions(run), entry])


def read_sessions(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the entries of `environment.json` of a run, one for each session.

    The list is empty if the file is missing. Raises a RunError if it is damaged.
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
_OPTIONAL = {"accepted_changes": ListOf(str)}


def note_on_devices(run: RunDirectory, seeds: int) -> str | None:
    """Return a line about another kind or number of devices than in the last session of a run.

    Seeds are divided over the devices, if they divide evenly. Returns None if nothing changed, or
    if the last session is not recorded. Loads JAX.
    """
    import jax

    def text(count: int, kind: str) -> str:
        """Return the devices that the seeds are divided over, of `count` devices, as text."""
        return f"{counted(count if seeds % count == 0 else 1, 'device')} ({kind})"

    devices = jax.local_devices()
    now = text(len(devices), devices[0].device_kind)
    try:
        last = read_sessions(run)[-1]
        before = text(last["devices"], last["device"])
    except (RunError, LookupError, TypeError, ZeroDivisionError):
        return None
    if before == now:
        return None
    return (
        f"{run.path} was trained on {before} and continues on {now}: the last bits of its results "
        "may differ from those of a run without interruption"
    )


def commit() -> str | None:
    """Return the Git commit of the running elites source, with a "+" if files changed since.

    Returns None if the source is not in a repository.
    """
    source = Path(__file__).resolve().parent
    if not shutil.which("git"):
        return None

    def git(*arguments: str) -> str | None:
        """Return the output of a git command in the source folder, or None if the command fails."""
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
