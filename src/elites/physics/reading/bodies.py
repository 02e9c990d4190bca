"""Read the bodies of a model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from elites.files import shown
from elites.physics.reading.colliders import Collider, read_colliders
from elites.physics.reading.fields import (
    ModelError,
    check_fields,
    read_list,
    read_number,
    read_object,
    read_vector,
    unique_labels,
)


@dataclasses.dataclass(frozen=True)
class Body:
    """Body of a model file. A fixed body is scenery: it does not move and has no state."""

    name: str
    fixed: bool
    colliders: tuple[Collider, ...]
    mass: float = math.inf
    inertia: tuple[float, ...] = (math.inf,) * 3
    free_position: tuple[float, ...] = (0.0,) * 3  # 0 for a frozen axis, 1 for a free one
    free_rotation: tuple[float, ...] = (0.0,) * 3


def read_bodies(data: Mapping[str, Any], name: str) -> list[Body]:
    """Return all bodies of a model file, given as a dictionary.

    Raises a ModelError if there are none or none can move. `name` names the model in messages.
    """
    entries = read_list(data, "bodies", name)
    if not entries:
        raise ModelError(f"{name}: bodies is empty")
    labels = unique_labels(entries, "body", name)
    bodies = [_read_body(entry, label) for entry, label in zip(entries, labels, strict=True)]
    if all(body.fixed for body in bodies):
        raise ModelError(f"{name}: every body is frozen, nothing can move")
    return bodies


def _read_body(entry: Mapping[str, Any], label: str) -> Body:
    check_fields(entry, "name colliders inertia mass frozen", label)
    frozen, where = read_object(entry, "frozen", label), f"{label}, frozen"
    check_fields(frozen, "position rotation all", where)
    fixed = frozen.get("all", False)
    if not isinstance(fixed, bool):
        raise ModelError(f"{where}: all must be true or false, got {shown(fixed)}")
    colliders = read_colliders(entry, label, fixed)
    if fixed:
        return Body(entry["name"], fixed, colliders)
    return Body(
        entry["name"],
        fixed,
        colliders,
        mass=read_number(entry, "mass", label, above=0.0),
        inertia=tuple(read_vector(entry, "inertia", label, above=0.0)),
        free_position=_free_axes(frozen, "position", where),
        free_rotation=_free_axes(frozen, "rotation", where),
    )


def _free_axes(frozen: Mapping[str, Any], field: str, where: str) -> tuple[float, ...]:
    return tuple(0.0 if value else 1.0 for value in read_vector(frozen, field, where))
