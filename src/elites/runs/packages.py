"""Check for optional packages."""

from __future__ import annotations

import importlib.util


def require(*names: str, extra: str, purpose: str) -> None:
    """Raise a ValueError if a package is not installed. `extra` is the elites extra that has it."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"{purpose} needs the package {name}: pip install 'elites[{extra}]'")
