"""The `elites` command: one thin function for each of its commands.

A command is a typed function whose docstring is its help; tyro turns the signature into options.
To add one, write the function and enter it in `COMMANDS`. What is slow to load (JAX, Matplotlib)
is imported inside the function, so that help and refusals come at once.

The library raises ValueError for bad input; `main` turns that into one line and exit code 2. With
ELITES_DEBUG set in the environment the traceback is shown instead.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

import elites
from elites import tasks as registry

if TYPE_CHECKING:
    from elites.tasks.task import Task

# -------------------------------------------------------------------------------- the commands


def tasks(
    task: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]", help_behavior_hint="")
    ] = "",
) -> None:
    """List the tasks, or explain one of them.

    Args:
        task: The task to explain; without it, all are listed.
    """
    if task:
        print(_explain(registry.make(task)))
    else:
        print(_overview([registry.make(name) for name in registry.names()]))


def demo(output: Path = Path("demo"), population: int = 256, seed: int = 0) -> None:
    """Run a random population on Ant-Omni and draw where it went.

    Args:
        output: Directory for the picture; made if absent.
        population: Number of random policies.
        seed: Seed of the random policies.
    """
    if population < 1:
        raise ValueError(f"--population must be at least 1, got {population}")
    if seed < 0:
        raise ValueError(f"--seed must not be negative, got {seed}")
    output.mkdir(parents=True, exist_ok=True)
    from elites import demo as program

    program.run(output, population, seed)


COMMANDS: dict[str, Callable[..., None]] = {"tasks": tasks, "demo": demo}


# ---------------------------------------------------------------------------------- running them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 failed, 2 refused."""
    try:
        _parse(sys.argv[1:] if arguments is None else arguments)()
    except (ValueError, OSError) as error:
        if os.environ.get("ELITES_DEBUG"):
            raise
        print("elites:", " ".join(str(error).splitlines()), file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


def _parse(arguments: Sequence[str]) -> Callable[[], None]:
    """The call that the command line asks for. Only the chosen command is looked at."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        return functools.partial(print, _help())
    if name == "--version":
        return functools.partial(print, "elites", elites.__version__)
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        known = ["--help", "--version"] if kind == "option" else list(COMMANDS)
        raise ValueError(
            f"unknown {kind} '{name}'.{registry.suggestion(name, known)} "
            f"Known {kind}s: {', '.join(known)}"
        )
    return _parse_options(name, COMMANDS[name], rest)


def _parse_options(name: str, command: Callable[..., None], arguments: Sequence[str]):
    @functools.wraps(command)
    def postponed(*args, **kwargs):
        # tyro would call the command while it parses, and take its errors for its own.
        return functools.partial(command, *args, **kwargs)

    parse = functools.partial(tyro.cli, postponed, prog=f"elites {name}", return_unknown_args=True)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            call, unknown = parse(args=arguments)
    except SystemExit as stop:
        if not stop.code:
            raise  # help was asked for, and has been printed
        raise ValueError(f"{_unbox(complaint.getvalue())} See 'elites {name} --help'") from None
    if not unknown:
        return call
    if not unknown[0].startswith("-"):
        raise ValueError(f"unexpected argument '{unknown[0]}'. See 'elites {name} --help'")
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        parse(args=["--help"])
    options = re.findall(r"--[a-z][\w.-]*", page.getvalue())
    flag = unknown[0].partition("=")[0]
    raise ValueError(
        f"unknown option '{flag}'.{registry.suggestion(flag, options)} See 'elites {name} --help'"
    )


def _unbox(message: str) -> str:
    """The first section of one of tyro's framed messages, as one sentence."""
    inside = [line.strip(" │") for line in message.splitlines() if line.startswith("│")]
    section = itertools.takewhile(lambda line: not line.startswith("─"), inside)
    text = " ".join(section) or "the options could not be understood"
    return text if text.endswith(".") else f"{text}."


def _help() -> str:
    lines = [
        "usage: elites COMMAND [OPTIONS]",
        "",
        "Quality-diversity reinforcement learning.",
        "",
        "commands:",
        *_columns([[f"  {name}", _first_line(command)] for name, command in COMMANDS.items()]),
        "",
        "options:",
        "  -h, --help  show this message; after a command, its options",
        "  --version   show the version",
    ]
    return "\n".join(lines)


def _first_line(command: Callable[..., None]) -> str:
    return (command.__doc__ or "").partition("\n")[0].rstrip(".")


# --------------------------------------------------------------------------------- what is printed


def _overview(tasks: Sequence[Task]) -> str:
    from elites.core import networks

    rows = [["task", "observation", "action", "episode", "parameters", "bounds", "descriptor"]]
    for task in tasks:
        network = networks.policy(task.observation_size, task.action_size)
        rows.append(
            [
                task.name,
                f"{task.observation_size}",
                f"{task.action_size}",
                f"{task.episode_length}",
                f"{network.size:,}",
                _bounds(task),
                task.descriptor_text,
            ]
        )
    return "\n".join(_columns(rows, right=(1, 2, 3, 4)))


def _explain(task: Task) -> str:
    from elites.core import networks

    network = networks.policy(task.observation_size, task.action_size)
    layers = "-".join(map(str, network.sizes))
    length = f"at most {_count(task.episode_length, 'step')}"
    if task.body_model is not None:
        length += f" of {task.body_model.dt:g} s, {task.body_model.substeps} substeps each"
    over = {"final": "of the last state", "mean": "mean over the steps taken"}
    facts = [
        ("episode", length),
        ("reward", task.reward_text),
        ("fitness", "sum of the rewards, undiscounted"),
        ("termination", task.termination_text),
        ("descriptor", task.descriptor_text or over[task.episode_descriptor]),
        ("bounds", _bounds(task)),
        ("deterministic", "yes" if task.deterministic else "no, an episode depends on its key"),
        ("policy", f"{network.size:,} parameters ({layers}, ReLU, tanh at the end)"),
    ]
    lines = [
        f"{task.name}: {task.summary}",
        "",
        *(line for name, text in facts for line in _paragraph(name, text)),
        "",
        f"observation, {_count(task.observation_size, 'number')}",
        *_columns([[f"  {where}", what] for where, what in _ranges(task.observation_layout)]),
        "",
        f"action, {_count(task.action_size, 'number')} in [-1, 1]",
        *_columns([[f"  {where}", what] for where, what in _ranges(_actions(task))]),
    ]
    return "\n".join(lines)


def _actions(task: Task) -> list[tuple[str, int]]:
    model = task.body_model
    if model is None:
        return []
    return [
        (f"motor of joint {model.joints.names[joint]!r}, {strength:g} N m at full action", 1)
        for joint, strength in zip(model.actuated, model.strength[:, 0], strict=True)
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _paragraph(name: str, text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent=f"{name:<15}", subsequent_indent=" " * 15)


def _ranges(layout: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """Index ranges of consecutive entries: ("0-1", "x, y"), ("2", "z")..."""
    rows, first = [], 0
    for text, size in layout:
        rows.append((f"{first}" if size == 1 else f"{first}-{first + size - 1}", text))
        first += size
    return rows


def _bounds(task: Task) -> str:
    sides = [
        f"[{low:g}, {high:g}]"
        for low, high in zip(task.descriptor_low, task.descriptor_high, strict=True)
    ]
    return f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 else " x ".join(sides)


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Lines with aligned columns; those in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main())
