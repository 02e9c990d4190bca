"""Find algorithms and tasks whose linear algebra can stop a CPU with several devices forever.

All devices of a CPU share its threads. Before version 0.11.2, JAX divides the linear algebra of a
batch between these threads, such as the Cholesky decompositions of several matrices, and the thread
that does so waits for the others. With as many devices as threads, all of them can wait at the same
time, and none is left to compute.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from elites.core import outside
from elites.core.algorithm import Algorithm, Metrics, SearchState
from elites.core.evaluation import rows_outside
from elites.core.types import Array, Evaluation, Request

FIXED_IN = (0, 11, 2)
"""First version of JAX in which no thread waits for others."""
OPERATIONS = frozenset(
    operation.name for name, operation in vars(jax.lax.linalg).items() if name.endswith("_p")
)
"""Names of JAX's operations of linear algebra."""


def may_block(algorithm: Algorithm) -> bool:
    """Return whether an algorithm, or its task, may block a CPU with several devices.

    Traces an iteration, which takes about as long as one of its stages takes to be traced.
    """
    if jax.default_backend() != "cpu" or jax.__version_info__ >= FIXED_IN:
        return False
    return not OPERATIONS.isdisjoint(operations_of(algorithm))


def operations_of(algorithm: Algorithm) -> set[str]:
    """Return the names of JAX's operations in the start and in an iteration of an algorithm."""
    if algorithm.problem.outside is not None:
        algorithm = dataclasses.replace(
            algorithm, evaluate=functools.partial(_outside_results, algorithm)
        )

    def run(key: Array, centroids: Array) -> tuple[SearchState, Metrics]:
        return algorithm.step(algorithm.start(key, centroids), key)

    key = jax.eval_shape(lambda: jax.random.key(0))
    size = (algorithm.cells, algorithm.problem.descriptor_size)
    traced = jax.make_jaxpr(run)(key, jax.ShapeDtypeStruct(size, jnp.float32))
    return set(_names(traced.jaxpr))


def _outside_results(algorithm: Algorithm, request: Request) -> Evaluation:
    """Return zeros with the shapes of the results of episodes that run outside of JAX."""
    rows = rows_outside(algorithm.problem, algorithm.main_td3, request)
    observes = algorithm.hp.normalise_observations
    shapes = outside.shapes(algorithm.problem, algorithm.main_td3, rows, observes=observes)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _names(program: Any) -> Iterator[str]:
    """Yield the names of the operations of a traced program, and of the programs within it."""
    for equation in program.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _names(inner)
