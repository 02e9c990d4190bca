"""Check for optional packages."""

from __future__ import annotations

import importlib.util


def require(*names: str, extra: str, purpose: str) -> None:
    """Raise a ValueError if one of the packages `names` is not installed.

    The message says what the package is needed for (`purpose`), and which extra of elites, for
    example elites[viewer], installs it.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ValueError(f"{purpose} needs the package {name}: pip install 'elites[{extra}]'")
