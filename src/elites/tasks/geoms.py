"""Shapes and poses of MuJoCo models, for drawing. Importing it loads neither JAX nor MuJoCo.

A model is that of `mujoco.MjModel`: `env.sys.mj_model` in brax, `env.mj_model` in Playground,
`env.unwrapped.model` in Gymnasium. Bodies that cannot move, such as the world, are scenery. The
others are the bodies of the scene, in the order of the model.

    scene = geoms.scene(model, dt, lambda state: geoms.stacked(data.xpos[1:], data.xquat[1:]))
    poses = geoms.poses_of(model, data)  # NumPy, in a process without JAX
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from elites.physics import Shape
    from elites.tasks.scenes import Scene
    from elites.tasks.task import Array, TaskState

# Numbers of `mujoco.mjtGeom`. They are part of MuJoCo's file format, so they do not change.
_KINDS = {
    0: "plane",
    1: "height field",
    2: "sphere",
    3: "capsule",
    4: "ellipsoid",
    5: "cylinder",
    6: "box",
    7: "mesh",
}
_LAST_VISIBLE_GROUP = 2  # MuJoCo's own viewer hides groups 3 to 5 at first
_MOST_VERTICES = 20_000  # of all meshes of a scene; the page would take seconds to load more
_DEFAULT_COLOUR = (0.5, 0.5, 0.5, 1.0)  # of a geometry whose material gives its colour


def scene(model: Any, dt: float, poses: Callable[[TaskState], Array]) -> Scene:
    """Return the scene of a MuJoCo model.

    `dt` is the time between two states of the task in seconds. `poses` is a function that returns
    the poses [nbody - 1, 7] of all bodies of the model but the world, as `stacked` returns them.
    """
    from elites.tasks.scenes import Scene

    rows = moving(model) - 1
    names = tuple(_name(model, body) for body in rows + 1)
    places = {int(body): row for row, body in enumerate(rows + 1)}
    parents = tuple(places.get(int(model.body_parentid[body])) for body in rows + 1)
    return Scene(names, shapes(model), dt, lambda state: poses(state)[rows], parents=parents)


def poses_of(model: Any, data: Any) -> np.ndarray:
    """Return the poses [B, 7] of a model's moving bodies in a `mujoco.MjData`, in NumPy.

    The rows belong to `scene(model, ...).bodies`. Positions are in metres, quaternions are w, x, y,
    z. The result is a copy.
    """
    rows = moving(model)
    return np.concatenate([data.xpos[rows], data.xquat[rows]], axis=-1).astype(np.float32)


def stacked(positions: Array, rotations: Array) -> Array:
    """Return positions [B, 3] and quaternions [B, 4] as poses [B, 7], in JAX."""
    import jax.numpy as jnp

    return jnp.concatenate([positions, rotations], axis=-1)


def moving(model: Any) -> np.ndarray:
    """Return the numbers [B] of the bodies of a MuJoCo model that can move."""
    fixed = (np.asarray(model.body_weldid) == 0) & (np.asarray(model.body_mocapid) < 0)
    return np.flatnonzero(~fixed)


def shapes(model: Any) -> tuple[Shape, ...]:
    """Return the visible geometries of a MuJoCo model as shapes.

    If all geometries of the moving bodies are hidden, the hidden ones are returned too. Height
    fields, and meshes beyond the first 20,000 vertices, become boxes of their extent.
    """
    rows = {int(body): row for row, body in enumerate(moving(model))}
    visible = [geom for geom in range(model.ngeom) if _is_visible(model, geom)]
    if not any(int(model.geom_bodyid[geom]) in rows for geom in visible):
        visible = list(range(model.ngeom))
    found, vertices = [], 0
    for geom in visible:
        if int(model.geom_type[geom]) not in _KINDS:
            continue
        vertices += _vertex_count(model, geom)
        found.append(_shape(model, geom, rows, boxed=vertices > _MOST_VERTICES))
    return tuple(found)


def _shape(model: Any, geom: int, rows: dict[int, int], boxed: bool) -> Shape:
    """Return a geometry as a shape. `rows` gives the row of each moving body.

    `boxed` says that a mesh becomes a box.
    """
    from elites.physics import Shape

    body, kind = int(model.geom_bodyid[geom]), _KINDS[int(model.geom_type[geom])]
    position, rotation = np.array(model.geom_pos[geom]), np.array(model.geom_quat[geom])
    size, mesh = _size(kind, model.geom_size[geom]), None
    if kind == "height field" or (kind == "mesh" and boxed):
        centre, half = model.geom_aabb[geom].reshape(2, 3)
        kind, size = "box", half
        position = position + _turned(rotation, centre)
    elif kind == "mesh":
        mesh = _mesh(model, int(model.geom_dataid[geom]))
    if body not in rows:
        while body:  # a fixed body: from its own frame through those of its parents to the world
            turn = np.array(model.body_quat[body])
            position = model.body_pos[body] + _turned(turn, position)
            rotation = _product(turn, rotation)
            body = int(model.body_parentid[body])
    return Shape(
        body=rows.get(body),
        kind=kind,
        position=tuple(position.tolist()),
        rotation=tuple(rotation.tolist()),
        size=tuple(map(float, size)),
        mesh=mesh,
    )


def _size(kind: str, size: np.ndarray) -> tuple[float, ...]:
    """Return the size of a shape from the size of a MuJoCo geometry of that kind.

    MuJoCo's lengths are halves. That of a capsule leaves out the two caps.
    """
    if kind == "sphere":
        return (size[0],)
    if kind == "capsule":
        return (size[0], 2 * (size[1] + size[0]))
    if kind == "cylinder":
        return (size[0], 2 * size[1])
    return tuple(size) if kind in ("box", "ellipsoid") else ()


def _is_visible(model: Any, geom: int) -> bool:
    """Return whether MuJoCo's own viewer shows a geometry at first."""
    colour, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and np.allclose(colour, _DEFAULT_COLOUR):
        colour = model.mat_rgba[material]
    return bool(model.geom_group[geom] <= _LAST_VISIBLE_GROUP and colour[3] > 0)


def _vertex_count(model: Any, geom: int) -> int:
    """Return the number of vertices of a geometry that is a mesh, or 0."""
    is_mesh = _KINDS.get(int(model.geom_type[geom])) == "mesh"
    return int(model.mesh_vertnum[model.geom_dataid[geom]]) if is_mesh else 0


def _mesh(model: Any, number: int):
    """Return a mesh of a MuJoCo model, in the frame of the geometries that use it."""
    from elites.physics import Mesh

    first, count = int(model.mesh_vertadr[number]), int(model.mesh_vertnum[number])
    face, faces = int(model.mesh_faceadr[number]), int(model.mesh_facenum[number])
    return Mesh(
        np.array(model.mesh_vert[first : first + count]),
        np.array(model.mesh_face[face : face + faces]),
    )


def _name(model: Any, body: int) -> str:
    """Return the name of a body of a MuJoCo model, or its number if it has none."""
    return model.body(int(body)).name or f"body {body}"


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product of two quaternions [4], w first."""
    w, v = a[0] * b[0] - a[1:] @ b[1:], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.array([w, *v])


def _turned(rotation: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return a vector [3] turned by a quaternion [4], w first."""
    twice = 2.0 * np.cross(rotation[1:], vector)
    return vector + rotation[0] * twice + np.cross(rotation[1:], twice)
