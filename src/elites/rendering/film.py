"""Frames of one robot, of several side by side, or of many in one world."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from elites.rendering import camera as cameras
from elites.rendering import floor as floors
from elites.rendering import shapes
from elites.rendering.camera import Camera
from elites.rendering.canvas import Canvas, Capsules
from elites.rendering.floor import Floor
from elites.rendering.shapes import Setting
from elites.rendering.text import Caption

_PAPER = np.array([shapes.colour(c) for c in ("#f4f6f8", "#eceff2", "#d9dee4")])
_WALL = shapes.colour(shapes.WALL)
_WALL_ALPHA = 0.6
_TRAIL_ALPHA = 0.5
_TRAIL_STEPS, _TRAIL_SEGMENTS = 4, 40  # of a robot that is followed
_BOXES = 50  # poses at which the size of a robot is measured
_TIPPING = 15  # frames over which the middle of a robot is averaged, so that steps do not show
_SMALLEST = 0.045  # size of a robot in a world of many, as a share of the world's


class Take(NamedTuple):
    """A recorded robot: what is written above it, where its bodies were, and their colours."""

    title: str
    poses: np.ndarray  # [frames, B, 7]
    colours: np.ndarray  # [B, 3]
    ending: str = ""  # added to the title from the last pose on, such as "fell at step 705"


class Film(NamedTuple):
    """A film that has not been drawn yet. It can be sent to another process."""

    draw: Callable[..., Iterator[np.ndarray]]
    """(frames, skipped=n) -> pictures: one of the functions below with its first arguments"""
    frames: Sequence[int]
    """Numbers of the recorded frames that are shown."""
    seconds: float
    """Time for which each picture is shown."""
    summary: Sequence[str] = ()
    """What each robot does, a line for each."""

    def pictures(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """Draw the pictures [height, width, 3] from number `start` to before number `stop`."""
        return self.draw(self.frames[:stop], skipped=start)


class _Captions:
    """The title of a robot, to which its ending is added when it has reached its last pose."""

    def __init__(self, take: Take, size: tuple[int, int]):
        self._last = len(take.poses) - 1
        self._title = Caption(take.title, size)
        self._ended = Caption(", ".join(filter(None, [take.title, take.ending])), size)

    def on(self, picture: np.ndarray, frame: int) -> np.ndarray:
        """Write the title of a frame on a picture, see `Caption.on`."""
        return (self._title if frame < self._last else self._ended).on(picture)


class _Robot:
    """The moving parts of a scene, which can be moved to any poses."""

    def __init__(self, setting: Setting):
        moving = [part for part in setting.parts if part.body is not None]
        moving.sort(key=lambda part: part.corners is not None)
        self._flat = [(part.body, part.corners) for part in moving if part.corners is not None]
        self.rounds = len(moving) - len(self._flat)
        self._bodies = np.array([part.body for part in moving], int)
        self._ends = np.array([part.ends for part in moving]).reshape(-1, 2, 3)
        self.radii = np.array([part.radius for part in moving])

    def ends(self, poses: np.ndarray, scale: float = 1.0) -> np.ndarray:
        """Return the ends [..., n, 2, 3] of the capsules at poses [..., B, 7] of the bodies.

        The first `rounds` of them are drawn, the others are shadows. `scale` enlarges the robot
        around its first body, above the floor below it.
        """
        turns = shapes.rotations(poses[..., self._bodies, 3:])
        placed = self._ends @ np.swapaxes(turns, -1, -2) + poses[..., self._bodies, None, :3]
        base = _below(poses)[..., None, None, :]
        return base + scale * (placed - base)

    def surfaces(self, poses: np.ndarray, scale: float = 1.0) -> list[np.ndarray]:
        """Return the triangles [m, 3, 3] of each part that is no capsule, at poses [B, 7]."""
        turns, base = shapes.rotations(poses[:, 3:]), _below(poses)
        placed = [corners @ turns[body].T + poses[body, :3] for body, corners in self._flat]
        return [base + scale * (corners - base) for corners in placed]

    def box(self, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest corner [3] of the robot at poses [B, 7]."""
        ends, radii = self.ends(poses)[: self.rounds], self.radii[: self.rounds, None, None]
        points = [poses[:, :3], (ends - radii).reshape(-1, 3), (ends + radii).reshape(-1, 3)]
        points += [corners.reshape(-1, 3) for corners in self.surfaces(poses)]
        return np.concatenate(points).min(0), np.concatenate(points).max(0)

    def colours(self, bodies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the colours [n, 3] of capsules and of all triangles, from those of bodies."""
        rounds = bodies[self._bodies[: self.rounds]]
        faces = [np.broadcast_to(bodies[body], (len(corners), 3)) for body, corners in self._flat]
        return rounds, np.concatenate([np.empty((0, 3)), *faces])


def _below(poses: np.ndarray) -> np.ndarray:
    """Return the places [..., 3] below the first bodies of poses [..., B, 7], at the height 0."""
    return poses[..., 0, :3] * np.array([1.0, 1.0, 0.0])


class _Stage:
    """A scene and its robots, ready to be drawn."""

    def __init__(self, setting: Setting, takes: Sequence[Take], scale: float = 1.0):
        self.robot, self.takes, self.scale = _Robot(setting), takes, scale
        self.ground = setting.ground
        colours = [self.robot.colours(take.colours) for take in takes]
        self._rounds = np.concatenate([rounds for rounds, _ in colours])
        self._faces = np.concatenate([faces for _, faces in colours])
        self._walls = [part for part in setting.parts if part.body is None]

    def draw(self, camera: Camera, floor: Floor, frame: int) -> np.ndarray:
        """Return the picture [3, height, width] of all robots in a frame."""
        poses = np.stack([take.poses[min(frame, len(take.poses) - 1)] for take in self.takes])
        ends, radii = self.robot.ends(poses, self.scale), self.robot.radii * self.scale
        shadows = floor.frame(ends.reshape(-1, 2, 3), np.tile(radii, len(poses)))
        canvas = Canvas(camera, shadows)
        if len(self._faces):
            surfaces = [s for own in poses for s in self.robot.surfaces(own, self.scale)]
            canvas.triangles(np.concatenate(surfaces), self._faces)
        rounds = self.robot.rounds
        drawn = ends[:, :rounds].reshape(-1, 2, 3)
        canvas.capsules(Capsules(drawn, np.tile(radii[:rounds], len(poses)), self._rounds))
        self._draw_walls(canvas)
        return canvas.picture

    def _draw_walls(self, canvas: Canvas) -> None:
        """Draw the scenery, through which robots can be seen."""
        for part in self._walls:
            if part.corners is None:
                radii = np.array([part.radius])
                canvas.capsules(Capsules(part.ends[None], radii, _WALL[None]), _WALL_ALPHA)
            else:
                colours = np.broadcast_to(_WALL, (len(part.corners), 3))
                canvas.triangles(part.corners, colours, _WALL_ALPHA)

    def wall_points(self) -> np.ndarray:
        """Return points [n, 3] that enclose the scenery."""
        found = [part.ends if part.corners is None else part.corners for part in self._walls]
        return np.concatenate([np.empty((0, 3)), *(points.reshape(-1, 3) for points in found)])


# ------------------------------------------------------------------------------------------- films


def following(
    setting: Setting,
    take: Take,
    frames: Sequence[int],
    size: tuple[int, int],
    skipped: int = 0,
    extent: _Extent | None = None,
) -> Iterator[np.ndarray]:
    """Yield pictures of one robot, from a camera that moves beside it.

    The first `skipped` frames are left out. `size` is the width and height of the pictures in
    pixels. The camera shows the `extent`, by default that of the robot. If the camera of the
    setting is fixed, it is the one of `together`.
    """
    if setting.fixed:
        yield from together(setting, [take], frames, size, skipped)
        return
    stage, captions = _Stage(setting, [take]), _Captions(take, size)
    path, height, radius = extent or _extent(stage.robot, take.poses)

    def camera_at(frame: int) -> Camera:
        target = np.array([*path[min(frame, len(path) - 1)], height])
        return cameras.looking_at(target, radius, size, stage.ground)

    # The floor moves in every picture of a film, so a GIF with many edges would be large.
    seen = floors.view(camera_at(0), stage.ground, 2 * _side(radius), 10 * radius, _PAPER)
    for frame in frames[skipped:]:
        camera = camera_at(frame)
        floor = Floor(camera, seen, stage.ground)
        walked = take.poses[: frame + 1 : _TRAIL_STEPS, 0, :2][-_TRAIL_SEGMENTS:]
        segments = np.stack([walked[:-1], walked[1:]], 1)
        floor.trails(segments[None], 0.06 * radius, take.colours[:1], _TRAIL_ALPHA)
        yield _finished(captions.on(stage.draw(camera, floor, frame), frame))


def together(
    setting: Setting,
    takes: Sequence[Take],
    frames: Sequence[int],
    size: tuple[int, int],
    skipped: int = 0,
) -> Iterator[np.ndarray]:
    """Yield pictures of robots in one world, from a camera that sees all their paths.

    The first `skipped` frames are left out. In a world that is far larger than the robots, they are
    drawn larger than they are.
    """
    low, high = _Robot(setting).box(takes[0].poses[0])
    own = max(float(np.linalg.norm(high - low)) / 2, 0.02)
    paths = np.concatenate([take.poses[:, 0, :3] for take in takes])
    world = max(float(np.linalg.norm(np.ptp(paths, axis=0))) / 2, own)
    stage = _Stage(setting, takes, max(_SMALLEST * world / own, 1.0))
    around = own * stage.scale * np.array([(s, t, 0) for s in (-1, 1) for t in (-1, 1)])
    points = np.concatenate([*(paths[::5] + corner for corner in around), stage.wall_points()])
    camera = cameras.enclosing(points, size, stage.ground)
    seen = floors.view(camera, stage.ground, _side(world / 2), 12 * world, _PAPER)
    floor, before = Floor(camera, seen, stage.ground), 0
    captions = _Captions(takes[0], size) if len(takes) == 1 else None
    width = max(0.06 * own, 0.006 * world)
    for number, frame in enumerate(frames):
        moving = [take for take in takes if frame < len(take.poses)]
        if moving:
            walked = np.array([take.poses[[before, frame], 0, :2] for take in moving])
            colours = np.array([take.colours[0] for take in moving])
            floor.trails(walked[:, None], width, colours, _TRAIL_ALPHA)
        before = frame
        if number >= skipped:
            picture = stage.draw(camera, floor, frame)
            yield _finished(picture if captions is None else captions.on(picture, frame))


def side_by_side(
    setting: Setting,
    takes: Sequence[Take],
    frames: Sequence[int],
    size: tuple[int, int],
    columns: int,
    skipped: int = 0,
) -> Iterator[np.ndarray]:
    """Yield pictures of robots in panels of a size, `columns` of them in a row.

    The first `skipped` frames are left out.
    """
    extents = [_extent(_Robot(setting), take.poses) for take in takes]
    # All robots have the scale of the one that needs most room.
    radius = max(extent.radius for extent in extents)
    films = [
        following(setting, take, frames, size, skipped, extent._replace(radius=radius))
        for take, extent in zip(takes, extents, strict=True)
    ]
    (width, height), rows = size, -(-len(takes) // columns)
    for pictures in zip(*films, strict=True):
        sheet = np.moveaxis(np.full((3, rows * height, columns * width), 255, np.uint8), 0, -1)
        for i, picture in enumerate(pictures):
            top, left = i // columns * height, i % columns * width
            sheet[top : top + height, left : left + width] = picture
            sheet[top : top + height, left + width - 1] = 255  # a line between the panels
            sheet[top + height - 1, left : left + width] = 255
        yield sheet


class _Extent(NamedTuple):
    """Where a robot is in the course of a film, and how much room it needs."""

    path: np.ndarray  # [frames, 2] its middle, smoothed
    height: float
    radius: float


def _extent(robot: _Robot, poses: np.ndarray) -> _Extent:
    """Return the extent of a robot at poses [frames, B, 7], measured at some of them."""
    sampled = np.linspace(0, len(poses) - 1, min(len(poses), _BOXES)).astype(int)
    boxes = np.array([robot.box(pose) for pose in poses[sampled]])  # [n, 2, 3]
    low, high = boxes[:, 0], boxes[:, 1]
    bottom, top = low[:, 2].min(), high[:, 2].max()  # of the whole film: a robot may jump or fall
    radius = max(np.linalg.norm(high - low, axis=1).max() / 2, (top - bottom) / 2, 0.02)
    # The middle of a robot that tips over leaves its first body.
    offsets = ((low + high) / 2)[:, :2] - poses[sampled, 0, :2]
    every = np.arange(len(poses))
    middles = np.stack([np.interp(every, sampled, offsets[:, i]) for i in range(2)], 1)
    path = _smoothed(poses[:, 0, :2]) + _smoothed(middles, _TIPPING)
    return _Extent(path, float(bottom + top) / 2, float(radius))


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
    """Return a picture [3, height, width] as bytes [height, width, 3], stored as planes."""
    return np.moveaxis(picture.astype(np.uint8), 0, -1)
