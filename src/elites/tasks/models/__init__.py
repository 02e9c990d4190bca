"""Body models of the package."""

from __future__ import annotations

import functools
from pathlib import Path

from elites import physics


@functools.cache
def body_model(name: str) -> physics.Model:
    """Return the body model with this name, read from its JSON file in this folder."""
    return physics.load(Path(__file__).parent / f"{name}.json")
