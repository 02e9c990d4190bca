"""Test the small tasks against their known optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import tasks
from elites.core import networks
from elites.tasks.rollout import evaluate, rollout

ROBOTS = 8


def constant(task):
    """Return a compiled evaluation of policies that repeat one action [ROBOTS, A]."""
    return jax.jit(lambda actions, keys: rollout(task, lambda observation: actions, keys))


point = constant(tasks.make("point_omni"))
noisy = constant(tasks.make("noisy_point_omni"))
arm = constant(tasks.make("arm_reach"))


def keys(seed=0):
    return jax.random.split(jax.random.key(seed), ROBOTS)


def best_fitness(descriptors) -> np.ndarray:
    """Return T - |d|^2 / (2 T speed^2), from the description of the task."""
    return 25 - np.sum(np.square(descriptors, dtype=np.float64), -1) / (2 * 25 * 0.1**2)


places = st.tuples(*[st.floats(-1.0, 1.0, width=32)] * 2)


@settings(max_examples=15)
@given(st.lists(places, min_size=ROBOTS, max_size=ROBOTS))
def test_constant_speed_is_the_best_way_to_every_place(wanted):
    wanted = np.array(wanted, np.float32)
    evaluation = point(jnp.asarray(wanted / (25 * 0.1)), keys())
    np.testing.assert_allclose(evaluation.descriptors, wanted, atol=1e-5)
    np.testing.assert_allclose(evaluation.fitness, best_fitness(wanted), rtol=1e-5)


def test_no_policy_beats_the_known_optimum():
    task = tasks.make("point_omni")
    network = networks.policy(3, 2, (16,))
    policies = jax.vmap(lambda k: 2.0 * networks.init(network, k))(
        jax.random.split(jax.random.key(3), 256)
    )
    evaluation = evaluate(task, network, policies, jax.random.key(0))
    best = best_fitness(evaluation.descriptors)
    assert (evaluation.fitness <= best + 1e-4).all()
    assert float(jnp.ptp(evaluation.descriptors)) > 1.0  # they reach different positions
    assert float((best - evaluation.fitness).max()) > 1.0  # and most waste effort


def test_staying_put_is_the_fittest_behaviour_of_all():
    evaluation = point(jnp.zeros((ROBOTS, 2)), keys())
    np.testing.assert_array_equal(evaluation.fitness, 25.0)
    np.testing.assert_array_equal(evaluation.descriptors, 0.0)


def test_the_noisy_point_starts_elsewhere_with_every_key():
    task = tasks.make("noisy_point_omni")
    assert not task.deterministic
    assert tasks.make("point_omni").deterministic
    still = jnp.zeros((ROBOTS, 2))
    first, again, other = noisy(still, keys(0)), noisy(still, keys(0)), noisy(still, keys(1))
    np.testing.assert_array_equal(first.descriptors, again.descriptors)
    assert (first.descriptors != other.descriptors).all()
    assert len(np.unique(np.asarray(first.descriptors)[:, 0])) == ROBOTS
    assert float(jnp.abs(first.descriptors).max()) <= 0.1
    # Through `evaluate` the draw follows from the key as well.
    network = networks.policy(3, 2, (4,))
    policies = jnp.zeros((3, network.size))
    draws = [evaluate(task, network, policies, jax.random.key(k)).descriptors for k in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).all()


bends = st.floats(-1.0, 1.0, width=32)


@settings(max_examples=15)
@given(st.lists(bends, min_size=ROBOTS, max_size=ROBOTS))
def test_an_arm_with_equal_bends_is_best(bend):
    evaluation = arm(jnp.asarray(np.repeat(np.array(bend, np.float32)[:, None], 8, axis=1)), keys())
    np.testing.assert_allclose(evaluation.fitness, 1.0, atol=1e-6)
    np.testing.assert_array_equal(evaluation.steps, 1)


@pytest.mark.parametrize("seed", range(3))
def test_an_arm_reaches_what_its_links_add_up_to(seed):
    actions = np.random.default_rng(seed).uniform(-1, 1, (ROBOTS, 8))
    evaluation = arm(jnp.asarray(actions, jnp.float32), keys())
    heading = np.cumsum(actions * np.pi / 2, axis=1)
    hand = np.stack([np.cos(heading).sum(1), np.sin(heading).sum(1)], -1) / 8
    np.testing.assert_allclose(evaluation.descriptors, hand, atol=1e-5)
    np.testing.assert_allclose(evaluation.fitness, 1 - actions.std(1), atol=1e-5)
    assert (evaluation.fitness < 1.0).all()
    assert evaluation.transitions.done.all()
    assert not evaluation.transitions.truncation.any()
