"""Dominated novelty search against slow references in NumPy, and as an algorithm."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core import dominated_novelty, map_elites
from elites.core.dominated_novelty import Population
from elites.core.types import Results
from small import SMALL
from specs import spec_of

INF = np.inf


def competition_of(fitness, points, neighbours):
    """Return the competition fitness, one solution after the other."""
    found = []
    for i in range(len(fitness)):
        fitter = [
            np.linalg.norm(points[i] - points[j])
            for j in range(len(fitness))
            if fitness[j] > -INF
            and (fitness[j] > fitness[i] or (fitness[j] == fitness[i] and j < i))
        ]
        score = np.mean(sorted(fitter)[:neighbours]) if fitter else INF
        found.append(score if fitness[i] > -INF else -INF)
    return np.array(found)


def solutions(seed, n=40):
    """Return fitness and descriptors of n solutions. Some are equal, some are missing."""
    rng = np.random.default_rng(seed)
    fitness = rng.integers(0, 12, n).astype(np.float32)
    fitness[rng.random(n) < 0.2] = -INF
    points = rng.normal(size=(n, 2)).astype(np.float32)
    points[n // 2] = points[0]
    return fitness, points


@pytest.mark.parametrize("neighbours", [1, 3, 100])
def test_competition_is_the_mean_distance_to_the_nearest_fitter_ones(neighbours):
    competition = jax.jit(dominated_novelty.competition, static_argnums=2)
    for seed in range(5):
        fitness, points = solutions(seed)
        expected = competition_of(fitness, points, neighbours)
        np.testing.assert_allclose(competition(fitness, points, neighbours), expected, rtol=1e-5)
        assert np.isposinf(expected).sum() == 1, "all but the fittest have a fitter one"


def test_of_copies_the_first_wins():
    scores = dominated_novelty.competition(jnp.ones(3), jnp.zeros((3, 2)), 3)
    np.testing.assert_array_equal(scores, [INF, 0.0, 0.0])


def test_the_best_of_population_and_batch_survive_in_their_order():
    """Axis weights count, failed evaluations do not enter, and the oldest stay in front."""
    weights, capacity = (1.0, 4.0), 24
    survive = jax.jit(functools.partial(dominated_novelty.survivors, neighbours=3, weights=weights))
    for seed in range(5):
        fitness, points = solutions(seed)
        old = Population(jnp.arange(capacity)[:, None] * 1.0, *(
            jnp.asarray(a[:capacity]) for a in (fitness, points)))  # fmt: skip
        valid = fitness[capacity:] > -INF
        reported = np.where(valid, fitness[capacity:], 99.0)  # a failed one may report anything
        batch = Results(*map(jnp.asarray, (reported, points[capacity:], valid)))
        policies = jnp.arange(capacity, len(fitness))[:, None] * 1.0
        scores = competition_of(fitness, points * np.array(weights), 3)
        expected = np.sort(np.argsort(-scores, kind="stable")[:capacity])
        found = survive(old, policies, batch)
        assert found is not None
        np.testing.assert_array_equal(np.asarray(found.policies)[:, 0], expected)
        np.testing.assert_array_equal(found.fitness, fitness[expected])
        np.testing.assert_array_equal(found.descriptors, points[expected])


def test_parents_come_from_the_population():
    spec = spec_of("dns", **{**SMALL, "iso_sigma": 0.0, "line_sigma": 0.0})
    state = map_elites.init(spec, jax.random.key(0), jnp.zeros((spec.hp.cells, 2)))
    assert state.population is not None
    members = jnp.where(jnp.arange(24) < 5, jnp.arange(24), -1)
    state = state._replace(
        archive=state.archive._replace(fitness=jnp.ones(spec.hp.cells)),
        population=state.population._replace(
            policies=jnp.broadcast_to(members[:, None] * 1.0, state.population.policies.shape),
            fitness=jnp.where(members >= 0, 1.0, -INF),
        ),
    )
    request = jax.jit(functools.partial(map_elites.ask, spec))(state, jax.random.key(1))
    assert {*np.asarray(request.policies).ravel()} == {0, 1, 2, 3, 4}


def test_it_finds_places_and_keeps_the_fittest():
    run = elites.train("point_omni", "dns", preset="smoke", evaluations=32 * 30)
    state = jax.tree.map(np.asarray, run.state)
    fitness = state.population.fitness[0]
    assert np.isfinite(fitness).all()
    assert fitness.max() == state.archive.fitness.max()
    assert run.metrics["coverage"][-1] > 1.5 * run.metrics["coverage"][0]


def test_it_starts_from_an_archive_with_its_elites():
    spec = spec_of("dns", **SMALL)
    blank = map_elites.init(spec, jax.random.key(0), jnp.zeros((spec.hp.cells, 2)))
    first = jax.jit(functools.partial(map_elites.first, spec))
    plain = first(blank, jax.random.key(1)).policies
    known = jnp.arange(spec.hp.cells)[:, None] % 7 * jnp.ones((1, spec.policy.size))
    archive = blank.archive._replace(policies=known, fitness=jnp.ones(spec.hp.cells))
    given = first(blank._replace(archive=archive), jax.random.key(1)).policies
    assert {*np.asarray(given).ravel()} <= set(range(7))
    assert len(np.unique(np.asarray(plain)[:, 0])) == spec.batch


def test_plain_vectors_need_no_change():
    run = elites.train(
        "sphere", "dns", evaluations=36 * 6, grid=(10, 10), batch_size=36, dns_population=50
    )
    assert run.state.population.policies.shape == (1, 50, 100)
    assert run.metrics["qd_score"][-1] > run.metrics["qd_score"][0]


@pytest.mark.parametrize("name", ["dns_population", "dns_neighbours"])
def test_bad_values_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got 0"):
        elites.build("point_omni", "dns", **{name: 0})
    assert dataclasses.replace(elites.Hyperparameters(), **{name: 7})
