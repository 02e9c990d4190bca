"""CMA-ES beside pyribs, beside its published equations in NumPy, and on a quadratic."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites.core import cma_es
from elites.core.cma_es import CMA

N, BATCH, SIGMA = 8, 14, 0.5
PARENTS = (BATCH // 2, BATCH, 1, 0, 5)


@pytest.fixture
def double():
    """Compute with 64 bits, so that only the formulas can differ."""
    with jax.enable_x64(True):
        yield


def ellipsoid(x):
    """A quadratic hill [...] over points [..., N], with its top at 1."""
    return -((x - 1) ** 2 * np.arange(1, x.shape[-1] + 1)).sum(-1)


def ranked(x):
    """Return the points [batch, n], best first."""
    return x[np.argsort(-ellipsoid(x), kind="stable")]


def jitted(cma):
    return jax.jit(partial(cma_es.update, cma)), jax.jit(partial(cma_es.decomposed, cma))


def close(found, expected, tolerance=1e-10):
    scale = np.abs(expected).max() + 1e-300
    np.testing.assert_allclose(np.asarray(found) / scale, expected / scale, rtol=0, atol=tolerance)


# --------------------------------------------------------------------------------------- pyribs


@pytest.mark.parametrize("form", ["eigen", "separable"])
def test_200_updates_equal_those_of_pyribs(form, double):
    """The same samples and numbers of parents, all decompositions at the same times."""
    opt = pytest.importorskip(
        "ribs.emitters.opt", reason="LEFT OUT: needs pyribs, pip install ribs"
    )
    kind = {
        "eigen": opt.CMAEvolutionStrategy,
        "separable": opt.SeparableCMAEvolutionStrategy,
    }[form]
    theirs = kind(sigma0=SIGMA, solution_dim=N, batch_size=BATCH, seed=1)
    theirs.reset(np.zeros(N))
    cma = CMA(N, BATCH, SIGMA, form, "pyribs")
    update, decompose = jitted(cma)
    # The second emitter starts elsewhere: it must not disturb the first.
    ours = cma_es.init(cma, jnp.stack([jnp.zeros(N), jnp.ones(N)]))
    decompositions = 0
    for i in range(200):
        x = np.array(theirs.ask())
        if form == "separable" or (i and theirs.cov.updated_eval == theirs.current_eval):
            ours, decompositions = decompose(ours), decompositions + 1
            assert form == "separable" or i % cma.gap == 0
        order, parents = np.argsort(-ellipsoid(x), kind="stable"), PARENTS[i % len(PARENTS)]
        theirs.tell(order, ellipsoid(x), parents)
        ours = update(ours, jnp.stack([x[order], x[order] ** 2]), jnp.array([parents, BATCH]))
        # pyribs takes steps as differences of means, which loses digits as the steps get small.
        close(ours.mean[0], theirs.mean, 1e-7)
        close(ours.sigma[0], theirs.sigma, 1e-7)
        close(ours.step_path[0], theirs.ps, 1e-7)
        close(ours.long_path[0], theirs.pc, 1e-7)
        close(ours.covariance[0], theirs.cov.cov, 1e-7)
    assert decompositions == {"eigen": 199 // cma.gap, "separable": 200}[form]


# ------------------------------------------------------------------------------------- equations


def tutorial(x, parents, mean, sigma, ps, pc, cov, generation):
    """Return the state after one update, written from the equations of Hansen's tutorial.

    Numbers in comments are those of its equations. The step size follows the squared length of the
    path, and the path is scaled for h as in the tutorial's table of the algorithm.
    """
    n, (mu, x) = len(mean), (parents, x[:parents])
    w = np.array([np.log(mu + 0.5) - np.log(i + 1) for i in range(mu)])
    w /= w.sum()
    mu_eff = 1 / (w**2).sum()
    c_sigma = (mu_eff + 2) / (n + mu_eff + 5)
    c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)
    c_1 = 2 / ((n + 1.3) ** 2 + mu_eff)
    c_mu = min(1 - c_1, 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) ** 2 + mu_eff))
    d_sigma = 1 + 2 * max(0, np.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma
    ys = [(each - mean) / sigma for each in x]
    y_w = sum(w[i] * ys[i] for i in range(mu))  # (41)
    values, basis = np.linalg.eigh(cov)
    inverse_root = basis @ np.diag(values**-0.5) @ basis.T
    ps = (1 - c_sigma) * ps + np.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * inverse_root @ y_w  # (43)
    left = ps @ ps / n / (1 - (1 - c_sigma) ** (2 * generation))
    h = 1.0 if left < 2 + 4 / (n + 1) else 0.0
    pc = (1 - c_c) * pc + h * np.sqrt(c_c * (2 - c_c) * mu_eff) * y_w  # (45)
    delta = (1 - h) * c_c * (2 - c_c)
    rank_mu = sum(w[i] * np.outer(ys[i], ys[i]) for i in range(mu))
    new = (1 + c_1 * delta - c_1 - c_mu) * cov + c_1 * np.outer(pc, pc) + c_mu * rank_mu  # (47)
    growth = np.exp(min(1, c_sigma / d_sigma * (ps @ ps / n - 1) / 2))
    return mean + sigma * y_w, sigma * growth, ps, pc, new


def test_updates_follow_the_published_equations(double):
    cma = CMA(N, BATCH, SIGMA, "eigen")
    update, decompose = jitted(cma)
    ours, rng = cma_es.init(cma, jnp.zeros((1, N))), np.random.default_rng(0)
    state = np.zeros(N), SIGMA, np.zeros(N), np.zeros(N), np.eye(N)
    for generation in range(1, 61):
        x = ranked(rng.multivariate_normal(state[0], state[1] ** 2 * state[4], BATCH))
        parents = (BATCH // 2, BATCH, 1)[generation % 3]
        ours = update(decompose(ours), jnp.asarray(x)[None], jnp.array([parents]))
        state = tutorial(x, parents, *state, generation)
        found = (ours.mean, ours.sigma, ours.step_path, ours.long_path, ours.covariance)
        for mine, theirs in zip(found, state, strict=True):
            close(mine[0], theirs)
    assert np.linalg.cond(state[4]) > 2, "the covariance has moved away from a sphere"


def test_the_diagonal_form_follows_the_diagonal_of_the_equations(double):
    """One update of a sphere: the diagonal of the full update, with the rates of the diagonal."""
    cma = CMA(N, BATCH, SIGMA, "separable")
    x = ranked(np.random.default_rng(0).normal(size=(BATCH, N)) * SIGMA)
    ours = cma_es.update(
        cma, cma_es.init(cma, jnp.zeros((1, N))), jnp.asarray(x)[None], jnp.array([7])
    )
    w = np.log(7.5) - np.log(np.arange(1, 8))
    w /= w.sum()
    mu_eff = 1 / (w**2).sum()
    c1 = 1 / (N + 2 * N**0.5 + mu_eff / N)
    cmu = (mu_eff - 2 + 1 / mu_eff) / (N + 4 * N**0.5 + mu_eff / 2)
    cc = (1 + 1 / N + mu_eff / N) / (N**0.5 + 1 / N + 2 * mu_eff / N)
    y = x[:7] / SIGMA
    pc = np.sqrt(cc * (2 - cc) * mu_eff) * (w @ y)
    close(ours.long_path[0], pc)
    close(ours.covariance[0], (1 - c1 - cmu) + c1 * pc**2 + cmu * (w @ y**2))


# ----------------------------------------------------------------------------------------- forms


def adapted(cma, updates=40, seed=0):
    """Return a distribution after updates on the quadratic, decomposed."""
    update, decompose = jitted(cma)
    ours, rng = cma_es.init(cma, jnp.zeros((1, cma.size))), np.random.default_rng(seed)
    for _ in range(updates):
        x = ranked(np.asarray(ours.mean[0]) + rng.normal(size=(cma.batch, cma.size)))
        ours = update(ours, jnp.asarray(x)[None], jnp.array([cma.batch // 2]))
    return decompose(ours)


def test_factors_reproduce_the_covariance(double):
    """Both full forms sample from the same Gaussian: A A' is C."""
    eigen, cholesky = (adapted(CMA(N, BATCH, SIGMA, form)) for form in ("eigen", "cholesky"))
    close(cholesky.covariance, np.asarray(eigen.covariance))
    for one in (eigen, cholesky):
        a = np.asarray(one.factor[0])
        np.testing.assert_allclose(a @ a.T, one.covariance[0], rtol=1e-5, atol=1e-5)
    # The first whitens by C^(-1/2), the second by a rotation of it: lengths are equal.
    y = jnp.asarray(np.random.default_rng(1).normal(size=(1, N)))
    forms = {"eigen": eigen, "cholesky": cholesky}
    white = [cma_es.whitened(CMA(N, BATCH, SIGMA, f), g, y)[0] for f, g in forms.items()]  # pyright: ignore[reportArgumentType]
    expected = np.asarray(y[0]) @ np.linalg.solve(np.asarray(eigen.covariance[0]), y[0])
    np.testing.assert_allclose([w @ w for w in white], expected, rtol=1e-5)
    low = np.linalg.eigvalsh(eigen.covariance[0])
    np.testing.assert_allclose(np.sort(eigen.scale[0]) ** 2, low, rtol=1e-9)
    assert low[0] ** 0.5 <= cholesky.scale.min() < cholesky.scale.max() <= low[-1] ** 0.5


