"""Compute the initial pose of a model.

The bodies are placed from the root of each tree outwards, with every joint at its default angle.
Each tree is then moved up or down until its lowest collider touches z = 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elites.physics import rotations
from elites.physics.reading.bodies import Body
from elites.physics.reading.fields import (
    ModelError,
    check_fields,
    read_list,
    read_reference,
    read_vector,
)
from elites.physics.reading.joints import Joint
from elites.physics.rotations import Vec3
from elites.physics.tables import Joints

_Pose = tuple[np.ndarray, np.ndarray]  # position [3] and rotation [4]


@dataclasses.dataclass
class _Poses:
    """Poses of the B bodies of a model, filled in one by one."""

    position: np.ndarray  # [B, 3]
    rotation: np.ndarray  # [B, 4]
    root: np.ndarray  # [B] root of the tree that a body belongs to; -1 before it is placed


def initial_pose(
    data: Mapping[str, Any], moving: Sequence[Body], joints: Sequence[Joint], table: Joints, name
) -> np.ndarray:
    """Return the state [13, B] of B moving bodies in the initial pose, with zero velocity."""
    angles, placed = _read_defaults(data, moving, table, name)
    poses = _place_bodies(moving, joints, table, angles, placed, name)
    for tree in set(poses.root.tolist()):
        if moving[tree].name not in placed:
            _set_on_ground(moving, poses, np.flatnonzero(poses.root == tree))
    still = np.zeros((6, len(moving)))
    return np.concatenate([poses.position.T, poses.rotation.T, still]).astype(np.float32)


def _read_defaults(
    data: Mapping[str, Any], moving: Sequence[Body], table: Joints, name: str
) -> tuple[np.ndarray, dict[str, _Pose]]:
    """Return the initial angle [J] of each joint in radians, and the poses that the model gives.

    The poses are keyed by the body's name. A joint without a given angle is at the middle of its
    limits.
    """
    angles = (table.low + table.high)[:, 0].astype(np.float64) / 2
    placed: dict[str, _Pose] = {}
    bodies = {body.name: i for i, body in enumerate(moving)}
    joints = {joint: i for i, joint in enumerate(table.names)}
    where = f"{name}: defaults"
    for defaults in read_list(data, "defaults", name, required=False):
        check_fields(defaults, "angles qps", where)
        for entry in read_list(defaults, "angles", where, required=False):
            check_fields(entry, "name angle", f"{where}, angles")
            joint = read_reference(entry, "name", joints, where, "joint")
            angles[joint] = math.radians(read_vector(entry, "angle", where)[0])
        for entry in read_list(defaults, "qps", where, required=False):
            check_fields(entry, "name pos rot", f"{where}, qps")
            read_reference(entry, "name", bodies, where, "moving body")
            rotation = rotations.quat_from_euler(np.array(read_vector(entry, "rot", where)))
            placed[entry["name"]] = (np.array(read_vector(entry, "pos", where)), rotation)
    return angles, placed


def _place_bodies(
    moving: Sequence[Body],
    joints: Sequence[Joint],
    table: Joints,
    angles: np.ndarray,
    placed: Mapping[str, _Pose],
    name: str,
) -> _Poses:
    """Return the poses of all moving bodies, with the joints at `angles` [J].

    `placed` holds the given poses by body name. Other bodies are placed relative to their parent,
    or at the origin if they have none.
    """
    count = len(moving)
    poses = _Poses(np.zeros((count, 3)), np.zeros((count, 4)), np.full(count, -1))
    joint_of = {joint.child: j for j, joint in enumerate(joints)}
    origin = (np.zeros(3), np.array([1.0, 0, 0, 0]))

    def place(i: int, waiting: tuple[int, ...]) -> None:
        if poses.root[i] >= 0:
            return
        if i in waiting:
            raise ModelError(f"{name}: joint '{joints[joint_of[i]].name}' closes a loop of bodies")
        if i not in joint_of or moving[i].name in placed:
            poses.root[i] = i
            poses.position[i], poses.rotation[i] = placed.get(moving[i].name, origin)
            return
        j = joint_of[i]
        parent = joints[j].parent
        place(parent, (*waiting, i))
        poses.root[i] = poses.root[parent]
        poses.position[i], poses.rotation[i] = _child_pose(
            (poses.position[parent], poses.rotation[parent]), joints[j], table, j, angles[j]
        )

    for i in range(count):
        place(i, ())
    return poses


def _child_pose(parent: _Pose, joint: Joint, table: Joints, j: int, angle: float) -> _Pose:
    """Return the pose of a joint's child body when the joint is at `angle`, in radians.

    `parent` is the pose of the parent body, and `j` the joint's row in the table.
    """
    position, rotation = parent
    axis = _row(table.parent_axis, j).astype(np.float64)
    turn = np.concatenate([[math.cos(angle / 2)], math.sin(angle / 2) * axis])
    own_rotation = rotations.quat_product(rotation, rotations.quat_product(turn, joint.reference))
    anchor, child_anchor = _row(table.parent_anchor, j), _row(table.child_anchor, j)
    own_position = (
        position
        + rotations.quat_rotate(rotation, anchor)
        - rotations.quat_rotate(own_rotation, child_anchor)
    )
    return own_position, own_rotation


def _row(vectors: Vec3, j: int) -> np.ndarray:
    return np.array([axis[j, 0] for axis in vectors])


def _set_on_ground(moving: Sequence[Body], poses: _Poses, members: np.ndarray) -> None:
    """Move a tree of bodies up or down until its lowest collider touches z = 0.

    The tree consists of the bodies with the indices `members`. `poses` is changed in place.
    """
    lowest = min(
        (
            poses.position[i, 2] + rotations.quat_rotate(poses.rotation[i], point)[2] - radius
            for i in members
            for collider in moving[i].colliders
            for points, radius in [collider.points(both_ends=True)]
            for point in points
        ),
        default=0.0,
    )
    poses.position[members, 2] -= lowest
