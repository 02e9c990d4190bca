"""Test joints: measured angles, limits, motors and anchor springs."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import physics
from handmade import at, body, hinge, motor, stepper, world, xyz
from reference_engine import about, from_euler, hamilton, turn

degrees = st.floats(-180.0, 180.0).map(lambda angle: round(angle, 6))
eulers = st.tuples(degrees, degrees, degrees)
rates = st.tuples(*[st.floats(-5.0, 5.0, width=32)] * 3)


def two_bodies(joint, **fields):
    return world(
        body("parent"), body("child"), joints=[joint], actuators=[motor()], gravity={}, **fields
    )


def sensed(data, state):
    sensors = physics.sense(physics.build(data), state)
    return float(sensors.angles[0]), float(sensors.velocities[0])


@settings(max_examples=20)
@given(eulers, eulers, eulers, st.floats(-3.1, 3.1), rates, rates)
def test_angle_and_velocity_of_a_hinge_built_by_hand(frame, reference, pose, angle, spin, other):
    """The sensed angle is the one by which the child is turned about the parent's hinge axis."""
    joint = hinge(rotation=xyz(*frame), reference_rotation=xyz(*reference))
    parent_axis = turn(from_euler(reference), turn(from_euler(frame), [1.0, 0, 0]))
    parent = from_euler(pose)
    child = hamilton(parent, hamilton(about(parent_axis, angle), from_euler(reference)))
    state = at({"rot": parent, "ang": spin}, {"rot": child, "ang": other})
    found, velocity = sensed(two_bodies(joint), state)
    assert found == pytest.approx(angle, abs=3e-6)
    expected = (np.subtract(spin, other)) @ turn(parent, parent_axis)
    assert velocity == pytest.approx(expected, abs=2e-5)


# Two bodies at the same position with a hinge along x. Only its limits act as springs.
LIMITED = two_bodies(
    hinge(
        angle_limit=[{"min": -30.0, "max": 60.0}],
        limit_strength=7.0,
        spring_damping=0.0,
    ),
    dt=0.001,
    substeps=1,
)


@pytest.fixture(scope="module")
def limited():
    return stepper(LIMITED)


def torque_on_child(step, angle, action):
    """Return the torque about x on the child in one substep, from its angular velocity."""
    state, _ = step(at({}, {"rot": about([1, 0, 0], math.radians(angle))}), [action])
    inertia, h = 0.5, 0.001
    np.testing.assert_allclose(state[10, 0], -state[10, 1], rtol=1e-5)  # action and reaction
    np.testing.assert_allclose(state[11:13], 0.0, atol=1e-6)
    return state[10, 1] * inertia / h


@pytest.mark.parametrize("action", [-1.0, 0.5])
def test_a_motor_turns_the_joint_within_its_limits(limited, action):
    # The torque -strength a acts on the parent, so +strength a acts on the child.
    assert torque_on_child(limited, 10.0, action) == pytest.approx(action, rel=1e-5)


@pytest.mark.parametrize(("angle", "excess"), [(75.0, 60.0 - 75.0), (-40.0, -30.0 + 40.0)])
def test_outside_its_limits_a_joint_is_pushed_back_and_its_motor_is_off(limited, angle, excess):
    for action in (-1.0, 0.0, 1.0):
        torque = torque_on_child(limited, angle, action)
        assert torque == pytest.approx(7.0 * math.radians(excess), rel=1e-4)


def test_anchors_are_pulled_together_with_default_damping():
    """Without `spring_damping`, the damping is half of the square root of the stiffness."""
    joint = hinge(parent_offset=xyz(0.3, 0.0, 0.0), child_offset=xyz(-0.2, 0.0, 0.0))
    step = stepper(two_bodies(joint, dt=0.001, substeps=1))
    state, _ = step(at({}, {"pos": [0.6, 0.0, 0.0], "vel": [0.0, 1.0, 0.0]}))
    # Positions change first: the child is 0.001 further in y when the force is evaluated.
    stretch = np.array([0.3 - (0.6 - 0.2), -0.001, 0.0])
    force = 1000.0 * stretch + 0.5 * math.sqrt(1000.0) * np.array([0.0, -1.0, 0.0])
    mass, inertia, h = 2.0, 0.5, 0.001
    np.testing.assert_allclose(state[7:10, 0], -h * force / mass, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(state[7:10, 1], [0, 1, 0] + h * force / mass, rtol=1e-5, atol=1e-7)
    spin = h * np.cross([0.3, 0, 0], -force) / inertia
    np.testing.assert_allclose(state[10:13, 0], spin, rtol=1e-4, atol=1e-7)
    spin = h * np.cross([-0.2, 0, 0], force) / inertia
    np.testing.assert_allclose(state[10:13, 1], spin, rtol=1e-4, atol=1e-7)


def test_a_joint_without_a_motor_moves_by_no_action():
    """In a chain of three bodies, only the second joint has a motor. The first one stays free."""
    first = hinge(name="loose", child="middle", parent="top")
    second = hinge(parent="middle", child="child")
    data = world(
        *(body(name) for name in ("top", "middle", "child")),
        joints=[first, second],
        actuators=[motor(2.0)],
        gravity={},
        dt=0.001,
        substeps=1,
    )
    model = physics.build(data)
    assert model.action_size == 1
    state, sensors = jax.jit(lambda s, a: physics.step(model, s, a))(at({}, {}, {}), np.ones(1))
    assert float(state[10, 0]) == 0.0
    assert float(state[10, 2]) == pytest.approx(2.0 * 0.001 / 0.5)
    assert float(sensors.velocities[0]) == pytest.approx(2.0 * 0.001 / 0.5)
