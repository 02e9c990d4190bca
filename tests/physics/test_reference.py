"""Compare the engine with an independent float64 implementation of the dynamics.

The reference (`reference_engine.py`) loops over bodies, joints and contacts in NumPy and reads the
model files itself. The tests compare whole steps of all four robots, from recorded states and from
unusual ones.
"""

import functools

import numpy as np
import pytest

from elites import tasks
from recordings import POSITION, ROTATION, SPIN, TASKS, VELOCITY, advance, bodies_of, recording
from reference_engine import reference_engine, reference_step

# Walking, falling, in the air; for AntTrap also against the trap's walls.
RECORDED = {
    "ant_omni": [3, 38, 52, 80],
    "anttrap_omni": [115, 283, 325, 353],
    "hexapod_omni": [3, 31, 52, 94],
    "walker_uni": [3, 10, 24, 87],
}


def unusual_states(name: str) -> np.ndarray:
    """Return moving states [4, 13, B] near the initial pose, partly below the ground."""
    rng = np.random.default_rng(7)
    model = tasks.make(name).body_model
    state = np.repeat(model.rest[None].astype(np.float64), 4, axis=0)
    state[:, 2] += np.array([0.05, -0.01, -0.05, -0.1])[:, None]
    if name == "anttrap_omni":
        state[:, 0] += np.array([9.0, 10.6, 10.9, 8.0])[:, None]
        state[:, 1] += np.array([2.2, 0.0, 1.9, -2.3])[:, None]
    free_position, free_rotation = (
        np.stack(axes)[..., 0] for axes in (model.free_position, model.free_rotation)
    )
    state[:, 0:3] += free_position * rng.normal(size=state[:, 0:3].shape) * 2e-3
    state[:, 4:7] += free_rotation * rng.normal(size=state[:, 4:7].shape) * 0.02
    state[:, 3:7] /= np.linalg.norm(state[:, 3:7], axis=1, keepdims=True)
    state[:, 7:10] += free_position * rng.normal(size=state[:, 7:10].shape) * 0.5
    state[:, 10:13] += free_rotation * rng.normal(size=state[:, 10:13].shape)
    return state.astype(np.float32)


@functools.cache
def both(name: str):
    """Return eight steps of the engine and of the reference."""
    data = recording(name)
    rows = RECORDED[name]
    states = np.concatenate([data["state"][rows], unusual_states(name)])
    actions = np.concatenate([data["action"][rows], data["action"][:4]])
    reference = [reference_step(name, s, a) for s, a in zip(states, actions, strict=True)]
    return actions, advance(name, states, actions), reference


@pytest.mark.parametrize("name", TASKS)
def test_a_whole_step_agrees(name):
    _, world, reference = both(name)
    found, expected = bodies_of(name, world), np.stack([state for state, _, _ in reference])
    np.testing.assert_allclose(found[:, POSITION], expected[:, POSITION], atol=1e-5)
    np.testing.assert_allclose(found[:, ROTATION], expected[:, ROTATION], atol=1e-5)
    np.testing.assert_allclose(found[:, VELOCITY], expected[:, VELOCITY], atol=1e-3)
    np.testing.assert_allclose(found[:, SPIN], expected[:, SPIN], atol=1e-3)


@pytest.mark.parametrize("name", TASKS)
def test_the_compared_steps_meet_every_kind_of_contact(name):
    kinds = {c.kind for _, _, contacts in both(name)[2] for c in contacts if c.pushed}
    assert (
        kinds
        == {
            "ant_omni": {"capsule-plane"},
            "anttrap_omni": {"capsule-plane", "capsule-capsule"},
            "hexapod_omni": {"capsule-plane", "box-plane"},
            "walker_uni": {"capsule-plane"},
        }[name]
    )


@pytest.mark.parametrize("name", TASKS)
def test_observed_joint_angles_and_velocities_agree(name):
    engine = reference_engine(name)
    joints = engine.data["joints"]
    first_angle = {"ant_omni": 7, "anttrap_omni": 7, "hexapod_omni": 6, "walker_uni": 4}[name]
    _, world, reference = both(name)
    for observation, (state, _, _) in zip(world.observation, reference, strict=True):
        rot, ang = state[3:7].T, state[10:13].T
        angles = [engine.joint_angle(joint, rot) for joint in joints]
        found = observation[first_angle : first_angle + len(joints)]
        np.testing.assert_allclose(found, angles, atol=1e-5)
        velocities = [
            (ang[engine.index[joint["parent"]]] - ang[engine.index[joint["child"]]])
            @ engine.joint_axes(joint, rot)[0]
            for joint in joints
        ]
        np.testing.assert_allclose(observation[-len(joints) :], velocities, atol=2e-3)


@pytest.mark.parametrize(
    ("name", "effort", "bonus"),
    [("ant_omni", 0.5, 3.03), ("anttrap_omni", 0.5, 3.03), ("hexapod_omni", 0.25, 3.53)],
)
def test_rewards_of_the_omni_tasks_follow_from_the_contacts(name, effort, bonus):
    actions, world, reference = both(name)
    for action, reward, (_, felt, _) in zip(actions, world.reward, reference, strict=True):
        contact = 5e-4 * np.sum(np.clip(felt, -1, 1) ** 2)
        expected = max(0.0, 1.0 - effort * np.sum(action.astype(np.float64) ** 2) - contact + bonus)
        assert reward == pytest.approx(expected, abs=1e-5)
    assert any(np.abs(felt).max() > 1.0 for _, felt, _ in reference)  # the clip matters


def test_the_walkers_feet_touch_where_the_reference_feels_them():
    feet = [tasks.make("walker_uni").body_model.bodies.index(f) for f in ("foot", "foot_left")]
    _, world, reference = both("walker_uni")
    touches = np.stack([(felt[:, feet] != 0.0).any(0) for _, felt, _ in reference])
    np.testing.assert_array_equal(world.descriptor, touches)
    assert touches.any()
    assert not touches.all()
