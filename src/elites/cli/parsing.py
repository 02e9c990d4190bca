"""Parse the options of a command with tyro, and put errors into one line.

tyro turns the signature of a function into options. Its framed error messages become one sentence
that names the option, the value and, for an unknown option, the closest known one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tyro

from elites.core.catalogue import suggestion


def parse(
    name: str, command: Any, arguments: Sequence[str], default: Any = None, advice: str = ""
) -> Callable[[], int | None]:
    """Parse the arguments of a command, and return a function that executes the command.

    `command` is a function or a dataclass, and `name` its name on the command line. `default` is an
    instance of the dataclass that has the values for options that are not given. Raises a
    ValueError with a message of one line if the arguments are wrong. `advice` is the sentence that
    follows if there is one argument too many, in place of a pointer to the help.
    """
    _refuse_empty_lists(name, command, arguments)
    # tyro reads a default of None as "nothing is required".
    given = {} if default is None else {"default": default}
    run = functools.partial(
        tyro.cli, command, prog=f"elites {name}", return_unknown_args=True, **given
    )
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), _no_color_obeyed():
            call, unknown = run(args=arguments)
    except SystemExit as stop:
        if not stop.code:
            raise  # --help, which tyro has printed
        raise ValueError(_with_option(_unframed(errors.getvalue()), name)) from None
    except ValueError as error:  # a dataclass rejects a value
        raise ValueError(_with_option(f"{error}.", name)) from None
    if not unknown:
        return call
    if not unknown[0].startswith("-"):
        advice = advice or f"See 'elites {name} --help'"
        raise ValueError(f"unexpected argument '{unknown[0]}'. {advice}")
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        run(args=["--help"])
    options = re.findall(r"--[a-z][\w.-]*", page.getvalue())
    raise ValueError(f"{_about_unknown(name, unknown, options)} See 'elites {name} --help'")


def _refuse_empty_lists(name: str, command: Any, arguments: Sequence[str]) -> None:
    """Raise a ValueError if an option of a function that takes several values is given none.

    tyro would read it as if it were not given, and `study PLAN --only` would run the whole plan.
    """
    if isinstance(command, type):
        return
    lists = [p.name for p in inspect.signature(command).parameters.values() if p.default == ()]
    for word, following in itertools.zip_longest(arguments, arguments[1:], fillvalue="--"):
        if word.removeprefix("--") in lists and word.startswith("--") and following[:2] == "--":
            raise ValueError(f"{word} needs at least one value. See 'elites {name} --help'")


@contextlib.contextmanager
def _no_color_obeyed() -> Iterator[None]:
    """Make tyro write plain text inside the `with` block if NO_COLOR is set.

    tyro does not read this variable, but it writes plain text to a dumb terminal.
    """
    terminal = os.environ.get("TERM")
    if terminal is None or not os.environ.get("NO_COLOR"):
        yield
        return
    os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        os.environ["TERM"] = terminal


def postponed(command: Callable[..., int | None]) -> Callable[..., Callable[[], int | None]]:
    """Return a function that takes a command's arguments, but does not call the command yet.

    It returns the call as a function without arguments. tyro calls it while parsing. If the command
    itself ran then, tyro would report the command's errors as parsing errors.
    """

    @functools.wraps(command)
    def call(*args, **kwargs):
        return functools.partial(command, *args, **kwargs)

    return call


def _about_unknown(command: str, unknown: Sequence[str], options: Sequence[str]) -> str:
    """Return a message about an unknown option of a command that suggests the closest known one.

    `unknown` has the arguments that were not understood. The first is the option, and its value may
    follow.
    """
    flag, _, value = unknown[0].partition("=")
    if command == "train" and flag == "--seed":
        number = value or (unknown[1] if unknown[1:] and unknown[1].isdigit() else "N")
        return (
            f"unknown option '--seed'. '--first-seed {number}' trains the seed of that number; "
            "'--seeds' is how many seeds to train."
        )
    return f"unknown option '{flag}'.{suggestion(flag, options)}"


def _with_option(text: str, command: str) -> str:
    """Return an error message in which options take the place of Python fields.

    For example, "replay_size must" becomes "--hp.replay-size must". The message ends with a pointer
    to the help.
    """
    if text.startswith("Missing from "):
        # The names of arguments are the words in capitals before their help texts.
        missing = re.findall(r"(?:^|: |\) )([A-Z]+)(?= )", text)
        return f"'{command}' needs {' and '.join(missing)}. See 'elites {command} --help'"
    text = re.sub(
        r"^(?:Error parsing config(?P<hp>\.hp)?: )?(?P<field>[a-z]\w*) must",
        lambda m: f"--{'hp.' if m['hp'] else ''}{m['field'].replace('_', '-')} must",
        text,
    )
    # Python's message for text that is not a number, alone or after other types were tried.
    kind = re.search(r"invalid literal for int|could not convert string to float", text)
    option = re.match(r"Error parsing (--\S+): ", text)
    given = re.search(r"'([^']*)'[^']*$", text)
    if kind and option and given:
        wanted = "a whole number" if "int" in kind[0] else "a number"
        text = f"{option[1]} must be {wanted}, got '{given[1]}'."
    elif wrong := re.match(r"invalid choice ('.*') for argument '(--\S+)'.* one of \((.*)\)", text):
        known = [choice.strip("' ") for choice in wrong[3].split(",")]
        text = f"{wrong[2]} must be {', '.join(known[:-1])} or {known[-1]}, got {wrong[1]}."
    elif option and (several := re.search(r"Could not find valid parse for .*\[(.*)\]", text)):
        text = f"{option[1]} does not accept {several[1].replace(',', '')}."
    return f"{text} See 'elites {command} --help'"


def _unframed(message: str) -> str:
    """Return the first section of an error message that tyro has framed, as one sentence."""
    inside = [line.strip(" │") for line in message.splitlines() if line.startswith("│")]
    section = itertools.takewhile(lambda line: not line.startswith("─"), inside)
    text = " ".join(section) or "the options could not be parsed"
    return text if text.endswith(".") else f"{text}."
