"""The process that computes one run of a study: `python -m elites.study.worker STUDY RUN PARENT`.

Its exit code tells the scheduler what to do next. It ends with the process that started it, so that
a study that is killed leaves nobody behind who holds a run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from elites.runs import session
from elites.runs.directory import InUseError, OutOfMemoryError, RunError, TooLargeError
from elites.study.study import Item, Study

DONE, FAILED, STOPPED, TOO_LARGE, IN_USE, LOST = 0, 1, 3, 4, 5, 6


def main(arguments: list[str]) -> int:
    path, name, parent = arguments
    _end_with_parent(int(parent))
    study = Study(Path(path))
    item = next(item for item in study.items() if item.name == name)
    return compute(study, item)


def compute(study: Study, item: Item) -> int:
    try:
        outcome = session.start(study.run(item).path, study.config(item), go_on=True)
    except (TooLargeError, OutOfMemoryError) as error:
        print(f"elites: {error}", file=sys.stderr)
        return TOO_LARGE
    except InUseError as error:
        print(f"elites: {error}", file=sys.stderr)
        return IN_USE
    except (ValueError, OSError, RunError) as error:
        print(f"elites: {error}", file=sys.stderr)
        return FAILED
    return STOPPED if outcome.interrupted else DONE


def _end_with_parent(parent: int) -> None:
    """The parent tells who it is: it may be gone before this process is able to ask."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
