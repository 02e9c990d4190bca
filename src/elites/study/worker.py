"""Worker process that trains one run of a study, or keeps the model of a run.

    python -m elites.study.worker STUDY RUN WORK ORIGINAL PARENT PIPE [DIGEST ...]

WORK is `train` or `keep`. ORIGINAL is the path of the study that the user knows, of which STUDY may
be a copy. PARENT is the id of the process that started the worker. The worker ends when its parent
does, so that killing a study leaves no run locked. Before it ends, the worker writes to the open
file descriptor PIPE what the scheduler should do next and why, see `Ending`. Each DIGEST identifies
a file of the user's own that the study trusts.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Literal, NamedTuple

from elites import references, trust
from elites.names import short_name
from elites.runs import environment, session, signals
from elites.runs.config import Config
from elites.runs.directory import OutOfMemoryError, RunError, TooLargeError
from elites.runs.lock import InUseError
from elites.runs.signals import Interrupted
from elites.study.study import Item, Study, argument
from elites.words import one_line, shortened

Work = Literal["train", "keep"]
"""What a worker does: train a run, or keep the model of a run."""

DONE, FAILED, STOPPED, TOO_LARGE, IN_USE, LOST, TRAINED = 0, 1, 3, 4, 5, 6, 7
"""Exit codes. After TRAINED, another worker has to keep the run's model.

No worker returns LOST: an engine reports it for a machine that is gone.
"""
_LONGEST = 2000
"""Largest number of characters of a reason, so that a report fits into a pipe's buffer."""


class Ending(NamedTuple):
    """How the worker of a run ended: an exit code, and the reason of a failure."""

    code: int  # an exit code of this module
    reason: str = ""  # of a failure, in one line
    reported: bool = True  # whether the worker gave the reason itself


def main(arguments: list[str]) -> int:
    """Do the work that the arguments name, report how it ended, and return the exit code."""
    path, name, work, original, parent, pipe, *digests = arguments
    _end_with_parent(int(parent))
    trust.approve(digests)
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    print(f"elites: a worker starts at {now}", file=sys.stderr, flush=True)
    ending = compute(Study(Path(path)), name, work, Path(original))
    signals.ignore_signals()  # the outcome no longer changes
    if ending.reason:
        print(f"elites: {ending.reason}", file=sys.stderr)
    report = {"code": ending.code, "reason": shortened(ending.reason, _LONGEST)}
    with contextlib.suppress(OSError):  # the scheduler is gone
        os.write(int(pipe), json.dumps(report).encode())
    return ending.code


def compute(study: Study, name: str, work: str, original: Path) -> Ending:
    """Start or continue the run called `name` of a study, or keep its model. Return the outcome.

    `original` is the path of the study that the user knows, of which `study` may be a copy. A model
    is the `work` of a process of its own, because it shows that another process reproduces the
    archive.
    """
    try:
        item = next(item for item in study.items() if item.name == name)
        config = study.config(item).check()
        trust.require(
            item.name, config.task, config.algorithm, remedy="Start the study again to use it"
        )
        if work == "keep":
            from elites.study import keeping  # loads JAX

            keeping.keep(study, item)
            return Ending(DONE)
        environment.started_by(*_command(original, item))
        return _train(study, item, config)
    except (TooLargeError, OutOfMemoryError) as error:
        return Ending(TOO_LARGE, one_line(error))
    except InUseError as error:
        return Ending(IN_USE, one_line(error))
    except Interrupted:
        return Ending(STOPPED)
    except (ValueError, OSError, RunError) as error:
        return Ending(FAILED, one_line(error))
    except (Exception, SystemExit) as error:  # a fault of the task, of the algorithm or of elites
        traceback.print_exc()
        return Ending(FAILED, references.described(error))


def _train(study: Study, item: Item, config: Config) -> Ending:
    """Train a run of a study and return how it ended. Raises an error if training fails."""
    outcome = session.start(study.run(item).path, config, resume=True)
    if outcome.interrupted:
        return Ending(STOPPED)
    return Ending(TRAINED if study.keeps_elites and study.is_trained(item) else DONE)


def _command(study: Path, item: Item) -> list[str]:
    """Return the words of the command line that computes a run of the study at a path."""
    seeds = f"{item.first_seed}-{item.seed_numbers[-1]}"
    names = (short_name(item.task), short_name(item.algorithm))
    return ["elites", "study", argument(study), "--only", *names, seeds]


def read_ending(report: bytes, status: int) -> Ending:
    """Return how a worker ended: its exit code, and the reason if it failed.

    The reason is taken from the `report` that the worker wrote. If that is empty, the reason is
    derived from `status`: the exit code of the process, or minus the number of the signal that
    killed it.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(report)
        return Ending(int(found["code"]), str(found["reason"]))
    if status >= 0:
        return Ending(FAILED, f"ended with exit code {status} and gave no reason", False)
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "a signal"
    return Ending(FAILED, f"killed by {name} (signal {-status})", False)


def _end_with_parent(parent: int) -> None:
    """Start a thread that kills this process when the process with the id `parent` ends.

    The parent passes its id, because it might end before this process could look it up.
    """

    def watch() -> None:
        """Wait until the parent process is gone, then kill this process."""
        while os.getppid() == parent:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
