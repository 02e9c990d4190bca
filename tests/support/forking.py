"""Start commands in processes that have loaded their modules already.

Loading JAX takes a third of the time until a small run has saved. Where a test starts command after
command, and it does not matter how a process began, one process loads the modules and forks once
for each command. It computes nothing itself: JAX has no threads yet that a fork would lose.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from program import environment

_SCRIPT = """
import gc, json, os, sys
import jax
from jax._src import xla_bridge
from elites.cli import main
from elites.runs import trainer
assert not xla_bridge.backends_are_initialized()
gc.freeze()
for line in sys.stdin:
    errors, *arguments = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.argv = ["elites", *arguments]
        os._exit(main())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forked:
    """A process that runs a command. Only one at a time is started by a parent."""

    def __init__(self, parent: subprocess.Popen[str], errors: Path, arguments: list[str]):
        assert parent.stdin is not None
        assert parent.stdout is not None
        self._errors, self._answers = errors, parent.stdout
        parent.stdin.write(json.dumps([str(errors), *arguments]) + "\n")
        parent.stdin.flush()
        self.pid = int(self._answers.readline())

    def check(self) -> None:
        """Fail with what the process wrote to stderr if it has ended."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            raise AssertionError(self._errors.read_text()) from None

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        os.kill(self.pid, signal.SIGKILL)
        assert int(self._answers.readline()) == -signal.SIGKILL


@contextlib.contextmanager
def forking(errors: Path) -> Iterator[Callable[..., Forked]]:
    """Yield a function that starts a command, whose stderr is written to the file `errors`."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        env=environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    started: list[Forked] = []

    def start(*arguments: object) -> Forked:
        started.append(Forked(parent, errors, [str(each) for each in arguments]))
        return started[-1]

    with parent:  # closes stdin, at whose end the process ends
        try:
            yield start
        finally:  # a test that failed has left one
            for process in started[-1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
