"""Read a model file, check it, and build its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elites import files
from elites.files import shown
from elites.physics.reading.bodies import Body, read_bodies
from elites.physics.reading.contacts import contact_tables
from elites.physics.reading.fields import ModelError, check_fields, read_number, read_vector
from elites.physics.reading.joints import joint_table, read_actuators, read_joints
from elites.physics.reading.pose import initial_pose
from elites.physics.rotations import Vec3
from elites.physics.tables import Model, Shape, column, columns

_FIELDS = (
    "bodies joints actuators friction gravity velocity_damping angular_damping baumgarte_erp "
    "collide_include dt substeps frozen defaults dynamics_mode"
)


def load(path: Path) -> Model:
    """Read a body model from a JSON file, check it and return it."""
    data = files.read_json(Path(path), ModelError, follow=True)
    try:
        return build(data, Path(path).stem)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def build(data: Mapping[str, Any], name: str = "model") -> Model:
    """Return the body model that a dictionary, read from a model file, describes.

    Raises a ModelError if it is invalid. `name` names the model in error messages.
    """
    check_fields(data, _FIELDS, name)
    bodies = read_bodies(data, name)
    moving = [body for body in bodies if not body.fixed]
    index = {body.name: i for i, body in enumerate(moving)}
    joints = read_joints(data, index, name)
    table = joint_table(joints)
    actuated, strength = read_actuators(data, joints, name)
    ground, walls = contact_tables(data, bodies, index, name)
    return Model(
        name=name,
        bodies=tuple(index),
        dt=read_number(data, "dt", name, above=0.0),
        substeps=_read_substeps(data, name),
        gravity=Vec3(*read_vector(data, "gravity", name)),
        velocity_damping=read_number(data, "velocity_damping", name, default=0.0),
        angular_damping=read_number(data, "angular_damping", name, default=0.0),
        baumgarte_erp=read_number(data, "baumgarte_erp", name, default=0.0),
        inverse_mass=column([1.0 / body.mass for body in moving]),
        inverse_inertia=columns([[1.0 / value for value in body.inertia] for body in moving]),
        free_position=columns([body.free_position for body in moving]),
        free_rotation=columns([body.free_rotation for body in moving]),
        joints=table,
        actuated=actuated,
        strength=strength,
        ground=ground,
        walls=walls,
        rest=initial_pose(data, moving, joints, table, name),
        shapes=_shapes(bodies, index),
    )


def _read_substeps(data: Mapping[str, Any], name: str) -> int:
    substeps = data.get("substeps")
    if not isinstance(substeps, int) or isinstance(substeps, bool) or substeps < 1:
        raise ModelError(
            f"{name}: substeps must be a whole number of at least 1, got {shown(substeps)}"
        )
    return substeps


def _shapes(bodies: Sequence[Body], index: Mapping[str, int]) -> tuple[Shape, ...]:
    return tuple(
        Shape(index.get(body.name), c.kind, tuple(c.position), tuple(c.rotation), c.size)
        for body in bodies
        for c in body.colliders
    )
