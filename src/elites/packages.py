"""Check for optional packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from pathlib import Path


def require(*names: str, purpose: str, extra: str = "") -> None:
    """Raise a ValueError if one of the packages `names` is not installed.

    The message says what the package is needed for (`purpose`), and which extra of elites, for
    example elites[viewer], installs it. Without `extra`, it names the package alone.
    """
    for name in names:
        if not is_installed(name):
            install = f"'elites[{extra}]'" if extra else name
            raise ValueError(f"{purpose} needs the package {name}: pip install {install}")


def is_installed(name: str) -> bool:
    """Return whether a package can be imported. Nothing is imported.

    `name` may be that of a subpackage, such as "mujoco.mjx". It is looked up in the folders of the
    package that contains it.
    """
    package, *inside = name.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not inside:
        return spec is not None
    folders = spec.submodule_search_locations or ()
    return any(Path(folder, *inside, "__init__.py").is_file() for folder in folders)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return texts such as "brax was 0.14.1, is 0.14.2", one for each version that changed.

    Both arguments are versions, keyed by package. Packages that only one of them has are ignored.
    """
    return [
        f"{name} was {before[name]}, is {version}"
        for name, version in now.items()
        if before.get(name, version) != version
    ]


def versions(*distributions: str) -> dict[str, str]:
    """Return the versions of those of these distributions that are installed, keyed by name."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
