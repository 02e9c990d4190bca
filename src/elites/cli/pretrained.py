"""Command that lists and installs trained models, and the option --pretrained of other commands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from elites.cli.common import program
from elites.words import amount, columns, counted, listed, number, one_line, quoted

if TYPE_CHECKING:
    from elites.runs.pretrained import Model

OPTION = "--pretrained"
READERS = ("evaluate", "calibrate", "plot", "render", "export", "view", "info")
"""Commands that take the option --pretrained MODEL in place of a run directory."""
_SEVERAL = ("plot", "view")
"""Those that take several runs, of which the model may be one."""
FIGURES = (
    ("elite_fitness", "mean fitness of the elites"),
    ("elite_median_error", "median descriptor error of the elites"),
    ("actor_fitness", "mean fitness of the actor"),
    ("actor_median_error", "median descriptor error of the actor"),
)
"""Figures of a model, over its kept elites, and their titles."""


def pretrained(
    model: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL]", help_behavior_hint="")
    ] = "",
    reinstall: bool = False,
) -> None:
    """List the trained models, or install one of them.

    A model is a small run. 'elites view --pretrained MODEL' installs and shows one.

    The commands evaluate, export, render, info, plot and calibrate take the same option.

    Args:
        model: Model to install: a name from the list, a file of 'elites pack', or the address of
            one with its checksum, https://host/file.zip#sha256=... . Without it, all are listed.
        reinstall: Install the model again if it is installed already.
    """
    from elites.runs import pretrained as installing

    if not model:
        if reinstall:
            raise ValueError(f"--reinstall needs a model: {program()} pretrained MODEL --reinstall")
        return print("\n".join(_overview()))
    directory = installing.pretrained(model, reinstall)
    if model in (known := installing.models()):
        print("\n".join(_explained(known[model])))
    print(f"installed in {directory}")
    print(f"to look at it: {program()} view {OPTION} {quoted(model)}")


def with_model(
    command: str, arguments: Sequence[str]
) -> tuple[list[str], Callable[[], object] | None]:
    """Replace `--pretrained MODEL` among the arguments of a command by the model's run directory.

    Returns the new arguments, and a function that installs the model before the command runs, or
    None if the option was not given. Raises a ValueError if there is no such model, or if the
    command does not take one.
    """
    given = [i for i, word in enumerate(arguments) if word.partition("=")[0] == OPTION]
    if not given:
        return list(arguments), None
    if command not in READERS:
        raise ValueError(_refusal(command))
    at = given[0]
    before, (word, *after) = list(arguments[:at]), list(arguments[at:])
    _, joined, model = word.partition("=")
    if not joined:
        model, *after = after or [""]
    if not model or model.startswith("-") or len(given) > 1:
        raise ValueError(f"{OPTION} takes one model. '{program()} pretrained' lists them")
    from elites.runs import pretrained as installing

    directory = str(installing.place(model))
    runs = list(itertools.takewhile(lambda word: not word.startswith("-"), before))
    runs = runs if command in _SEVERAL else []
    rest = [*before[len(runs) :], *after]
    return [*runs, directory, *rest], lambda: installing.pretrained(model)


def explained(error: Exception) -> Exception:
    """Return an error that says how to install a damaged model again, or `error` itself."""
    if "pretrained" not in one_line(error):  # the folder of models: saves imports
        return error
    from elites.runs import pretrained as installing

    return installing.explained(error)


def _refusal(command: str) -> str:
    """Return a message for a command that does not take the option --pretrained."""
    if command == "resume":
        return (
            f"a trained model cannot be resumed, so 'resume' does not take {OPTION}. Give 'train' "
            f"the directory that '{program()} pretrained MODEL' prints: --start-from DIRECTORY"
        )
    if command == "train":
        return (
            f"'train' does not take {OPTION}. To start from the elites of a model, give it the "
            f"directory that '{program()} pretrained MODEL' prints: --start-from DIRECTORY"
        )
    return f"'{command}' does not take {OPTION}, which is for {listed(READERS)}"


# ------------------------------------------------------------------------------------------- texts


def _overview() -> list[str]:
    """Return lines that list the models that come with elites, and what else is installed."""
    from elites.runs import pretrained as installing

    known = installing.models()
    states = {
        path: "installed" if installing.damage(path) is None else "damaged"
        for path in installing.installed()
    }
    header = ["model", "algorithm", "evaluations", "elites", "QD-score", "size", ""]
    rows = [
        [
            name,
            model.algorithm,
            f"{model.evaluations:,}",
            f"{model.elites} of {model.cells}",
            number(model.recorded["qd_score"]),
            amount(model.bytes),
            states.get(installing.place(name), ""),
        ]
        for name, model in known.items()
    ]
    others = [path for path in states if path not in map(installing.place, known)]
    return [
        *columns([header, *rows], right=(2, 3, 4, 5)),
        *(["", "installed from elsewhere:"] if others else []),
        *(f"{path}: damaged" if states[path] == "damaged" else str(path) for path in others),
        "",
        "Devices round differently: on a CPU, elites end elsewhere than the archive says. "
        f"'{program()} pretrained MODEL' shows by how much.",
        f"To look at one: {program()} view {OPTION} {next(iter(known), 'MODEL')}",
    ]


def _explained(model: Model) -> list[str]:
    """Return lines that explain a model: what it holds, and figures of both devices."""
    rows = [
        [title, number(model.recorded[name]), number(model.on_cpu[name])] for name, title in FIGURES
    ]
    return [
        f"{model.name}: {model.algorithm} on {model.task}, {model.evaluations:,} evaluations, seed "
        f"{model.seed}, trained on {model.device}",
        f"{counted(model.elites, 'elite')} of {model.cells}, and the actor",
        "",
        *columns([["", "recorded", "on a CPU"], *rows], right=(1, 2)),
        "",
    ]
