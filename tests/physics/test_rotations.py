"""Compare rotations and angles with float64 NumPy."""

import math

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elites.physics import rotations as r
from reference_engine import hamilton

TOLERANCE = 1e-6  # a few roundings of float32 around 1

angles = st.floats(-180.0, 180.0)
parts = st.floats(-1.0, 1.0, width=32)


@st.composite
def unit_quaternions(draw):
    """Draw unit quaternions, also with zero or negative components."""
    q = np.array([draw(parts) for _ in range(4)])
    if np.linalg.norm(q) < 0.1:
        q = np.array([1.0, 0.0, 0.0, 0.0])
    return (q / np.linalg.norm(q)).astype(np.float32)


@st.composite
def vectors(draw):
    return np.array([draw(parts) for _ in range(3)], np.float32)


def rotation_matrix(degrees):
    """Return Rx Ry Rz: intrinsic rotations compose from left to right."""
    (cx, cy, cz), (sx, sy, sz) = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    return x @ y @ z


def rotated(q, v):
    """Return q v q* = v + 2w(u x v) + 2 u x (u x v) in float64."""
    w, u, v = float(q[0]), np.asarray(q[1:], np.float64), np.asarray(v, np.float64)
    return v + 2 * w * np.cross(u, v) + 2 * np.cross(u, np.cross(u, v))


@given(unit_quaternions(), vectors())
def test_matrix_of_a_quaternion_rotates_like_the_quaternion(q, v):
    by_matrix = np.array(r.apply(r.matrix(r.Quat(*q)), r.Vec3(*v)))
    np.testing.assert_allclose(by_matrix, rotated(q, v), atol=TOLERANCE)


@given(unit_quaternions(), unit_quaternions(), vectors())
def test_product_of_quaternions_rotates_twice(p, q, v):
    both = np.array(r.product(r.Quat(*p), r.Quat(*q)))
    np.testing.assert_allclose(rotated(both, v), rotated(p, rotated(q, v)), atol=TOLERANCE)


@given(angles, angles, angles, vectors())
def test_euler_degrees_mean_intrinsic_x_y_z(x, y, z, v):
    q = r.quat_from_euler(np.array([x, y, z]))
    np.testing.assert_allclose(r.quat_rotate(q, v), rotation_matrix([x, y, z]) @ v, atol=1e-12)


def test_a_right_angle_by_hand():
    q = r.quat_from_euler(np.array([0.0, 0.0, 90.0]))
    np.testing.assert_allclose(r.quat_rotate(q, np.array([1.0, 0, 0])), [0, 1, 0], atol=1e-15)
    # First about x, then about the turned y: z goes to -y, which the second turn leaves alone.
    q = r.quat_from_euler(np.array([90.0, 90.0, 0.0]))
    np.testing.assert_allclose(r.quat_rotate(q, np.array([0.0, 0, 1])), [1, 0, 0], atol=1e-15)


_euler = jax.jit(lambda q: r.euler(r.Quat(*q)))


@given(angles, st.floats(-80.0, 80.0), angles)
def test_euler_angles_come_back(x, y, z):
    found = np.array(_euler(r.quat_from_euler(np.array([x, y, z])).astype(np.float32)))
    apart = found - np.radians([x, y, z])
    apart = (apart + math.pi) % (2 * math.pi) - math.pi  # 180 and -180 degrees are one angle
    np.testing.assert_allclose(apart, 0.0, atol=1e-5)


def test_euler_at_the_singularity_is_finite_and_knows_the_pitch():
    for pitch in (90.0, -90.0):
        found = np.array(
            _euler(r.quat_from_euler(np.array([20.0, pitch, 10.0])).astype(np.float32))
        )
        assert np.isfinite(found).all()
        # Near 90 degrees the sine is flat: half of the digits are lost, no more.
        assert abs(found[1] - math.radians(pitch)) < 1e-3


@given(unit_quaternions(), st.floats(-20.0, 20.0, width=32), vectors())
def test_integration_advances_and_keeps_the_length(q, speed, direction):
    rate = speed * direction
    h = 0.005
    turned = np.array(r.integrate(r.Quat(*q), r.Vec3(*rate), h))
    expected = q + 0.5 * h * hamilton([0.0, *rate], q)
    np.testing.assert_allclose(turned, expected / np.linalg.norm(expected), atol=TOLERANCE)
    assert abs(np.linalg.norm(turned) - 1.0) < TOLERANCE


_arctan2 = jax.jit(r.arctan2)

# Two float32 roundings. Behind, where x < 0, results lie between 2 and 4 and are spaced 2.4e-7
# apart (the library's own float32 function errs by 2.5e-7 there).
AHEAD, BEHIND = 2e-7, 3.2e-7


def assert_same_angle(found, y, x):
    expected = np.arctan2(np.asarray(y, np.float64), np.asarray(x, np.float64))
    error = np.abs(np.asarray(found, np.float64) - expected)
    assert (error < np.where(np.asarray(x) >= 0, AHEAD, BEHIND)).all()


def test_arctan2_agrees_with_numpy_in_every_quadrant():
    angle = np.linspace(-3.1415, 3.1415, 20_001)
    for size in (1e-20, 1e-3, 1.0, 1e3, 1e20):
        y, x = (size * np.sin(angle)).astype(np.float32), (size * np.cos(angle)).astype(np.float32)
        assert_same_angle(_arctan2(y, x), y, x)


def test_arctan2_on_the_axes_and_at_zero():
    y = np.array([0.0, 0.0, 1.0, -1.0, 0.0, 2.5, -2.5, 3.0, -3.0], np.float32)
    x = np.array([1.0, -1.0, 0.0, 0.0, 0.0, 2.5, 2.5, -3.0, -3.0], np.float32)
    assert_same_angle(_arctan2(y, x), y, x)
    assert float(_arctan2(np.float32(0.0), np.float32(0.0))) == 0.0


@given(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32))
def test_arctan2_agrees_with_numpy_anywhere(y, x):
    # Numbers below 1e-30 count as zero here, and a zero has no sign: no robot is that small.
    y, x = (0.0 if abs(a) < 1e-30 else a for a in (y, x))
    assert_same_angle(_arctan2(np.float32(y), np.float32(x)), y, x)
