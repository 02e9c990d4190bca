"""Joints of a MuJoCo model: which ones place a robot in the world, and which ones are its own.

This module needs neither JAX nor MuJoCo: worker processes of Gymnasium use it too.
"""

from __future__ import annotations

from typing import Any

FREE, BALL, SLIDE, HINGE = 0, 1, 2, 3  # types of joints in a MuJoCo model


def ground_coordinates(model: Any) -> dict[int, int]:
    """Return the axes along which a robot moves in the ground plane, with their coordinates.

    The keys are 0 for x and 1 for y, and the values are indices into the joint positions of the
    MuJoCo model. A robot whose first body has neither a free nor a sliding joint has none.
    """
    found = {}
    for i in (i for i in range(model.njnt) if model.jnt_bodyid[i] == 1):
        place = int(model.jnt_qposadr[i])
        if model.jnt_type[i] == FREE:
            found |= {0: place, 1: place + 1}
        elif model.jnt_type[i] == SLIDE:
            found |= {axis: place for axis in (0, 1) if abs(model.jnt_axis[i][axis]) > 0.5}
    return dict(sorted(found.items()))


def own_joints(model: Any) -> dict[str, int]:
    """Return the indices of the robot's own joints, keyed by name: those that slide or turn.

    The joints of a first body that can move along the ground place the robot in the world, and are
    left out. A joint without a name is called "joint" and its index.
    """
    roots = {1} if ground_coordinates(model) else set()
    return {
        model.joint(i).name or f"joint {i}": i
        for i in range(model.njnt)
        if model.jnt_type[i] in (SLIDE, HINGE) and model.jnt_bodyid[i] not in roots
    }
