"""Calibration of requests, against an actor whose misses are known."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import probe
from elites.core import calibration
from elites.core.reevaluation import Results

PROBLEM = dataclasses.replace(
    probe.problem(), descriptor_low=(0.0, 0.0), descriptor_high=(1.0, 10.0)
)
SCALE = jnp.array([[1.0, 10.0]])  # the second axis is ten times as long
CENTROIDS = jnp.array([[0.2, 0.2], [0.5, 0.8], [0.9, 0.1]]) * SCALE


def reached(requests):
    """Return the results of an actor that turns and shrinks every request, within the bounds."""
    turned = (requests / SCALE) @ jnp.array([[0.8, 0.1], [-0.1, 0.8]]) + jnp.array([[0.1, 0.05]])
    return Results(requests.sum(-1), turned * SCALE, jnp.ones(len(requests), bool))


def errors(found):
    return np.linalg.norm(np.asarray((found.descriptors - CENTROIDS) / SCALE), axis=-1)


def run(actor, rounds):
    found = calibration.start(CENTROIDS, actor(CENTROIDS))
    for number in range(rounds):
        requests = calibration.propose(PROBLEM, CENTROIDS, found, jax.random.key(number))
        found = calibration.update(PROBLEM, CENTROIDS, found, requests, actor(requests))
    return found


def test_requests_correct_what_an_actor_misses():
    before, after = run(reached, 0), run(reached, 20)
    np.testing.assert_array_equal(before.requests, CENTROIDS)
    assert errors(before).min() > 0.04
    assert errors(after).max() < 0.005
    np.testing.assert_allclose(reached(after.requests).descriptors, after.descriptors, atol=1e-6)
    np.testing.assert_allclose(reached(after.requests).fitness, after.fitness, atol=1e-6)


def test_a_worse_or_failed_try_changes_nothing():
    found = run(reached, 3)
    worse = Results(jnp.ones(3), CENTROIDS + 0.5, jnp.ones(3, bool))
    failed = Results(jnp.ones(3), CENTROIDS, jnp.zeros(3, bool))
    for results in (worse, failed):
        same = calibration.update(PROBLEM, CENTROIDS, found, CENTROIDS, results)
        for old, new in zip(found, same, strict=True):
            np.testing.assert_array_equal(old, new)


def test_an_actor_that_always_fails_is_asked_again_elsewhere():
    def fails(requests):
        return Results(jnp.full(3, jnp.nan), jnp.full((3, 2), jnp.nan), jnp.zeros(3, bool))

    found = run(fails, 2)
    assert not found.valid.any()
    tried = calibration.propose(PROBLEM, CENTROIDS, found, jax.random.key(0))
    assert np.isfinite(tried).all()
    assert (np.asarray(tried) != np.asarray(CENTROIDS)).all()


def test_requests_stay_near_the_bounds():
    def stuck(requests):
        return Results(jnp.zeros(3), jnp.zeros((3, 2)), jnp.ones(3, bool))

    found = run(stuck, 1)
    low, high = np.array(PROBLEM.descriptor_low), np.array(PROBLEM.descriptor_high)
    margin = calibration.MARGIN * (high - low)
    for far, bound in ((50.0, high + margin), (-50.0, low - margin)):
        asked = found._replace(requests=jnp.full((3, 2), far))
        tried = calibration.propose(PROBLEM, CENTROIDS, asked, jax.random.key(0))
        np.testing.assert_allclose(tried, np.broadcast_to(bound, (3, 2)), rtol=1e-6)
