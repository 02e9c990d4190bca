"""Body models: from a JSON file to the constant tables the engine computes with.

A model file lists `bodies` (mass, inertia, frozen axes, colliders), `joints` (revolute, between a
parent and a child body), `actuators` (a torque on a joint), the pairs that collide
(`collide_include`) and the constants of the integrator. Angles are degrees, an absent number is 0.
`docs/body-models.md` describes every field.

Bodies with `frozen.all` do not move: they are scenery (the ground, walls) and have no state. The
tables below hold the moving bodies alone, in the file's order. Every table entry is a float32
column `[rows, 1]` that broadcasts against `[rows, lanes]`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elites.physics import rotations
from elites.physics.rotations import Vec3


class ModelError(ValueError):
    """A body model that cannot be simulated; the message names the entry and the field."""


@dataclasses.dataclass(frozen=True, eq=False)
class Joints:
    """Revolute joints, one row each. Anchors and axes are constants in the frame of their body."""

    names: tuple[str, ...]
    parent: np.ndarray  # [J] index of the parent body
    child: np.ndarray  # [J]
    parent_anchor: Vec3  # [J, 1]
    child_anchor: Vec3
    parent_axis: Vec3  # the hinge: the joint frame's x axis
    child_axis: Vec3
    parent_reference: Vec3  # the joint frame's z axis; the angle is measured between the two
    child_reference: Vec3
    stiffness: np.ndarray  # [J, 1]
    damping: np.ndarray
    limit_strength: np.ndarray
    angular_damping: np.ndarray
    low: np.ndarray  # [J, 1] radians
    high: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class GroundContacts:
    """Points that may touch the plane z = 0: sphere centres with a radius, or corners without."""

    body: np.ndarray  # [K]
    kind: np.ndarray  # [K] of collider: 0 capsule or sphere, 1 box
    offset: Vec3  # [K, 1] in the body's frame
    radius: np.ndarray
    friction: np.ndarray
    elasticity: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class WallContacts:
    """Pairs of a moving capsule and a frozen one, each a segment with a radius."""

    body: np.ndarray  # [K]
    centre: Vec3  # [K, 1] of the moving segment, in the body's frame
    half: Vec3  # from the centre to the segment's upper end, in the body's frame
    radius: np.ndarray
    wall_centre: Vec3  # in the world
    wall_half: Vec3
    wall_radius: np.ndarray
    friction: np.ndarray
    elasticity: np.ndarray


@dataclasses.dataclass(frozen=True)
class Shape:
    """One collider as a drawing needs it. `body` is None for scenery."""

    body: int | None
    kind: str  # "capsule", "sphere", "box" or "plane"
    position: tuple[float, float, float]
    rotation: tuple[float, float, float, float]
    size: tuple[float, ...]  # (radius, length), (radius,), (half x, half y, half z) or ()


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    name: str
    bodies: tuple[str, ...]
    dt: float
    substeps: int
    gravity: Vec3
    velocity_damping: float
    angular_damping: float
    baumgarte_erp: float
    inverse_mass: np.ndarray  # [B, 1]
    inverse_inertia: Vec3  # [B, 1], along the world's axes
    free_position: Vec3  # [B, 1], 0 where an axis is frozen, else 1
    free_rotation: Vec3
    joints: Joints
    actuated: np.ndarray  # [A] index of the joint each action drives
    strength: np.ndarray  # [A, 1]
    ground: GroundContacts | None
    walls: WallContacts | None
    rest: np.ndarray  # [13, B] the default pose, at rest
    shapes: tuple[Shape, ...]

    @property
    def action_size(self) -> int:
        return len(self.actuated)


# ------------------------------------------------------------------------------ reading the file


def load(path: Path) -> Model:
    """Read and check a model file."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from None
    return build(data, Path(path).stem)


_HUGE = 1e30  # beyond this, and below its inverse, single precision runs out of range
_BODY_FIELDS = "name colliders inertia mass frozen"
_COLLIDER_FIELDS = "position rotation capsule sphere box plane material"
_JOINT_FIELDS = (
    "name parent child stiffness parent_offset child_offset rotation reference_rotation "
    "angular_damping angle_limit limit_strength spring_damping"
)
_MODEL_FIELDS = (
    "bodies joints actuators friction gravity velocity_damping angular_damping baumgarte_erp "
    "collide_include dt substeps frozen defaults dynamics_mode"
)


