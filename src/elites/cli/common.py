"""Exit code, program name and argument types, shared by the commands."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

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
