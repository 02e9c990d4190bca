"""Advance a robot, or a batch of robots, by one time step.

    for each of the model's substeps:
        positions change by the velocities
        joints and actuators accelerate the bodies      (joints.py)
        contacts change the velocities                  (contacts.py)

`step(model, state, action)` is written for one robot. Under `vmap`, also when nested, the mapped
axes are merged into one trailing batch axis. A step is therefore always elementwise arithmetic over
contiguous memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.physics import contacts, joints
from elites.physics import rotations as r
from elites.physics.bodies import Bodies, incidence, pack, sum_rows, take, unpack
from elites.physics.rotations import Array, Vec3
from elites.physics.tables import Model


class Sensors(NamedTuple):
    """Measurements of a robot: joint angles, joint velocities and contacts."""

    angles: Array  # [J] rad
    velocities: Array  # [J] rad/s: parent body relative to child body, about the hinge
    contact: Array  # [3, B] change of velocity by contacts, summed over the substeps


def reset(model: Model) -> tuple[Array, Sensors]:
    """Return the state [13, B] of the initial pose, with zero velocity, and its sensors.

    B is the number of moving bodies.
    """
    state = jnp.asarray(model.rest)
    return state, sense(model, state)


def sense(model: Model, state: Array) -> Sensors:
    """Return joint angles and velocities in a state [13, B]. Its contacts are zero until a step."""
    angles, velocities = joints.angles_and_velocities(
        model.joints, *_ends(model, unpack(state[..., None]))
    )
    return Sensors(angles[:, 0], velocities[:, 0], jnp.zeros((3, len(model.bodies))))


def step(model: Model, state: Array, action: Array) -> tuple[Array, Sensors]:
    """Advance one robot by the time `model.dt`. Returns the next state [13, B] and its sensors.

    `state` is [13, B] for B moving bodies, and `action` [A] has one entry per actuator.
    """
    following, *sensors = _batched(model)(state[..., None], action[..., None])
    return following[..., 0], Sensors(*(a[..., 0] for a in sensors))


def _batched(model: Model):
    """Return the function (state, action) -> `step_batch(model, state, action)`.

    Its `vmap` rule merges the mapped axis into the batch axis.
    """

    @jax.custom_batching.custom_vmap
    def run(state, action):
        return step_batch(model, state, action)

    @run.def_vmap
    def _(axis_size, in_batched, state, action):
        if not in_batched[0]:
            state = jnp.broadcast_to(state, (axis_size, *state.shape))
        if not in_batched[1]:
            action = jnp.broadcast_to(action, (axis_size, *action.shape))
        n = state.shape[-1]

        def merge(a):
            return jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], axis_size * n)

        def split(a):
            return jnp.moveaxis(a.reshape(*a.shape[:-1], axis_size, n), -2, 0)

        out = run(merge(state), merge(action))
        return tuple(split(a) for a in out), (True,) * len(out)

    return run


def step_batch(model: Model, state: Array, action: Array) -> tuple[Array, Array, Array, Array]:
    """Advance n robots by the time `model.dt`.

    Returns the next states [13, B, n] and the fields of `Sensors`, with the robots as last axis.
    `state` is [13, B, n] for B moving bodies, and `action` [A, n] has one row per actuator.
    """
    motor = _motor_torque(model, action)
    zero = jnp.zeros((len(model.bodies), state.shape[-1]), jnp.float32)

    def body(_, carry: tuple[Bodies, Vec3]) -> tuple[Bodies, Vec3]:
        return _substep(model, carry[0], carry[1], motor)

    bodies, contact = jax.lax.fori_loop(
        0, model.substeps, body, (unpack(state), Vec3(zero, zero, zero))
    )
    angles, velocities = joints.angles_and_velocities(model.joints, *_ends(model, bodies))
    return pack(bodies), angles, velocities, jnp.stack(contact)


def _motor_torque(model: Model, action: Array) -> Array:
    """Return the motor torque [J, n] about the hinge of each of J joints, from actions [A, n].

    n is the number of robots. The torque is 0 for joints without an actuator.
    """
    torque = -model.strength * action
    return sum_rows([torque], incidence(model.actuated, len(model.joints.names)))[0]


def _substep(model: Model, bodies: Bodies, contact: Vec3, motor: Array) -> tuple[Bodies, Vec3]:
    """Return the bodies after one substep, and `contact` plus the velocity changes by contacts.

    `contact` holds a vector [B, n] for B bodies of n robots. `motor` [J, n] is the motor torque
    about each hinge.
    """
    h = model.dt / model.substeps
    pos = r.add(bodies.pos, r.times(r.scale(bodies.vel, h), model.free_position))
    bodies = bodies._replace(pos=pos, rot=r.integrate(bodies.rot, bodies.ang, h))

    force, torque = _joint_forces(model, bodies, motor)
    velocity_decay = np.float32(math.exp(model.velocity_damping * h))
    angular_decay = np.float32(math.exp(model.angular_damping * h))
    acceleration = r.add(r.scale(force, model.inverse_mass), model.gravity)
    vel = r.add(r.scale(bodies.vel, velocity_decay), r.scale(acceleration, h))
    ang = r.add(
        r.scale(bodies.ang, angular_decay), r.scale(r.times(torque, model.inverse_inertia), h)
    )
    bodies = bodies._replace(
        vel=r.times(vel, model.free_position), ang=r.times(ang, model.free_rotation)
    )

    impulse = contacts.resolve(model, bodies)
    if impulse is None:
        return bodies, contact
    # An impulse may point along a frozen axis, along which the body must not move.
    bodies = bodies._replace(
        vel=r.times(r.add(bodies.vel, impulse.vel), model.free_position),
        ang=r.times(r.add(bodies.ang, impulse.ang), model.free_rotation),
    )
    return bodies, r.add(contact, impulse.vel)


def _joint_forces(model: Model, bodies: Bodies, motor: Array) -> tuple[Vec3, Vec3]:
    """Return the force and the torque that the joints exert on each of B bodies, [B, n] each.

    `motor` [J, n] is the motor torque about each hinge, for n robots.
    """
    per_joint = joints.forces(model.joints, *_ends(model, bodies), motor)
    by_parent = incidence(model.joints.parent, len(model.bodies))
    by_child = incidence(model.joints.child, len(model.bodies))
    force = sum_rows(per_joint.force, by_child - by_parent)
    ends = zip(per_joint.child_torque, per_joint.parent_torque, strict=True)
    torque = sum_rows(
        [jnp.concatenate(pair) for pair in ends], np.concatenate([by_child, by_parent], axis=1)
    )
    return Vec3(*force), Vec3(*torque)


def _ends(model: Model, bodies: Bodies) -> tuple[Bodies, Bodies]:
    """Return the parent bodies and the child bodies of all J joints, in arrays [J, n]."""
    return take(bodies, model.joints.parent), take(bodies, model.joints.child)
