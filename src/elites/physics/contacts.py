"""Contacts with the ground and with walls, as impulses that change velocities.

A contact point acts if it penetrates a surface and still approaches it. It then gets an impulse
along the normal, and a friction impulse against its sliding. The impulses on one body are averaged
over the contact points of one kind of collider, so a body is not pushed harder by more points.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from elites.physics import rotations as r
from elites.physics.bodies import Bodies, incidence, sum_rows, take
from elites.physics.rotations import Array, Vec3
from elites.physics.tables import GroundContacts, Model, WallContacts

# Friction acts only on sliding that is faster than this, in m/s.
_SLIDING_SPEED = 0.01


class Impulse(NamedTuple):
    """Changes of velocity and angular velocity for n robots.

    The arrays are [K, n] for K contact points or [B, n] for B bodies.
    """

    vel: Vec3
    ang: Vec3


def resolve(model: Model, bodies: Bodies) -> Impulse | None:
    """Return the changes of velocity [B, n] that all contacts cause, for B bodies of n robots.

    Returns None if the model has no contacts.
    """
    parts = []
    if (ground := model.ground) is not None:
        parts += _averages(model, ground.body, ground.kind, _ground(model, ground, bodies))
    if (walls := model.walls) is not None:
        one_kind = np.zeros_like(walls.body)
        parts += _averages(model, walls.body, one_kind, _walls(model, walls, bodies))
    if not parts:
        return None
    return functools.reduce(lambda a, b: Impulse(r.add(a.vel, b.vel), r.add(a.ang, b.ang)), parts)


def _ground(model: Model, table: GroundContacts, bodies: Bodies) -> tuple[Impulse, Array]:
    """Return the changes of velocity [K, n] by K ground contacts, and whether each acts [K, n]."""
    own = take(bodies, table.body)
    arm = r.apply(r.matrix(own.rot), table.offset)
    # With this order of rounding, a robot at rest on the ground touches it, as in the recordings.
    depth = table.radius - (own.pos.z + arm.z)
    arm = Vec3(arm.x, arm.y, arm.z - table.radius)
    up = Vec3(jnp.zeros_like(depth), jnp.zeros_like(depth), jnp.ones_like(depth))
    return _impulse(model, table, own, arm, up, depth)


def _walls(model: Model, table: WallContacts, bodies: Bodies) -> tuple[Impulse, Array]:
    """Return the changes of velocity [K, n] by K wall contacts, and whether each acts [K, n]."""
    own = take(bodies, table.body)
    rotation = r.matrix(own.rot)
    centre = r.add(own.pos, r.apply(rotation, table.centre))
    point, wall_point = _closest(
        centre, r.apply(rotation, table.half), table.wall_centre, table.wall_half
    )
    gap = r.sub(point, wall_point)
    distance = r.norm(gap)
    normal = r.scale(gap, 1.0 / jnp.maximum(distance, 1e-12))
    depth = table.radius + table.wall_radius - distance
    # The impulse acts midway between the two axes, not between the two surfaces.
    middle = r.scale(r.add(point, wall_point), 0.5)
    return _impulse(model, table, own, r.sub(middle, own.pos), normal, depth)


def _closest(c1: Vec3, h1: Vec3, c2: Vec3, h2: Vec3) -> tuple[Vec3, Vec3]:
    """Return the closest points of two segments, one on each.

    The segments are c1 + s h1 and c2 + t h2, with s and t in [-1, 1].
    """
    between = r.sub(c1, c2)
    a, e, b = r.dot(h1, h1), r.dot(h2, h2), r.dot(h1, h2)
    c, f = r.dot(h1, between), r.dot(h2, between)
    denominator = a * e - b * b
    parallel = denominator <= 1e-6 * a * e  # also if a segment is a point
    s = jnp.clip(
        jnp.where(parallel, 0.0, (b * f - c * e) / jnp.where(parallel, 1.0, denominator)), -1.0, 1.0
    )
    # Clipping one parameter changes the best value of the other: t for that s, then s for that t.
    t = jnp.clip((b * s + f) / jnp.maximum(e, 1e-12), -1.0, 1.0)
    s = jnp.clip((b * t - c) / jnp.maximum(a, 1e-12), -1.0, 1.0)
    return r.add(c1, r.scale(h1, s)), r.add(c2, r.scale(h2, t))


def _impulse(
    model: Model, table: GroundContacts | WallContacts, own: Bodies, arm: Vec3, normal: Vec3, depth
) -> tuple[Impulse, Array]:
    """Return the changes of velocity [K, n] by K contacts, and whether each acts [K, n].

    `own` are the bodies of the contact points, `arm` the vectors from a body to its contact point,
    and `depth` is how far the point penetrates the surface with this normal.
    """
    inverse_mass = model.inverse_mass[table.body]
    inverse_inertia = Vec3(*(a[table.body] for a in model.inverse_inertia))
    velocity = r.add(own.vel, r.cross(own.ang, arm))
    along = r.dot(normal, velocity)
    turn = r.cross(r.times(inverse_inertia, r.cross(arm, normal)), arm)
    inverse_effective_mass = inverse_mass + r.dot(normal, turn)
    erp = model.baumgarte_erp * model.substeps / model.dt
    push = (-(1.0 + table.elasticity) * along + erp * depth) / inverse_effective_mass

    slide = r.sub(velocity, r.scale(normal, along))
    speed = r.norm(slide)
    drag = jnp.minimum(speed / inverse_effective_mass, table.friction * push)
    sliding = speed > _SLIDING_SPEED
    drag = jnp.where(sliding, drag / jnp.maximum(speed, _SLIDING_SPEED), 0.0)

    acts = (depth > 0.0) & (along < 0.0) & (push > 0.0)
    impulse = r.sub(r.scale(normal, push), r.scale(slide, drag))
    impulse = Vec3(*(jnp.where(acts, a, 0.0) for a in impulse))
    change = Impulse(
        r.scale(impulse, inverse_mass), r.times(inverse_inertia, r.cross(arm, impulse))
    )
    return change, acts


def _averages(
    model: Model, body: np.ndarray, kind: np.ndarray, contact: tuple[Impulse, Array]
) -> list[Impulse]:
    """Return one entry for each kind of collider: the mean change of velocity [B, n] of every body.

    The mean is over those contact points of a body that act. `body` [K] and `kind` [K] give each
    point's body and kind of collider. `contact` is the result of `_ground` or `_walls`.
    """
    (vel, ang), acts = contact
    count = len(model.bodies)
    kinds = np.unique(kind)
    # The kinds are stacked into one matrix, so that all points are summed together.
    rows = np.concatenate([incidence(np.where(kind == k, body, -1), count) for k in kinds])
    *sums, acting = sum_rows([*vel, *ang, acts.astype(jnp.float32)], rows)
    share = 1.0 / (acting + 1e-8)
    means = [a * share for a in sums]
    parts = [[a[i * count : (i + 1) * count] for a in means] for i in range(len(kinds))]
    return [Impulse(Vec3(*part[:3]), Vec3(*part[3:])) for part in parts]
