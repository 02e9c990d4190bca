"""CMA-ES for several emitters at once: every array has a leading axis of emitters, E.

Each emitter samples from a Gaussian, N(mean, sigma^2 C), and moves it towards its best samples:

    sample       x_k = mean + sigma A z_k, with z_k from N(0, I) and A A' = C
    steps        y_k = (x_k - mean) / sigma, and y = sum_k w_k y_k over the parents, best first
    mean         mean + sigma y
    step path    ps = (1 - cs) ps + sqrt(cs (2 - cs) mu_eff) C^(-1/2) y
    long path    pc = (1 - cc) pc + h sqrt(cc (2 - cc) mu_eff) y
    covariance   C = (1 - c1a - cmu) C + c1 pc pc' + cmu sum_k w_k y_k y_k'
    step size    sigma exp(min(1, cs / d (|ps|^2 / n - 1) / 2))

These are the equations of Hansen's tutorial (arXiv:1604.00772), with the step size rule of his
short implementation `purecma`. The number of parents may change from update to update, so the rates
are computed from it each time. `Form` says how the covariance is stored:

    eigen        A from the eigendecomposition of C
    cholesky     A from Cholesky's decomposition, many times faster; A^-1 y takes the place of
                 C^(-1/2) y, of which it is a rotation (Krause, Arbones and Igel, 2016)
    separable    C is diagonal (Ros and Hansen, 2008), for thousands of dimensions
"""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from elites.core.hyperparameters import Form, RankOne
from elites.core.sampling import normal

Array = jax.Array
Tree = TypeVar("Tree")

_CONDITION = 1e14  # largest condition number of a covariance
_WIDTH = 1e-11  # smallest standard deviation along the widest axis
_FLAT = 1e-12  # smallest difference between the values of the best and of the worst
_JITTER = 1e-6  # relative to the mean variance: rounding can make a covariance indefinite


class Gaussians(NamedTuple):
    """Search distributions of E emitters over n dimensions, with their evolution paths."""

    mean: Array  # [E, n]
    sigma: Array  # [E] step size
    step_path: Array  # [E, n] ps
    long_path: Array  # [E, n] pc
    covariance: Array  # [E, n, n], or its diagonal [E, n] in the separable form
    factor: Array  # A with A A' = C as of the last decomposition: [E, n, n], or [E, n]
    basis: Array | None  # [E, n, n] eigenvectors of C, in the eigen form only
    scale: Array  # [E, n] standard deviations along the axes, in units of sigma; see `decomposed`
    updates: Array  # [E] int32 since the last restart


class Rates(NamedTuple):
    """Learning rates of CMA-ES, for a number of effective parents."""

    step: Any  # cs, of the step path
    long: Any  # cc, of the long path
    one: Any  # c1, of the rank-one update
    mu: Any  # cmu, of the rank-mu update
    damping: Any  # d, of the step size


@dataclasses.dataclass(frozen=True)
class CMA:
    """Configuration of CMA-ES: everything that does not change during a run."""

    size: int
    """Number of dimensions, n."""
    batch: int
    """Samples of each emitter in an iteration."""
    sigma: float
    """Initial step size."""
    form: Form = "cholesky"
    rank_one: RankOne = "published"

    @property
    def gap(self) -> int:
        """Number of iterations from one decomposition of the covariances to the next."""
        if self.form == "separable":
            return 1
        weights = np.log(self.batch // 2 + 0.5) - np.log(np.arange(1, self.batch // 2 + 1))
        rates = rates_of(self, weights.sum() ** 2 / (weights**2).sum(), np)
        return 1 + math.floor(0.5 / (rates.one + rates.mu) / self.size)


def rates_of(cma: CMA, effective: Any, xp: ModuleType = jnp) -> Rates:
    """Return the learning rates for a number of effective parents, with arrays of module `xp`."""
    n = cma.size
    one = 2 / ((n + 1.3) ** 2 + effective)
    step = (effective + 2) / (n + effective + 5)
    if cma.form == "separable":
        long = (1 + 1 / n + effective / n) / (n**0.5 + 1 / n + 2 * effective / n)
        separable = 1 / (n + 2 * n**0.5 + effective / n)
        one = one * separable if cma.rank_one == "pyribs" else separable
        mu = (effective - 2 + 1 / effective) / (n + 4 * n**0.5 + effective / 2)
    else:
        long = (4 + effective / n) / (n + 4 + 2 * effective / n)
        mu = 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective)
    # One parent has an effective number of 1, up to rounding.
    wide = xp.sqrt(xp.maximum(effective - 1, 0) / (n + 1)) - 1
    damping = 1 + 2 * xp.maximum(wide, 0) + step
    return Rates(step, long, one, xp.minimum(1 - one, xp.maximum(mu, 0)), damping)


