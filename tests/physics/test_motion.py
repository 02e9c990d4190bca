"""Test the motion of free bodies, frozen axes, and sums over rows."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import physics
from elites.physics import bodies as b
from handmade import at, body, sphere, stepper, world, xyz

H = 0.02 / 4


SLOW, SLOW_TURN = -0.3, -0.2  # damping of velocity and angular velocity


@pytest.fixture(scope="module")
def step():
    """Return a step of a free body, and of one that is frozen along y and about x and z."""
    frozen = {"position": xyz(y=1.0), "rotation": xyz(x=1.0, z=1.0)}
    foot = sphere(friction=1.0, position=xyz(0.2, 0.3, 0.0))
    bodies = body("stone", sphere()), body("cart", foot, frozen=frozen)
    return stepper(world(*bodies, velocity_damping=SLOW, angular_damping=SLOW_TURN))


def test_a_free_body_falls_and_spins_by_the_semi_implicit_rule(step):
    """Positions and rotations change first, by the old velocities; then damping and gravity act.

    A substep turns the body by (1, h w / 2) normalised, an angle of 2 atan(h w / 2).
    """
    rate, angle = 6.0, 0.0
    position, velocity = np.array([1.0, 2.0, 30.0]), np.array([0.5, -0.25, 1.0])
    state = at({"pos": position, "vel": velocity, "ang": [0, 0, rate]}, {"pos": [0, 0, 9.0]})
    for _ in range(10):
        state, contact = step(state)
        for _ in range(4):
            position = position + H * velocity
            velocity = math.exp(SLOW * H) * velocity + H * np.array([0.0, 0.0, -9.8])
            angle += 2 * math.atan(H * rate / 2)
            rate *= math.exp(SLOW_TURN * H)
        turned = [math.cos(angle / 2), 0, 0, math.sin(angle / 2)]
        np.testing.assert_allclose(state[0:3, 0], position, rtol=1e-6)
        np.testing.assert_allclose(state[3:7, 0], turned, atol=1e-6)
        np.testing.assert_allclose(state[7:10, 0], velocity, atol=1e-5)
        np.testing.assert_allclose(state[10:13, 0], [0, 0, rate], atol=1e-5)
        assert not contact[:, 0].any()


def test_frozen_axes_stay_frozen(step):
    """A body with frozen axes moves along its free axes only, also when a contact pushes it."""
    state = at({"pos": [0, 0, 9.0]}, {"pos": [0.0, 0.7, 0.12], "vel": [1.0, 3.0, -1.0]})
    touched = False
    for _ in range(10):
        state, contact = step(state)
        touched |= bool(contact[:, 1].any())
        x, y, _, _, qx, _, qz, vx, vy, _, wx, wy, wz = state[:, 1]
        assert y == np.float32(0.7)
        assert vy == wx == wz == 0.0
        assert qx == qz == 0.0  # hence the body has turned about y alone
    assert touched
    assert wy != 0.0
    assert x != 0.0
    assert vx != 1.0


def test_a_model_of_free_bodies_alone_has_no_joints_to_sense():
    model = physics.build(world(body("stone", sphere()), body("other", sphere())))
    state, sensors = physics.reset(model)
    assert sensors.angles.shape == sensors.velocities.shape == (0,)
    assert state.shape == (13, 2)


@st.composite
def summations(draw):
    """Draw rows that are added to one body and subtracted from another. Some bodies have none."""
    rows, count, robots = 9, 5, 3  # one shape, compiled once
    owner = np.array(draw(st.lists(st.integers(0, count - 1), min_size=rows, max_size=rows)))
    other = np.array(draw(st.lists(st.integers(0, count - 1), min_size=rows, max_size=rows)))
    seed = draw(st.integers(0, 1000))
    return owner, other, count, np.random.default_rng(seed).normal(size=(rows, robots))


@settings(max_examples=10)
@given(summations())
def test_sums_by_product_and_by_gathers_agree_with_a_loop(case):
    owner, other, count, values = case
    weights = b.incidence(owner, count) - b.incidence(other, count)
    expected = np.zeros((count, values.shape[1]))
    for row, (plus, minus) in enumerate(zip(owner, other, strict=True)):
        expected[plus] += values[row]
        expected[minus] -= values[row]
    column = jnp.asarray(values, jnp.float32)
    for total in (
        b._sum_by_product(column, weights),
        b._sum_by_gathers(column, weights),
        b.sum_rows([column], weights)[0],
    ):
        np.testing.assert_allclose(total, expected, atol=1e-5)


def test_incidence_puts_each_row_with_its_body():
    np.testing.assert_array_equal(
        b.incidence(np.array([2, 0, 2]), 3), [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    )


@pytest.mark.parametrize("index", [[1, 2], [2, 0], [0, 0, 1], [2]])
def test_taking_rows_copies_those_bodies(index):
    state = np.random.default_rng(0).normal(size=(13, 3, 2)).astype(np.float32)
    taken = b.pack(b.take(b.unpack(jnp.asarray(state)), np.array(index)))
    np.testing.assert_array_equal(taken, state[:, index])
