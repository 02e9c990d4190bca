"""What is stored with a transition: the descriptor its episode reached, and the one it was asked.

One initialisation and one iteration of every conditioned algorithm on `point_omni`, whose episodes
all last 25 steps and whose descriptor is the final position: so the stored transitions themselves
tell what each episode reached, and which policy or actor acted in it.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core import networks, td3
from elites.core import replay as replays
from elites.core.archive import Archive

pytestmark = pytest.mark.usefixtures("quick_compiler")

BATCH, STEPS = 8, 25
NOISE = 0.0004 * 2  # of the descriptors asked of an actor: a share of the range, which is 2

TINY = {
    "batch_size": BATCH, "cells": 64, "policy_hidden": (8,), "actor_hidden": (9,),
    "critic_hidden": (8,), "td3_batch_size": 4, "critic_steps": 1, "actor_delay": 1, "pg_steps": 1,
    "iso_sigma": 0.5,  # so that offspring reach new cells
    "actor_learning_rate": 0.05,  # so that the actor before and after training can be told apart
    "policy_learning_rate": 1e-6,  # so that the parent of a PG offspring can be recognised
    "replay_size": 1000,
}  # fmt: skip
LAYOUT = {
    "observation": 3, "action": 2, "reward": 1, "next_observation": 3, "done": 1, "truncation": 1,
    "descriptor": 2, "target": 2,
}  # fmt: skip


class Stored(NamedTuple):
    """Transitions of one stage [25, episodes, ...], in the order they were inserted."""

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    truncation: np.ndarray
    descriptor: np.ndarray
    target: np.ndarray

    def lanes(self, lanes) -> "Stored":
        return Stored(*(column[:, lanes] for column in self))


class Trial(NamedTuple):
    algorithm: object
    before: object  # the state after init
    after: object  # the state after one step
    metrics: object
    initial: Stored
    iteration: Stored


def read(replay, first: int, count: int) -> Stored:
    rows = np.asarray(replay.rows)[first : first + count].reshape(STEPS, count // STEPS, -1)
    return Stored(*(np.asarray(replays.column(LAYOUT, rows, name)) for name in Stored._fields))


@functools.cache
def trial(name: str) -> Trial:
    algorithm = elites.build("point_omni", name, **TINY)
    # Each is called once: compiling is all the cost, and optimising would be most of it.
    jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    before = jit(algorithm.init)(jax.random.key(0))
    after, metrics = jit(algorithm.step)(before, jax.random.key(1))
    middle, end = int(before.replay.size), int(after.replay.size)
    assert end == int(after.replay.head) < TINY["replay_size"]  # nothing was overwritten
    return Trial(
        algorithm, before, after, metrics,
        read(before.replay, 0, middle), read(after.replay, middle, end - middle),
    )  # fmt: skip


def archived(archive: Archive) -> np.ndarray:
    """Descriptors of the filled cells; on this task the normalised ones are the same numbers."""
    return np.asarray(archive.descriptors)[np.isfinite(archive.fitness)]


def assert_own(stored: Stored):
    """Judged by what it reached, at every step of every episode."""
    np.testing.assert_array_equal(stored.target, stored.descriptor)


def assert_asked(stored: Stored, archive: Archive, noise: float):
    """One target for a whole episode, drawn from the archive with noise of that deviation."""
    targets = stored.target[0]
    np.testing.assert_array_equal(stored.target, np.tile(targets, (STEPS, 1, 1)))
    distance = np.linalg.norm(targets[:, None] - archived(archive)[None], axis=-1).min(1)
    assert (distance <= max(5 * noise, 1e-6)).all()
    if noise:
        assert (distance > 0).all()
        assert len(np.unique(targets, axis=0)) == len(targets)


def assert_led_by(trial: Trial, stored: Stored, actor):
    """The stored actions are those of this actor at the stored target."""
    learner = trial.algorithm.learner
    actions = td3.act(learner, actor, jnp.asarray(stored.observation), jnp.asarray(stored.target))
    np.testing.assert_allclose(actions, stored.action, atol=1e-5)


def parents(trial: Trial, stored: Stored) -> np.ndarray:
    """The archive's cell whose policy acted in each episode."""
    archive, policy = trial.before.archive, trial.algorithm.policy
    cells = np.flatnonzero(np.isfinite(archive.fitness))
    layers = networks.unflatten(policy, archive.policies[cells])
    each = jax.vmap(lambda layers: networks.apply(policy, layers, jnp.asarray(stored.observation)))
    error = abs(np.asarray(each(layers)) - stored.action[None]).max(axis=(1, 3))
    assert (error.min(0) < 1e-4).all()
    assert (np.sort(error, axis=0)[1] > 1e-3).all()  # no other comes near
    return cells[error.argmin(0)]


CONDITIONED = [
    "dcg_me", "dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives",
    "dcg_me_unconditioned_actor", "dcrl_me",
]  # fmt: skip
ACTOR_EPISODES = {"dcg_me": BATCH, "dcg_me_unconditioned_actor": BATCH}


