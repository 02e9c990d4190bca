"""Outcome of a training session."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Progress of a run after a training session, and how the session ended."""

    iteration: int
    total: int
    """Number of iterations that the whole run has."""
    seconds: float
    """Training time over all sessions, in seconds."""
    interrupted: bool
    was_finished: bool = False
    """Whether the run was already finished before the session, so that nothing was computed."""
