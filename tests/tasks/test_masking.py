"""Test that steps after the end of an episode do not count, nor any step of a diverged one.

The task is a clock: it counts its steps, ends after a given number, and would give high rewards
afterwards. The expected results are computed step by step in plain Python.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.tasks.rollout import rollout
from elites.tasks.task import Task, TaskState

LENGTH = 6
LIFETIMES = [1, 2, 5, 6, 7, 100]  # ends early, on the very last step, or is cut by the time limit


def key_for(lifetime: int, breaks: int = 0):
    """Return a key that holds the number of steps and, unless 0, the step that gives NaN."""
    return jax.random.wrap_key_data(jnp.array([lifetime, breaks], jnp.uint32))


def clock(episode_descriptor="final", broken="reward") -> Task:
    def reset(key):
        lifetime, breaks = jax.random.key_data(key).astype(jnp.float32)
        return state_of(jnp.float32(0.0), lifetime, breaks, jnp.float32(0.0))

    def step(state, action):
        time, lifetime, breaks = state.inner
        time = time + 1.0
        after_the_end = jnp.where(time > lifetime, 1000.0, 0.0)
        return state_of(time, lifetime, breaks, time + action[0] + after_the_end)

    def state_of(time, lifetime, breaks, reward):
        bad = jnp.where((breaks > 0.0) & (time == breaks), jnp.nan, 0.0)
        observation = jnp.stack([time, -time])
        descriptor = jnp.stack([time / 10.0])
        parts = {"reward": reward, "observation": observation, "descriptor": descriptor}
        parts[broken] = parts[broken] + bad
        return TaskState(inner=(time, lifetime, breaks), done=time >= lifetime, **parts)

    return Task(
        name="clock",
        observation_size=2,
        action_size=1,
        episode_length=LENGTH,
        descriptor_low=(0.0,),
        descriptor_high=(0.45,),
        reset=reset,
        step=step,
        episode_descriptor=episode_descriptor,
    )


def act(observation):
    return observation[:, :1] * 0.5 + 1.0


def run(task, keys):
    evaluation = jax.jit(lambda keys: rollout(task, act, keys))(jnp.stack(keys))
    return jax.tree.map(np.asarray, evaluation)


def expected_episode(lifetime):
    """Return actions, rewards and descriptors of the steps of an episode."""
    taken = min(lifetime, LENGTH)
    actions = [0.5 * t + 1.0 for t in range(taken)]
    rewards = [t + 1.0 + a for t, a in enumerate(actions)]
    return actions, rewards, [(t + 1) / 10.0 for t in range(taken)]


@functools.cache
def episodes(episode_descriptor="final"):
    return run(clock(episode_descriptor), [key_for(n) for n in LIFETIMES])


def test_fitness_and_steps_count_what_happened_until_the_end():
    evaluation = episodes()
    for i, lifetime in enumerate(LIFETIMES):
        actions, rewards, _ = expected_episode(lifetime)
        assert evaluation.steps[i] == len(actions)
        assert evaluation.fitness[i] == pytest.approx(sum(rewards))
    assert evaluation.valid.all()


def test_a_final_descriptor_is_of_the_state_reached_within_the_bounds():
    reached = [min(expected_episode(n)[2][-1], 0.45) for n in LIFETIMES]
    np.testing.assert_allclose(episodes().descriptors[:, 0], reached, rtol=1e-6)


def test_a_mean_descriptor_is_over_the_states_reached():
    means = [np.mean(expected_episode(n)[2]) for n in LIFETIMES]
    np.testing.assert_allclose(episodes("mean").descriptors[:, 0], means, rtol=1e-6)


@pytest.mark.parametrize("kind", ["final", "mean"])
def test_transitions_are_those_of_the_steps_taken(kind):
    t = episodes(kind).transitions
    for i, lifetime in enumerate(LIFETIMES):
        actions, rewards, _ = expected_episode(lifetime)
        taken = len(actions)
        np.testing.assert_array_equal(t.mask[:, i], np.arange(LENGTH) < taken)
        time = np.arange(taken, dtype=np.float32)
        np.testing.assert_array_equal(t.observation[:taken, i], np.stack([time, -time], -1))
        np.testing.assert_array_equal(
            t.next_observation[:taken, i], np.stack([time + 1, -time - 1], -1)
        )
        np.testing.assert_allclose(t.action[:taken, i, 0], actions)
        np.testing.assert_allclose(t.reward[:taken, i], rewards)
        # Within the bounds, like the descriptor of an episode.
        clipped = np.minimum(time / 10, 0.45)
        np.testing.assert_allclose(t.state_descriptor[:taken, i, 0], clipped, rtol=1e-6)
        assert t.state_descriptor.shape == (LENGTH, len(LIFETIMES), 1)


def test_done_is_the_tasks_and_truncation_the_time_limits():
    t = episodes().transitions
    for i, lifetime in enumerate(LIFETIMES):
        done, cut = np.zeros(LENGTH, bool), np.zeros(LENGTH, bool)
        if lifetime <= LENGTH:
            done[lifetime - 1] = True  # also where it falls on the last step
        else:
            cut[-1] = True
        np.testing.assert_array_equal(t.done[:, i], done)
        np.testing.assert_array_equal(t.truncation[:, i], cut)


def test_a_step_starts_where_the_one_before_arrived():
    t = episodes().transitions
    alive = t.mask[1:]
    np.testing.assert_array_equal(t.next_observation[:-1][alive], t.observation[1:][alive])


def assert_zero_where_masked(transitions):
    for field, values in transitions._asdict().items():
        assert not values[~transitions.mask].any(), field


@pytest.mark.parametrize("kind", ["final", "mean"])
def test_masked_steps_are_zero(kind):
    assert not episodes(kind).transitions.mask.all()
    assert_zero_where_masked(episodes(kind).transitions)


# ------------------------------------------------------------------------------------ divergence


@pytest.mark.parametrize("broken", ["reward", "observation", "descriptor"])
def test_an_episode_that_diverges_is_invalid_and_stores_nothing(broken):
    """An episode that fails at step 3 also loses the two valid steps before."""
    keys = [key_for(100), key_for(100, breaks=3), key_for(2), key_for(100, breaks=1)]
    evaluation = run(clock(broken=broken), keys)
    np.testing.assert_array_equal(evaluation.valid, [True, False, True, False])
    np.testing.assert_array_equal(evaluation.steps, [6, 2, 2, 0])
    np.testing.assert_array_equal(evaluation.transitions.mask.sum(0), [6, 0, 2, 0])
    assert_zero_where_masked(evaluation.transitions)
    assert np.isfinite(evaluation.fitness).all()
    assert np.isfinite(evaluation.descriptors).all()


def test_what_happens_after_the_end_cannot_invalidate_an_episode():
    """The first clock would give NaN in the step after its end."""
    evaluation = run(clock(), [key_for(2, breaks=3), key_for(100)])
    assert evaluation.valid.all()
    np.testing.assert_array_equal(evaluation.steps, [2, 6])
    np.testing.assert_array_equal(evaluation.transitions.mask.sum(0), [2, 6])
    assert_zero_where_masked(evaluation.transitions)


def test_a_start_that_is_not_finite_is_invalid():
    task = clock()

    def reset(key):
        lifetime, _ = jax.random.key_data(key).astype(jnp.float32)
        world = task.reset(key)
        return world._replace(observation=jnp.where(lifetime == 3.0, jnp.nan, world.observation))

    broken = dataclasses.replace(task, reset=reset)
    evaluation = run(broken, [key_for(3), key_for(4)])
    np.testing.assert_array_equal(evaluation.valid, [False, True])
    assert not evaluation.transitions.mask[:, 0].any()
    assert_zero_where_masked(evaluation.transitions)
