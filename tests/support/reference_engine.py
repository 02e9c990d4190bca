"""Reference simulator for tests of the engine: float64 NumPy, with plain loops.

It is written from the description of the dynamics, reads the model files itself and shares no code
with the engine. It simulates one robot and one step at a time. Beside the next state it returns the
contacts, with the numbers that decide whether a contact pushes or drags. If one of these numbers is
almost zero, float32 may decide either way.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import math

import numpy as np


def vector(node, field):
    entry = node.get(field, {})
    return np.array([float(entry.get(axis, 0.0)) for axis in "xyz"])


def cross(a, b):
    # The library's cross product spends most of its time on the shapes of such small arrays.
    (a0, a1, a2), (b0, b1, b2) = a, b
    return np.array([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0])


def hamilton(p, q):
    """Return the product of two quaternions (w, x, y, z)."""
    (pw, pv), (qw, qv) = ((r[0], np.asarray(r[1:], float)) for r in (p, q))
    return np.array([pw * qw - pv @ qv, *(pw * qv + qw * pv + cross(pv, qv))])


def turn(q, v):
    """Rotate a vector by a unit quaternion: q v q*."""
    w, x, y, z = q
    return hamilton(hamilton(q, (0.0, *v)), (w, -x, -y, -z))[1:]


def about(axis, angle):
    return np.concatenate([[math.cos(angle / 2)], math.sin(angle / 2) * np.asarray(axis, float)])


def from_euler(degrees):
    """Return the quaternion of intrinsic x-y'-z'' angles: about x, the new y, the newest z."""
    return _from_euler(*map(float, degrees))


@functools.cache
def _from_euler(*degrees):
    x, y, z = np.radians(degrees)
    return hamilton(hamilton(about([1, 0, 0], x), about([0, 1, 0], y)), about([0, 0, 1], z))


def closest_points(p1, q1, p2, q2):
    """Return the closest points of the segments p1-q1 and p2-q2.

    The squared distance is convex in the two parameters, so its minimum over the unit square is
    either the unconstrained one or lies on an edge, where one end is fixed and the other point is
    a projection.
    """
    u, v, w = q1 - p1, q2 - p2, p1 - p2

    def project(point, start, along):
        length = along @ along
        return 0.0 if length == 0.0 else float(np.clip((point - start) @ along / length, 0.0, 1.0))

    candidates = []
    for s in (0.0, 1.0):
        candidates.append((s, project(p1 + s * u, p2, v)))
    for t in (0.0, 1.0):
        candidates.append((project(p2 + t * v, p1, u), t))
    a, b, c, d, e = u @ u, u @ v, v @ v, u @ w, v @ w
    if a * c - b * b > 1e-14 * a * c:
        s, t = (b * e - c * d) / (a * c - b * b), (a * e - b * d) / (a * c - b * b)
        if 0.0 <= s <= 1.0 and 0.0 <= t <= 1.0:
            candidates.append((s, t))
    pairs = [(p1 + s * u, p2 + t * v) for s, t in candidates]
    return min(pairs, key=lambda pair: np.linalg.norm(pair[0] - pair[1]))


@dataclasses.dataclass
class Contact:
    """Point that could touch, in one substep."""

    substep: int
    body: int
    kind: str
    depth: float
    approach: float  # n . v, a push needs it negative
    slide: float  # sliding speed, friction needs more than 0.01
    pushed: bool


