"""Read the colliders of a body."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from elites.files import shown
from elites.physics import rotations
from elites.physics.reading.fields import (
    ModelError,
    check_fields,
    read_list,
    read_nonnegative,
    read_number,
    read_object,
    read_vector,
)

_FIELDS = "position rotation capsule sphere box plane material"
_KINDS = ("capsule", "sphere", "box", "plane")


@dataclasses.dataclass(frozen=True)
class Collider:
    """Shape of a body that can touch something. Position and rotation are relative to the body."""

    kind: str
    position: np.ndarray  # [3]
    rotation: np.ndarray  # [4]
    size: tuple[float, ...]  # as in `Shape`
    end: int  # the only end of a capsule that touches planes, +1 or -1; 0 for both
    friction: float
    elasticity: float

    def half_axis(self) -> np.ndarray:
        """Return the vector [3] from the centre of a capsule to the upper end of its segment.

        It is in the frame of the body, and zero for shapes other than capsules.
        """
        if self.kind != "capsule":
            return np.zeros(3)
        radius, length = self.size
        return rotations.quat_rotate(self.rotation, np.array([0.0, 0.0, length / 2 - radius]))

    def points(self, both_ends: bool = False) -> tuple[list[np.ndarray], float]:
        """Return the points [3] that can touch a plane, in the frame of the body, and their radius.

        They are the corners of a box, with radius 0, or the centres of a sphere or of a capsule's
        ends. `both_ends` includes the end of a capsule that does not touch planes.
        """
        if self.kind == "box":
            corners = [
                self.position + rotations.quat_rotate(self.rotation, np.array(self.size) * sign)
                for sign in np.stack(np.meshgrid(*[[-1, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
            ]
            return corners, 0.0
        if self.kind == "sphere":
            return [self.position], self.size[0]
        ends = [1, -1] if both_ends or not self.end else [self.end]
        return [self.position + sign * self.half_axis() for sign in ends], self.size[0]


def read_colliders(body: Mapping[str, Any], label: str, fixed: bool) -> tuple[Collider, ...]:
    """Return all colliders of a body, given as an entry of a model file.

    Raises a ModelError if a body that is not fixed has a plane.
    """
    parts = read_list(body, "colliders", label, required=False)
    return tuple(
        _read_collider(part, f"{label}, collider {i}", fixed) for i, part in enumerate(parts)
    )


def _read_collider(part: Any, where: str, fixed: bool) -> Collider:
    check_fields(part, _FIELDS, where)
    kinds = [kind for kind in _KINDS if kind in part]
    if len(kinds) != 1:
        raise ModelError(f"{where}: needs exactly one of {', '.join(_KINDS)}")
    kind = kinds[0]
    shape, where_shape = read_object(part, kind, where), f"{where}, {kind}"
    size, end = _read_shape(kind, shape, where_shape)
    if kind == "plane" and not fixed:
        raise ModelError(f"{where_shape}: only a frozen body can be a plane")
    if kind == "plane" and (part.get("position") or part.get("rotation")):
        raise ModelError(f"{where_shape}: the plane is z = 0, it takes no position or rotation")
    material, where_material = read_object(part, "material", where), f"{where}, material"
    check_fields(material, "friction elasticity", where_material)
    return Collider(
        kind,
        np.array(read_vector(part, "position", where)),
        rotations.quat_from_euler(np.array(read_vector(part, "rotation", where))),
        size,
        end,
        read_nonnegative(material, "friction", where_material),
        read_nonnegative(material, "elasticity", where_material),
    )


def _read_shape(kind: str, shape: Mapping[str, Any], where: str) -> tuple[tuple[float, ...], int]:
    """Return the size of a collider's shape, and the end of it that touches planes.

    The size is as in `Shape`. The end is +1 or -1 for a capsule, or 0 if it does not matter.
    """
    if kind == "capsule":
        return _read_capsule(shape, where)
    if kind == "sphere":
        check_fields(shape, "radius", where)
        return (read_number(shape, "radius", where, above=0.0),), 0
    if kind == "box":
        check_fields(shape, "halfsize", where)
        return tuple(read_vector(shape, "halfsize", where, above=0.0)), 0
    check_fields(shape, "", where)
    return (), 0


def _read_capsule(shape: Mapping[str, Any], where: str) -> tuple[tuple[float, ...], int]:
    check_fields(shape, "radius length end", where)
    radius = read_number(shape, "radius", where, above=0.0)
    length = read_number(shape, "length", where, above=0.0)
    if length < 2 * radius:
        raise ModelError(f"{where}: length {length} is less than twice the radius")
    end = shape.get("end", 0)
    if isinstance(end, bool) or end not in (-1, 0, 1):
        raise ModelError(f"{where}: end must be -1, 0 or 1, got {shown(end)}")
    return (radius, length), int(end)
