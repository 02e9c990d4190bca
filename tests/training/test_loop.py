"""One call trains, a loop of one's own computes the same, and own algorithms train too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
import quick
from elites.core import variation
from elites.core.spec import Spec, Variation
from small import SMALL

pytestmark = pytest.mark.usefixtures("quick_compiler")

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def run() -> elites.Run:
    seen = []
    with quick.compiling():
        run = elites.train(
            "point_omni",
            "dcg_me",
            seeds=(5, 6),
            evaluations=32 * 4,
            progress=lambda i, metrics: seen.append((i, float(metrics["evaluations"][0]))),
            **SMALL,
        )
    assert seen == [(1, 64.0), (2, 96.0), (3, 128.0)]
    return run


def test_metrics_are_named_and_shaped(run):
    assert set(run.metrics) == {
        "qd_score",
        "coverage",
        "max_fitness",
        "evaluations",
        "env_steps",
        "added.ga",
        "added.pg",
        "rejected",
        "critic_loss.conditioned",
        "actor_loss.conditioned",
    }
    assert all(values.shape == (3, 2) for values in run.metrics.values())
    # 32 offspring and 32 actor rollouts of 25 steps each, at the start and in every iteration.
    np.testing.assert_array_equal(run.metrics["env_steps"][:, 0], [3200, 4800, 6400])


def test_training_equals_a_loop_of_ones_own():
    run = elites.train("point_omni", "me", seeds=(5, 6), evaluations=32 * 3, **SMALL)
    algorithm = elites.build("point_omni", "me", **SMALL)
    key = jax.random.key(5)
    state = jax.jit(algorithm.start)(jax.random.fold_in(key, 0))
    step = jax.jit(algorithm.step)
    for i in (1, 2):
        state, metrics = step(state, jax.random.fold_in(key, i))
    np.testing.assert_allclose(metrics.qd_score, run.metrics["qd_score"][1, 0], rtol=1e-4)


def test_own_algorithm_of_the_docs():
    path = DOCS / "examples" / "own_algorithm.py"
    assert path.read_text() in (DOCS / "your-own-algorithm.md").read_text()
    spec = importlib.util.spec_from_file_location("own_algorithm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.run(elites.Hyperparameters(**SMALL), evaluations=32 * 8)
    assert run.algorithm.offspring == {"ga": 16, "pg": 12, "crossover": 4}
    assert run.metrics["added.crossover"].sum() > 0
    assert "crossover" in {elite.origin for elite in run.archive}


def test_nothing_is_lost_on_the_way_to_names():
    """Two variations of one name would be counted as one: refused."""
    algorithm = elites.build("point_omni", "me", **SMALL)
    for origins in (("ga", "ga"), ("ga", "initial")):
        variations = tuple(Variation(origin, 4, variation.ga) for origin in origins)
        with pytest.raises(ValueError, match="the same origin twice"):
            Spec("twice", algorithm.problem, elites.Hyperparameters(), variations)
