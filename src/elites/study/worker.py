"""Worker process that computes one run: `python -m elites.study.worker STUDY RUN PARENT`.

Its exit code tells the scheduler what to do next. PARENT is the id of the process that started it.
The worker ends when its parent does, so that killing a study leaves no run locked.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from elites.runs import session
from elites.runs.directory import OutOfMemoryError, RunError, TooLargeError
from elites.runs.lock import InUseError
from elites.runs.signals import Interrupted
from elites.study.study import Item, Study

DONE, FAILED, STOPPED, TOO_LARGE, IN_USE, LOST = 0, 1, 3, 4, 5, 6
"""Exit codes. No worker returns LOST: an engine reports it for a machine that is gone."""


def main(arguments: list[str]) -> int:
    """Compute the run that the arguments STUDY RUN PARENT name, and return the exit code."""
    path, name, parent = arguments
    _end_with_parent(int(parent))
    study = Study(Path(path))
    item = next(item for item in study.items() if item.name == name)
    return compute(study, item)


def compute(study: Study, item: Item) -> int:
    """Start or continue one run of a study, and return an exit code of this module.

    Errors are printed to stderr.
    """
    try:
        outcome = session.start(study.run(item).path, study.config(item), resume=True)
    except (TooLargeError, OutOfMemoryError) as error:
        print(f"elites: {error}", file=sys.stderr)
        return TOO_LARGE
    except InUseError as error:
        print(f"elites: {error}", file=sys.stderr)
        return IN_USE
    except Interrupted:
        return STOPPED
    except (ValueError, OSError, RunError) as error:
        print(f"elites: {error}", file=sys.stderr)
        return FAILED
    return STOPPED if outcome.interrupted else DONE


def _end_with_parent(parent: int) -> None:
    """Start a thread that kills this process when the process with the id `parent` ends.

    The parent passes its own process id, because it may end before this process can ask for it.
    """

    def watch() -> None:
        """Wait until the parent process is gone, and kill this process."""
        while os.getppid() == parent:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