@pytest.mark.parametrize("form", ["eigen", "cholesky", "separable"])
def test_samples_have_mean_and_covariance(form):
    cma = CMA(3, 40_000, 0.5, form)
    spread = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]], np.float32)
    covariance = np.diag(spread) if form == "separable" else spread
    made = cma_es.init(cma, jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))
    made = made._replace(covariance=jnp.stack([jnp.asarray(covariance), made.covariance[1]]))
    x = np.asarray(cma_es.sample(cma, cma_es.decomposed(cma, made), jax.random.key(0)))
    assert x.shape == (2, 40_000, 3)
    np.testing.assert_allclose(x[0].mean(0), [1, 2, 3], atol=0.02)
    expected = np.diag(covariance) if form == "separable" else covariance
    np.testing.assert_allclose(np.cov(x[0].T) / 0.25, expected, atol=0.05)
    np.testing.assert_allclose(np.cov(x[1].T) / 0.25, np.eye(3), atol=0.05)


# ------------------------------------------------------------------------------------- behaviour


@pytest.fixture(scope="module")
def climbed():
    """Return the distributions of each form after 1,500 iterations on the quadratic, in 32 bits."""

    def climb(form):
        cma = CMA(N, BATCH, SIGMA, form)
        weights = jnp.arange(1.0, N + 1)

        def step(ours, key):
            x = cma_es.sample(cma, ours, key)
            # In float32 the fitness of points near the top is all the same, so it is computed
            # from the differences, as a problem with its optimum at 0 would.
            order = jnp.argsort(jnp.sum(x**2 * weights[None, None], -1), axis=1)
            best = jnp.take_along_axis(x, order[..., None], 1)
            ours = cma_es.update(cma, ours, best, jnp.array([BATCH // 2, 3, 1, 0]))
            ours = cma_es.decomposed(cma, ours)
            values = jnp.sqrt(jnp.sum(ours.mean**2, 1))
            return ours, (values, ours.sigma)

        start = cma_es.init(cma, jnp.full((4, N), 3.0))
        keys = jax.random.split(jax.random.key(0), 1500)
        return jax.jit(lambda s, k: jax.lax.scan(step, s, k))(start, keys)

    return {form: climb(form) for form in ("eigen", "cholesky", "separable")}


@pytest.mark.parametrize("form", ["eigen", "cholesky", "separable"])
def test_finds_the_top_of_a_quadratic(form, climbed):
    _, (distance, sigma) = climbed[form]
    assert (distance[400, :3] < 1e-3).all(), "a few hundred iterations suffice"
    assert (sigma[400, :3] < 1e-3).all()
    assert (distance[400, :2] < distance[50, :2]).all()


@pytest.mark.parametrize("form", ["eigen", "cholesky", "separable"])
def test_thousands_of_updates_stay_finite(form, climbed):
    """The step sizes have become as small as 32 bits can hold, and nothing is NaN."""
    last, (_, sigma) = climbed[form]
    assert float(sigma[-1, 0]) < 1e-11
    for leaf in jax.tree.leaves(last):
        assert np.isfinite(leaf).all()
    values = jnp.array([[2.0]] * 4)
    assert cma_es.stopped(last, values, values - 1)[0], "too narrow"


def test_without_parents_nothing_changes(climbed):
    """The last emitter never has a parent."""
    last, (distance, sigma) = climbed["cholesky"]
    assert (distance[:, 3] == distance[0, 3]).all()
    assert (sigma[:, 3] == SIGMA).all()
    np.testing.assert_array_equal(last.covariance[3], np.eye(N))
    assert last.updates.tolist() == [1500] * 4


def test_weights_of_parents():
    weights = np.asarray(cma_es.weights_of(4, jnp.array([2, 4, 1, 0])))
    logs = np.log(2.5) - np.log([1, 2])
    np.testing.assert_allclose(weights[0], [*logs / logs.sum(), 0, 0], rtol=1e-6)
    np.testing.assert_allclose(weights.sum(1), [1, 1, 1, 0], rtol=1e-6)
    assert (np.diff(weights[1]) < 0).all()
    assert weights[2:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        ({}, False),
        ({"sigma": 1e-12}, True),
        ({"scale": [1e-12] * N}, True),
        ({"scale": [1.0] * (N - 1) + [1e-8]}, True),
        ({"scale": [1.0] * (N - 1) + [1e-6]}, False),
        ({"sigma": np.inf}, True),
        ({"mean": [np.nan] * N}, True),
        ({"scale": [np.nan] * N}, True),
    ],
)
def test_an_emitter_stops(change, stops):
    fresh = cma_es.init(CMA(N, BATCH, SIGMA), jnp.zeros((1, N)))
    changed = fresh._replace(**{name: jnp.array([value]) for name, value in change.items()})
    best, worst = jnp.array([[2.0, 5.0]]), jnp.array([[2.0, 1.0]])
    assert cma_es.stopped(changed, best, worst).tolist() == [stops]
    assert cma_es.stopped(changed, best, best).tolist() == [True], "best and worst are the same"


def test_decompositions_are_due_less_often_in_more_dimensions():
    """The gap grows with the time that a covariance takes to change."""
    gaps = [CMA(n, 36, SIGMA).gap for n in (3, 20, 100, 1000)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[2]) == (1, 3)
    assert CMA(1000, 36, SIGMA, "separable").gap == 1
