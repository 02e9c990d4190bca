"""Outcome of a training session."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Progress of a run after a session."""

    iteration: int
    total: int
    """Iterations of the whole run."""
    seconds: float
    """Training time over all sessions."""
    interrupted: bool
    already: bool = False
    """Whether the run was finished before, so that nothing was computed."""
