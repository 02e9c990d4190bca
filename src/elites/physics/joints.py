"""Joints and actuators: the forces and torques of a joint on its two bodies.

A joint consists of:

- a stiff spring between two anchor points, which keeps the bodies together
- a torque that aligns the two hinge axes
- a spring that acts outside the angle limits
- a damper on the relative rotation
- the motor torque about the hinge, if an actuator drives the joint
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from elites.physics import rotations as r
from elites.physics.bodies import Bodies, computed_once
from elites.physics.rotations import Array, Vec3
from elites.physics.tables import Joints


class JointForces(NamedTuple):
    """Forces and torques of J joints on their two bodies, in arrays [J, n] for n robots."""

    force: Vec3  # acts on the child at its anchor, and with opposite sign on the parent
    parent_torque: Vec3
    child_torque: Vec3


class Hinge(NamedTuple):
    """Axes and angles of J hinges in the world frame, with the orientations of their bodies.

    All arrays are [J, n] for n robots.
    """

    axis: Vec3  # hinge axis of the parent
    child_axis: Vec3
    angle: Array
    parent: r.Matrix  # orientations of the two bodies
    child: r.Matrix


def hinge(joints: Joints, parent: Bodies, child: Bodies) -> Hinge:
    """Return the axes in the world frame, the angles and the body orientations of all joints.

    Row j of `parent` and row j of `child` are the two bodies of joint j.
    """
    parent_frame, child_frame = r.matrix(parent.rot), r.matrix(child.rot)
    axis = r.apply(parent_frame, joints.parent_axis)
    z_parent = r.apply(parent_frame, joints.parent_reference)
    z_child = r.apply(child_frame, joints.child_reference)
    angle = r.arctan2(r.dot(r.cross(z_parent, z_child), axis), r.dot(z_parent, z_child))
    return Hinge(axis, r.apply(child_frame, joints.child_axis), angle, parent_frame, child_frame)


def forces(joints: Joints, parent: Bodies, child: Bodies, motor: Array) -> JointForces:
    """Return the forces and torques of all J joints on their bodies, in arrays [J, n].

    Row j of `parent` and row j of `child` are the two bodies of joint j, for n robots. `motor`
    [J, n] is the torque of the joint's actuator about the hinge.
    """
    h = hinge(joints, parent, child)
    parent_arm = r.apply(h.parent, joints.parent_anchor)
    child_arm = r.apply(h.child, joints.child_anchor)
    stretch = r.sub(r.add(parent.pos, parent_arm), r.add(child.pos, child_arm))
    stretch_rate = r.sub(
        r.add(parent.vel, r.cross(parent.ang, parent_arm)),
        r.add(child.vel, r.cross(child.ang, child_arm)),
    )
    force = r.add(r.scale(stretch, joints.stiffness), r.scale(stretch_rate, joints.damping))

    below, above = h.angle < joints.low, h.angle > joints.high
    excess = jnp.where(below, joints.low - h.angle, jnp.where(above, joints.high - h.angle, 0.0))
    # A motor is switched off outside the limits of its joint.
    about_hinge = computed_once(
        jnp.where(below | above, 0.0, motor) - joints.limit_strength * excess
    )
    alignment = r.scale(r.cross(h.axis, h.child_axis), joints.stiffness)
    damping = r.scale(r.sub(parent.ang, child.ang), joints.angular_damping)
    torque = r.sub(r.add(alignment, r.scale(h.axis, about_hinge)), damping)
    return JointForces(
        force,
        r.sub(torque, r.cross(parent_arm, force)),
        r.sub(r.cross(child_arm, force), torque),
    )


def angles_and_velocities(joints: Joints, parent: Bodies, child: Bodies) -> tuple[Array, Array]:
    """Return the angles [J, n] of J joints in rad and their angular velocities [J, n] in rad/s.

    An angular velocity is that of the parent body relative to the child body, about the hinge.
    """
    h = hinge(joints, parent, child)
    return h.angle, r.dot(r.sub(parent.ang, child.ang), h.axis)
