"""Floor: squares of two colours, the trails of robots, and their shadows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from elites.rendering import pixels as rectangles
from elites.rendering.camera import Camera
from elites.rendering.canvas import LIGHT

_SHADOW = 0.28  # share of the light that a shadow takes away
_FOG = 0.35  # share of the visible distance at which the floor begins to fade


class View(NamedTuple):
    """The floor as cameras see it that look in one direction from one height.

    A camera that only moves sideways sees the same, with other squares. Cameras are level, so a row
    of the picture shows the floor at one depth, and the floor begins below one row.
    """

    top: int  # first row that shows the floor; the other arrays begin with it
    x: np.ndarray  # [rows, width] place on the floor that a pixel shows, from below the camera
    y: np.ndarray
    sharp_x: np.ndarray  # [rows, 1] squares across a pixel, inverted
    sharp_y: np.ndarray
    contrast: np.ndarray  # [rows, 1] difference of a square from the plain colour, from 0 to 1
    plain: np.ndarray  # [3, height, 1] colour between the two kinds of squares
    change: np.ndarray  # [3] colour of the one kind of squares, minus the plain colour
    side: float  # of a square


def view(camera: Camera, ground: float, side: float, far: float, colours: np.ndarray) -> View:
    """Return how a camera sees the floor at the height `ground`.

    `side` is the length of a square. At the distance `far`, the floor has become the background.
    `colours` [3, 3] are those of background and squares.
    """
    rays = camera.rays().astype(np.float32)
    drop = ground - float(camera.position[2])
    down = rays[:, :1, 2]  # [height, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = drop / down
    visible = (depth > 0) & (depth < 2 * far)
    top = int(visible.argmax()) if visible.any() else camera.height
    depth = np.where(visible, depth, 2 * far).astype(np.float32)
    background, one, other = colours.astype(np.float32)[..., None, None]
    fog = np.clip((depth / far - _FOG) / (1 - _FOG), 0, 1)
    plain = (one + other) / 2
    plain = plain + fog * (background - plain)  # [3, height, 1]
    depth, down, fog, rays = depth[top:], down[top:], fog[top:], rays[top:]
    pixel = depth / np.float32(camera.focal * side)
    slanted = pixel / np.maximum(np.abs(down), 0.02)
    across = np.abs(camera.axes[0, :2]).tolist()  # how far x and y run across the picture
    blurs = [pixel * a + slanted * math.sqrt(1 - min(a * a, 1.0)) for a in across]
    contrast = 1 - fog
    for blur in blurs:
        contrast = contrast * np.clip(np.float32(1.5) - blur, 0, 1)
    return View(
        top, depth * rays[..., 0], depth * rays[..., 1], 1 / blurs[0], 1 / blurs[1],
        contrast, plain, ((other - one) / 2).reshape(3), side,
    )  # fmt: skip


class Floor:
    """The floor in the picture of a camera. Trails stay on it, shadows belong to one frame."""

    def __init__(self, camera: Camera, seen: View, ground: float):
        self._camera, self._seen, self._ground = camera, seen, ground
        self._x, self._y = (np.float32(p) for p in camera.position[:2])
        squares = _wave(seen.x, self._x, seen.side, seen.sharp_x)
        squares *= _wave(seen.y, self._y, seen.side, seen.sharp_y)
        squares *= seen.contrast
        self._picture = np.empty((3, camera.height, camera.width), np.float32)
        self._picture[:] = seen.plain
        for plane, change in zip(self._picture, seen.change, strict=True):
            plane[seen.top :] += change * squares

    def trails(self, segments: np.ndarray, width: float, colours: np.ndarray, alpha: float) -> None:
        """Draw trails of a width in metres along segments [m, n, 2, 2] of the floor. They stay.

        There are m trails of n segments each, with colours [m, 3].
        """
        covers = self._covers(segments, np.full(segments.shape[:2], width / 2))
        tints = colours.astype(np.float32)[..., None, None]
        for (rows, columns, coverage), tint in zip(covers, tints, strict=True):
            target = self._picture[:, rows, columns]
            target += alpha * coverage * (tint - target)

    def frame(self, ends: np.ndarray, radii: np.ndarray) -> np.ndarray:
        """Return a picture [3, height, width] of the floor, its trails and shadows.

        The shadows are those of capsules with ends [n, 2, 3].
        """
        moved = ends - LIGHT * ((ends[..., 2:] - self._ground) / LIGHT[2])
        ((rows, columns, coverage),) = self._covers(moved[None, ..., :2], radii[None])
        picture = self._picture.copy()
        picture[:, rows, columns] *= 1 - _SHADOW * coverage
        return picture

    def _covers(self, segments: np.ndarray, radii: np.ndarray) -> Iterator[_Cover]:
        """Yield what each of m groups of strips on the floor covers.

        Strips have round ends, and go along segments [m, n, 2, 2]. Their radii are [m, n].
        """
        groups, each = radii.shape
        segments, radii = segments.reshape(-1, 2, 2), radii.reshape(-1)
        corners = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)]) * radii[:, None, None, None]
        around = (segments[:, :, None] + corners).reshape(len(segments), 8, 2)
        heights = np.full((*around.shape[:2], 1), self._ground)
        places, depths = self._camera.project(np.concatenate([around, heights], -1))
        behind = (depths.min(1) <= 0)[:, None]
        high = np.where(behind, -np.inf, places.max(1))  # strips behind the camera have no pixels
        top, width = self._seen.top, self._camera.width
        pixels = rectangles.within(places.min(1), high, self._camera.size, top)
        on_floor = (pixels.rows - top) * width + pixels.columns
        x = self._seen.x.take(on_floor) + self._x
        y = self._seen.y.take(on_floor) + self._y
        _, dx, dy = rectangles.to_segments(pixels, segments, x, y)
        inverse = self._camera.focal / np.maximum(depths.mean(1), 1e-6)  # pixels in a metre
        edge, inverse = pixels.spread(radii * inverse + 0.5, inverse)
        coverage = np.clip(edge - np.sqrt(dx * dx + dy * dy) * inverse, 0, 1)
        strips = [_Cover(*place, own) for place, (own,) in pixels.parts(coverage)]
        for i in range(groups):
            yield _joined([s for s in strips[i * each : (i + 1) * each] if s.coverage.size])


class _Cover(NamedTuple):
    """A rectangle of the picture, and how much of each pixel there is covered."""

    rows: slice
    columns: slice
    coverage: np.ndarray  # [h, w] from 0 to 1


def _joined(covers: list[_Cover]) -> _Cover:
    """Return what several strips cover together: in each pixel, the most that one of them does."""
    if len(covers) == 1:
        return covers[0]
    top = min((cover.rows.start for cover in covers), default=0)
    left = min((cover.columns.start for cover in covers), default=0)
    bottom = max((cover.rows.stop for cover in covers), default=0)
    right = max((cover.columns.stop for cover in covers), default=0)
    whole = np.zeros((bottom - top, right - left), np.float32)
    for rows, columns, coverage in covers:
        target = whole[rows.start - top : rows.stop - top, columns.start - left :]
        target = target[:, : coverage.shape[1]]
        np.maximum(target, coverage, out=target)
    return _Cover(slice(top, bottom), slice(left, right), whole)


def _wave(x: np.ndarray, moved: np.floating, side: float, sharp: np.ndarray) -> np.ndarray:
    """Return a square wave at x + moved that changes its sign at multiples of a length.

    It goes from -1 to 1. `sharp` is how steep it is at a change.
    """
    wave = (x + moved) * np.float32(0.5 / side)
    wave -= np.float32(0.75)
    wave -= np.rint(wave)  # a quarter where the sign changes
    np.abs(wave, out=wave)
    wave *= -4
    wave += 1
    wave *= sharp
    return np.clip(wave, -1, 1, out=wave)
