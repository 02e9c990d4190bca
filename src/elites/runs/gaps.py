"""Find the iterations that the tables of a run lack.

A table may be older than the checkpoint that the run continues from, for example after it was
restored from a backup. It may also be deleted. Training then continues and appends new rows, and
the rows in between stay missing. They are found because `metrics.csv` has a row for every
iteration, and each checkpoint lists the iterations that `reevaluations.csv` has rows for.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elites.files import read_record
from elites.runs import checkpoint as checkpoints
from elites.runs import logs
from elites.runs.directory import (
    FACTS,
    METRICS,
    REEVALUATIONS,
    SUMMARY,
    RunDirectory,
    RunError,
)
from elites.words import ranges, spans

REEVALUATED = "reevaluated"
"""Key of the list of re-evaluated iterations in a checkpoint's information."""


class Gap(NamedTuple):
    """Iterations without rows in the table at `path`."""

    path: Path
    iterations: list[range]

    @property
    def text(self) -> str:
        """The missing iterations in words, such as "iterations 4 to 7"."""
        return in_words(self.iterations)


def find(run: RunDirectory, through: int | None = None) -> list[Gap]:
    """Return the gaps in metrics.csv and reevaluations.csv of a run, up to iteration `through`.

    If `through` is not given, rows are expected up to the newest checkpoint. Gaps in the rows after
    that checkpoint are returned as well.
    """
    newest, expected_again = _newest(run)  # read first: a running training extends the tables
    seeds = run.config().seeds
    found = []
    for path, expected in ((run / METRICS, None), (run / REEVALUATIONS, expected_again)):
        try:
            have = _iterations(path, seeds)  # sorted
        except RunError:  # damaged: readers of its values report that
            continue
        last = max([newest, *have[-1:]]) if through is None else through
        if expected is None:
            missing = within(have[have <= last], last)
        else:
            missing = ranges(i for i in expected - set(have.tolist()) if i <= last)
        if missing:
            found.append(Gap(path, missing))
    return found


def in_words(iterations: Sequence[range]) -> str:
    """Return iterations as text, such as "iteration 4" or "iterations 4 to 7"."""
    one = sum(map(len, iterations)) == 1
    return f"{'iteration' if one else 'iterations'} {spans(iterations)}"


def within(iterations: np.ndarray, through: int = 0) -> list[range]:
    """Return the iterations that the column `iterations` of a table lacks, as ranges.

    Iterations are expected up to the last one in the table, and at least up to `through`.
    """
    have = np.unique(iterations.astype(int))
    ends = [0, *have.tolist(), max([through, *have[-1:].tolist()]) + 1]
    return [range(a + 1, b) for a, b in itertools.pairwise(ends) if b > a + 1]


def reevaluated(run: RunDirectory, through: int) -> list[int]:
    """Return the sorted iterations up to `through` at which a run was re-evaluated.

    Iterations whose rows in reevaluations.csv are lost are included.
    """
    return sorted(i for i in _newest(run)[1] if i <= through)


def _newest(run: RunDirectory) -> tuple[int, set[int]]:
    """Return the iteration of a run's newest checkpoint, and the iterations re-evaluated by then.

    Returns 0 and an empty set if there is no readable checkpoint.
    """
    for place in reversed(checkpoints.complete(run.checkpoints)):
        with contextlib.suppress(checkpoints.CheckpointError, OSError):
            information = checkpoints.read_manifest(place)["information"]
            iteration, again = int(place.name), set(information.get(REEVALUATED, ()))
            if (run / SUMMARY).exists():  # finished: re-evaluated after the last checkpoint
                with contextlib.suppress(RunError, OSError):
                    again.add(read_record(run / FACTS, {"iterations": int})["iterations"])
            return iteration, again
    return 0, set()


def _iterations(path: Path, seeds: int) -> np.ndarray:
    """Return the sorted iterations [n] that the table at a path has rows of all seeds for."""
    if not os.path.lexists(path):
        return np.zeros(0, int)
    return logs.read_metrics(path, seeds)["iteration"][:, 0].astype(int)
