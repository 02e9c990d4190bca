"""Shapes of a scene as parts that can be drawn: capsules and triangles, with their colours."""

from __future__ import annotations

import colorsys
import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # otherwise the helpers would load JAX
    from elites.physics import Shape
    from elites.tasks.scenes import Scene

# Colours of Okabe and Ito, which people with colour blindness can tell apart.
_LIMBS = ("#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
CORE = "#0072b2"
WALL = "#9aa3ad"


class Part(NamedTuple):
    """A capsule or a set of triangles, in the frame of its body.

    Triangles have a capsule as well, which is about as large as they are, for their shadow.
    """

    body: int | None  # None for scenery
    ends: np.ndarray  # [2, 3] of the capsule
    radius: float
    corners: np.ndarray | None  # [n, 3, 3] of triangles


class Setting(NamedTuple):
    """A scene in a form that can be drawn, and sent to another process."""

    parts: tuple[Part, ...]
    ground: float
    """Height of the floor."""
    fixed: bool
    """Whether the camera stands still, in a place from which it sees all."""


def setting(scene: Scene) -> Setting:
    """Return a scene in the form that can be drawn. Planes are drawn as the floor."""
    parts = tuple(_part(shape) for shape in scene.shapes if shape.kind != "plane")
    return Setting(parts, ground(scene), scene.camera == "fixed")


def ground(scene: Scene) -> float:
    """Return the height of the floor: that of the first plane, or 0 without a plane."""
    return next((s.position[2] for s in scene.shapes if s.kind == "plane"), 0.0)


def _part(shape: Shape) -> Part:
    """Return a shape as a part."""
    turn, move = rotations(np.array(shape.rotation)), np.array(shape.position)
    if shape.kind in ("capsule", "sphere"):
        radius = shape.size[0]
        half = max(shape.size[1] / 2 - radius, 0.0) if shape.kind == "capsule" else 0.0
        ends = np.array([[0.0, 0.0, -half], [0.0, 0.0, half]])
        return Part(shape.body, ends @ turn.T + move, radius, None)
    corners = _triangles(shape) @ turn.T + move
    return Part(shape.body, *_capsule(corners), corners)


def _capsule(corners: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the ends [2, 3] and the radius of a capsule that is about as large as triangles."""
    points = corners.reshape(-1, 3)
    centre = points.mean(0)
    axes = np.linalg.svd(points - centre, full_matrices=False)[2]
    reach = np.abs((points - centre) @ axes.T).max(0)
    half = max(float(reach[0] - reach[1]), 0.0) * axes[0]
    return np.stack([centre - half, centre + half]), float(reach[1])


def _triangles(shape: Shape) -> np.ndarray:
    """Return the surface of a shape as triangles [n, 3, 3], in the frame of the shape."""
    if shape.kind == "mesh":
        assert shape.mesh is not None
        return np.asarray(shape.mesh.vertices, float)[np.asarray(shape.mesh.faces)]
    if shape.kind == "box":
        return _box() * np.array(shape.size)
    if shape.kind == "ellipsoid":
        return _ball() * np.array(shape.size)
    radius, length = shape.size  # a cylinder
    return _cylinder() * np.array([radius, radius, length / 2])


def _surface(points: np.ndarray) -> np.ndarray:
    """Return the triangles [n, 3, 3] of a grid of points [rows, columns, 3], closed in columns."""
    right, below = np.roll(points, -1, 1), points[1:]
    a, b, c, d = points[:-1], right[:-1], np.roll(below, -1, 1), below
    pairs = np.stack([np.stack([a, d, b], -2), np.stack([b, d, c], -2)])
    return pairs.reshape(-1, 3, 3)


@functools.cache
def _ball() -> np.ndarray:
    """Return the triangles of a sphere of radius 1."""
    return _revolved(np.sin(np.linspace(0, np.pi, 9)), np.cos(np.linspace(0, np.pi, 9)))


@functools.cache
def _cylinder() -> np.ndarray:
    """Return the triangles of a cylinder of radius 1 between the heights -1 and 1."""
    return _revolved(np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, -1.0, -1.0]))


def _revolved(radii: np.ndarray, heights: np.ndarray, sides: int = 16) -> np.ndarray:
    """Return the triangles of a profile that is turned around the z axis."""
    angles = np.arange(sides) / sides * 2 * np.pi
    x, y = np.outer(radii, np.cos(angles)), np.outer(radii, np.sin(angles))
    return _surface(np.stack([x, y, np.repeat(heights[:, None], sides, 1)], -1))


@functools.cache
def _box() -> np.ndarray:
    """Return the triangles of a box between the corners -1 and 1, with normals that point out."""
    found = []
    for axis in range(3):
        for side in (-1.0, 1.0):
            corners = []
            for u, v in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
                corner = np.zeros(3)
                corner[axis], corner[(axis + 1) % 3], corner[(axis + 2) % 3] = side, u * side, v
                corners.append(corner)
            a, b, c, d = corners
            found += [[a, b, c], [a, c, d]]
    return np.array(found)


def rotations(quaternions: np.ndarray) -> np.ndarray:
    """Return the rotation matrices [..., 3, 3] of quaternions [..., 4], w first."""
    q = quaternions / np.maximum(np.linalg.norm(quaternions, axis=-1, keepdims=True), 1e-12)
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


# ----------------------------------------------------------------------------------------- colours


def body_colours(scene: Scene) -> np.ndarray:
    """Return a colour [B, 3] for each body: one for each limb, darker at its end.

    Left and right legs thus differ, and so do leg and foot.
    """
    limbs, ends = scene.limbs(), scene.limb_ends()
    found = np.empty((len(scene.bodies), 3), np.float32)
    for body, limb in enumerate(limbs):
        name = CORE if limb == 0 else _LIMBS[(limb - 1) % len(_LIMBS)]
        found[body] = colour(name) * (0.62 if ends[body] and limb else 1.0)
    return found


def tinted(scene: Scene, hue: float) -> np.ndarray:
    """Return a colour [B, 3] for each body of a robot that has one hue, from 0 to 1."""
    core = np.array(colorsys.hls_to_rgb(hue, 0.45, 0.75), np.float32) * 255
    limb = np.array(colorsys.hls_to_rgb(hue, 0.62, 0.60), np.float32) * 255
    return np.where(np.array(scene.limbs())[:, None] == 0, core, limb).astype(np.float32)


def colour(name: str) -> np.ndarray:
    """Return a colour such as #0072b2 as numbers [3] from 0 to 255."""
    return np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)], np.float32)
