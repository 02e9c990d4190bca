"""The evolution strategy's gradient: right on a quadratic, robust by ranks, mirrored copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import es

SIGMA = 0.02
CURVATURE = np.float32([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
CENTRE, THETA = np.float32([1.0, -2.0, 0.5]), np.float32([0.2, -0.5, 1.5])


def score(x):
    """A quadratic hill; its gradient is -CURVATURE (x - CENTRE)."""
    away = x - CENTRE
    return -0.5 * np.einsum("ni,ij,nj->n", away, CURVATURE, away)


def copies_and_noise(pairs, seed=0):
    noise = es.noise(jax.random.key(seed), pairs, 3)
    return np.asarray(es.population(jnp.asarray(THETA), noise, SIGMA)), noise


def test_copies_are_mirrored():
    copies, noise = copies_and_noise(50)
    assert copies.shape == (100, 3)
    np.testing.assert_allclose(copies[:50] + copies[50:], np.tile(2 * THETA, (50, 1)), rtol=1e-6)
    np.testing.assert_allclose(copies[:50] - THETA, SIGMA * np.asarray(noise), atol=1e-6)


def test_noise_is_standard_normal_and_independent():
    noise = np.asarray(es.noise(jax.random.key(1), 20_000, 3))
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.035)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(3), atol=0.05)


def test_raw_scores_give_the_gradient_of_a_quadratic():
    copies, noise = copies_and_noise(20_000)
    estimate = es.gradient(jnp.asarray(score(np.float64(copies)), jnp.float32), noise, SIGMA)
    true = -CURVATURE @ (THETA - CENTRE)
    assert np.linalg.norm(estimate - true) < 0.05 * np.linalg.norm(true)


def test_ranks_give_its_direction():
    copies, noise = copies_and_noise(500)
    ranks = es.centred_ranks(jnp.asarray(score(np.float64(copies)), jnp.float32))
    estimate = np.asarray(es.gradient(ranks, noise, SIGMA))
    true = -CURVATURE @ (THETA - CENTRE)
    cosine = estimate @ true / (np.linalg.norm(estimate) * np.linalg.norm(true))
    assert cosine > 0.9


def test_gradient_by_hand():
    """Two pairs of two parameters, n = 4, sigma = 0.5.

    (3 - 1) (1, 0) + (2 - 5) (2, -1) = (2, 0) + (-6, 3) = (-4, 3); divided by 4 * 0.5 = 2
    """
    noise = jnp.array([[1.0, 0.0], [2.0, -1.0]])
    scores = jnp.array([3.0, 2.0, 1.0, 5.0])
    np.testing.assert_allclose(es.gradient(scores, noise, 0.5), [-2.0, 1.5])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # ranks 3, 0, 1, 2 of n = 4: rank / 3 - 0.5
        ([7.0, -2.0, 0.0, 3.0], [0.5, -0.5, -1 / 6, 1 / 6]),
        # not a number ranks last, wherever it stands
        ([np.nan, 5.0, 1.0], [-0.5, 0.5, 0.0]),
        ([5.0, 1.0, np.nan], [0.5, 0.0, -0.5]),
        # as does -inf; two of them share the last two ranks
        ([np.nan, 2.0, 1.0, -np.inf, 9.0], [-0.5, 0.25, 0.0, -0.25, 0.5]),
        # only the order counts
        ([1e30, -1e-30, 1e-30], [0.5, -0.5, 0.0]),
        ([4.0], [-0.5]),
    ],
)
def test_ranks_by_hand(values, expected):
    np.testing.assert_allclose(es.centred_ranks(jnp.array(values)), expected, atol=1e-7)