class ReferenceEngine:
    def __init__(self, data):
        self.data = data
        self.h = data["dt"] / data["substeps"]
        self.index = {body["name"]: i for i, body in enumerate(data["bodies"])}
        self.fixed = [bool(b.get("frozen", {}).get("all", False)) for b in data["bodies"]]
        self.moving = [i for i, fixed in enumerate(self.fixed) if not fixed]

    def free(self, i, which):
        return vector(self.data["bodies"][i].get("frozen", {}), which) == 0.0

    def mass(self, i):
        return self.data["bodies"][i]["mass"]

    def inverse_inertia(self, i):
        return 1.0 / vector(self.data["bodies"][i], "inertia")

    def step(self, pos, rot, vel, ang, action):
        """Return the next state of the moving bodies, the contact impulses and the contacts."""
        state = []
        for part, width in ((pos, 3), (rot, 4), (vel, 3), (ang, 3)):
            full = np.zeros((len(self.fixed), width))
            full[self.moving] = part
            state.append(full)
        pos, rot, vel, ang = state
        felt, contacts = np.zeros_like(pos), []
        for substep in range(self.data["substeps"]):
            self.move(pos, rot, vel, ang)
            self.accelerate(pos, rot, vel, ang, action)
            impulse, turn_impulse, met = self.collide(pos, rot, vel, ang, substep)
            for i in self.moving:
                vel[i] = np.where(self.free(i, "position"), vel[i] + impulse[i], 0.0)
                ang[i] = np.where(self.free(i, "rotation"), ang[i] + turn_impulse[i], 0.0)
            felt += impulse
            contacts += met
        return tuple(a[self.moving] for a in (pos, rot, vel, ang, felt)), contacts

    def move(self, pos, rot, vel, ang):
        for i in self.moving:
            pos[i] += np.where(self.free(i, "position"), self.h * vel[i], 0.0)
            rot[i] += 0.5 * self.h * hamilton((0.0, *ang[i]), rot[i])
            rot[i] /= np.linalg.norm(rot[i])

    def joint_axes(self, joint, rot):
        """Return the joint frame in the world: x of parent and child, z of parent and child."""
        frame = from_euler(vector(joint, "rotation"))
        reference = from_euler(vector(joint, "reference_rotation"))
        p, c = self.index[joint["parent"]], self.index[joint["child"]]
        x, z = turn(frame, [1.0, 0.0, 0.0]), turn(frame, [0.0, 0.0, 1.0])
        return (
            turn(rot[p], turn(reference, x)),
            turn(rot[c], x),
            turn(rot[p], turn(reference, z)),
            turn(rot[c], z),
        )

    def joint_angle(self, joint, rot):
        axis, _, z_parent, z_child = self.joint_axes(joint, rot)
        return math.atan2(cross(z_parent, z_child) @ axis, z_parent @ z_child)

    def accelerate(self, pos, rot, vel, ang, action):
        data, h = self.data, self.h
        dvel, dang = np.zeros_like(vel), np.zeros_like(ang)
        for joint in data["joints"]:
            p, c = self.index[joint["parent"]], self.index[joint["child"]]
            stiffness = joint["stiffness"]
            damping = joint.get("spring_damping", 0.5 * math.sqrt(stiffness))
            arm_p = turn(rot[p], vector(joint, "parent_offset"))
            arm_c = turn(rot[c], vector(joint, "child_offset"))
            stretch = (pos[p] + arm_p) - (pos[c] + arm_c)
            drift = (vel[p] + cross(ang[p], arm_p)) - (vel[c] + cross(ang[c], arm_c))
            force = stiffness * stretch + damping * drift
            dvel[p] -= force / self.mass(p)
            dang[p] -= self.inverse_inertia(p) * cross(arm_p, force)
            dvel[c] += force / self.mass(c)
            dang[c] += self.inverse_inertia(c) * cross(arm_c, force)

            axis, child_axis, _, _ = self.joint_axes(joint, rot)
            angle = self.joint_angle(joint, rot)
            limit = joint["angle_limit"][0]
            low, high = (math.radians(limit.get(side, 0.0)) for side in ("min", "max"))
            excess = low - angle if angle < low else high - angle if angle > high else 0.0
            torque = stiffness * cross(axis, child_axis)
            torque -= joint.get("limit_strength", stiffness) * excess * axis
            torque -= joint.get("angular_damping", 0.0) * (ang[p] - ang[c])
            for actuator, signal in zip(data["actuators"], action, strict=True):
                if actuator["joint"] == joint["name"] and excess == 0.0:
                    torque -= actuator["strength"] * signal * axis
            dang[p] += self.inverse_inertia(p) * torque
            dang[c] -= self.inverse_inertia(c) * torque
        slow = math.exp(data.get("velocity_damping", 0.0) * h)
        slow_turn = math.exp(data.get("angular_damping", 0.0) * h)
        for i in self.moving:
            vel[i] = slow * vel[i] + h * (dvel[i] + vector(data, "gravity"))
            ang[i] = slow_turn * ang[i] + h * dang[i]
            vel[i] = np.where(self.free(i, "position"), vel[i], 0.0)
            ang[i] = np.where(self.free(i, "rotation"), ang[i], 0.0)

    def candidates(self, pos, rot):
        """Yield all possible contacts: body, kind, point, normal, depth, friction, elasticity."""
        for pair in self.data.get("collide_include", []):
            i, j = self.index[pair["first"]], self.index[pair["second"]]
            if self.fixed[i]:
                i, j = j, i
            if self.fixed[i]:
                continue
            for own in self.data["bodies"][i].get("colliders", []):
                for other in self.data["bodies"][j].get("colliders", []):
                    both = [part.get("material", {}) for part in (own, other)]
                    friction = both[0].get("friction", 0.0) * both[1].get("friction", 0.0)
                    bounce = both[0].get("elasticity", 0.0) * both[1].get("elasticity", 0.0)
                    for found in self.touching(own, other, pos[i], rot[i]):
                        yield (i, *found, friction, bounce)

    def segment(self, collider, pos, rot):
        """Return centre, half axis and radius of a capsule in the world. A sphere's axis is 0."""
        centre = pos + turn(rot, vector(collider, "position"))
        if "sphere" in collider:
            return centre, np.zeros(3), collider["sphere"]["radius"]
        shape = collider["capsule"]
        half = np.array([0.0, 0.0, shape["length"] / 2 - shape["radius"]])
        half = turn(rot, turn(from_euler(vector(collider, "rotation")), half))
        return centre, half, shape["radius"]

    def touching(self, own, other, pos, rot):
        up = np.array([0.0, 0.0, 1.0])
        if "plane" in other and "box" in own:
            half = vector(own["box"], "halfsize")
            for signs in np.ndindex(2, 2, 2):
                corner = turn(from_euler(vector(own, "rotation")), half * (2 * np.array(signs) - 1))
                point = pos + turn(rot, vector(own, "position") + corner)
                yield "box-plane", point, up, -point[2]
        elif "plane" in other:
            centre, half, radius = self.segment(own, pos, rot)
            end = own.get("capsule", {"end": 1}).get("end", 0)
            for sign in [end] if end else [1, -1]:
                point = centre + sign * half - radius * up
                yield "capsule-plane", point, up, -point[2]
        else:
            centre, half, radius = self.segment(own, pos, rot)
            wall, wall_half, wall_radius = self.segment(other, np.zeros(3), about(up, 0.0))
            a, b = closest_points(centre - half, centre + half, wall - wall_half, wall + wall_half)
            distance = np.linalg.norm(a - b)
            depth = radius + wall_radius - distance
            yield "capsule-capsule", (a + b) / 2, (a - b) / distance, depth

    def collide(self, pos, rot, vel, ang, substep):
        sums, contacts = {}, []
        erp = self.data.get("baumgarte_erp", 0.0) / self.h
        for i, kind, point, n, depth, friction, bounce in self.candidates(pos, rot):
            arm = point - pos[i]
            v = vel[i] + cross(ang[i], arm)
            approach = n @ v
            inverse = 1.0 / self.mass(i) + n @ cross(self.inverse_inertia(i) * cross(arm, n), arm)
            push = (-(1.0 + bounce) * approach + erp * depth) / inverse
            slide = v - approach * n
            speed = np.linalg.norm(slide)
            pushed = depth > 0.0 and approach < 0.0 and push > 0.0
            contacts.append(Contact(substep, i, kind, depth, approach, speed, pushed))
            if not pushed:
                continue
            impulse = push * n
            if speed > 0.01:
                impulse = impulse - min(speed / inverse, friction * push) * slide / speed
            total = sums.setdefault((i, kind), [np.zeros(3), np.zeros(3), 0])
            total[0] += impulse / self.mass(i)
            total[1] += self.inverse_inertia(i) * cross(arm, impulse)
            total[2] += 1
        dvel, dang = np.zeros_like(vel), np.zeros_like(ang)
        for (i, _), (linear, angular, count) in sums.items():
            dvel[i] += linear / (count + 1e-8)
            dang[i] += angular / (count + 1e-8)
        return dvel, dang, contacts


def model_data(task_name):
    """Return the contents of a task's model file."""
    file = task_name.removesuffix("_omni").removesuffix("_uni") + ".json"
    return json.loads((importlib.resources.files("elites.tasks.models") / file).read_text())


@functools.cache
def reference_engine(task_name):
    return ReferenceEngine(model_data(task_name))


def reference_step(task_name, state, action):
    """Advance a state [13, B]. Returns the next state, contact impulses [3, B] and the contacts."""
    parts = np.split(np.asarray(state, np.float64), [3, 7, 10])
    (*parts, felt), contacts = reference_engine(task_name).step(
        *(part.T for part in parts), np.asarray(action, np.float64)
    )
    return np.concatenate([part.T for part in parts]), felt.T, contacts
