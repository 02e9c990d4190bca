"""Floor: squares of two colours, the trails of robots, and their shadows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from elites.rendering.camera import Camera
from elites.rendering.canvas import LIGHT, to_segment

_SHADOW = 0.28  # share of the light that a shadow takes away
_FOG = 0.35  # share of the visible distance at which the floor begins to fade


class View(NamedTuple):
    """The floor as cameras see it that look in one direction from one height.

    A camera that only moves sideways sees the same, with other squares.
    """

    x: np.ndarray  # [height, width] place on the floor that a pixel shows, from below the camera
    y: np.ndarray
    blur_x: np.ndarray  # [height, width] width of a pixel on the floor, in squares
    blur_y: np.ndarray
    visible: np.ndarray  # [height, width] bool
    plain: np.ndarray  # [height, width, 3] colour between the two kinds of squares
    contrast: np.ndarray  # [height, width, 3] difference of a square from it
    side: float


def view(camera: Camera, ground: float, side: float, far: float, colours: np.ndarray) -> View:
    """Return how a camera sees the floor at the height `ground`.

    `side` is the length of a square. At the distance `far`, the floor has become the background.
    `colours` [3, 3] are those of background and squares.
    """
    rays = camera.rays().astype(np.float32)
    drop = ground - float(camera.position[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = drop / rays[..., 2]
    visible = (depth > 0) & (depth < 2 * far)
    depth = np.where(visible, depth, 2 * far).astype(np.float32)
    pixel = depth / np.float32(camera.focal * side)
    slanted = pixel / np.maximum(np.abs(rays[..., 2]), 0.02)
    across = np.abs(camera.axes[0, :2])  # how far x and y run across the picture
    blur_x, blur_y = (pixel * a + slanted * math.sqrt(1 - min(a * a, 1.0)) for a in across)
    background, one, other = colours.astype(np.float32)
    fog = np.clip((depth / far - _FOG) / (1 - _FOG), 0, 1)[..., None]
    plain = (one + other) / 2
    return View(
        depth * rays[..., 0],
        depth * rays[..., 1],
        blur_x,
        blur_y,
        visible,
        plain + fog * (background - plain),
        (1 - fog) * (other - one) / 2,
        side,
    )


class Floor:
    """The floor in the picture of a camera. Trails stay, shadows belong to one frame."""

    def __init__(self, camera: Camera, seen: View, ground: float):
        self._camera, self._ground, self._visible = camera, ground, seen.visible
        self._x = seen.x + np.float32(camera.position[0])
        self._y = seen.y + np.float32(camera.position[1])
        squares = _wave(self._x / seen.side, seen.blur_x) * _wave(self._y / seen.side, seen.blur_y)
        self._picture = seen.plain + squares[..., None] * seen.contrast
        self._dark = np.zeros(squares.shape, np.float32)

    def trails(self, segments: np.ndarray, width: float, colours: np.ndarray, alpha: float) -> None:
        """Draw lines of a width in metres along segments [n, 2, 2] of the floor. They stay.

        `colours` [n, 3] has the colour of each.
        """
        for place, coverage in self._strips(segments, np.full(len(segments), width / 2)):
            rows, columns, i = place
            target = self._picture[rows, columns]
            target += (alpha * coverage)[..., None] * (colours[i] - target)

    def shadows(self, ends: np.ndarray, radii: np.ndarray) -> None:
        """Add the shadows of capsules with ends [n, 2, 3] to the next picture."""
        moved = ends - LIGHT * ((ends[..., 2:] - self._ground) / LIGHT[2])
        for (rows, columns, _), coverage in self._strips(moved[..., :2], radii):
            target = self._dark[rows, columns]
            np.maximum(target, coverage, out=target)

    def frame(self) -> np.ndarray:
        """Return a picture [height, width, 3] of the floor, its trails and the shadows added.

        The shadows are then removed.
        """
        picture = self._picture * (1 - _SHADOW * self._dark)[..., None]
        self._dark[:] = 0
        return picture

    def _strips(self, segments: np.ndarray, radii: np.ndarray):
        """Yield rows, columns and number of each visible strip on the floor, and its coverage.

        Strips have round ends, and go along segments [n, 2, 2].
        """
        corners = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)]) * radii[:, None, None, None]
        around = (segments[:, :, None] + corners).reshape(len(segments), 8, 2)
        heights = np.full((*around.shape[:2], 1), self._ground)
        places, depths = self._camera.project(np.concatenate([around, heights], -1))
        size = np.array([self._camera.width, self._camera.height])
        low = np.clip(places.min(1), 0, size).astype(int)
        high = np.clip(places.max(1) + 2, 0, size).astype(int)
        pixel = depths.mean(1) / self._camera.focal
        for i in np.flatnonzero((high > low).all(1) & (depths.min(1) > 0)):
            rows, columns = slice(low[i, 1], high[i, 1]), slice(low[i, 0], high[i, 0])
            _, dx, dy = to_segment(segments[i], self._x[rows, columns], self._y[rows, columns])
            edge = float(radii[i] / pixel[i]) + 0.5
            coverage = np.clip(edge - np.sqrt(dx * dx + dy * dy) / float(pixel[i]), 0, 1)
            yield (rows, columns, int(i)), coverage * self._visible[rows, columns]


def _wave(x: np.ndarray, blur: np.ndarray) -> np.ndarray:
    """Return a square wave at x that changes its sign at whole numbers, smoothed over a width."""
    half = x * np.float32(0.5) - np.float32(0.25)
    triangle = 1 - 4 * np.abs(half - np.floor(half) - np.float32(0.5))  # 0 where the sign changes
    return np.clip(triangle / blur, -1, 1) * np.clip(np.float32(1.5) - blur, 0, 1)
