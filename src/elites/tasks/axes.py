"""Names and units of descriptor axes, for maps and forms. Needs no JAX.

A task may name its axes. Runs save the names with their facts. Axes without a name are called
"descriptor 1", "descriptor 2" and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Axis(NamedTuple):
    """Name and unit of a descriptor axis.

    Both may contain any character except line breaks, including `<` and `$`.
    """

    name: str
    unit: str  # empty if the axis has none

    @property
    def label(self) -> str:
        """Name of the axis with its unit, such as "final x (m)"."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def make_axes(size: int, names: Sequence[str] = (), units: Sequence[str] = ()) -> tuple[Axis, ...]:
    """Return `size` descriptor axes with these names and units.

    Names default to "descriptor 1", "descriptor 2" and so on, units to no unit.
    """
    numbered = ["descriptor"] if size == 1 else [f"descriptor {i + 1}" for i in range(size)]
    pairs = zip(names or numbered, units or [""] * size, strict=True)
    return tuple(Axis(name, unit) for name, unit in pairs)


def axes_of_facts(facts: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the descriptor axes of a run from its facts, the contents of `facts.json`.

    Missing or damaged names and units are replaced by the defaults of `make_axes`.
    """
    size = len(facts["descriptor_low"])
    given = [facts.get(key, ()) for key in ("descriptor_names", "descriptor_units")]
    return make_axes(size, *(texts if _are_texts(texts, size) else () for texts in given))


def check_texts(task: str, field: str, texts: Any, size: int, empty: bool = False) -> None:
    """Raise a ValueError if a field of a task is not a tuple of `size` strings of one line.

    An empty tuple is accepted. `empty` says whether a string may be empty.
    """
    if not isinstance(texts, tuple) or (texts and not _are_texts(texts, size)):
        raise ValueError(
            f"task '{task}': {field} must be a tuple of {size} texts of one line, one for each "
            f"descriptor dimension, got {texts!r}"
        )
    if not empty and not all(text.strip() for text in texts):
        raise ValueError(f"task '{task}': {field} must not have an empty text, got {texts!r}")


def _are_texts(texts: Any, size: int) -> bool:
    return (
        isinstance(texts, list | tuple)
        and len(texts) == size
        and all(isinstance(text, str) and len(text.splitlines()) < 2 for text in texts)
    )
