"""Canvas: a picture on which capsules and triangles are drawn.

Every part is drawn into the rectangle of pixels that it covers. Edges are smoothed by the share of
a pixel that they cover, so parts have to be drawn from back to front. A depth for each pixel
decides where parts intersect.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elites.rendering.camera import Camera

LIGHT = np.array([0.25, -0.5, 0.83])  # direction to the light, in the world
_AMBIENT, _DIFFUSE = 0.55, 0.5
_NEAR = 1e-3  # parts that come closer to the camera than this are left out


class Capsules(NamedTuple):
    """Capsules in the world. A sphere is a capsule whose ends are equal."""

    ends: np.ndarray  # [n, 2, 3]
    radii: np.ndarray  # [n]
    colours: np.ndarray  # [n, 3]


class Canvas:
    """A picture that a camera takes, and the depth of each of its pixels."""

    def __init__(self, camera: Camera, picture: np.ndarray):
        """Start with a background `picture` [height, width, 3], which is changed in place."""
        self.camera, self.picture = camera, picture
        self._depth = np.full(picture.shape[:2], np.inf, np.float32)
        self._light = [float(v) for v in camera.axes @ LIGHT]

    def capsules(self, capsules: Capsules, alpha: float = 1.0) -> None:
        """Draw capsules, the farthest first. `alpha` below 1 makes them transparent."""
        places, depths = self.camera.project(capsules.ends)
        reach = self.camera.focal * capsules.radii[:, None] / np.maximum(depths, _NEAR)
        low = (places - reach[..., None]).min(1)
        high = (places + reach[..., None]).max(1)
        visible = depths.min(1) > _NEAR + capsules.radii
        for i in np.argsort(-depths.mean(1)):
            pixels = _pixels(self.camera, low[i], high[i]) if visible[i] else None
            if pixels is not None:
                radius, colour = float(capsules.radii[i]), capsules.colours[i]
                self._capsule(pixels, places[i], depths[i], reach[i], radius, colour, alpha)

    def _capsule(
        self,
        pixels: Pixels,
        places: np.ndarray,
        depths: np.ndarray,
        reach: np.ndarray,
        radius: float,
        colour: np.ndarray,
        alpha: float,
    ) -> None:
        """Draw one capsule, whose ends appear at places [2, 2] with radii `reach` [2] in pixels."""
        along, dx, dy = to_segment(places, pixels.x, pixels.y)
        reached = along * float(reach[1] - reach[0]) + float(reach[0])
        dx /= reached
        dy /= reached
        squared = dx * dx + dy * dy
        height = np.sqrt(np.maximum(1 - squared, 0))
        depth = along * float(depths[1] - depths[0]) + float(depths[0]) - radius * height
        coverage = np.clip((1 - np.sqrt(squared)) * reached + 0.5, 0, alpha)
        lx, ly, lz = self._light
        shade = _AMBIENT + _DIFFUSE * np.maximum(lx * dx + ly * dy - lz * height, 0)
        self._blend(pixels, depth, coverage, shade, colour, alpha == 1.0)

    def triangles(self, corners: np.ndarray, colours: np.ndarray, alpha: float = 1.0) -> None:
        """Draw the triangles [n, 3, 3] of closed surfaces, the farthest first.

        `colours` [n, 3] has the colour of each. Those that face away from the camera are hidden.
        """
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        length = np.linalg.norm(normals, axis=1)
        facing = ((corners[:, 0] - self.camera.position) * normals).sum(1) < 0
        chosen = np.flatnonzero(facing & (length > 0))
        places, depths = self.camera.project(corners[chosen])
        bright = normals[chosen] @ LIGHT / length[chosen]
        shades = (_AMBIENT + _DIFFUSE * np.maximum(bright, 0)).astype(np.float32)
        low, high, nearest = places.min(1) - 1, places.max(1) + 1, depths.min(1)
        for i in np.argsort(-depths.mean(1)):
            pixels = _pixels(self.camera, low[i], high[i]) if nearest[i] > _NEAR else None
            if pixels is not None:
                self._triangle(pixels, places[i], depths[i], shades[i], colours[chosen[i]], alpha)

    def _triangle(
        self,
        pixels: Pixels,
        places: np.ndarray,
        depths: np.ndarray,
        shade: np.ndarray,
        colour: np.ndarray,
        alpha: float,
    ) -> None:
        """Draw one triangle, whose corners appear at places [3, 2] in pixels."""
        (ax, ay), (bx, by), (cx, cy) = places.tolist()
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        if abs(area) < 1e-6:
            return
        x, y = pixels.x, pixels.y
        first = ((bx - x) * (cy - y) - (cx - x) * (by - y)) / area
        second = ((cx - x) * (ay - y) - (ax - x) * (cy - y)) / area
        third = 1 - first - second
        heights = abs(area) / np.hypot([bx - cx, cx - ax, ax - bx], [by - cy, cy - ay, ay - by])
        inside = np.minimum(np.minimum(first * heights[0], second * heights[1]), third * heights[2])
        depth = first * float(depths[0]) + second * float(depths[1]) + third * float(depths[2])
        # Neighbouring triangles overlap by half a pixel, which hides the edge between them.
        coverage = np.clip(inside + 1, 0, alpha)
        self._blend(pixels, depth, coverage, shade, colour, alpha == 1.0)

    def _blend(
        self,
        pixels: Pixels,
        depth: np.ndarray,
        coverage: np.ndarray,
        shade: np.ndarray,
        colour: np.ndarray,
        solid: bool,
    ) -> None:
        """Mix a part into a rectangle of the picture, where nothing nearer has been drawn.

        Only solid parts hide what is drawn behind them later.
        """
        behind = self._depth[pixels.rows, pixels.columns]
        nearer = depth < behind
        target = self.picture[pixels.rows, pixels.columns]
        target += (coverage * nearer)[..., None] * (shade[..., None] * colour - target)
        if solid:
            np.copyto(behind, depth, where=nearer & (coverage > 0.5))


class Pixels(NamedTuple):
    """A rectangle of pixels: its rows and columns, and the places of the pixels' centres."""

    rows: slice
    columns: slice
    x: np.ndarray  # [1, w]
    y: np.ndarray  # [h, 1]


def _pixels(camera: Camera, low: np.ndarray, high: np.ndarray) -> Pixels | None:
    """Return the pixels between two corners [2], or None if they lie outside of the picture."""
    left, top = max(int(low[0]), 0), max(int(low[1]), 0)
    right, bottom = min(int(high[0]) + 2, camera.width), min(int(high[1]) + 2, camera.height)
    if left >= right or top >= bottom:
        return None
    x = np.arange(left, right, dtype=np.float32)[None] + np.float32(0.5)
    y = np.arange(top, bottom, dtype=np.float32)[:, None] + np.float32(0.5)
    return Pixels(slice(top, bottom), slice(left, right), x, y)


def to_segment(
    ends: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the share of a segment [2, 2] that is nearest to points (x, y), and the way to them.

    The way has two parts, along x and along y.
    """
    (ax, ay), (bx, by) = ends.tolist()
    ux, uy = bx - ax, by - ay
    squared = max(ux * ux + uy * uy, 1e-12)
    dx, dy = x - ax, y - ay
    along = np.clip((dx * ux + dy * uy) / squared, 0, 1)
    return along, dx - along * ux, dy - along * uy
