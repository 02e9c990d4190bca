"""Test contacts: their points, when they act, how strongly, and that they are averaged."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites.physics import contacts
from elites.physics.rotations import Vec3
from handmade import at, body, sphere, stepper, world, xyz
from reference_engine import closest_points

H, MASS, INERTIA, ERP = 0.005, 2.0, 0.5, 0.1

# ------------------------------------------------------------------------------- closest points

_closest = jax.jit(contacts._closest)

coordinates = st.tuples(*[st.floats(-2.0, 2.0, width=32)] * 3)


def engine_points(c1, h1, c2, h2):
    columns = [Vec3(*np.asarray(v, np.float32).reshape(3, 1, 1)) for v in (c1, h1, c2, h2)]
    return [np.array(point, np.float64).reshape(3) for point in _closest(*columns)]


def brute_force_distance(c1, h1, c2, h2):
    """Search a grid over both parameters, then finer grids around the best point."""
    centre, width = np.zeros(2), 1.0
    for _ in range(6):
        s, t = (np.clip(c + width * np.linspace(-1, 1, 61), -1, 1) for c in centre)
        gap = (c1 + s[:, None, None] * h1) - (c2 + t[None, :, None] * h2)
        distance = np.linalg.norm(gap, axis=-1)
        i, j = np.unravel_index(distance.argmin(), distance.shape)
        centre, width = np.array([s[i], t[j]]), width / 10
    return distance.min()


def check_closest(c1, h1, c2, h2):
    c1, h1, c2, h2 = (np.asarray(v, np.float32).astype(np.float64) for v in (c1, h1, c2, h2))
    least = brute_force_distance(c1, h1, c2, h2)
    a, b = closest_points(c1 - h1, c1 + h1, c2 - h2, c2 + h2)
    exact = np.linalg.norm(a - b)
    assert exact == pytest.approx(least, abs=1e-4)

    a, b = engine_points(c1, h1, c2, h2)
    for point, centre, half in ((a, c1, h1), (b, c2, h2)):
        along = (point - centre) @ half / max(half @ half, 1e-30)
        assert abs(along) <= 1.0 + 1e-5 or half @ half < 1e-12
        np.testing.assert_allclose(point, centre + along * half, atol=2e-6)
    # Segments less than a thousandth of a radian apart count as parallel.
    parallel = np.linalg.norm(np.cross(h1, h2)) < 2e-3 * np.linalg.norm(h1) * np.linalg.norm(h2)
    assert np.linalg.norm(a - b) <= exact + (4e-3 if parallel else 1e-5)


@settings(max_examples=60)
@given(coordinates, coordinates, coordinates, coordinates)
def test_closest_points_of_two_segments(c1, h1, c2, h2):
    check_closest(c1, h1, c2, h2)


@pytest.mark.parametrize(
    ("c1", "h1", "c2", "h2"),
    [
        ([0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]),  # crossing in the middle
        ([0, 0, 1], [1, 0, 0], [3, 0, 0], [0, 1, 0]),  # one end and a middle
        ([0, 0, 1], [1, 0, 0], [3, 3, 0], [0, 1, 0]),  # two ends
        ([0, 0, 1], [1, 0, 0], [0.5, 0, 0], [1, 0, 0]),  # parallel and overlapping
        ([0, 0, 1], [1, 0, 0], [5, 0, 0], [1, 0, 0]),  # parallel, one beyond the other
        ([0, 0, 1], [1, 0, 0], [5, 0, 0], [-1, 0, 0]),  # the same, opposed
        ([0, 0, 1], [0, 0, 0], [0.2, 1, 0], [1, 0, 0]),  # a sphere and a segment
        ([0, 0, 1], [1, 0, 0], [0.2, 1, 0], [0, 0, 0]),
        ([0, 0, 1], [0, 0, 0], [3, 4, 1], [0, 0, 0]),  # two spheres
    ],
)
def test_closest_points_of_special_pairs(c1, h1, c2, h2):
    check_closest(c1, h1, c2, h2)


# ---------------------------------------------------------------------------------- the ground


def ball_law(z, v, substeps, radius, elasticity):
    """Compute the motion of a vertically moving ball in float64."""
    felt = 0.0
    for _ in range(substeps):
        z += H * v
        v -= H * 9.8
        depth = radius - z
        push = -(1.0 + elasticity) * v + ERP / H * depth
        if depth > 0.0 and v < 0.0 and push > 0.0:
            v += push
            felt += push
    return z, v, felt


def test_balls_bounce_and_come_to_rest():
    bounciness = [0.0, 0.6]
    balls = [body(f"ball {e}", sphere(0.1, elasticity=e)) for e in bounciness]
    step = stepper(world(*balls, baumgarte_erp=ERP))
    state = at(*[{"pos": [0, 0, 0.3]}] * 2)
    laws, fastest = [(0.3, 0.0, 0.0)] * 2, [0.0, 0.0]
    for _ in range(30):
        state, contact = step(state)
        laws = [ball_law(*law[:2], 4, 0.1, e) for law, e in zip(laws, bounciness, strict=True)]
        np.testing.assert_allclose(state[2], [law[0] for law in laws], atol=1e-4)
        np.testing.assert_allclose(state[9], [law[1] for law in laws], atol=1e-3)
        np.testing.assert_allclose(contact[2], [law[2] for law in laws], atol=1e-3)
        fastest = [max(a, law[1]) for a, law in zip(fastest, laws, strict=True)]
    assert fastest[0] < 0.1 < 0.5 < fastest[1]
    for _ in range(200):
        state, _ = step(state)
    np.testing.assert_allclose(state[2], 0.1, atol=2e-3)  # on the ground, with a small depth
    np.testing.assert_allclose(state[9], 0.0, atol=0.06)
    np.testing.assert_array_equal(state[[0, 1, 7, 8]], 0.0)
    # A ball deep in the ground that already moves out gets no impulse.
    _, contact = step(at(*[{"pos": [0, 0, 0.05], "vel": [0, 0, 0.5]}] * 2))
    assert not contact.any()


def capsule(end=0):
    """Return a capsule along x."""
    shape = {"radius": 0.1, "length": 1.0, **({"end": end} if end else {})}
    return {"capsule": shape, "rotation": xyz(y=90.0)}


BOX, BALL = {"box": {"halfsize": xyz(0.3, 0.2, 0.1)}}, sphere(0.1)
THINGS = {
    "capsule": [capsule()],
    "capsule with one end": [capsule(end=1)],
    "box": [BOX],
    "ball": [BALL],
    "box and ball": [BOX, BALL],
    "two balls": [BALL, BALL],
    "rough ball": [sphere(0.1, friction=0.5)],
}


@pytest.fixture(scope="module")
def land():
    """Return a function that simulates one of the bodies for one substep without gravity.

    It returns the change of velocity by contacts, and the angular velocity.
    """
    bodies = [body(name, *colliders) for name, colliders in THINGS.items()]
    step = stepper(world(*bodies, gravity={}, dt=H, substeps=1))

    def land(name, height, velocity):
        away = {"pos": [0, 0, 9.0]}
        thing = {"pos": [0, 0, height], "vel": velocity}
        state, contact = step(at(*(thing if other == name else away for other in THINGS)))
        i = list(THINGS).index(name)
        assert not np.delete(contact, i, axis=1).any()
        np.testing.assert_allclose(state[7:10, i] - velocity, contact[:, i], atol=1e-6)
        return contact[:, i], state[10:13, i]

    return land


def test_a_capsule_on_two_points_is_not_pushed_twice(land):
    """The impulses of the two ends are averaged, not added."""
    arm = 0.4
    one_point = 1.0 / MASS / (1.0 / MASS + arm**2 / INERTIA)  # share of the speed one end takes
    both, spin = land("capsule", 0.099, [0, 0, -1.0])
    np.testing.assert_allclose(both, [0, 0, one_point], atol=1e-6)
    np.testing.assert_allclose(spin, 0.0, atol=1e-6)
    single, spin = land("capsule with one end", 0.099, [0, 0, -1.0])
    np.testing.assert_allclose(single, both, atol=1e-6)
    # The upper end of the segment lies at +x; pushed up there, the capsule turns about -y.
    np.testing.assert_allclose(spin, [0, -one_point * MASS * arm / INERTIA, 0], atol=1e-5)


def test_a_box_touches_with_its_corners(land):
    flat, spin = land("box", 0.099, [0, 0, -1.0])
    # All four lower corners push alike, at a horizontal distance from the centre.
    share = 1.0 / MASS / (1.0 / MASS + (0.3**2 + 0.2**2) / INERTIA)
    np.testing.assert_allclose(flat, [0, 0, share], atol=1e-6)
    np.testing.assert_allclose(spin, 0.0, atol=1e-6)


def test_kinds_of_colliders_add_up(land):
    """Only impulses of one kind of collider are averaged. Those of a box and a ball are added."""
    by_box, by_ball, by_both, by_two = (
        land(name, 0.099, [0, 0, -1.0])[0] for name in ("box", "ball", "box and ball", "two balls")
    )
    np.testing.assert_allclose(by_both, by_box + by_ball, atol=1e-6)
    # Two balls in one place are one kind: the mean of two equal pushes.
    np.testing.assert_allclose(by_two, by_ball, atol=1e-6)


@pytest.mark.parametrize("speed", [0.0, 0.009, 0.011, 0.2, 5.0])
def test_friction_drags_against_the_sliding(land, speed):
    direction = np.array([0.6, -0.8, 0.0])
    contact, spin = land("rough ball", 0.0999, speed * direction + [0, 0, -1.0])
    # Straight below the centre, a push along z turns nothing: its effective mass is the mass.
    # Drag stops the point, unless friction times the push is less; below 0.01 m/s it is off.
    push = 1.0
    drag = min(speed, 0.5 * push) if speed > 0.01 else 0.0
    np.testing.assert_allclose(contact, -drag * direction + [0, 0, push], atol=1e-5)
    # The lowest point of the ball is dragged, 0.1 below its centre.
    np.testing.assert_allclose(
        spin, np.cross([0, 0, -0.1], MASS * -drag * direction) / INERTIA, atol=1e-5
    )


@pytest.mark.parametrize(
    ("height", "speed"), [(0.101, -0.1), (0.0999, 0.5), (0.2, 0.0), (0.0999, 0.0)]
)
def test_no_push_above_the_ground_or_while_leaving_it(land, height, speed):
    contact, _ = land("ball", height, [0, 0, speed])
    assert not contact.any()


# -------------------------------------------------------------------------------------- a wall


def test_a_wall_pushes_along_the_line_between_the_two_axes():
    wall = {
        "name": "wall",
        "colliders": [
            {
                "capsule": {"radius": 0.5, "length": 5.0},
                "position": xyz(2.0, 0.0, 0.5),
                "rotation": xyz(x=90.0),
                "material": {"friction": 1.0},
            }
        ],
        "frozen": {"all": True},
    }
    data = world(body("ball", sphere(0.1)), wall, gravity={}, dt=H, substeps=1, baumgarte_erp=ERP)
    data["collide_include"].append({"first": "ball", "second": "wall"})
    step = stepper(data)
    for y, side in itertools.product((-1.5, 0.0, 1.0), (-1.0, 1.0)):
        x, speed = 2.0 + side * 0.59, -side * 1.0
        state, contact = step(at({"pos": [x, y, 0.5], "vel": [speed, 0, 0]}))
        depth = 0.6 - abs(x + H * speed - 2.0)
        push = side * (1.0 + ERP / H * depth)
        # The push acts midway between the axes; it goes through the centre, so nothing turns.
        np.testing.assert_allclose(contact[:, 0], [push, 0, 0], atol=1e-5)
        np.testing.assert_allclose(state[10:13, 0], 0.0, atol=1e-5)
    # Past the wall's round end nothing is touched.
    _, contact = step(at({"pos": [2.0, 2.0 + 0.61, 0.5], "vel": [0, 0, 0]}))
    assert not contact.any()