def build(data: Mapping[str, Any], name: str = "model") -> Model:
    """Check a model given as a dictionary and turn it into tables."""
    _known(data, _MODEL_FIELDS, name)
    bodies = _entries(data, "bodies", name)
    if not bodies:
        raise ModelError(f"{name}: bodies is empty")
    labels = [_label(b, i, "body", name) for i, b in enumerate(bodies)]
    _unique(bodies, "body", name)
    for body, label in zip(bodies, labels, strict=True):
        _known(body, _BODY_FIELDS, label)
    fixed = {b["name"] for b, label in zip(bodies, labels, strict=True) if _frozen_all(b, label)}
    moving = [b for b in bodies if b["name"] not in fixed]
    if not moving:
        raise ModelError(f"{name}: every body is frozen, nothing can move")
    index = {b["name"]: i for i, b in enumerate(moving)}
    label_of = {b["name"]: label for b, label in zip(bodies, labels, strict=True)}
    colliders = {b["name"]: _colliders(b, label_of[b["name"]]) for b in bodies}

    mass = [_number(b, "mass", label_of[b["name"]], above=0.0) for b in moving]
    inertia = [_vector(b, "inertia", label_of[b["name"]], above=0.0) for b in moving]
    joints, joint_entries = _joints(data, index, name)
    joint_index = {joint: i for i, joint in enumerate(joints.names)}
    actuated, strength = [], []
    for i, actuator in enumerate(_entries(data, "actuators", name)):
        label = _label(actuator, i, "actuator", name)
        _known(actuator, "name joint strength torque", label)
        actuated.append(_reference(actuator, "joint", joint_index, label, "joint"))
        strength.append(_number(actuator, "strength", label))
    if len(set(actuated)) != len(actuated):
        raise ModelError(f"{name}: two actuators drive the same joint")

    ground, walls = _contacts(data, index, fixed, colliders, name)
    dt = _number(data, "dt", name, above=0.0)
    substeps = data.get("substeps")
    if not isinstance(substeps, int) or isinstance(substeps, bool) or substeps < 1:
        raise ModelError(f"{name}: substeps must be a whole number of at least 1, got {substeps!r}")
    return Model(
        name=name,
        bodies=tuple(index),
        dt=dt,
        substeps=substeps,
        gravity=Vec3(*_vector(data, "gravity", name)),
        velocity_damping=_number(data, "velocity_damping", name, default=0.0),
        angular_damping=_number(data, "angular_damping", name, default=0.0),
        baumgarte_erp=_number(data, "baumgarte_erp", name, default=0.0),
        inverse_mass=_column([1.0 / m for m in mass]),
        inverse_inertia=_columns([[1.0 / v for v in axes] for axes in inertia]),
        free_position=_free_axes(moving, "position", label_of),
        free_rotation=_free_axes(moving, "rotation", label_of),
        joints=joints,
        actuated=np.array(actuated, np.int32),
        strength=_column(strength),
        ground=ground,
        walls=walls,
        rest=_rest_pose(data, index, joints, joint_entries, colliders, name),
        shapes=tuple(
            Shape(index.get(body), c.kind, tuple(c.position), tuple(c.rotation), c.size)
            for body, parts in colliders.items()
            for c in parts
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Collider:
    kind: str
    position: np.ndarray  # [3]
    rotation: np.ndarray  # [4]
    size: tuple[float, ...]
    end: int  # a capsule with one touching end: +1 or -1; else 0
    friction: float
    elasticity: float

    def axis(self) -> np.ndarray:
        """From the centre to the upper end of a capsule's segment; zero for a sphere."""
        if self.kind != "capsule":
            return np.zeros(3)
        radius, length = self.size
        return rotations.quat_rotate(self.rotation, np.array([0.0, 0.0, length / 2 - radius]))

    def points(self, every_end: bool = False) -> tuple[list[np.ndarray], float]:
        """The points that may touch a plane, in the body's frame, and their radius."""
        if self.kind == "box":
            corners = [
                self.position + rotations.quat_rotate(self.rotation, np.array(self.size) * sign)
                for sign in np.stack(np.meshgrid(*[[-1, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
            ]
            return corners, 0.0
        if self.kind == "sphere":
            return [self.position], self.size[0]
        ends = [1, -1] if every_end or not self.end else [self.end]
        return [self.position + sign * self.axis() for sign in ends], self.size[0]


def _colliders(body: Mapping[str, Any], label: str) -> list[_Collider]:
    parts = []
    for i, part in enumerate(_entries(body, "colliders", label, required=False)):
        where = f"{label}, collider {i}"
        _known(part, _COLLIDER_FIELDS, where)
        kinds = [k for k in ("capsule", "sphere", "box", "plane") if k in part]
        if len(kinds) != 1:
            raise ModelError(f"{where}: needs exactly one of capsule, sphere, box, plane")
        kind = kinds[0]
        shape = _mapping(part, kind, where)
        where_shape = f"{where}, {kind}"
        end = 0
        if kind == "capsule":
            _known(shape, "radius length end", where_shape)
            radius = _number(shape, "radius", where_shape, above=0.0)
            length = _number(shape, "length", where_shape, above=0.0)
            if length < 2 * radius:
                raise ModelError(f"{where_shape}: length {length} is less than twice the radius")
            end = shape.get("end", 0)
            if isinstance(end, bool) or end not in (-1, 0, 1):
                raise ModelError(f"{where_shape}: end must be -1, 0 or 1, got {end!r}")
            size: tuple[float, ...] = (radius, length)
        elif kind == "sphere":
            _known(shape, "radius", where_shape)
            size = (_number(shape, "radius", where_shape, above=0.0),)
        elif kind == "box":
            _known(shape, "halfsize", where_shape)
            size = tuple(_vector(shape, "halfsize", where_shape, above=0.0))
        else:
            _known(shape, "", where_shape)
            size = ()
            if not _frozen_all(body, label):
                raise ModelError(f"{where_shape}: only a frozen body can be a plane")
            if part.get("position") or part.get("rotation"):
                raise ModelError(
                    f"{where_shape}: the plane is z = 0, it takes no position or rotation"
                )
        material = _mapping(part, "material", where)
        _known(material, "friction elasticity", f"{where}, material")
        parts.append(
            _Collider(
                kind,
                np.array(_vector(part, "position", where)),
                rotations.quat_from_euler(np.array(_vector(part, "rotation", where))),
                size,
                int(end),
                _share(material, "friction", f"{where}, material"),
                _share(material, "elasticity", f"{where}, material"),
            )
        )
    return parts


def _joints(data: Mapping[str, Any], index: Mapping[str, int], name: str):
    entries = _entries(data, "joints", name, required=False)
    _unique(entries, "joint", name)
    rows: dict[str, list[Any]] = {f.name: [] for f in dataclasses.fields(Joints)}
    for i, entry in enumerate(entries):
        label = _label(entry, i, "joint", name)
        _known(entry, _JOINT_FIELDS, label)
        frame = rotations.quat_from_euler(np.array(_vector(entry, "rotation", label)))
        reference = rotations.quat_from_euler(np.array(_vector(entry, "reference_rotation", label)))
        axis, zenith = (rotations.quat_rotate(frame, np.array(v)) for v in ([1, 0, 0], [0, 0, 1]))
        stiffness = _number(entry, "stiffness", label, above=0.0)
        limits = _entries(entry, "angle_limit", label)
        if len(limits) != 1:
            raise ModelError(f"{label}: angle_limit must have one entry, got {len(limits)}")
        where = f"{label}, angle_limit"
        _known(limits[0], "min max", where)
        low, high = (_number(limits[0], side, where, default=0.0) for side in ("min", "max"))
        if low > high:
            raise ModelError(f"{where}: min {low} is above max {high}")
        row = {
            "names": entry["name"],
            "parent": _reference(entry, "parent", index, label, "moving body"),
            "child": _reference(entry, "child", index, label, "moving body"),
            "parent_anchor": _vector(entry, "parent_offset", label),
            "child_anchor": _vector(entry, "child_offset", label),
            "parent_axis": rotations.quat_rotate(reference, axis),
            "child_axis": axis,
            "parent_reference": rotations.quat_rotate(reference, zenith),
            "child_reference": zenith,
            "stiffness": stiffness,
            "damping": _number(entry, "spring_damping", label, default=0.5 * math.sqrt(stiffness)),
            "limit_strength": _number(entry, "limit_strength", label, default=stiffness),
            "angular_damping": _number(entry, "angular_damping", label, default=0.0),
            "low": math.radians(low),
            "high": math.radians(high),
        }
        for field, value in row.items():
            rows[field].append(value)
    for i, entry in enumerate(entries):
        if rows["child"].count(rows["child"][i]) > 1:
            raise ModelError(
                f"{_label(entry, i, 'joint', name)}: body '{entry['child']}' already hangs on "
                "another joint; the bodies must form a tree"
            )
    tables: dict[str, Any] = {"names": tuple(rows.pop("names"))}
    for field, values in rows.items():
        if field in ("parent", "child"):
            tables[field] = np.array(values, np.int32)
        elif field.endswith(("anchor", "axis", "reference")):
            tables[field] = _columns(values)
        else:
            tables[field] = _column(values)
    return Joints(**tables), entries


def _contacts(data, index, fixed, colliders, name):
    """Tables of every point or pair that can touch, from `collide_include`."""
    ground: list[tuple] = []
    walls: list[tuple] = []
    for i, pair in enumerate(_entries(data, "collide_include", name, required=False)):
        where = f"{name}: collide_include {i}"
        _known(pair, "first second", where)
        names = [pair.get("first"), pair.get("second")]
        for body in names:
            if not isinstance(body, str) or body not in colliders:
                raise ModelError(f"{where}: no body named {body!r}; known: {', '.join(colliders)}")
        robot, scenery = sorted(names, key=lambda body: body in fixed)
        if robot in fixed:
            continue
        if scenery not in fixed:
            raise ModelError(
                f"{where}: '{robot}' and '{scenery}' both move; only contacts with frozen bodies "
                "are supported"
            )
        for a in colliders[robot]:
            for b in colliders[scenery]:
                material = (a.friction * b.friction, a.elasticity * b.elasticity)
                if b.kind == "plane":
                    points, radius = a.points()
                    kind = int(a.kind == "box")
                    ground += [(index[robot], kind, p, radius, *material) for p in points]
                elif a.kind != "box" and b.kind != "box":
                    own = (index[robot], a.position, a.axis(), a.size[0])
                    walls.append((*own, b.position, b.axis(), b.size[0], *material))
                else:
                    raise ModelError(
                        f"{where}: a {a.kind} of '{robot}' against a {b.kind} of '{scenery}' is "
                        "not supported; boxes collide with planes only"
                    )
    return _ground_table(ground), _wall_table(walls)


def _ground_table(points: list[tuple]) -> GroundContacts | None:
    if not points:
        return None
    body, kind, offset, *rest = zip(*points, strict=True)
    return GroundContacts(_rows(body), _rows(kind), _columns(offset), *map(_column, rest))


def _wall_table(pairs: list[tuple]) -> WallContacts | None:
    if not pairs:
        return None
    body, centre, half, radius, wall_centre, wall_half, *rest = zip(*pairs, strict=True)
    return WallContacts(
        _rows(body), _columns(centre), _columns(half), _column(radius),
        _columns(wall_centre), _columns(wall_half), *map(_column, rest),
    )  # fmt: skip


def _rest_pose(data, index, joints: Joints, entries, colliders, name) -> np.ndarray:
    """Place the bodies root to leaf at their default angles, then set each tree on the ground."""
    angles = (joints.low + joints.high)[:, 0].astype(np.float64) / 2
    placed: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    joint_index = {joint: i for i, joint in enumerate(joints.names)}
    for defaults in _entries(data, "defaults", name, required=False):
        where = f"{name}: defaults"
        _known(defaults, "angles qps", where)
        for entry in _entries(defaults, "angles", where, required=False):
            _known(entry, "name angle", f"{where}, angles")
            joint = _reference(entry, "name", joint_index, where, "joint")
            angles[joint] = math.radians(_vector(entry, "angle", where)[0])
        for entry in _entries(defaults, "qps", where, required=False):
            _known(entry, "name pos rot", f"{where}, qps")
            _reference(entry, "name", index, where, "moving body")
            rotation = rotations.quat_from_euler(np.array(_vector(entry, "rot", where)))
            placed[entry["name"]] = (np.array(_vector(entry, "pos", where)), rotation)

    names = list(index)
    hinge = {int(child): j for j, child in enumerate(joints.child)}
    position, rotation = np.zeros((len(names), 3)), np.zeros((len(names), 4))
    root = np.full(len(names), -1)

    def place(i: int, pending: tuple[int, ...]) -> None:
        if root[i] >= 0:
            return
        if i in pending:
            raise ModelError(f"{name}: joint '{joints.names[hinge[i]]}' closes a loop of bodies")
        if i not in hinge or names[i] in placed:
            root[i] = i
            position[i], rotation[i] = placed.get(names[i], (np.zeros(3), np.array([1.0, 0, 0, 0])))
            return
        j = hinge[i]
        parent = int(joints.parent[j])
        place(parent, (*pending, i))
        root[i] = root[parent]
        axis = np.array(Vec3(*(a[j, 0] for a in joints.parent_axis)), np.float64)
        turn = np.concatenate([[math.cos(angles[j] / 2)], math.sin(angles[j] / 2) * axis])
        reference = rotations.quat_from_euler(
            np.array(_vector(entries[j], "reference_rotation", name))
        )
        rotation[i] = rotations.quat_product(
            rotation[parent], rotations.quat_product(turn, reference)
        )
        anchor, own = (
            np.array([a[j, 0] for a in v]) for v in (joints.parent_anchor, joints.child_anchor)
        )
        position[i] = (
            position[parent]
            + rotations.quat_rotate(rotation[parent], anchor)
            - rotations.quat_rotate(rotation[i], own)
        )

    for i in range(len(names)):
        place(i, ())
    for tree in set(root.tolist()):
        if names[tree] in placed:
            continue
        members = np.flatnonzero(root == tree)
        lowest = min(
            (
                position[i, 2] + rotations.quat_rotate(rotation[i], point)[2] - radius
                for i in members
                for collider in colliders[names[i]]
                for points, radius in [collider.points(every_end=True)]
                for point in points
            ),
            default=0.0,
        )
        position[members, 2] -= lowest
    still = np.zeros((6, len(names)))
    return np.concatenate([position.T, rotation.T, still]).astype(np.float32)


# --------------------------------------------------------------------------------- small readers


def _label(entry: Any, i: int, kind: str, where: str) -> str:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ModelError(f"{where}: {kind} {i}: name must be a string")
    return f"{where}: {kind} '{entry['name']}'"


def _known(node: Any, fields: str, where: str) -> None:
    if not isinstance(node, Mapping):
        raise ModelError(f"{where}: expected an object with named fields, got {node!r}")
    for field in node:
        if field not in fields.split():
            raise ModelError(f"{where}: unknown field '{field}'; known: {fields or 'none'}")


def _entries(node: Mapping[str, Any], field: str, where: str, required: bool = True) -> list[Any]:
    if field not in node and not required:
        return []
    value = node.get(field)
    if not isinstance(value, list):
        raise ModelError(f"{where}: {field} must be a list, got {value!r}")
    return value


def _mapping(node: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    value = node.get(field, {})
    if not isinstance(value, Mapping):
        raise ModelError(f"{where}: {field} must be an object, got {value!r}")
    return value


def _number(node, field: str, where: str, default: float | None = None, above: float | None = None):
    value = node.get(field, default)
    # Compared, not converted: a whole number of 400 digits is no float at all.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _HUGE:
        raise ModelError(f"{where}: {field} must be a number below {_HUGE:g}, got {value!r}")
    if above is not None and value <= above:
        raise ModelError(f"{where}: {field} must be greater than {above:g}, got {value!r}")
    if value != 0 and abs(value) < 1 / _HUGE:
        raise ModelError(f"{where}: {field} is too small for single precision, got {value!r}")
    return float(value)


def _share(node, field: str, where: str) -> float:
    value = _number(node, field, where, default=0.0)
    if value < 0:
        raise ModelError(f"{where}: {field} must not be negative, got {value!r}")
    return value


def _vector(node, field: str, where: str, above: float | None = None) -> list[float]:
    value = _mapping(node, field, where)
    _known(value, "x y z", f"{where}, {field}")
    return [_number(value, axis, f"{where}, {field}", 0.0, above) for axis in "xyz"]


def _reference(node, field: str, index: Mapping[str, int], where: str, kind: str) -> int:
    value = node.get(field) if isinstance(node, Mapping) else None
    if not isinstance(value, str) or value not in index:
        raise ModelError(f"{where}: {field}: no {kind} named {value!r}; known: {', '.join(index)}")
    return index[value]


def _unique(entries: list[Any], kind: str, where: str) -> None:
    names = [_label(entry, i, kind, where) for i, entry in enumerate(entries)]
    for label in names:
        if names.count(label) > 1:
            raise ModelError(f"{label}: the name is used twice")


def _frozen_all(body: Mapping[str, Any], label: str) -> bool:
    frozen = _mapping(body, "frozen", label)
    _known(frozen, "position rotation all", f"{label}, frozen")
    everything = frozen.get("all", False)
    if not isinstance(everything, bool):
        raise ModelError(f"{label}, frozen: all must be true or false, got {everything!r}")
    return everything


def _free_axes(moving, which: str, label_of: Mapping[str, str]) -> Vec3:
    rows = []
    for body in moving:
        label = f"{label_of[body['name']]}, frozen"
        frozen = _mapping(body, "frozen", label_of[body["name"]])
        rows.append([0.0 if value else 1.0 for value in _vector(frozen, which, label)])
    return _columns(rows)


def _rows(values) -> np.ndarray:
    return np.array(values, np.int32)


def _column(values) -> np.ndarray:
    return np.array(values, np.float32).reshape(-1, 1)


def _columns(vectors) -> Vec3:
    table = np.array(vectors, np.float32).reshape(-1, 3)
    return Vec3(*(table[:, i : i + 1] for i in range(3)))
