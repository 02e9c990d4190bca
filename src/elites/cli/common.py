"""Code shared by the commands: exit code, argument types, program name, and trust in files."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elites import trust
from elites.output import warn
from elites.runs import directory as directories
from elites.runs import session
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.tasks.axes import axes_of_facts
from elites.words import number, plain

if TYPE_CHECKING:  # they load JAX
    from elites.core.types import Problem
    from elites.tasks.task import Task
    from elites.training import Elite, SeedResult

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
    ranges = " and ".join(f"{low:g} to {high:g}" for low, high in bounds)
    warn(
        f"{_given(descriptor)} lies outside the bounds of {problem.name}, {ranges}. No elite is "
        "there, and no actor was trained for it"
    )


def warn_other_cell(
    run: RunDirectory,
    result: SeedResult,
    elite: Elite,
    descriptor: Sequence[float],
    suggest_actor: bool = True,
) -> None:
    """Warn if the cell of --descriptor, where one is given, has no elite.

    `elite` is the elite of `result` that is nearest to the descriptor, and is used instead. If the
    cell has an elite, there is no warning, even if one of a neighbouring cell is nearer: that is
    common. `suggest_actor` says whether to name the option --actor, if the run has an actor that
    takes a descriptor.
    """
    if not descriptor or result.archive.cell_of(descriptor) in result.archive.cells:
        return
    lacking = "the archive has" if directories.kept_cells(run) is None else "this run has kept"
    text = (
        f"{lacking} no elite in the cell of {_given(descriptor)}. The nearest one, of cell "
        f"{elite.cell}, has a distance of {distance(run, result, elite, descriptor)}"
    )
    if suggest_actor and result.actor is not None and result.actor.conditioned:
        text += f". '--actor {_given(descriptor)}' takes the distilled policy for this descriptor"
    warn(text)


def distance(
    run: RunDirectory, result: SeedResult, elite: Elite, descriptor: Sequence[float]
) -> str:
    """Return the distance of an elite from the value of --descriptor, as text.

    Distances are relative to the extents of the axes, see `elites.core.distances`. They have a unit
    if all axes have the same extent and the same unit.
    """
    weights = result.archive.algorithm.problem.weights
    pairs = zip(weights, elite.descriptor, descriptor, strict=True)
    found = number(math.hypot(*(weight * float(have - want) for weight, have, want in pairs)))
    units = {axis.unit for axis in axes_of_facts(directories.read_facts(run))}
    unit = units.pop() if len(units) == 1 and len(set(weights)) == 1 else ""
    if " " in unit:
        return f"{found} ({unit})"
    return f"{found} {unit}" if unit else found


def _given(descriptor: Sequence[float]) -> str:
    """Return the option --descriptor with its value, as the user may have given it."""
    return " ".join(["--descriptor", *(f"{value:g}" for value in descriptor)])


def _agrees(question: str) -> bool:
    """Ask the user a question on the terminal, and return whether the answer is yes.

    Returns False if there is no terminal.
    """
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return False
    print(f"elites: {plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
