"""Test what a stage of the page draws, in a real browser, without a run."""

from __future__ import annotations

import numpy as np
import pytest

import brax_models
from browser import browsing, errors, in_all_browsers, needs_browser
from elites.tasks import geoms
from stages import open_stage, picture_of, pictures_of_paths

pytestmark = needs_browser

STRAIGHT = (1.0, 0.0, 0.0, 0.0)
CUBE = {
    "vertices": [c for x in (-1, 1) for y in (-1, 1) for z in (-1, 1) for c in (x, y, z)],
    "faces": [0, 1, 3, 0, 3, 2, 4, 6, 7, 4, 7, 5, 0, 4, 5, 0, 5, 1,
              2, 3, 7, 2, 7, 6, 0, 2, 6, 0, 6, 4, 1, 5, 7, 1, 7, 3],
}  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    with browsing() as (page, _, complaints):
        yield page
    assert errors(complaints) == []


@pytest.fixture
def page(chromium):
    open_stage(chromium)
    return chromium


def shape(kind, size=(), body=0, position=(0, 0, 0), rotation=STRAIGHT, **more):
    given = {"body": body, "kind": kind, "size": size, "position": position, "rotation": rotation}
    return {**given, **more}


def seen(page, *shapes, poses=((0, 0, 1, *STRAIGHT),), **more) -> np.ndarray:
    """Return the picture [height, width, 3] of shapes on a stage, with still bodies."""
    return picture_of(page, scene_of(*shapes, poses=poses, **more), np.array(poses))


def scene_of(*shapes, poses, **more) -> dict:
    return {"dt": 0.1, "bodies": ["body"] * len(poses), "shapes": shapes, **more}


def robot_of(picture) -> np.ndarray:
    """Return which pixels show the robot. It has colours, the floor and the walls are grey."""
    return picture.max(-1) - picture.min(-1) > 40


def box_of(mask) -> tuple[float, float, float, float]:
    """Return the left, right, top and bottom of a mask in shares of the picture."""
    rows, columns = np.nonzero(mask)
    height, width = mask.shape
    return columns.min() / width, columns.max() / width, rows.min() / height, rows.max() / height


def test_a_mesh_is_drawn_like_the_box_that_it_describes(page):
    box, mesh = seen(page, shape("box", (1, 1, 1))), seen(page, shape("mesh", **CUBE))
    assert robot_of(box).mean() > 0.1
    assert np.abs(box - mesh).max() <= 2


def test_an_ellipsoid_with_equal_axes_is_a_sphere(page):
    ball = seen(page, shape("sphere", (0.5,)))
    assert np.abs(ball - seen(page, shape("ellipsoid", (0.5, 0.5, 0.5)))).max() <= 2
    left, right, top, bottom = box_of(robot_of(seen(page, shape("ellipsoid", (0.2, 0.2, 1)))))
    assert (bottom - top) * 3 > 2 * (right - left) * 4  # it stands upright


@pytest.mark.parametrize("kind", ["cylinder", "capsule"])
def test_a_length_goes_from_tip_to_tip_along_z(page, kind):
    """A box of the same extent encloses the shape, and is hardly higher."""
    round_one = robot_of(seen(page, shape(kind, (0.2, 2)), shape("box", (0.2, 0.2, 1))))
    box = robot_of(seen(page, shape("box", (0.2, 0.2, 1))))
    assert np.mean(round_one != box) < 1e-3  # nothing of the shape is outside of the box
    alone = box_of(robot_of(seen(page, shape(kind, (0.2, 2)))))
    assert np.abs(np.array(alone) - box_of(box)).max() < 0.06


