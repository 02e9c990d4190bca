"""Test the contacts, the reward and the end of the task ant_uni."""

import functools

import jax
import numpy as np
import pytest

import quick
from elites import tasks
from elites.core import networks

STANDING, FLYING, FAST, TIRED, LOW, HIGH, RANDOM = range(7)
COUNT, STEPS = 16, 40


@pytest.fixture(scope="module")
@quick.optimising()
def walked():
    """Return the steps of ants that start in different states, in two orders, and the order.

    The steps are states [T, n] of the task. Each ant has a constant action, but for the random
    policies from row RANDOM on.
    """
    task = tasks.make("ant_uni")
    bodies = np.repeat(task.body_model.rest[None], COUNT, axis=0)
    bodies[[FLYING, FAST, TIRED], 2] += 0.3  # the first steps are in the air
    bodies[[FLYING, FAST, TIRED], 9] = 1.0
    bodies[FAST, 7] = 1.5  # all bodies move forward alike
    bodies[LOW, 2] -= 0.9
    bodies[HIGH, 2] += 0.8
    network = networks.policy(task.observation_size, task.action_size, (8,))
    keys = jax.random.split(jax.random.key(1), COUNT)
    policies = np.array(jax.vmap(functools.partial(networks.init, network))(keys))
    policies[:RANDOM] = 0.0
    policies[TIRED, -task.action_size :] = np.arctanh(0.5)  # the last biases
    run = jax.jit(functools.partial(_steps, task, network))
    order = np.random.default_rng(2).permutation(COUNT)
    return order, *(
        jax.tree.map(np.asarray, run(bodies[rows], policies[rows]))
        for rows in (np.arange(COUNT), order)
    )


def _steps(task, network, bodies, policies):
    layers = networks.unflatten(network, policies)
    first = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), COUNT))
    first = first._replace(inner=first.inner._replace(bodies=bodies))

    def step(state, _):
        action = networks.apply_each(network, layers, state.observation)
        state = jax.vmap(task.step)(state, action)
        return state, state

    return jax.lax.scan(step, first, None, STEPS)[1]


def test_all_feet_of_a_standing_ant_touch_the_ground_always(walked):
    _, states, _ = walked
    np.testing.assert_array_equal(states.descriptor[:, STANDING], np.ones((STEPS, 4)))
    np.testing.assert_allclose(states.observation[:, STANDING, :4], np.ones((STEPS, 4)), rtol=1e-6)
    assert not states.done[:, STANDING].any()


def test_no_foot_touches_in_the_air_and_the_share_says_so(walked):
    """At the start all feet count as touching, so after one step in the air it is half."""
    _, states, _ = walked
    np.testing.assert_array_equal(states.descriptor[0, FLYING], np.zeros(4))
    np.testing.assert_array_equal(states.observation[0, FLYING, :4], np.full(4, 0.5))
    assert states.descriptor[-1, FLYING].any()  # it has landed
    touched = 1 + np.cumsum(states.descriptor, axis=0)
    expected = touched / np.arange(2, STEPS + 2)[:, None, None]
    np.testing.assert_allclose(states.observation[..., :4], expected, rtol=1e-6)


def test_the_ant_is_paid_for_speed_and_pays_for_actions(walked):
    _, states, _ = walked
    flying, fast, tired = states.reward[0, [FLYING, FAST, TIRED]]
    assert flying == pytest.approx(1.0, abs=0.02)  # it is alive and in the air
    assert fast - flying == pytest.approx(1.5, abs=0.05)
    moved = states.inner.bodies[1, TIRED, 0, 0] - states.inner.bodies[0, TIRED, 0, 0]
    assert states.reward[1, TIRED] == pytest.approx(1.0 + moved / 0.05 - 0.5 * 8 * 0.25, abs=0.01)
    assert tired < 0.5 < flying
    assert states.reward.min() < 0  # unlike that of walker_uni


def test_the_episode_ends_when_the_torso_is_too_low_or_too_high(walked):
    _, states, _ = walked
    z = states.inner.bodies[..., 2, 0]
    np.testing.assert_array_equal(states.done, (z < np.float32(0.2)) | (z > np.float32(1.0)))
    assert states.done[0, LOW]
    assert states.done[0, HIGH]


def test_ants_have_the_same_bits_in_another_order(walked):
    order, states, reordered = walked
    assert len(np.unique(states.inner.bodies[-1, RANDOM:, 0, 0])) == COUNT - RANDOM
    for a, b in zip(jax.tree.leaves(states), jax.tree.leaves(reordered), strict=True):
        np.testing.assert_array_equal(a[:, order], b)
