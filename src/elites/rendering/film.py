"""Frames of one robot, of several side by side, or of many in one world."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from elites.rendering import camera as cameras
from elites.rendering import floor as floors
from elites.rendering import shapes
from elites.rendering.camera import Camera
from elites.rendering.canvas import Canvas, Capsules
from elites.rendering.floor import Floor
from elites.rendering.shapes import Part
from elites.rendering.text import Caption
from elites.tasks.scenes import Scene

_PAPER = np.array([shapes.colour(c) for c in ("#f4f6f8", "#eceff2", "#d9dee4")])
_WALL = shapes.colour(shapes.WALL)
_WALL_ALPHA = 0.6
_TRAIL_ALPHA = 0.5
_TRAIL_STEPS, _TRAIL_SEGMENTS = 4, 40  # of a robot that is followed
_SMALLEST = 0.045  # size of a robot in a world of many, as a share of the world's


class Take(NamedTuple):
    """A recorded robot: what is written above it, where its bodies were, and their colours."""

    title: str
    poses: np.ndarray  # [frames, B, 7]
    colours: np.ndarray  # [B, 3]


class _Robot:
    """The moving parts of a scene, as arrays that can be moved to any poses at once."""

    def __init__(self, scene: Scene):
        moving = [part for part in shapes.parts(scene) if part.body is not None]
        self._round = [part for part in moving if part.ends is not None]
        self._flat = [part for part in moving if part.ends is None]
        self.radii = np.array([part.radius for part in self._round])

    def placed(self, poses: np.ndarray, scale: float = 1.0) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return ends [n, 2, 3] of capsules, and triangles [m, 3, 3] of each other part.

        `poses` [B, 7] are those of the bodies. `scale` enlarges the robot around its first body,
        above the floor below it.
        """
        turns, moves = shapes.rotations(poses[:, 3:]), poses[:, :3]
        base = np.array([moves[0, 0], moves[0, 1], 0.0])

        def world(points: np.ndarray, body: int) -> np.ndarray:
            return base + scale * (points @ turns[body].T + moves[body] - base)

        ends = [world(part.ends, part.body) for part in self._round]  # pyright: ignore
        corners = [world(part.corners, part.body) for part in self._flat]  # pyright: ignore
        return np.array(ends).reshape(-1, 2, 3), corners

    def box(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest corner [3] of the robot at poses [B, 7]."""
        ends, corners = self.placed(poses)
        radii = self.radii[:, None, None]
        points = [poses[:, :3], (ends - radii).reshape(-1, 3), (ends + radii).reshape(-1, 3)]
        points = np.concatenate([*points, *(c.reshape(-1, 3) for c in corners)])
        return points.min(0), points.max(0)

    def colours(self, bodies: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the colours of capsules [n, 3] and of the other parts, from those of bodies."""
        ends = np.array([bodies[part.body] for part in self._round]).reshape(-1, 3)
        return ends, [bodies[part.body] for part in self._flat]


class _Stage:
    """A scene and its robots, ready to be drawn."""

    def __init__(self, scene: Scene, takes: Sequence[Take], scale: float = 1.0):
        self.robot, self.takes, self.scale = _Robot(scene), takes, scale
        self.ground = shapes.ground(scene)
        self._colours = [self.robot.colours(take.colours) for take in takes]
        self._walls = [part for part in shapes.parts(scene) if part.body is None]

    def draw(self, camera: Camera, floor: Floor, frame: int) -> np.ndarray:
        """Return the picture [height, width, 3] of all robots in a frame."""
        ends, radii, colours, corners, faces = [], [], [], [], []
        for take, (rounds, flats) in zip(self.takes, self._colours, strict=True):
            poses = take.poses[min(frame, len(take.poses) - 1)]
            segments, triangles = self.robot.placed(poses, self.scale)
            ends.append(segments)
            radii.append(self.robot.radii * self.scale)
            colours.append(rounds)
            for colour, surface in zip(flats, triangles, strict=True):
                corners.append(surface)
                faces.append(np.broadcast_to(colour, (len(surface), 3)))
        capsules = Capsules(np.concatenate(ends), np.concatenate(radii), np.concatenate(colours))
        _cast_shadows(floor, capsules, corners)
        canvas = Canvas(camera, floor.frame())
        if corners:
            canvas.triangles(np.concatenate(corners), np.concatenate(faces))
        canvas.capsules(capsules)
        self._draw_walls(canvas)
        return canvas.picture

    def _draw_walls(self, canvas: Canvas) -> None:
        """Draw the scenery, through which robots can be seen."""
        for part in self._walls:
            if part.ends is not None:
                canvas.capsules(
                    Capsules(part.ends[None], np.array([part.radius]), _WALL[None]), _WALL_ALPHA
                )
            elif part.corners is not None:
                colours = np.broadcast_to(_WALL, (len(part.corners), 3))
                canvas.triangles(part.corners, colours, _WALL_ALPHA)

    def wall_points(self) -> np.ndarray:
        """Return points [n, 3] that enclose the scenery."""
        found = [_points(part) for part in self._walls]
        return np.concatenate([np.empty((0, 3)), *found])


def _points(part: Part) -> np.ndarray:
    """Return the points [n, 3] that define a part."""
    found = part.ends if part.ends is not None else part.corners
    assert found is not None
    return found.reshape(-1, 3)


def _cast_shadows(floor: Floor, capsules: Capsules, surfaces: list[np.ndarray]) -> None:
    """Add the shadows of capsules, and those of surfaces as if they were capsules, to a floor."""
    ends, radii = list(capsules.ends), list(capsules.radii)
    for surface in surfaces:
        points = surface.reshape(-1, 3)
        centre = points.mean(0)
        axes = np.linalg.svd(points - centre, full_matrices=False)[2]
        reach = np.abs((points - centre) @ axes.T).max(0)
        radii.append(float(reach[1]))
        half = max(float(reach[0] - reach[1]), 0.0) * axes[0]
        ends.append(np.stack([centre - half, centre + half]))
    if ends:
        floor.shadows(np.array(ends), np.array(radii))


# ------------------------------------------------------------------------------------------- films


def following(
    scene: Scene, take: Take, frames: Sequence[int], size: tuple[int, int]
) -> Iterator[np.ndarray]:
    """Yield pictures of one robot, from a camera that moves beside it.

    `size` is the width and height of the pictures in pixels. If the scene asks for a fixed camera,
    it is the one of `together`.
    """
    if scene.camera == "fixed":
        yield from together(scene, [take], frames, size)
        return
    stage, caption = _Stage(scene, [take]), Caption(take.title, size)
    low, high = stage.robot.box(take.poses[0])
    radius = max(float(np.linalg.norm(high - low)) / 2, 0.02)
    path = _smoothed(take.poses[:, 0, :2] + ((low + high) / 2 - take.poses[0, 0, :3])[:2])
    height = (low[2] + high[2]) / 2

    def camera_at(frame: int) -> Camera:
        target = np.array([*path[min(frame, len(path) - 1)], height])
        return cameras.looking_at(target, radius, size, stage.ground)

    seen = floors.view(camera_at(0), stage.ground, _side(radius), 16 * radius, _PAPER)
    for frame in frames:
        camera = camera_at(frame)
        floor = Floor(camera, seen, stage.ground)
        walked = take.poses[: frame + 1 : _TRAIL_STEPS, 0, :2][-_TRAIL_SEGMENTS:]
        segments = np.stack([walked[:-1], walked[1:]], 1)
        colours = np.broadcast_to(take.colours[0], (len(segments), 3))
        floor.trails(segments, 0.06 * radius, colours, _TRAIL_ALPHA)
        yield _finished(caption.on(stage.draw(camera, floor, frame)))


def together(
    scene: Scene, takes: Sequence[Take], frames: Sequence[int], size: tuple[int, int]
) -> Iterator[np.ndarray]:
    """Yield pictures of robots in one world, from a camera that sees all their paths.

    In a world that is far larger than the robots, they are drawn larger than they are.
    """
    low, high = _Robot(scene).box(takes[0].poses[0])
    own = max(float(np.linalg.norm(high - low)) / 2, 0.02)
    paths = np.concatenate([take.poses[:, 0, :3] for take in takes])
    world = max(float(np.linalg.norm(np.ptp(paths, axis=0))) / 2, own)
    stage = _Stage(scene, takes, max(_SMALLEST * world / own, 1.0))
    around = own * stage.scale * np.array([(s, t, 0) for s in (-1, 1) for t in (-1, 1)])
    points = np.concatenate([*(paths[::5] + corner for corner in around), stage.wall_points()])
    camera = cameras.enclosing(points, size, stage.ground)
    seen = floors.view(camera, stage.ground, _side(world / 2), 12 * world, _PAPER)
    floor, before = Floor(camera, seen, stage.ground), 0
    caption = Caption(takes[0].title if len(takes) == 1 else "", size)
    for frame in frames:
        ends = [take.poses[[before, frame]][:, 0, :2] for take in takes if frame < len(take.poses)]
        colours = [take.colours[0] for take in takes if frame < len(take.poses)]
        if ends:
            width = max(0.06 * own, 0.006 * world)
            floor.trails(np.array(ends), width, np.array(colours), _TRAIL_ALPHA)
        before = frame
        yield _finished(caption.on(stage.draw(camera, floor, frame)))


def side_by_side(
    scene: Scene, takes: Sequence[Take], frames: Sequence[int], size: tuple[int, int], columns: int
) -> Iterator[np.ndarray]:
    """Yield pictures of robots in panels of a size, `columns` of them in a row."""
    films = [following(scene, take, frames, size) for take in takes]
    (width, height), rows = size, -(-len(takes) // columns)
    for pictures in zip(*films, strict=True):
        sheet = np.full((rows * height, columns * width, 3), 255, np.uint8)
        for i, picture in enumerate(pictures):
            top, left = i // columns * height, i % columns * width
            sheet[top : top + height, left : left + width] = picture
            sheet[top : top + height, left + width - 1] = 255  # a line between the panels
            sheet[top + height - 1, left : left + width] = 255
        yield sheet


def _side(radius: float) -> float:
    """Return the length of a square of the floor: the power of ten nearest to a radius."""
    return 10.0 ** round(math.log10(radius))


def _smoothed(path: np.ndarray, width: int = 6) -> np.ndarray:
    """Return a path [n, 2] without its jitter, so that a camera that follows it stays calm.

    It is averaged over frames with a Gaussian of a width. At its ends it is continued point
    symmetrically, so that the camera does not lag there.
    """
    width = min(width, (len(path) - 1) // 3)
    if not width:
        return path
    steps = np.arange(-3 * width, 3 * width + 1)
    weights = np.exp(-0.5 * (steps / width) ** 2)
    longer = np.pad(path, ((3 * width, 3 * width), (0, 0)), "reflect", reflect_type="odd")
    weights /= weights.sum()
    return np.stack([np.convolve(longer[:, i], weights, "valid") for i in range(2)], 1)


def _finished(picture: np.ndarray) -> np.ndarray:
    """Return a picture as bytes [height, width, 3]."""
    return np.clip(picture, 0, 255).astype(np.uint8)