def test_every_pose_and_shape_has_its_place(page):
    """The same two boxes, once by the pose of a body, once by the place in the body's frame."""
    turn = (np.cos(0.4), 0.0, np.sin(0.4), 0.0)
    one, two = shape("box", (0.1, 0.2, 0.5)), shape("box", (0.3, 0.1, 0.1), body=1)
    moved = {**two, "position": (0.5, 0.2, 0.7), "rotation": turn}
    by_pose = seen(page, one, two, poses=((0, 0, 1, *STRAIGHT), (0.5, 0.2, 1.2, *turn)))
    by_place = seen(page, one, moved, poses=((0, 0, 1, *STRAIGHT), (0, 0, 0.5, *STRAIGHT)))
    assert np.mean(np.abs(by_pose - by_place).max(-1) > 8) < 1e-3
    left = seen(page, one, two, poses=((0, 0, 1, *STRAIGHT), (0, 0, 1.2, *STRAIGHT)))
    assert np.mean(np.abs(by_pose - left).max(-1) > 8) > 0.01


def test_the_floor_is_as_high_as_the_plane(page):
    """A robot 3 m above its plane looks like one 3 m above zero."""
    ball = shape("sphere", (0.5,))
    below = seen(page, ball, shape("plane", body=None, position=(0, 0, -2)))
    lifted = seen(page, ball, shape("plane", body=None), poses=((0, 0, 3, *STRAIGHT),))
    assert np.mean(np.abs(below - lifted).max(-1) > 8) < 1e-3
    near = seen(page, ball, shape("plane", body=None))
    assert np.mean(np.abs(below - near).max(-1) > 8) > 0.01


@pytest.mark.parametrize(("name", "wide"), [("hopper", False), ("ant", True), ("humanoid", False)])
def test_robots_of_brax_fill_their_stage(page, name, wide):
    """The camera sees the whole robot, and the robot takes most of the height or the width."""
    model, data = brax_models.posed(name)
    scene = geoms.scene(model, 0.05, lambda state: state).to_json()
    poses = geoms.poses_of(model, data)
    left, right, top, bottom = box_of(robot_of(seen(page, *scene["shapes"], poses=tuple(poses))))
    assert min(left, top) > 0.03
    assert max(right, bottom) < 0.97
    assert (right - left if wide else bottom - top) > 0.6


def test_limbs_differ_and_feet_are_darker(page):
    """A trunk with two legs. The right leg has a foot, of which the left one has none."""
    balls = [shape("sphere", (0.3,), body=i) for i in range(4)]
    poses = [(0, y, z, *STRAIGHT) for y, z in ((0, 2), (-0.8, 1.2), (0.8, 1.2), (-0.8, 0.4))]
    limbs = {"limbs": [0, 1, 2, 1], "limb_ends": [False, False, True, True]}
    picture = seen(page, *balls, poses=tuple(poses), **limbs)
    red, green, blue = np.moveaxis(picture[robot_of(picture)], -1, 0)
    trunk, right, left = (blue > green) & (green > red), red > green, green > 1.15 * blue
    left &= ~right
    for limb in (trunk, right, left):
        assert limb.mean() > 0.1
    # The foot is the lower of the two balls of the right leg.
    rows, _ = np.nonzero(robot_of(picture))
    middle = rows[right].mean()
    upper, lower = (red[right & side].max() for side in (rows < middle, rows > middle))
    assert lower < 0.8 * upper


@in_all_browsers
def test_paths_in_all_directions_are_drawn_on_the_floor(browser):
    """Lines that are far away and one pixel wide are not hidden by the floor."""
    poses = ((0, 0, 1, *STRAIGHT),)
    turns = np.linspace(0, np.pi, 5)
    paths = [[[0, 0], [40 * np.cos(turn), 40 * np.sin(turn)]] for turn in turns]
    scene = scene_of(shape("sphere", (0.5,)), poses=poses)
    with browsing(browser) as (page, _, complaints):
        open_stage(page)
        empty, *pictures = pictures_of_paths(page, scene, np.array(poses), paths)
        assert errors(complaints) == []
    for picture in pictures:
        rows, columns = np.nonzero(np.abs(picture - empty).max(-1) > 15)
        length = max(np.ptp(rows), np.ptp(columns)) + 1
        assert length > 20
        assert len(rows) >= 0.9 * length  # without gaps
