"""Standardised observations: their moments, and networks that act the same before and after."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
import probe
from elites.core import algorithms, map_elites, standardisation, td3
from elites.core.standardisation import Moments
from small import SMALL

S, A, D = 3, 2, 2


@functools.cache
def learner() -> td3.TD3:
    return algorithms.conditioned_td3(probe.problem(), probe.HP)


def moments() -> Moments:
    return Moments(jnp.float32([0.5, -2.0, 10.0]), jnp.float32([0.1, 3.0, 20.0]))


def test_moments_are_those_of_the_steps_that_were_taken():
    rng = np.random.default_rng(0)
    rows = rng.normal([5, -1, 0.2], [2, 0.5, 0.001], (7, 40, 3)).astype(np.float32)
    mask = rng.random((7, 40)) < 0.6
    found = standardisation.measure(jnp.asarray(rows), jnp.asarray(mask))
    np.testing.assert_allclose(found.mean, rows[mask].mean(0), rtol=1e-4)
    np.testing.assert_allclose(found.size[:2], rows[mask].std(0)[:2], rtol=1e-4)
    np.testing.assert_allclose(found.size[2], 1 / 30)  # hardly varies
    ranged = standardisation.measure(rows, mask, ((0, -1.0, 3.0),))
    assert (float(ranged.mean[0]), float(ranged.size[0])) == (1.0, 2.0)
    np.testing.assert_array_equal(ranged.size[1:], found.size[1:])
    nothing = standardisation.measure(rows, np.zeros_like(mask))
    np.testing.assert_array_equal(nothing, standardisation.unit(3))


def test_a_raw_learner_acts_like_the_standardised_one():
    rng = np.random.default_rng(0)
    config = learner()
    act, value = (jax.jit(functools.partial(f, config)) for f in (td3.act, td3.value))
    state = jax.jit(functools.partial(td3.init, config))(jax.random.key(0))
    state = state._replace(target_actor=state.actor + 0.1, target_critics=state.critics - 0.1)
    raw = standardisation.to_raw(config, state, moments())
    seen = jnp.float32(rng.normal(size=(20, S)))
    action, target = (jnp.float32(rng.uniform(-1, 1, (20, n))) for n in (A, D))
    scaled = standardisation.standardise(moments(), seen)
    np.testing.assert_allclose(
        scaled, (np.asarray(seen) - moments().mean[None]) / moments().size[None], rtol=1e-5
    )
    for name in ("actor", "target_actor"):
        before = act(getattr(state, name), scaled, target)
        after = act(getattr(raw, name), seen, target)
        np.testing.assert_allclose(after, before, atol=1e-4)
    for name in ("critics", "target_critics"):
        for i in range(2):
            before = value(getattr(state, name)[i], scaled, action, target)
            after = value(getattr(raw, name)[i], seen, action, target)
            np.testing.assert_allclose(after, before, atol=1e-3)
    back = standardisation.to_standardised(config, raw, moments())
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@functools.cache
def runs(standardised: bool):
    """Return an algorithm, its state after the start and the state after one training."""
    spec = probe.spec()
    part = dataclasses.replace(spec.learners[0], standardised=standardised)
    spec = dataclasses.replace(spec, learners=(part,))
    algorithm = map_elites.algorithm(spec)
    state = jax.jit(algorithm.start)(jax.random.key(0), probe.centroids())
    return spec, state, jax.jit(algorithm.train)(state, jax.random.key(1))[0]


def test_the_start_measures_observations_once():
    spec, state, _ = runs(True)
    seen = np.asarray(state.replay.rows)[: int(state.replay.size), :S]
    np.testing.assert_allclose(state.moments.mean, seen.mean(0), atol=1e-5)
    np.testing.assert_allclose(state.moments.size, seen.std(0), rtol=1e-4)
    # The networks were drawn for standardised observations.
    fresh = runs(False)[1].learners["conditioned"]
    expected = standardisation.to_raw(learner_of(spec), fresh, state.moments)
    for a, b in zip(expected, state.learners["conditioned"], strict=True):
        for mine, theirs in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)
    algorithm = map_elites.algorithm(spec)
    later, _ = jax.jit(algorithm.step)(state, jax.random.key(1))
    np.testing.assert_array_equal(later.moments.mean, state.moments.mean)
    np.testing.assert_array_equal(later.moments.size, state.moments.size)


def learner_of(spec) -> td3.TD3:
    return spec.learners[0].td3


def test_training_sees_standardised_observations(monkeypatch):
    """The networks handed to TD3 and its minibatches are both in standardised units."""
    spec, state, after = runs(True)
    calls = []

    def train(config, before, batches, key, factor=None):
        calls.append((before, batches))
        return before, td3.Losses(jnp.float32(0), jnp.float32(0))

    monkeypatch.setattr(td3, "train", train)
    same, _ = map_elites.train(spec, state, jax.random.key(1))
    ((before, batches),) = calls
    standard = standardisation.to_standardised(
        learner_of(spec), state.learners["conditioned"], state.moments
    )
    np.testing.assert_allclose(before.actor, standard.actor, atol=1e-5)
    assert np.abs(np.asarray(batches.observation).mean((0, 1))).max() < 1
    mean, size = np.asarray(state.moments)
    raw = np.asarray(batches.observation) * size + mean
    rows = np.asarray(state.replay.rows)[: int(state.replay.size), :S]
    distance = np.abs(raw.reshape(-1, 1, S) - rows[None]).max(-1).min(1)
    assert distance.max() < 1e-4
    # Nothing was trained, so the networks for raw observations are as before.
    np.testing.assert_allclose(
        same.learners["conditioned"].actor, state.learners["conditioned"].actor, atol=1e-5
    )
    change = after.learners["conditioned"].actor - state.learners["conditioned"].actor
    assert np.abs(np.asarray(change)).max() > 1e-5


@pytest.mark.parametrize(
    "ranges", [((3, 0.0, 1.0),), ((0, 1.0, 1.0),), ((0.5, 0.0, 1.0),), ((0, 0.0),)]
)
def test_wrong_ranges_are_refused(ranges):
    with pytest.raises(ValueError, match="'point_omni': observation_ranges"):
        dataclasses.replace(elites.tasks.make("point_omni"), observation_ranges=ranges)


def test_tasks_name_the_entries_that_show_the_descriptor():
    for name in ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni", "point_omni"):
        assert [entry[0] for entry in elites.tasks.make(name).observation_ranges] == [0, 1]
    algorithm = elites.build("point_omni", "progress_me", **SMALL)
    assert algorithm.problem.observation_ranges == ((0, -1.0, 1.0), (1, -1.0, 1.0))
