"""Body models of the package."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from elites import files, physics


@functools.cache
def body_model(name: str) -> physics.Model:
    """Return the body model with this name, read from its JSON file in this folder."""
    return physics.load(_path(name))


def model_data(name: str) -> dict[str, Any]:
    """Return the contents of the file of a body model, to build a variant of it."""
    return files.read_json(_path(name), physics.ModelError, follow=True)


def _path(name: str) -> Path:
    return Path(__file__).parent / f"{name}.json"
