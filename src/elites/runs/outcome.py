"""How a session of training ended."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Where a run stands after a session."""

    iteration: int
    total: int
    """Iterations of the whole run."""
    seconds: float
    """Training time over all sessions."""
    interrupted: bool
    already: bool = False
    """The run was finished before, and nothing was done."""
