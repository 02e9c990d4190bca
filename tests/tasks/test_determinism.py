"""Test that a policy has the same bits again, in another order, and beside other policies.

This holds for batches of one size, so `evaluate` always runs full, padded batches.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elites import tasks
from elites.core import networks
from elites.tasks.rollout import evaluate

# Long enough that a difference in the last bit would grow, because the motion is chaotic.
LENGTHS = {"ant_omni": 100, "anttrap_omni": 100, "hexapod_omni": 100, "walker_uni": 150}
# test_ant_uni.py and test_mazes.py compare these two, which take long to compile.
ELSEWHERE = ("ant_uni", "ant_maze")
EVERY = [name for name in tasks.names() if tasks.make(name).deterministic and name not in ELSEWHERE]
BATCH, COUNT = 32, 40  # two batches, the second one padded

pytestmark = pytest.mark.usefixtures("optimised")


@functools.cache
def task_of(name):
    task = tasks.make(name)
    return dataclasses.replace(task, episode_length=LENGTHS.get(name, task.episode_length))


@functools.cache
def network_of(name):
    task = tasks.make(name)
    return networks.policy(task.observation_size, task.action_size)


@functools.cache
def population(name):
    network = network_of(name)
    keys = jax.random.split(jax.random.key(11), COUNT)
    return np.asarray(jax.vmap(functools.partial(networks.init, network))(keys))


def bits(name, policies, seed=0):
    """Return fitness and descriptors of policies as integers, which compares every bit."""
    found = evaluate(task_of(name), network_of(name), policies, jax.random.key(seed), batch=BATCH)
    assert found.valid.all()
    numbers = jnp.concatenate([found.fitness[:, None], found.descriptors], axis=1)
    return np.asarray(numbers).view(np.int32)


@functools.cache
def first_bits(name):
    return bits(name, population(name))


@pytest.mark.parametrize("name", EVERY)
def test_the_population_does_something(name):
    """Equal bits would mean little if all policies did the same."""
    assert len(np.unique(first_bits(name), axis=0)) > COUNT // 2


@pytest.mark.parametrize("name", EVERY)
def test_the_same_population_again(name):
    np.testing.assert_array_equal(bits(name, population(name), seed=5), first_bits(name))


@pytest.mark.parametrize("name", EVERY)
def test_in_another_order(name):
    order = np.random.default_rng(2).permutation(COUNT)
    np.testing.assert_array_equal(bits(name, population(name)[order]), first_bits(name)[order])


@pytest.mark.parametrize("name", EVERY)
def test_one_policy_among_padding(name):
    for row in (0, 37):
        alone = bits(name, population(name)[row : row + 1])
        np.testing.assert_array_equal(alone[0], first_bits(name)[row])


@pytest.mark.parametrize("name", EVERY)
def test_one_policy_in_every_place(name):
    everywhere = bits(name, np.repeat(population(name)[5:6], BATCH, axis=0))
    np.testing.assert_array_equal(everywhere, np.repeat(first_bits(name)[5:6], BATCH, axis=0))


@settings(max_examples=25)
@given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=80))
def test_any_selection_of_policies(rows):
    """Repeated, left out, reordered, over up to three batches."""
    name = "point_omni"
    np.testing.assert_array_equal(bits(name, population(name)[rows]), first_bits(name)[rows])


def test_an_evaluation_carries_no_transitions_and_one_row_for_each_policy():
    name = "point_omni"
    found = evaluate(
        task_of(name), network_of(name), population(name), jax.random.key(0), batch=BATCH
    )
    assert found.fitness.shape == found.valid.shape == found.steps.shape == (COUNT,)
    assert found.descriptors.shape == (COUNT, 2)
    assert all(leaf.size == 0 for leaf in jax.tree.leaves(found.transitions))
