"""Exit code, program name, argument types, and the question of trust, shared by the commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from elites import trust
from elites.runs.config import Config
from elites.runs.directory import RunDirectory

STOPPED = 3
"""Exit code of training that a signal stopped and that can be resumed."""

RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""A run directory, as the first argument of a command."""


def shown(metavar: str, default: str) -> Any:
    """Return the tyro setting that shows an option's value and default in the help.

    It is for an option whose default in the signature is None.
    """
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def program() -> str:
    """Return the command by which the user calls elites, which need not be on the PATH."""
    if shutil.which("elites"):
        return "elites"
    return sys.argv[0] if sys.argv[0].endswith("elites") else "python -m elites"


def trusted_config(run: RunDirectory, trust_task: bool) -> Config:
    """Return the configuration of a run whose files the user trusts to run.

    With `trust_task`, trusts the files that the run names. Otherwise asks on a terminal, or raises
    an UntrustedError.
    """
    config = run.checked_config()
    names = (config.task, config.algorithm)
    try:
        if not trust_task:
            trust.require(run.path, *names)
    except trust.UntrustedError as error:
        if not _agrees(f"{error.what}. Trust it?"):
            raise
    trust.record(*names)
    return config


def _agrees(question: str) -> bool:
    """Return whether the user answers a question with yes. Without a terminal, returns False."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return False
    print(f"elites: {question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
