"""One step of a robot, or of many at once.

    for each of the model's substeps:
        positions move with the velocities              (kinetic)
        joints and actuators accelerate the bodies      (joints.py)
        contacts change the velocities                  (contacts.py)

`step(model, state, action)` is written for one robot; under `vmap`, however deeply nested, the
batch is folded into one trailing axis of lanes, so that a step is always elementwise arithmetic
over contiguous lanes whatever the caller's axes are.
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
from elites.physics.model import Model
from elites.physics.rotations import Array, Vec3


class Sensors(NamedTuple):
    """What a robot can observe beside the state of its bodies."""

    angles: Array  # [J]
    velocities: Array  # [J] of the joint angles
    contact: Array  # [3, B] velocity each body received from contacts, summed over the substeps


def reset(model: Model) -> tuple[Array, Sensors]:
    """The default pose, at rest: state [13, B] and its sensors."""
    state = jnp.asarray(model.rest)
    return state, sense(model, state)


def sense(model: Model, state: Array) -> Sensors:
    """Sensors of a state [13, B] that no step has led to: no contact is felt."""
    angles, velocities = joints.angles_and_velocities(
        model.joints, *_ends(model, unpack(state[..., None]))
    )
    return Sensors(angles[:, 0], velocities[:, 0], jnp.zeros((3, len(model.bodies))))


def step(model: Model, state: Array, action: Array) -> tuple[Array, Sensors]:
    """Advance one robot by `model.dt`: state [13, B], action [A]."""
    following, *sensors = _batched(model)(state[..., None], action[..., None])
    return following[..., 0], Sensors(*(a[..., 0] for a in sensors))


def _batched(model: Model):
    """`step_lanes` with a rule that merges a mapped axis into the lanes."""

    @jax.custom_batching.custom_vmap
    def run(state, action):
        return step_lanes(model, state, action)

    @run.def_vmap
    def _(axis_size, in_batched, state, action):
        if not in_batched[0]:
            state = jnp.broadcast_to(state, (axis_size, *state.shape))
        if not in_batched[1]:
            action = jnp.broadcast_to(action, (axis_size, *action.shape))
        lanes = state.shape[-1]

        def merge(a):
            return jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], axis_size * lanes)

        def split(a):
            return jnp.moveaxis(a.reshape(*a.shape[:-1], axis_size, lanes), -2, 0)

        out = run(merge(state), merge(action))
        return tuple(split(a) for a in out), (True,) * len(out)

    return run


def step_lanes(model: Model, state: Array, action: Array) -> tuple[Array, Array, Array, Array]:
    """A step of n robots side by side: state [13, B, n], action [A, n]."""
    lanes = state.shape[-1]
    motor = _motor(model, action)
    still = jnp.zeros((len(model.bodies), lanes), jnp.float32)

    def body(_, carry: tuple[Bodies, Vec3]) -> tuple[Bodies, Vec3]:
        return _substep(model, carry[0], carry[1], motor)

    bodies, contact = jax.lax.fori_loop(
        0, model.substeps, body, (unpack(state), Vec3(still, still, still))
    )
    angles, velocities = joints.angles_and_velocities(model.joints, *_ends(model, bodies))
    return pack(bodies), angles, velocities, jnp.stack(contact)


def _motor(model: Model, action: Array) -> Array:
    """Torque about each hinge [J, n]; joints without an actuator get none."""
    torque = -model.strength * action
    return sum_rows([torque], incidence(model.actuated, len(model.joints.names)))[0]


def _substep(model: Model, bodies: Bodies, contact: Vec3, motor: Array) -> tuple[Bodies, Vec3]:
    h = model.dt / model.substeps
    pos = r.add(bodies.pos, r.times(r.scale(bodies.vel, h), model.free_position))
    bodies = bodies._replace(pos=pos, rot=r.spin(bodies.rot, bodies.ang, h))

    force, torque = _pull(model, bodies, motor)
    velocity_decay = np.float32(math.exp(model.velocity_damping * h))
    angular_decay = np.float32(math.exp(model.angular_damping * h))
    gain = r.add(r.scale(force, model.inverse_mass), model.gravity)
    vel = r.add(r.scale(bodies.vel, velocity_decay), r.scale(gain, h))
    ang = r.add(
        r.scale(bodies.ang, angular_decay), r.scale(r.times(torque, model.inverse_inertia), h)
    )
    bodies = bodies._replace(
        vel=r.times(vel, model.free_position), ang=r.times(ang, model.free_rotation)
    )

    impulse = contacts.resolve(model, bodies)
    if impulse is None:
        return bodies, contact
    # An impulse may point along a frozen axis; the body must not start to move there.
    bodies = bodies._replace(
        vel=r.times(r.add(bodies.vel, impulse.vel), model.free_position),
        ang=r.times(r.add(bodies.ang, impulse.ang), model.free_rotation),
    )
    return bodies, r.add(contact, impulse.vel)


def _pull(model: Model, bodies: Bodies, motor: Array) -> tuple[Vec3, Vec3]:
    """Force and torque on every body [B, n] from its joints."""
    pull = joints.forces(model.joints, *_ends(model, bodies), motor)
    by_parent = incidence(model.joints.parent, len(model.bodies))
    by_child = incidence(model.joints.child, len(model.bodies))
    force = sum_rows(pull.force, by_child - by_parent)
    ends = zip(pull.child_torque, pull.parent_torque, strict=True)
    torque = sum_rows(
        [jnp.concatenate(pair) for pair in ends], np.concatenate([by_child, by_parent], axis=1)
    )
    return Vec3(*force), Vec3(*torque)


def _ends(model: Model, bodies: Bodies) -> tuple[Bodies, Bodies]:
    return take(bodies, model.joints.parent), take(bodies, model.joints.child)
