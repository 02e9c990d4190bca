"""Write to standard output and standard error, which may be closed, full or a broken pipe.

Training must not fail because nobody reads its messages. The functions here therefore never raise
an error: a line that cannot be written is lost.
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
    """Make the standard streams of this process usable, even if they were closed at its start.

    Closed streams are replaced by the null device. Otherwise the next file to be opened would get
    their file descriptor, and messages would be written into it. Characters that a stream cannot
    encode are written as escape sequences.
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
    """Flush standard output and standard error. A stream that fails is silenced from then on.

    Python flushes the streams again when it exits, and an error then would change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if not write("", stream):
            _silence(stream)


def write(text: str, stream: Any) -> bool:
    """Write text to a stream and flush it. Return whether that succeeded."""
    if stream is None:  # Python found it closed
        return True
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # a broken pipe or a full disk; a closed file
        return False
    return True


def say(text: str) -> None:
    """Print text to standard output. If that fails, all further output is discarded."""
    if not write(f"{text}\n", sys.stdout):
        _silence(sys.stdout)


def complain(text: str) -> None:
    """Print a message as one line, with the prefix "elites: ", to standard error."""
    write(f"elites: {plain(text)}\n", sys.stderr)


def warn(text: str) -> None:
    """Print a warning as one line to standard error."""
    complain(f"warning: {text}")


@contextlib.contextmanager
def errors_as_warnings(what: str, advice: str) -> Iterator[None]:
    """Turn an error inside the `with` block into a warning of one line.

    Used for steps that a complete run can do without, such as drawing figures. `what` names the
    step, and `advice` says what the user can do.
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
    """Make a file descriptor refer to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(null, number)
        os.close(null)


def _silence(stream: Any) -> None:
    """Redirect a stream to the null device."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it has no file
        _open_null(stream.fileno())
