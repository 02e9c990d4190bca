"""Report on training in Python after every iteration: progress line, loggers and callbacks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from elites import loggers
from elites.loggers import Loggers, Subject
from elites.training.display import Display, can_overwrite
from elites.training.results import Source

Callback = Callable[[int, dict[str, np.ndarray]], object]  # (iteration, metrics by name [seeds])


class Reports:
    """Everything that hears of an iteration. Use it in a `with` block."""

    def __init__(
        self,
        progress: bool | Callback | None,
        callback: Callback | Sequence[Callback],
        log: str | Sequence[str],
        total: int,
    ):
        """Check the arguments of `train`. `total` is the number of iterations."""
        self._callbacks = _callbacks(progress, callback)
        self._names = loggers.checked(log)
        loggers.require(self._names)
        wanted = can_overwrite(sys.stderr) if progress is None and sys.stderr else progress is True
        self._display = Display(total) if wanted else None
        self._loggers: Loggers | None = None

    def compiling(self) -> contextlib.AbstractContextManager[object]:
        """Return a context manager that shows that programs are being compiled."""
        if self._display is None:
            return contextlib.nullcontext()
        return self._display.compiling(report=False)

    @contextlib.contextmanager
    def logging(self, name: str, source: Source, seeds: Sequence[int]) -> Iterator[Loggers]:
        """Return a context manager with the loggers of a run. `name` is that of the run."""
        values = {f"hp.{field}": value for field, value in vars(source.hp).items()}
        settings = {"evaluations": source.evaluations, "seeds": list(seeds), **values}
        with Loggers(self._names, Subject(name, settings, seeds)) as opened:
            self._loggers = opened
            yield opened

    def iteration(self, number: int, metrics: dict[str, np.ndarray]) -> None:
        """Report the metrics of an iteration, as arrays [seeds] by name.

        Each callback gets its own copy of the dictionary.
        """
        if self._display:
            self._display.update(
                number,
                float(metrics["evaluations"][0]),
                float(np.median(metrics["qd_score"])),
                float(np.median(metrics["coverage"])),
            )
        if self._loggers:
            self._loggers.log(number, metrics)
        for function in self._callbacks:
            function(number, dict(metrics))

    def __enter__(self) -> Reports:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display:
            self._display.close()


def _callbacks(
    progress: bool | Callback | None, callback: Callback | Sequence[Callback]
) -> list[Callback]:
    """Return the functions to call after each iteration: `progress`, then those of `callback`.

    `progress` is left out if it is True, False or None. Raises a ValueError for other values that
    cannot be called.
    """
    found = list(callback) if isinstance(callback, Sequence) else [callback]
    if progress is not None and not isinstance(progress, bool):
        if not callable(progress):
            raise ValueError(f"progress must be True, False or a function, got {progress!r}")
        found.insert(0, progress)
    for function in found:
        if not callable(function):
            raise ValueError(f"a callback is a function of (iteration, metrics), got {function!r}")
    return found
