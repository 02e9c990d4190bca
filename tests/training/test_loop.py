"""One call trains, a loop of one's own computes the same, and own algorithms train too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
import quick
from elites.core import map_elites, variation
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


def test_hyperparameters_are_given_as_a_record_or_by_name():
    record = elites.Hyperparameters(**SMALL)
    for built in (
        elites.build("point_omni", "me", hp=record),
        elites.build("point_omni", "me", hp=record, cells=17),
        elites.build("point_omni", "me", **SMALL),
    ):
        assert built.batch == SMALL["batch_size"]
    assert elites.build("point_omni", "me", hp=record, cells=17).cells == 17


def test_an_algorithm_is_given_as_a_function():
    def own(problem, hp):
        variations = (Variation("mutation", hp.batch_size, variation.ga),)
        return map_elites.algorithm(Spec("own", problem, hp, variations))

    run = elites.train("point_omni", own, evaluations=32 * 2, **SMALL)
    assert run.algorithm.name == "own"
    assert run.metrics["added.mutation"].shape == (1, 1)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([0, 0], r"seeds must be different from each other, got \[0, 0\]"),
        ([2**32], "a seed must be between 0 and 2\\*\\*32 - 1, got 4294967296"),
        ([-1], "a seed must be between 0"),
        ([], "seeds must be at least 1"),
        (0, "seeds must be at least 1"),
        ([0.5], "seeds must be a whole number, got 0.5"),
    ],
)
def test_seeds_that_are_none_or_not_different_are_refused(seeds, message):
    with pytest.raises(ValueError, match=message):
        elites.train("point_omni", "me", seeds=seeds, evaluations=32 * 2, **SMALL)
