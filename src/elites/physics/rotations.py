"""Vectors and quaternions, stored as one array per component.

A `Vec3` or `Quat` is a tuple of arrays of one shape, usually `[rows, n]`: one row per body, joint
or contact point, one column per robot of the batch. Every operation is elementwise arithmetic over
contiguous memory, which XLA fuses into few loops on a CPU and few kernels on a GPU. An array with a
trailing axis of 3 would need strided access and small products.

Quaternions are (w, x, y, z). They rotate a vector v to q v q*.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Vec3(NamedTuple):
    """Vector x, y, z. Its components are JAX arrays, NumPy arrays or numbers."""

    x: Any
    y: Any
    z: Any


class Quat(NamedTuple):
    """Quaternion. Its components are JAX arrays, NumPy arrays or numbers."""

    w: Any
    x: Any
    y: Any
    z: Any


class Matrix(NamedTuple):
    """Rotation matrix, stored by rows."""

    x: Vec3
    y: Vec3
    z: Vec3


def add(a: Vec3, b: Vec3) -> Vec3:
    return Vec3(a.x + b.x, a.y + b.y, a.z + b.z)


def sub(a: Vec3, b: Vec3) -> Vec3:
    return Vec3(a.x - b.x, a.y - b.y, a.z - b.z)


def scale(a: Vec3, s) -> Vec3:
    return Vec3(a.x * s, a.y * s, a.z * s)


def times(a: Vec3, b: Vec3) -> Vec3:
    """Return the product of two vectors, component by component."""
    return Vec3(a.x * b.x, a.y * b.y, a.z * b.z)


def dot(a: Vec3, b: Vec3) -> Array:
    return a.x * b.x + a.y * b.y + a.z * b.z


def cross(a: Vec3, b: Vec3) -> Vec3:
    return Vec3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x)


def norm(a: Vec3) -> Array:
    return jnp.sqrt(dot(a, a))


def product(p: Quat, q: Quat) -> Quat:
    """Return the product p q of two quaternions: the rotation by q, then by p."""
    return Quat(
        p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z,
        p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
        p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x,
        p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w,
    )


def matrix(q: Quat) -> Matrix:
    """Return the rotation matrix of a unit quaternion.

    Rotating several vectors costs less with the matrix than with the quaternion.
    """
    xx, yy, zz = q.x * q.x, q.y * q.y, q.z * q.z
    xy, xz, yz = q.x * q.y, q.x * q.z, q.y * q.z
    wx, wy, wz = q.w * q.x, q.w * q.y, q.w * q.z
    return Matrix(
        Vec3(1 - 2 * (yy + zz), 2 * (xy - wz), 2 * (xz + wy)),
        Vec3(2 * (xy + wz), 1 - 2 * (xx + zz), 2 * (yz - wx)),
        Vec3(2 * (xz - wy), 2 * (yz + wx), 1 - 2 * (xx + yy)),
    )


def apply(m: Matrix, v: Vec3) -> Vec3:
    """Return the product m v of a matrix and a vector."""
    return Vec3(dot(m.x, v), dot(m.y, v), dot(m.z, v))


def integrate(q: Quat, rate: Vec3, h: float) -> Quat:
    """Return the orientation q after turning with the angular velocity `rate` for the time `h`.

    `rate` is given in the world frame.
    """
    turn = product(Quat(jnp.zeros_like(rate.x), rate.x, rate.y, rate.z), q)
    w, x, y, z = (a + 0.5 * h * b for a, b in zip(q, turn, strict=True))
    # Renormalised by a product with the reciprocal: one division per body instead of four.
    inverse = 1.0 / jnp.sqrt(w * w + x * x + y * y + z * z)
    return Quat(w * inverse, x * inverse, y * inverse, z * inverse)


def euler(q: Quat) -> Vec3:
    """Return the intrinsic x-y'-z'' angles of a quaternion, in radians.

    This is the inverse of `quat_from_euler`, except at the singularity of Euler angles.
    """
    m = matrix(q)
    pitch = jnp.clip(m.x.z, -1.0, 1.0)
    return Vec3(
        arctan2(-m.y.z, m.z.z),
        arctan2(pitch, jnp.sqrt(jnp.maximum(1.0 - pitch * pitch, 0.0))),
        arctan2(-m.x.y, m.x.x),
    )


def _arctan_coefficients(terms: int = 10) -> tuple[float, ...]:
    """Return the coefficients, lowest power first, of p in atan(t) = t * p(t^2) for t in [0, 1].

    They are a Chebyshev fit with an error of at most 1e-8.
    """
    u = np.polynomial.chebyshev.chebpts1(200) * 0.5 + 0.5
    t = np.sqrt(u)
    fit = np.polynomial.Chebyshev.fit(u, np.arctan(t) / t, terms - 1, domain=[0, 1])
    return tuple(float(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef)


_ARCTAN = _arctan_coefficients()


def arctan2(y: Array, x: Array) -> Array:
    """Return the angle of the point (x, y) in radians, and 0 for (0, 0).

    It uses only plain arithmetic. `jnp.arctan2` is a scalar call on the CPU, which prevents XLA
    from vectorising the loop over the joints. Its last bits also depend on the device.
    """
    ax, ay = jnp.abs(x), jnp.abs(y)
    t = jnp.minimum(ax, ay) / jnp.maximum(jnp.maximum(ax, ay), 1e-37)
    u = t * t
    p = jnp.full_like(t, _ARCTAN[-1])
    for c in _ARCTAN[-2::-1]:
        p = p * u + c
    angle = t * p
    angle = jnp.where(ay > ax, np.float32(np.pi / 2) - angle, angle)
    angle = jnp.where(x < 0, np.float32(np.pi) - angle, angle)
    return jnp.where(y < 0, -angle, angle)


def quat_from_euler(degrees: np.ndarray) -> np.ndarray:
    """Return the quaternion [4] of intrinsic x-y'-z'' angles [3] in degrees, as a NumPy array."""
    half = np.deg2rad(np.asarray(degrees, np.float64)) / 2
    (cx, cy, cz), (sx, sy, sz) = np.cos(half), np.sin(half)
    return np.array(
        [
            cx * cy * cz - sx * sy * sz,
            sx * cy * cz + cx * sy * sz,
            cx * sy * cz - sx * cy * sz,
            cx * cy * sz + sx * sy * cz,
        ]
    )


def quat_product(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the product p q of two quaternions [4] in NumPy: the rotation by q, then by p."""
    return np.array(product(Quat(*p), Quat(*q)))


def quat_rotate(q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return a NumPy vector [3], or vectors [n, 3], rotated by one quaternion [4]."""
    w, u = q[0], np.asarray(q[1:], np.float64)
    v = np.asarray(v, np.float64)
    t = 2 * np.cross(u, v)
    return v + w * t + np.cross(u, t)
