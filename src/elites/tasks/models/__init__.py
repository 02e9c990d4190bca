"""Body models of the package."""

from __future__ import annotations

import functools
from pathlib import Path

from elites import physics


@functools.cache
def body_model(name: str) -> physics.Model:
    """Load a body model by the name of its file."""
    return physics.load(Path(__file__).parent / f"{name}.json")
