"""Camera: where it stands, and where points of the world appear in the picture."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

FIELD_OF_VIEW = math.radians(40.0)  # vertical
AROUND, ABOVE = -2.1, 0.5  # default angles around the target and above the ground, in radians


class Camera(NamedTuple):
    """A camera and the size of its picture in pixels."""

    position: np.ndarray  # [3]
    axes: np.ndarray  # [3, 3] rows: right, down and forward
    focal: float  # pixels
    width: int
    height: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        return self.width, self.height

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where points [..., 3] appear, in pixels [..., 2], and their depths [...].

        The places of points behind the camera have no meaning.
        """
        seen = (points - self.position) @ self.axes.T
        depth = seen[..., 2]
        safe = np.maximum(depth, 1e-6)[..., None]
        middle = np.array([self.width / 2, self.height / 2])
        return middle + self.focal * seen[..., :2] / safe, depth

    def rays(self) -> np.ndarray:
        """Return the direction [height, width, 3] in which each pixel looks. Its depth is 1."""
        across = (np.arange(self.width) + 0.5 - self.width / 2) / self.focal
        down = (np.arange(self.height) + 0.5 - self.height / 2) / self.focal
        right, below, forward = self.axes
        return forward + across[None, :, None] * right + down[:, None, None] * below


def looking_at(
    target: np.ndarray,
    radius: float,
    size: tuple[int, int],
    ground: float = 0.0,
    around: float = AROUND,
    above: float = ABOVE,
) -> Camera:
    """Return a camera that shows a sphere of a radius around a target [3].

    `size` is the width and height of the picture in pixels. The camera stays above the ground.
    """
    width, height = size
    narrow = min(1.0, width / height)
    distance = radius / math.sin(FIELD_OF_VIEW / 2) / narrow
    offset = np.array(
        [
            math.cos(around) * math.cos(above),
            math.sin(around) * math.cos(above),
            math.sin(above),
        ]
    )
    position = target + distance * offset
    position[2] = max(position[2], ground + 0.05 * radius)
    forward = target - position
    forward /= np.linalg.norm(forward)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(forward, right), forward])
    return Camera(position, axes, height / 2 / math.tan(FIELD_OF_VIEW / 2), width, height)


def enclosing(
    points: np.ndarray, size: tuple[int, int], ground: float = 0.0, above: float = 0.85
) -> Camera:
    """Return a camera whose picture just contains points [n, 3]."""
    target = (points.min(0) + points.max(0)) / 2
    radius = float(np.linalg.norm(points - target, axis=1).max())
    camera = looking_at(target, radius, size, ground, above=above)
    for _ in range(12):  # perspective makes near points larger, so the middle has to be found
        places, depths = camera.project(points)
        low, high = places.min(0), places.max(0)
        off = (low + high) / 2 - np.array(size) / 2
        scale = float(depths.mean()) / camera.focal
        target = target + scale * (off[0] * camera.axes[0] + off[1] * camera.axes[1])
        radius *= float(((high - low) / np.array(size)).max()) / 0.96
        camera = looking_at(target, radius, size, ground, above=above)
    return camera
