"""Build body models that are small enough to compute by hand."""

from __future__ import annotations

import copy
import functools

import jax
import numpy as np

from elites import physics

GROUND = {
    "name": "ground",
    "colliders": [{"plane": {}, "material": {"friction": 1.0, "elasticity": 1.0}}],
    "frozen": {"all": True},
}


def xyz(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> dict:
    return {"x": x, "y": y, "z": z}


def body(name: str, *colliders: dict, mass: float = 2.0, inertia: float = 0.5, **fields) -> dict:
    return {
        "name": name,
        "mass": mass,
        "inertia": xyz(inertia, inertia, inertia),
        "colliders": list(colliders),
        **fields,
    }


def sphere(radius: float = 0.1, friction: float = 0.0, elasticity: float = 0.0, **fields) -> dict:
    material = {"friction": friction, "elasticity": elasticity}
    return {"sphere": {"radius": radius}, "material": material, **fields}


def world(*bodies: dict, joints=(), actuators=(), **fields) -> dict:
    """Return a model in which every moving body collides with the ground."""
    names = [b["name"] for b in bodies if not b.get("frozen", {}).get("all")]
    return {
        "bodies": [*bodies, copy.deepcopy(GROUND)],
        "joints": list(joints),
        "actuators": list(actuators),
        "collide_include": [{"first": name, "second": "ground"} for name in names],
        "gravity": xyz(z=-9.8),
        "dt": 0.02,
        "substeps": 4,
        **fields,
    }


def hinge(**fields) -> dict:
    return {
        "name": "hinge",
        "parent": "parent",
        "child": "child",
        "stiffness": 1000.0,
        "angle_limit": [{"min": -180.0, "max": 180.0}],
        **fields,
    }


def motor(strength: float = 1.0) -> dict:
    return {"name": "motor", "joint": "hinge", "strength": strength, "torque": {}}


def stepper(data: dict):
    """Return a compiled step of one robot: (state [13, B], action) to (state, contact [3, B])."""
    model = physics.build(data)
    compiled = jax.jit(functools.partial(physics.step, model))

    def step(state, action=None):
        if action is None:
            action = np.zeros(model.action_size, np.float32)
        following, sensors = compiled(np.asarray(state, np.float32), np.asarray(action, np.float32))
        return np.asarray(following), np.asarray(sensors.contact)

    return step


def at(*bodies: dict) -> np.ndarray:
    """Return the state [13, B] of bodies given as {pos, rot, vel, ang}, with defaults at rest."""
    defaults = {"pos": np.zeros(3), "rot": [1.0, 0, 0, 0], "vel": np.zeros(3), "ang": np.zeros(3)}
    columns = [np.concatenate([{**defaults, **b}[k] for k in defaults]) for b in bodies]
    return np.stack(columns, axis=-1).astype(np.float32)
