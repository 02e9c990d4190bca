"""Linear algebra on a CPU with several devices, which can stop older versions of JAX forever."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites import tasks
from elites.tasks import vectors
from elites.training import linear_algebra
from elites.training.linear_algebra import OPERATIONS, operations_of
from program import computed
from small import SMALL

VECTORS = {"cells": 64, "batch_size": 40, "cma_emitters": 4}


def solving() -> tasks.Task:
    """Return the task point_omni with a simulator that solves equations."""
    point = tasks.make("point_omni")

    def step(state, action):
        matrix = jnp.diag(2.0 + state.observation[:2] ** 2)
        return point.step(state, jnp.linalg.solve(matrix, matrix @ action))

    return dataclasses.replace(point, name="solving", step=step)


def outside() -> tasks.Task:
    """Return a task of plain vectors that NumPy evaluates."""

    def function(x):
        return -np.sum(x**2, axis=1), x[:, :2]

    return vectors.task("outside", function, 10, [-1, -1], [1, 1], is_numpy=True)


@pytest.mark.parametrize(
    "function",
    [
        jnp.linalg.cholesky,
        jnp.linalg.eigh,
        jnp.linalg.inv,
        jnp.linalg.pinv,
        jnp.linalg.qr,
        jax.scipy.linalg.expm,
        lambda a: jnp.linalg.solve(a, a[0]),
        lambda a: jax.random.multivariate_normal(jax.random.key(0), a[0], a),
    ],
)
def test_the_names_of_the_operations_are_those_of_jax(function):
    traced = jax.make_jaxpr(jax.jit(function))(jnp.eye(4))
    assert OPERATIONS & set(linear_algebra._names(traced.jaxpr))


@pytest.mark.parametrize(
    ("task", "name", "hp", "expected"),
    [
        ("sphere", "cma_mae", VECTORS, {"cholesky", "triangular_solve"}),
        ("sphere", "cma_me", VECTORS | {"cma_form": "eigen"}, {"eigh"}),
        ("sphere", "me", {"cells": 64, "batch_size": 40}, set()),
        ("point_omni", "cma_mae", SMALL | {"cma_form": "separable"}, set()),
        ("point_omni", "progress_me", SMALL, set()),
        (solving, "me", SMALL, {"lu", "triangular_solve"}),
        (outside, "cma_mae", VECTORS, {"cholesky", "triangular_solve"}),
        (outside, "me", {"cells": 64, "batch_size": 40}, set()),
    ],
)
def test_linear_algebra_of_algorithms_and_tasks_is_found(task, name, hp, expected):
    task = task() if callable(task) else task
    assert operations_of(elites.build(task, name, **hp)) & OPERATIONS == expected


@pytest.mark.parametrize(
    ("backend", "version", "expected"),
    [
        ("cpu", (0, 11, 1), True),
        ("cpu", (0, 11, 2), False),
        ("cpu", (0, 12, 0), False),
        ("gpu", (0, 10, 2), False),
    ],
)
def test_only_older_versions_of_jax_can_wait_forever(monkeypatch, backend, version, expected):
    covariances = elites.build("sphere", "cma_mae", **VECTORS)
    plain = elites.build("sphere", "me", cells=64, batch_size=40)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "__version_info__", version)
    assert linear_algebra.may_block(covariances) is expected
    assert linear_algebra.may_block(plain) is False


SOLVING = """
import dataclasses, json, sys
import jax.numpy as jnp
import elites
from elites import tasks

point = tasks.make("point_omni")

def step(state, action):
    matrix = jnp.diag(2.0 + state.observation[:2] ** 2)
    return point.step(state, jnp.linalg.solve(matrix, matrix @ action))

task, hp = dataclasses.replace(point, name="solving", step=step), json.loads(sys.argv[1])
run = elites.train(task, "me", seeds=2, evaluations=2_000, progress=False, **hp)
print(json.dumps({"devices": run.devices, "scores": run.metrics["qd_score"][-1].tolist()}))
"""


def test_two_seeds_with_linear_algebra_are_trained_to_the_end():
    """With a version of JAX that may wait forever, the seeds are one batch."""
    found = json.loads(computed(SOLVING, json.dumps(SMALL)))
    assert found["devices"] == (1 if jax.__version_info__ < linear_algebra.FIXED_IN else 2)
    assert min(found["scores"]) > 0


VECTORS_TRAINED = """
import elites
run = elites.train("sphere", "cma_mae", seeds=2, evaluations=20_000, progress=False)
print(run.devices, (run.metrics["qd_score"][-1] > 0).all())
"""


def test_seeds_of_plain_vectors_are_one_batch():
    """With a device for each, `cma_mae` waited forever on two cores with JAX 0.10.2."""
    assert computed(VECTORS_TRAINED) == "1 True"


def test_a_batch_without_linear_algebra_has_a_device_for_each_seed():
    script = (
        "import json, sys; import elites; from elites import training; "
        "from elites.training import devices; devices.provide(2); "
        "a = elites.build('point_omni', 'me', **json.loads(sys.argv[1])); "
        "print(training.Batched(a, 2).devices)"
    )
    assert computed(script, json.dumps(SMALL)) == "2"
