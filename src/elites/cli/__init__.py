"""The `elites` command: one thin function for each of its commands.

    train.py       train, resume, distil, demo
    runs.py        evaluate, calibrate, plot, info
    export.py      export
    share.py       pack, unpack
    view.py        view
    render.py      render
    study.py       study, report
    catalogue.py   tasks, algorithms; describe.py writes their text
    pretrained.py  pretrained, and the option --pretrained of commands that read runs
    completion.py  completion, for shells
    parsing.py     options from function signatures, and messages for wrong ones

A command is a typed function: its signature becomes the options and its docstring the help. To add
one, write the function and enter it in `COMMANDS`. A command imports slow modules (JAX, Matplotlib)
inside the function, after it has checked the input. Help and error messages thus appear at once.

| exit code | meaning                                        |
|-----------|------------------------------------------------|
| 0         | done                                           |
| 1         | failed (OSError, RunError)                     |
| 2         | bad input (ValueError)                         |
| 3         | stopped by a signal; the run can be resumed    |
| 130, 143  | interrupted by Ctrl-C or SIGTERM before that   |
| 141       | the reader of the output has closed the pipe   |

`main` prints an exception as one line. With ELITES_DEBUG set in the environment, Python shows the
traceback instead.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import elites
from elites import output
from elites.cli import (
    catalogue,
    completion,
    export,
    parsing,
    pretrained,
    render,
    runs,
    share,
    study,
    train,
    view,
)
from elites.core.catalogue import suggestion
from elites.runs.directory import RunError
from elites.runs.signals import Interrupted
from elites.words import columns, one_line

COMMANDS: dict[str, Callable[..., Any]] = {
    "train": train.Train,
    "resume": train.resume,
    "distil": train.distil,
    "evaluate": runs.evaluate,
    "calibrate": runs.calibrate,
    "plot": runs.plot,
    "export": export.export,
    "view": view.view,
    "render": render.render,
    "info": runs.info,
    "pack": share.pack,
    "unpack": share.unpack,
    "pretrained": pretrained.pretrained,
    "study": study.study,
    "report": study.report,
    "tasks": catalogue.tasks,
    "algorithms": catalogue.algorithms,
    "demo": train.demo,
    "completion": completion.completion,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit code of the process.

    `arguments` are the words after `elites`, by default those of the command line.
    """
    try:
        code = _parse(sys.argv[1:] if arguments is None else arguments)() or 0
        print(end="", flush=True)  # a closed pipe is noticed here, not by the interpreter at exit
        return code
    except BrokenPipeError:
        return 128 + 13  # the reader, such as a pager or `head`, has closed the pipe
    except KeyboardInterrupt as error:
        output.complain("interrupted")
        return error.code if isinstance(error, Interrupted) else 128 + 2
    except (ValueError, OSError, RunError) as error:
        if os.environ.get("ELITES_DEBUG"):
            raise
        error = pretrained.explained(error)
        output.complain(one_line(error))
        return 2 if isinstance(error, ValueError) else 1


def _parse(arguments: Sequence[str]) -> Callable[[], int | None]:
    """Return a function that executes the requested command and returns its exit code.

    Raises a ValueError for an unknown command or option.
    """
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        return functools.partial(print, _help())
    if name == "--version":
        return functools.partial(print, "elites", elites.__version__)
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        known = ["--help", "--version"] if kind == "option" else list(COMMANDS)
        raise ValueError(
            f"unknown {kind} '{name}'.{suggestion(name, known)} Known {kind}s: {', '.join(known)}"
        )
    rest, prepare = pretrained.with_model(name, rest)
    if name == "train":
        return parsing.parse(name, train.Train, rest, default=train.Train.defaults(rest))
    advice = f"Give a run directory or {pretrained.OPTION}, not both" if prepare else ""
    call = parsing.parse(name, parsing.postponed(COMMANDS[name]), rest, advice=advice)
    if prepare is None:
        return call

    def run() -> int | None:
        prepare()
        return call()

    return run


def _help() -> str:
    """Return the text of `elites --help`, with a line for each command."""
    lines = [
        "usage: elites COMMAND [OPTIONS]",
        "",
        "Quality-diversity reinforcement learning.",
        "",
        "commands:",
        *columns([[f"  {name}", _first_line(command)] for name, command in COMMANDS.items()]),
        "",
        "options:",
        "  -h, --help  show this message; after a command, its options",
        "  --version   show the version",
    ]
    return "\n".join(lines)


def _first_line(command: Callable[..., Any]) -> str:
    """Return the first line of a command's docstring, without the full stop."""
    return (command.__doc__ or "").partition("\n")[0].rstrip(".")
