"""Canvas: a picture on which capsules and triangles are drawn.

Edges are smoothed by the share of a pixel that they cover, so parts have to be drawn from back to
front. A depth for each pixel decides where parts intersect. Pictures are stored as three planes,
red, green and blue, because NumPy computes whole planes fastest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from elites.rendering import pixels as rectangles
from elites.rendering.camera import Camera
from elites.rendering.pixels import Pixels

LIGHT = np.array([0.25, -0.5, 0.83])  # direction to the light, in the world
_AMBIENT, _DIFFUSE = 0.55, 0.5
_BRIGHTEST = 255 / (_AMBIENT + _DIFFUSE * float(np.linalg.norm(LIGHT)))  # of a colour in full light
_COVERED = 0.99  # of a pixel; where less is covered, a neighbouring part must not be hidden
_NEAR = 1e-3  # parts that come closer to the camera than this are left out


class Capsules(NamedTuple):
    """Capsules in the world. A sphere is a capsule whose ends are equal."""

    ends: np.ndarray  # [n, 2, 3]
    radii: np.ndarray  # [n]
    colours: np.ndarray  # [n, 3]


class Canvas:
    """A picture that a camera takes, and the depth of each of its pixels."""

    def __init__(self, camera: Camera, picture: np.ndarray):
        """Start with a background `picture` [3, height, width], which is changed in place."""
        self.camera, self.picture = camera, picture
        self._depth = np.full(picture.shape[1:], np.inf, np.float32)
        self._light = [float(v) for v in camera.axes @ LIGHT]

    def capsules(self, capsules: Capsules, alpha: float = 1.0) -> None:
        """Draw capsules, the farthest first. `alpha` below 1 makes them transparent."""
        places, depths = self.camera.project(capsules.ends)
        order = np.argsort(-depths.mean(1))
        order = order[(depths.min(1) > _NEAR + capsules.radii)[order]]
        places, depths, radii = places[order], depths[order], capsules.radii[order]
        reach = self.camera.focal * radii[:, None] / depths  # in pixels
        low = (places - reach[..., None]).min(1)
        high = (places + reach[..., None]).max(1)
        pixels = rectangles.within(low, high, self.camera.size)
        along, dx, dy = rectangles.to_segments(pixels, places, *_centres(pixels))
        first, change, near, farther, radius = pixels.spread(
            reach[:, 0], reach[:, 1] - reach[:, 0], depths[:, 0], depths[:, 1] - depths[:, 0], radii
        )
        reached = along * change + first
        dx /= reached
        dy /= reached
        squared = dx * dx + dy * dy
        coverage = np.clip((1 - np.sqrt(squared)) * reached + np.float32(0.5), 0, alpha)
        height = np.sqrt(np.maximum(1 - squared, 0))
        depth = along * farther + near - radius * height
        lx, ly, lz = self._light
        shade = _AMBIENT + _DIFFUSE * np.maximum(lx * dx + ly * dy - lz * height, 0)
        self._blend(pixels, depth, coverage, shade, capsules.colours[order], alpha == 1.0)

    def triangles(self, corners: np.ndarray, colours: np.ndarray, alpha: float = 1.0) -> None:
        """Draw the triangles [n, 3, 3] of closed surfaces, the farthest first.

        `colours` [n, 3] has the colour of each. Those that face away from the camera are hidden.
        """
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        facing = ((corners[:, 0] - self.camera.position) * normals).sum(1) < 0
        places, depths = self.camera.project(corners)
        (ax, ay), (bx, by), (cx, cy) = np.moveaxis(places, 0, -1)
        area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
        order = np.argsort(-depths.mean(1))
        order = order[(facing & (np.abs(area) > 1e-6) & (depths.min(1) > _NEAR))[order]]
        places, area, normals = places[order], area[order], normals[order]
        pixels = rectangles.within(places.min(1), places.max(1), self.camera.size)
        first, second, third = _shares(pixels, places, area)
        sides = np.linalg.norm(np.roll(places, -1, 1) - np.roll(places, -2, 1), axis=2)
        heights = pixels.spread(*(np.abs(area)[:, None] / sides).T)
        inside = np.minimum(np.minimum(first * heights[0], second * heights[1]), third * heights[2])
        # Neighbouring triangles overlap by half a pixel, which hides the edge between them.
        coverage = np.clip(inside + 1, 0, alpha)
        ends = pixels.spread(*depths[order].T)
        depth = first * ends[0] + second * ends[1] + third * ends[2]
        bright = normals @ LIGHT / np.linalg.norm(normals, axis=1)
        (shade,) = pixels.spread(_AMBIENT + _DIFFUSE * np.maximum(bright, 0))
        self._blend(pixels, depth, coverage, shade, colours[order], alpha == 1.0)

    def _blend(
        self,
        pixels: Pixels,
        depth: np.ndarray,
        coverage: np.ndarray,
        shade: np.ndarray,
        colours: np.ndarray,
        solid: bool,
    ) -> None:
        """Mix parts into the picture one after the other, where nothing nearer has been drawn.

        `colours` [n, 3] are those of the parts. The other arguments [k] belong to their pixels.
        Only solid parts hide what is drawn behind them later.
        """
        tints = np.minimum(colours, _BRIGHTEST).astype(np.float32)[..., None, None]
        parts = pixels.parts(depth, coverage, shade)
        for ((rows, columns), (deep, weight, bright)), tint in zip(parts, tints, strict=True):
            behind = self._depth[rows, columns]
            weight *= deep < behind
            target = self.picture[:, rows, columns]
            target += weight * (bright * tint - target)
            if solid:
                np.copyto(behind, deep, where=weight > _COVERED)


def _centres(pixels: Pixels) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the centres of pixels in the picture: x [k] and y [k]."""
    half = np.float32(0.5)
    return pixels.columns.astype(np.float32) + half, pixels.rows.astype(np.float32) + half


def _shares(pixels: Pixels, places: np.ndarray, area: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the barycentric coordinates [k] of pixels in triangles [n, 3, 2] of an area [n]."""
    corners = np.moveaxis(places, 0, -1).reshape(6, -1)
    ax, ay, bx, by, cx, cy, whole = pixels.spread(*corners, area)
    x, y = _centres(pixels)
    first = ((bx - x) * (cy - y) - (cx - x) * (by - y)) / whole
    second = ((cx - x) * (ay - y) - (ax - x) * (cy - y)) / whole
    return first, second, 1 - first - second