def init(cma: CMA, mean: Array) -> Gaussians:
    """Return spheres of the initial step size around the points `mean` [E, n]."""
    emitters, n = mean.shape
    ones, zeros = jnp.ones_like(mean), jnp.zeros_like(mean)
    covariance, basis = ones, None
    if cma.form != "separable":
        covariance = jnp.broadcast_to(jnp.eye(n, dtype=mean.dtype)[None], (emitters, n, n))
        basis = covariance if cma.form == "eigen" else None
    return Gaussians(
        mean=mean,
        sigma=jnp.full(emitters, cma.sigma, mean.dtype),
        step_path=zeros,
        long_path=zeros,
        covariance=covariance,
        factor=covariance,
        basis=basis,
        scale=ones,
        updates=jnp.zeros(emitters, jnp.int32),
    )


def decomposed(cma: CMA, gaussians: Gaussians) -> Gaussians:
    """Return the distributions with the factors of their present covariances.

    `scale` has the square roots of the eigenvalues. In the Cholesky form, these are not known, and
    the standard deviations of the coordinates stand in. They lie between the smallest and the
    largest of them.
    """
    if cma.form == "separable":
        scale = jnp.sqrt(gaussians.covariance)
        return gaussians._replace(factor=scale, scale=scale)
    covariance = jnp.maximum(gaussians.covariance, gaussians.covariance.mT)
    if cma.form == "eigen":
        values, basis = jnp.linalg.eigh(covariance, symmetrize_input=False)
        # Rounding gives a small eigenvalue any sign.
        floor = jnp.finfo(values.dtype).tiny
        scale = jnp.sqrt(jnp.maximum(jnp.abs(values), floor))
        return gaussians._replace(factor=basis * scale[:, None], basis=basis, scale=scale)
    variances = jnp.diagonal(covariance, axis1=1, axis2=2)
    jitter = _JITTER * variances.mean(1)[:, None, None] * jnp.eye(cma.size)[None]
    # The transpose of a symmetric matrix is itself, but by columns, as LAPACK stores matrices.
    factor = jnp.linalg.cholesky((covariance + jitter).mT, symmetrize_input=False)
    return gaussians._replace(factor=factor, scale=jnp.sqrt(variances))


def sample(cma: CMA, gaussians: Gaussians, key: Array) -> Array:
    """Return samples [E, batch, n] of the distributions, `batch` from each."""
    mean, sigma = gaussians.mean, gaussians.sigma[:, None, None]
    noise = normal(key, (len(mean), cma.batch, cma.size))
    if cma.form == "separable":
        return mean[:, None] + sigma * noise * gaussians.factor[:, None]
    steps = jnp.einsum("ekj,eij->eki", noise, gaussians.factor, precision="highest")
    return mean[:, None] + sigma * steps


def weights_of(batch: int, parents: Array) -> Array:
    """Return recombination weights [E, batch] of samples that are sorted, best first.

    The first `parents` [E] samples of an emitter have positive weights that fall with the rank and
    add up to 1. All others have weight 0.
    """
    rank = jnp.arange(1, batch + 1)[None]
    logs = jnp.log(parents[:, None] + 0.5) - jnp.log(rank)
    weights = jnp.where(rank <= parents[:, None], logs, 0.0)
    return weights / jnp.maximum(_dot(weights, jnp.ones_like(weights)), 1e-30)[:, None]


