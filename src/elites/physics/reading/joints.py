"""Read the joints and the actuators of a model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elites.physics import rotations
from elites.physics.reading.fields import (
    ModelError,
    check_fields,
    label_of,
    read_list,
    read_number,
    read_reference,
    read_vector,
    unique_labels,
)
from elites.physics.tables import Joints, column, columns, indices

_FIELDS = (
    "name parent child stiffness parent_offset child_offset rotation reference_rotation "
    "angular_damping angle_limit limit_strength spring_damping"
)


@dataclasses.dataclass(frozen=True)
class Joint:
    """Joint of a model file: the fields of the table `Joints`, and two rotations."""

    name: str
    parent: int
    child: int
    parent_anchor: list[float]
    child_anchor: list[float]
    frame: np.ndarray  # [4] rotation of the joint frame in the child
    reference: np.ndarray  # [4] rotation of the child in the parent at angle 0
    stiffness: float
    damping: float
    limit_strength: float
    angular_damping: float
    low: float  # radians
    high: float

    def axis(self, direction: list[int]) -> np.ndarray:
        """Return a direction [3] of the joint frame as a vector in the frame of the child body."""
        return rotations.quat_rotate(self.frame, np.array(direction))

    def parent_axis(self, direction: list[int]) -> np.ndarray:
        """Return a direction [3] of the joint frame as a vector in the frame of the parent body.

        It is the direction that the parent sees while the joint is at angle 0.
        """
        return rotations.quat_rotate(self.reference, self.axis(direction))


def read_joints(data: Mapping[str, Any], index: Mapping[str, int], name: str) -> list[Joint]:
    """Return all joints of a model file, given as a dictionary.

    `index` maps the names of the moving bodies to their rows. Raises a ModelError if a body is the
    child of two joints.
    """
    entries = read_list(data, "joints", name, required=False)
    labels = unique_labels(entries, "joint", name)
    joints = [
        _read_joint(entry, index, label) for entry, label in zip(entries, labels, strict=True)
    ]
    children = [joint.child for joint in joints]
    for entry, label, child in zip(entries, labels, children, strict=True):
        if children.count(child) > 1:
            raise ModelError(
                f"{label}: body '{entry['child']}' is the child of two joints; the bodies must "
                "form a tree"
            )
    return joints


def _read_joint(entry: Mapping[str, Any], index: Mapping[str, int], label: str) -> Joint:
    check_fields(entry, _FIELDS, label)
    stiffness = read_number(entry, "stiffness", label, above=0.0)
    low, high = _read_limits(entry, label)
    return Joint(
        name=entry["name"],
        parent=read_reference(entry, "parent", index, label, "moving body"),
        child=read_reference(entry, "child", index, label, "moving body"),
        parent_anchor=read_vector(entry, "parent_offset", label),
        child_anchor=read_vector(entry, "child_offset", label),
        frame=rotations.quat_from_euler(np.array(read_vector(entry, "rotation", label))),
        reference=rotations.quat_from_euler(
            np.array(read_vector(entry, "reference_rotation", label))
        ),
        stiffness=stiffness,
        damping=read_number(entry, "spring_damping", label, default=0.5 * math.sqrt(stiffness)),
        limit_strength=read_number(entry, "limit_strength", label, default=stiffness),
        angular_damping=read_number(entry, "angular_damping", label, default=0.0),
        low=math.radians(low),
        high=math.radians(high),
    )


def _read_limits(entry: Mapping[str, Any], label: str) -> tuple[float, float]:
    """Return the lower and the upper angle limit of a joint, in degrees."""
    limits = read_list(entry, "angle_limit", label)
    if len(limits) != 1:
        raise ModelError(f"{label}: angle_limit must have one entry, got {len(limits)}")
    where = f"{label}, angle_limit"
    check_fields(limits[0], "min max", where)
    low, high = (read_number(limits[0], side, where, default=0.0) for side in ("min", "max"))
    if low > high:
        raise ModelError(f"{where}: min {low} is above max {high}")
    return low, high


def joint_table(joints: Sequence[Joint]) -> Joints:
    """Return the joints as the table `Joints`, which the engine uses."""
    hinge, reference = [1, 0, 0], [0, 0, 1]
    return Joints(
        names=tuple(joint.name for joint in joints),
        parent=indices([joint.parent for joint in joints]),
        child=indices([joint.child for joint in joints]),
        parent_anchor=columns([joint.parent_anchor for joint in joints]),
        child_anchor=columns([joint.child_anchor for joint in joints]),
        parent_axis=columns([joint.parent_axis(hinge) for joint in joints]),
        child_axis=columns([joint.axis(hinge) for joint in joints]),
        parent_reference=columns([joint.parent_axis(reference) for joint in joints]),
        child_reference=columns([joint.axis(reference) for joint in joints]),
        stiffness=column([joint.stiffness for joint in joints]),
        damping=column([joint.damping for joint in joints]),
        limit_strength=column([joint.limit_strength for joint in joints]),
        angular_damping=column([joint.angular_damping for joint in joints]),
        low=column([joint.low for joint in joints]),
        high=column([joint.high for joint in joints]),
    )


def read_actuators(
    data: Mapping[str, Any], joints: Sequence[Joint], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the joint index [A] and the strength [A, 1] of each of A actuators of a model file."""
    index = {joint.name: i for i, joint in enumerate(joints)}
    actuated, strength = [], []
    for i, actuator in enumerate(read_list(data, "actuators", name)):
        label = label_of(actuator, i, "actuator", name)
        check_fields(actuator, "name joint strength torque", label)
        actuated.append(read_reference(actuator, "joint", index, label, "joint"))
        strength.append(read_number(actuator, "strength", label))
    if len(set(actuated)) != len(actuated):
        raise ModelError(f"{name}: two actuators drive the same joint")
    return indices(actuated), column(strength)
