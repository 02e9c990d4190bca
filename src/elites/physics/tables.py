"""Constant tables of a body model, as the engine uses them.

The tables hold the moving bodies only, in the order of the file. Bodies with `frozen.all` are
scenery (the ground, walls) and have no state. Numbers are float32 columns `[rows, 1]`, which
broadcast against `[rows, n]` for a batch of n robots.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from elites.physics.rotations import Vec3


@dataclasses.dataclass(frozen=True, eq=False)
class Joints:
    """Table of J revolute joints, one row each.

    Anchors and axes are given in the frame of their body.
    """

    names: tuple[str, ...]
    parent: np.ndarray  # [J] index of the parent body
    child: np.ndarray  # [J]
    parent_anchor: Vec3  # [J, 1]
    child_anchor: Vec3
    parent_axis: Vec3  # hinge axis: x axis of the joint frame
    child_axis: Vec3
    parent_reference: Vec3  # z axis of the joint frame; the angle is measured between the two
    child_reference: Vec3
    stiffness: np.ndarray  # [J, 1]
    damping: np.ndarray
    limit_strength: np.ndarray
    angular_damping: np.ndarray
    low: np.ndarray  # [J, 1] radians
    high: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class GroundContacts:
    """Table of K points that can touch the plane z = 0, one row each.

    A point is the centre of a sphere with a radius, or a corner of a box.
    """

    body: np.ndarray  # [K]
    kind: np.ndarray  # [K] kind of collider: 0 capsule or sphere, 1 box
    offset: Vec3  # [K, 1] in the frame of the body
    radius: np.ndarray  # 0 for a corner
    friction: np.ndarray
    elasticity: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class WallContacts:
    """Table of K pairs of a moving and a fixed capsule. Each capsule is a segment with a radius."""

    body: np.ndarray  # [K]
    centre: Vec3  # [K, 1] centre of the moving segment, in the frame of the body
    half: Vec3  # from the centre to the upper end of the segment, in the frame of the body
    radius: np.ndarray
    wall_centre: Vec3  # in the world
    wall_half: Vec3
    wall_radius: np.ndarray
    friction: np.ndarray
    elasticity: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Mesh:
    """Surface of triangles."""

    vertices: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3] rows of the vertices of each triangle


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape to be drawn. `body` is the row of its body, or None for scenery.

    | kind | size |
    |---|---|
    | capsule, cylinder | radius, length from tip to tip along z |
    | sphere | radius |
    | box, ellipsoid | half of the extent in x, y and z |
    | plane, mesh | none |

    Colliders of body models are capsules, spheres, boxes and planes. Other simulators also have
    the rest.
    """

    body: int | None
    kind: str
    position: tuple[float, float, float]
    rotation: tuple[float, float, float, float]
    size: tuple[float, ...]
    mesh: Mesh | None = None  # for the kind "mesh"


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """Body model of a robot with B moving bodies, J joints and A actuators.

    Models are compared by identity, so that compiled code can treat a model as a constant.
    """

    name: str
    bodies: tuple[str, ...]
    dt: float
    substeps: int
    gravity: Vec3
    velocity_damping: float
    angular_damping: float
    baumgarte_erp: float
    inverse_mass: np.ndarray  # [B, 1]
    inverse_inertia: Vec3  # [B, 1] along the axes of the world
    free_position: Vec3  # [B, 1] 0 for a frozen axis, 1 for a free one
    free_rotation: Vec3
    joints: Joints
    actuated: np.ndarray  # [A] index of the joint that each action drives
    strength: np.ndarray  # [A, 1]
    ground: GroundContacts | None
    walls: WallContacts | None
    rest: np.ndarray  # [13, B] state of the initial pose, with zero velocity
    shapes: tuple[Shape, ...]

    @property
    def action_size(self) -> int:
        return len(self.actuated)


def indices(values) -> np.ndarray:
    """Return integers as an int32 array [rows], as in all tables."""
    return np.array(values, np.int32)


def column(values) -> np.ndarray:
    """Return numbers as a float32 array [rows, 1], the shape of a column in the tables."""
    return np.array(values, np.float32).reshape(-1, 1)


def columns(vectors) -> Vec3:
    """Return vectors [rows, 3] as a `Vec3` of float32 arrays [rows, 1], as in all tables."""
    table = np.array(vectors, np.float32).reshape(-1, 3)
    return Vec3(*(table[:, i : i + 1] for i in range(3)))
