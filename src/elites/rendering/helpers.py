"""Helpers: processes that draw parts of a film, one for each further core.

Helpers are started before the film is known, and are ready when its robots have been simulated.
They need NumPy and Pillow alone. A helper ends when its input does, so none outlives this process,
however this process ends.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

_MOST = 3  # helpers; a film of a few seconds gains little from more
_PROGRAM = """
import sys
sys.path[:] = {path!r}
from elites.rendering import helpers
helpers.serve()
"""


class Team:
    """A process and its helpers. Used in a `with` block, at whose end the helpers end."""

    def __init__(self, helpers: int | None = None):
        """Start helpers, by default one for each core but this process's own."""
        count = min(cores() - 1, _MOST) if helpers is None else helpers
        program = _PROGRAM.format(path=[path or os.getcwd() for path in sys.path])
        self._helpers = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process
            )
            for _ in range(count)
        ]

    @property
    def size(self) -> int:
        """Number of processes in the team."""
        return len(self._helpers) + 1

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_) -> None:
        """End the helpers."""
        for helper in self._helpers:
            helper.kill()
            helper.communicate()

    def map(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the results of a function of a module for some jobs, the arguments of its calls.

        There is at most one job for each process. This process does the first one, and those whose
        helper has failed.
        """
        first, *others = jobs
        helpers = self._helpers[: len(others)]
        asked = [_ask(helper, function, job) for helper, job in zip(helpers, others, strict=True)]
        results = [function(*first)]
        for helper, was_asked, job in zip(helpers, asked, others, strict=True):
            done, result = _answer(helper) if was_asked else (False, None)
            results.append(result if done else function(*job))
        return results


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ask(helper: subprocess.Popen[bytes], function: Callable[..., Any], job: tuple) -> bool:
    """Send a job to a helper, and return whether the helper could take it."""
    assert helper.stdin is not None
    with contextlib.suppress(OSError):  # it has ended
        pickle.dump((function, job), helper.stdin)
        helper.stdin.flush()
        return True
    return False


def _answer(helper: subprocess.Popen[bytes]) -> tuple[bool, Any]:
    """Wait for the answer of a helper. Returns whether it has done its job, and the result."""
    assert helper.stdout is not None
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):  # it has ended
        return pickle.load(helper.stdout)
    return False, None


def serve() -> None:
    """Do the jobs of standard input until it ends, and write the results to standard output.

    If a job fails, the process that sent it does it again, and reports the error.
    """
    importlib.import_module("elites.rendering.movie")  # now, while there is no job
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            function, job = pickle.load(sys.stdin.buffer)
            try:
                answer = True, function(*job)
            except Exception:
                answer = False, None
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