def update(cma: CMA, gaussians: Gaussians, ranked: Array, parents: Array) -> Gaussians:
    """Return the distributions, adapted to their samples [E, batch, n] that are sorted, best first.

    The first `parents` [E] samples count. An emitter without parents stays as it is.
    """
    n, sigma = cma.size, gaussians.sigma
    weights = weights_of(cma.batch, parents)
    effective = 1 / jnp.maximum(_dot(weights, weights), 1e-30)
    rates, updates = rates_of(cma, effective), gaussians.updates + 1
    # In units of sigma: the squares of very large or very small steps would overflow.
    steps = (ranked - gaussians.mean[:, None]) / sigma[:, None, None]
    mean_step = jnp.einsum("ek,eki->ei", weights, steps, precision="highest")

    gain = jnp.sqrt(rates.step * (2 - rates.step) * effective)
    white = whitened(cma, gaussians, mean_step)
    step_path = (1 - rates.step)[:, None] * gaussians.step_path + gain[:, None] * white
    length = _dot(step_path, step_path) / n
    started = 1 - (1 - rates.step) ** (2 * updates)
    steady = length / started < 2 + 4 / (n + 1)  # h: the step size does not grow fast

    gain = jnp.sqrt(rates.long * (2 - rates.long) * effective) * steady
    if cma.rank_one == "pyribs":  # pyribs does not divide by sigma here
        gain = gain * sigma
    long_path = (1 - rates.long)[:, None] * gaussians.long_path + gain[:, None] * mean_step
    kept = 1 - (1 - steady) * rates.long * (2 - rates.long)
    decay = 1 - rates.one * kept - rates.mu
    growth = jnp.exp(jnp.minimum(1.0, rates.step / rates.damping * (length - 1) / 2))
    adapted = gaussians._replace(
        mean=gaussians.mean + sigma[:, None] * mean_step,
        sigma=sigma * growth,
        step_path=step_path,
        long_path=long_path,
        covariance=_covariance(cma, gaussians.covariance, rates, decay, long_path, weights, steps),
    )
    return where(parents > 0, adapted, gaussians)._replace(updates=updates)


def _covariance(
    cma: CMA, before: Array, rates: Rates, decay: Array, path: Array, weights: Array, steps: Array
) -> Array:
    """Return the covariances after the rank-one and the rank-mu update.

    Both are one weighted sum over the steps and the path. A product of all parts is faster than the
    parts one after another.
    """
    one = rates.one**2 if cma.rank_one == "pyribs" else rates.one  # pyribs applies c1 twice
    rows = jnp.concatenate([steps, path[:, None]], axis=1)
    scales = jnp.concatenate([rates.mu[:, None] * weights, one[:, None]], axis=1)
    # Otherwise the compiler would compute them again for every entry of a covariance.
    decay, scales = jax.lax.optimization_barrier((decay, scales))
    if cma.form == "separable":
        added = jnp.einsum("ek,eki->ei", scales, rows**2, precision="highest")
        return decay[:, None] * before + added
    added = jnp.einsum("eki,ekj->eij", scales[..., None] * rows, rows, precision="highest")
    return decay[:, None, None] * before + added


def whitened(cma: CMA, gaussians: Gaussians, steps: Array) -> Array:
    """Return the steps [E, n] in coordinates in which the covariance is the identity.

    It is C^(-1/2) y, or in the Cholesky form A^-1 y, with C as of the last decomposition.
    """
    if cma.form == "separable":
        return steps / gaussians.scale
    if cma.form == "cholesky":
        # LAPACK stores matrices by columns. So the transpose of a factor needs no copy.
        solve = jax.scipy.linalg.solve_triangular
        return solve(gaussians.factor.mT, steps[..., None], trans="T")[..., 0]
    assert gaussians.basis is not None
    along = jnp.einsum("eji,ej->ei", gaussians.basis, steps, precision="highest")
    return jnp.einsum("eij,ej->ei", gaussians.basis, along / gaussians.scale, precision="highest")


def stopped(gaussians: Gaussians, best: Array, worst: Array) -> Array:
    """Return a boolean array [E]: whether an emitter cannot go on and should restart.

    A distribution stops if it is too narrow or too elongated, or no longer finite. It also stops if
    its best and its worst sample have the same ranking values [E, values].
    """
    widest, narrowest = gaussians.scale.max(1), gaussians.scale.min(1)
    difference = best - worst
    flat = jnp.sqrt(_dot(difference, difference)) < _FLAT
    elongated = (widest / narrowest) ** 2 > _CONDITION
    narrow = gaussians.sigma * widest < _WIDTH
    finite = jnp.isfinite(gaussians.sigma) & jnp.isfinite(gaussians.mean).all(1)
    return flat | elongated | narrow | ~finite | ~jnp.isfinite(gaussians.scale).all(1)


def where(chosen: Array, these: Tree, others: Tree) -> Tree:
    """Return a record of arrays [E, ...] with the rows of `these` where `chosen` [E] is True."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, these, others)


def _dot(a: Array, b: Array) -> Array:
    """Return the scalar products [E] of the rows of two arrays [E, n].

    The order of a fused sum would depend on the number of seeds that run beside each other.
    """
    return jnp.einsum("ei,ei->e", a, b, precision="highest")
