"""Stop training before its budget is spent, from a callback or with Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elites.training.results import Run


class StopTraining(Exception):  # noqa: N818
    """Exception that a callback raises to end training after the current iteration.

    `train` then returns the run so far.
    """


class TrainingInterrupted(KeyboardInterrupt):
    """Exception that `train` raises after Ctrl-C.

    `run` is the result of the completed iterations.
    """

    def __init__(self, run: Run, iteration: int, total: int):
        super().__init__(
            f"training stopped after iteration {iteration} of {total}; the attribute 'run' of this "
            "exception holds the result"
        )
        self.run = run


class Interrupts:
    """Context manager that delays Ctrl-C until the current iteration ends.

    `received` says whether Ctrl-C was pressed. A second Ctrl-C raises at once.

    An iteration updates its state in place, so an interrupted one would leave no result. Signal
    handlers that the caller installed stay in place. Ctrl-C is delayed only in the main thread.
    """

    def __init__(self):
        self.received = False

    def __enter__(self) -> Interrupts:
        self._holding = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._holding:
            signal.signal(signal.SIGINT, self._hold)
        return self

    def _hold(self, *_: object) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        # Python may be in the middle of another write to the same stream.
        with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
            sys.stderr.write("\nelites: stopping after this iteration; Ctrl-C again to stop now\n")

    def __exit__(self, *_: object) -> None:
        if self._holding:
            signal.signal(signal.SIGINT, signal.default_int_handler)
