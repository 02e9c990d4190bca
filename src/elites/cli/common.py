"""Code shared by the commands: exit code, argument types, program name, and trust in files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elites import trust
from elites.output import warn
from elites.runs import session
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.words import plain

if TYPE_CHECKING:  # they load JAX
    from elites.core.types import Problem
    from elites.tasks.task import Task

STOPPED = 3
"""Exit code of training that a signal stopped and that can be resumed."""

RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""Type of the first argument of many commands, a run directory."""


def shown(metavar: str, default: str) -> Any:
    """Return a tyro setting that makes the help show this metavar and this default.

    Used for options whose default in the signature is None.
    """
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def program() -> str:
    """Return the command with which the user calls elites, for messages that suggest a command.

    This is "elites" if it is on the PATH, otherwise its path or "python -m elites".
    """
    if shutil.which("elites"):
        return "elites"
    return sys.argv[0] if sys.argv[0].endswith("elites") else "python -m elites"


def trusted_config(run: RunDirectory, trust_task: bool, *more: str) -> Config:
    """Return the configuration of a run, after making sure that the user trusts its files.

    These are the Python files of `session.code_names`, and of the references `more`. With
    `trust_task`, they are trusted. Otherwise the user is asked if there is a terminal. Raises an
    UntrustedError if one is not trusted.
    """
    config = run.checked_config()
    names = [*session.code_names(run, config), *more]
    try:
        if not trust_task:
            trust.require(run.path, *names)
    except trust.UntrustedError as error:
        if not _agrees(f"{error.what}. Trust it?"):
            raise
    trust.record(*names)
    return config


def warn_outside_bounds(problem: Problem | Task, descriptor: Sequence[float]) -> None:
    """Warn if the value of --descriptor, where one is given, lies outside the bounds of a task."""
    bounds = list(zip(problem.descriptor_low, problem.descriptor_high, strict=True))
    if not descriptor or all(
        low <= value <= high for value, (low, high) in zip(descriptor, bounds, strict=True)
    ):
        return
    given = " ".join(f"{value:g}" for value in descriptor)
    ranges = " and ".join(f"{low:g} to {high:g}" for low, high in bounds)
    warn(
        f"--descriptor {given} lies outside the bounds of {problem.name}, {ranges}. No elite is "
        "there, and no actor was trained for it"
    )


def _agrees(question: str) -> bool:
    """Ask the user a question on the terminal, and return whether the answer is yes.

    Returns False if there is no terminal.
    """
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return False
    print(f"elites: {plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
