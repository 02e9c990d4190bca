"""Write to standard output and standard error, which may be closed, full or a broken pipe.

Training must not fail because nobody reads its messages. What is printed here is never an error:
a line that cannot be written is lost.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from elites.words import one_line, plain


def prepare() -> None:
    """Make the standard streams of this process usable, whatever they were started with.

    The null device takes the place of closed streams. Otherwise the next file that is opened would
    get their number, and messages would be written into it. Characters that a stream cannot encode
    are written as escape sequences.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _open_null(number)
        stream = getattr(sys, name)
        if stream is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def finish() -> None:
    """Flush the standard streams. The null device takes the place of one that fails.

    The interpreter flushes them again at its exit, and would replace the exit code on an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if not write("", stream):
            _silence(stream)


def write(text: str, stream: Any) -> bool:
    """Write text to a stream at once, and return whether that succeeded."""
    if stream is None:  # Python found it closed
        return True
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # a broken pipe or a full disk; a closed file
        return False
    return True


def say(text: str) -> None:
    """Print text to standard output. If that fails, print nothing more."""
    if not write(f"{text}\n", sys.stdout):
        _silence(sys.stdout)


def complain(text: str) -> None:
    """Print a message in one line to standard error."""
    write(f"elites: {plain(text)}\n", sys.stderr)


def warn(text: str) -> None:
    """Print a warning in one line to standard error."""
    complain(f"warning: {text}")


@contextlib.contextmanager
def errors_as_warnings(what: str, advice: str) -> Iterator[None]:
    """Report an error inside the `with` block as a warning of one line, instead of raising it.

    For what a complete run can do without, such as figures. `what` names it, and `advice` says what
    the user can do.
    """
    try:
        yield
    except Exception as error:
        if os.environ.get("ELITES_DEBUG"):
            write(traceback.format_exc(), sys.stderr)
        reason = f"{type(error).__name__}: {one_line(error)}"
        warn(f"{what} failed ({reason}). The run is complete; {advice}")


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal that understands control sequences."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def _open_null(number: int) -> None:
    """Open the null device as the file with this number."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(null, number)
        os.close(null)


def _silence(stream: Any) -> None:
    """Let the null device take the place of a stream's file."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it has no file
        _open_null(stream.fileno())