@pytest.mark.parametrize("name", CONDITIONED)
def test_every_episode_is_stored_whole_with_what_it_reached(name):
    run = trial(name)
    for stored in (run.initial, run.iteration):
        assert stored.action.shape[1] == BATCH + ACTOR_EPISODES.get(name, 0)
        np.testing.assert_array_equal(stored.observation[0], 0)
        np.testing.assert_array_equal(stored.next_observation[:-1], stored.observation[1:])
        np.testing.assert_array_equal(stored.truncation[:-1], 0)
        np.testing.assert_array_equal(stored.truncation[-1], 1)
        reached = np.broadcast_to(stored.next_observation[-1:, :, :2], stored.descriptor.shape)
        np.testing.assert_allclose(stored.descriptor, reached, atol=1e-6)
        assert len(np.unique(stored.descriptor[0, :BATCH], axis=0)) > 4


@pytest.mark.parametrize("name", CONDITIONED)
def test_evaluations_count_offspring_and_steps_count_all(name):
    """Actor rollouts are no evaluations; one trajectory shared by all targets is simulated once."""
    run = trial(name)
    lanes = BATCH + {"dcg_me": BATCH, "dcg_me_unconditioned_actor": 1}.get(name, 0)
    assert [int(s.evaluations) for s in (run.before, run.after)] == [BATCH, 2 * BATCH]
    assert [int(s.env_steps) for s in (run.before, run.after)] == [25 * lanes, 50 * lanes]
    assert int(run.metrics.evaluations) == 2 * BATCH
    assert int(run.metrics.env_steps) == 50 * lanes


@pytest.mark.parametrize("name", CONDITIONED)
def test_the_first_policies_are_judged_by_what_they_reached(name):
    run = trial(name)
    assert_own(run.initial.lanes(slice(BATCH)))


def test_dcg_stores_offspring_with_their_own_descriptor():
    run = trial("dcg_me")
    assert_own(run.iteration.lanes(slice(BATCH)))
    # The last half are the PG offspring: their parents reached something else or the same, but
    # what is stored is what they reached themselves.
    cells = parents(run, run.iteration.lanes(slice(BATCH // 2, BATCH)))
    assert len(cells) == BATCH // 2


def test_dcg_stores_actor_rollouts_with_what_was_asked():
    run = trial("dcg_me")
    fresh, trained = (s.learners["conditioned"].actor for s in (run.before, run.after))
    assert np.abs(np.asarray(fresh - trained)).max() > 0.01
    first, second = run.initial.lanes(slice(BATCH, None)), run.iteration.lanes(slice(BATCH, None))
    # The untrained actor is asked for what the first policies reached; the trained one for
    # descriptors of the archive as it was before the offspring came in.
    assert_asked(first, run.before.archive, NOISE)
    assert_asked(second, run.before.archive, NOISE)
    # There was something new that must not have been asked for.
    assert len(archived(run.after.archive)) > len(archived(run.before.archive)) + 1
    assert_led_by(run, first, fresh)
    assert_led_by(run, second, trained)


@pytest.mark.parametrize("name", ["dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives"])
def test_without_actor_evaluation_everything_is_judged_by_what_it_reached(name):
    run = trial(name)
    assert_own(run.initial)
    assert_own(run.iteration)


def test_an_unconditioned_actor_is_stored_once_for_every_drawn_target():
    run = trial("dcg_me_unconditioned_actor")
    fresh, trained = (s.learners["conditioned"].actor for s in (run.before, run.after))
    assert_own(run.iteration.lanes(slice(BATCH)))
    for stored, actor in ((run.initial, fresh), (run.iteration, trained)):
        led = stored.lanes(slice(BATCH, None))
        for column in led._replace(target=led.descriptor):
            np.testing.assert_array_equal(column, np.broadcast_to(column[:, :1], column.shape))
        assert_asked(led, run.before.archive, NOISE)
        assert_led_by(run, led, actor)


def test_dcrl_judges_each_offspring_by_what_made_it():
    run = trial("dcrl_me")
    assert run.algorithm.offspring == {"ga": 4, "pg": 2, "injection": 2}
    ga, pg, injected = (run.iteration.lanes(s) for s in (slice(4), slice(4, 6), slice(6, 8)))
    assert_own(ga)

    # PG: the descriptor of the parent, exactly; it is not what the child reached.
    assert_asked(pg, run.before.archive, 0.0)
    expected = np.asarray(run.before.archive.descriptors)[parents(run, pg)]
    np.testing.assert_allclose(pg.target[0], expected, atol=1e-6)

    # Injection: a descriptor of the archive without noise, and the trained actor asked for it.
    assert_asked(injected, run.before.archive, 0.0)
    assert_led_by(run, injected, run.after.learners["conditioned"].actor)
    assert not np.allclose(injected.target, injected.descriptor, atol=1e-3)
