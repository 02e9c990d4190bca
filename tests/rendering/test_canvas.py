"""Test cameras, canvas and floor against geometry that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elites.rendering import camera as cameras
from elites.rendering import floor as floors
from elites.rendering import shapes
from elites.rendering.canvas import LIGHT, Canvas, Capsules
from elites.rendering.floor import Floor

SIZE = (200, 150)
RED, BLUE = np.array([200.0, 0.0, 0.0]), np.array([0.0, 0.0, 200.0])


def camera(above=0.4, radius=1.0):
    return cameras.looking_at(np.zeros(3), radius, SIZE, ground=-10.0, above=above)


def canvas(**options) -> Canvas:
    width, height = SIZE
    return Canvas(camera(**options), np.zeros((3, height, width), np.float32))


def sphere(centre, radius, colour) -> Capsules:
    ends = np.array([[centre, centre]], float)
    return Capsules(ends, np.array([radius]), np.array([colour]))


def joined(*parts: Capsules) -> Capsules:
    return Capsules(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def test_the_target_is_in_the_middle_and_up_is_up():
    view = camera()
    points = np.array([[0.0, 0, 0], [0, 0, 0.5], view.axes[0] * 0.5])
    places, depths = view.project(points)
    np.testing.assert_allclose(places[0], [100, 75], atol=1e-9)
    assert places[1, 1] < 75
    assert places[2, 0] > 100
    np.testing.assert_allclose(depths[0], np.linalg.norm(view.position))
    np.testing.assert_allclose(view.axes @ view.axes.T, np.eye(3), atol=1e-12)


def test_a_ray_leads_to_the_point_that_its_pixel_shows():
    view = camera()
    point = np.array([0.3, -0.2, 0.4])
    (x, y), depth = view.project(point)
    column, row = int(x), int(y)
    found = view.position + depth * view.rays()[row, column]
    assert np.linalg.norm(found - point) < 2 * depth / view.focal


@pytest.mark.parametrize("size", [(200, 150), (100, 200)])
def test_an_enclosing_camera_shows_all_points_and_little_else(size):
    points = np.random.default_rng(0).uniform(-20, 20, (100, 3)) * [1, 1, 0.05]
    places, depths = cameras.enclosing(points, size).project(points)
    low, high = places.min(0), places.max(0)
    assert depths.min() > 0
    assert (low >= 0).all()
    assert (high <= size).all()
    assert ((high - low) / size).max() > 0.85


def test_a_sphere_covers_the_area_of_its_disc():
    drawn = canvas()
    drawn.capsules(sphere((0, 0, 0), 0.5, RED))
    covered = (drawn.picture[0] > 0).sum()
    radius = drawn.camera.focal * 0.5 / np.linalg.norm(drawn.camera.position)
    assert covered == pytest.approx(math.pi * radius**2, rel=0.06)
    assert drawn.picture[0, 75, 100] > 100
    assert drawn.picture[1:].max() == 0


def test_the_side_towards_the_light_is_brighter():
    drawn = canvas()
    drawn.capsules(sphere((0, 0, 0), 0.5, RED))
    (lit, dark), _ = drawn.camera.project(np.array([0.4 * LIGHT, -0.4 * LIGHT]))
    bright = drawn.picture[0, int(lit[1]), int(lit[0])]
    assert bright > 1.2 * drawn.picture[0, int(dark[1]), int(dark[0])]


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_nearer_hides_what_is_behind(swapped):
    drawn = canvas()
    towards = -drawn.camera.axes[2]
    pair = [sphere(0.6 * towards, 0.2, RED), sphere(-0.6 * towards, 0.4, BLUE)]
    drawn.capsules(joined(*(reversed(pair) if swapped else pair)))
    assert drawn.picture[0, 75, 100] > 100
    assert drawn.picture[2, 75, 100] == 0
    assert (drawn.picture[2] > 100).any()


def test_parts_that_intersect_share_the_pixels():
    drawn = canvas()
    side = 0.15 * drawn.camera.axes[0]
    drawn.capsules(joined(sphere(side, 0.4, RED), sphere(-side, 0.4, BLUE)))
    right, left = drawn.picture[:, 75, 110], drawn.picture[:, 75, 90]
    assert right[0] > 50 > right[2]
    assert left[2] > 50 > left[0]


def test_a_wall_lets_through_what_is_behind_it():
    drawn = canvas()
    towards = -drawn.camera.axes[2]
    drawn.capsules(sphere(-0.5 * towards, 0.3, RED))
    drawn.capsules(sphere(0.5 * towards, 0.3, BLUE), alpha=0.5)
    red, _, blue = drawn.picture[:, 75, 100]
    assert red > 30
    assert blue > 30


def test_a_box_covers_the_area_of_its_front():
    width, height = SIZE
    view = cameras.looking_at(np.zeros(3), 2.0, SIZE, -10.0, around=-math.pi / 2, above=0.0)
    drawn = Canvas(view, np.zeros((3, height, width), np.float32))
    corners = shapes._box() * 0.5
    drawn.triangles(corners, np.broadcast_to(RED, (len(corners), 3)))
    side = view.focal * 1.0 / (np.linalg.norm(view.position) - 0.5)
    # Triangles reach half a pixel beyond their edges.
    assert (drawn.picture[0] > 60).sum() == pytest.approx((side + 1) ** 2, rel=0.06)


@pytest.mark.parametrize("kind", ["_box", "_ball", "_cylinder"])
def test_surfaces_are_closed_and_face_outwards(kind):
    corners = getattr(shapes, kind)()
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    solid = np.linalg.norm(normals, axis=1) > 1e-9
    assert ((normals * corners.mean(1)).sum(1)[solid] > 0).all()
    np.testing.assert_allclose(normals.sum(0), 0, atol=1e-9)  # of a closed surface
    volume = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
    exact = {"_box": 8.0, "_ball": 4 / 3 * math.pi, "_cylinder": 2 * math.pi}[kind]
    assert volume == pytest.approx(exact, rel=0.08)


NOTHING = np.zeros((0, 2, 3)), np.zeros(0)  # capsules that cast shadows


def squares() -> Floor:
    view = cameras.looking_at(np.zeros(3), 2.0, SIZE, -1.0, above=0.7)
    colours = np.array([[255.0] * 3, [200.0] * 3, [100.0] * 3])
    return Floor(view, floors.view(view, 0.0, 1.0, 50.0, colours), 0.0)


def test_neighbouring_squares_of_the_floor_differ():
    floor = squares()
    picture = floor.frame(*NOTHING)
    found = {}
    for point in ((0.5, 0.5), (-0.5, 0.5), (0.5, -0.5), (-0.5, -0.5)):
        (x, y), _ = floor._camera.project(np.array([*point, 0.0]))
        found[point] = picture[0, int(y), int(x)]
    assert abs(found[0.5, 0.5] - found[-0.5, 0.5]) > 60
    assert found[0.5, 0.5] == pytest.approx(found[-0.5, -0.5], abs=10)
    assert found[0.5, -0.5] == pytest.approx(found[-0.5, 0.5], abs=10)


def test_a_shadow_lies_away_from_the_light_and_ends_with_the_frame():
    floor, plain = squares(), squares().frame(*NOTHING)
    centre = np.array([0.0, 0.0, 0.8])
    darker = plain - floor.frame(np.array([[centre, centre]]), np.array([0.2]))
    spot = centre - LIGHT * (centre[2] / LIGHT[2])
    (x, y), _ = floor._camera.project(spot)
    assert darker[0, int(y), int(x)] > 20
    (x, y), _ = floor._camera.project(centre * [1, 1, 0])
    assert darker[0, int(y), int(x)] == 0
    np.testing.assert_array_equal(floor.frame(*NOTHING), plain)


def test_a_trail_stays():
    floor, plain = squares(), squares().frame(*NOTHING)
    line = np.array([[[-0.5, 0.0], [0.5, 0.0]]])
    floor.trails(line[None], 0.1, BLUE[None], 1.0)
    for _ in range(2):
        changed = np.abs(floor.frame(*NOTHING) - plain).max(0) > 20
        (x, y), _ = floor._camera.project(np.array([0.25, 0.0, 0.0]))
        assert changed[int(y), int(x)]
    assert 20 < changed.sum() < 600


def test_a_quaternion_turns_x_to_y():
    quarter = np.array([math.sqrt(0.5), 0, 0, math.sqrt(0.5)])
    np.testing.assert_allclose(shapes.rotations(quarter) @ [1, 0, 0], [0, 1, 0], atol=1e-12)
