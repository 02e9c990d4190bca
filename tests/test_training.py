"""The library interface: one call trains, what comes back can be used, errors come early."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
import quick
from elites.core import archive as archives
from small import SMALL

pytestmark = pytest.mark.usefixtures("quick_compiler")

DOCS = Path(__file__).parent.parent / "docs"


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


def test_best_seed_is_shown(run):
    scores = run.metrics["qd_score"][-1]
    assert run.best == int(np.argmax(scores))
    np.testing.assert_allclose(run.archive.qd_score, scores.max(), rtol=1e-6)
    np.testing.assert_allclose(run.seed(0).archive.qd_score, scores[0], rtol=1e-6)
    assert run.seed(1).metrics["qd_score"].shape == (3,)


def test_archive_is_a_sequence_of_elites(run):
    archive = run.archive
    assert len(archive) == len(list(archive)) == round(archive.coverage * SMALL["cells"])
    assert archive.best().fitness == archive.fitness.max()
    asked = np.array([0.4, -0.2])
    nearest = archive.nearest(asked)
    distances = np.linalg.norm(archive.descriptors - asked, axis=1)
    np.testing.assert_allclose(np.linalg.norm(nearest.descriptor - asked), distances.min())
    assert nearest.origin in ("initial", "ga", "pg")
    assert np.asarray(nearest(np.zeros(3))).shape == (2,)
    assert np.asarray(nearest(np.zeros((7, 3)))).shape == (7, 2)
    assert "elites in 32 cells" in repr(archive)
    with pytest.raises(ValueError, match="2 entries, got shape"):
        archive.nearest([1.0, 2.0, 3.0])


def test_actor_takes_descriptors_in_task_units():
    """The same place asked in the units of two boxes gives the same action."""
    actions = {}
    for reach in (1.0, 30.0):
        task = elites.tasks.make("point_omni")
        task = elites.Task(**{**task.__dict__, "descriptor_low": (-reach,) * 2,
                              "descriptor_high": (reach,) * 2})  # fmt: skip
        algorithm = elites.build(task, "dcg_me", **SMALL)
        parameters = np.linspace(-1, 1, algorithm.learner.actor.size, dtype=np.float32)
        actor = elites.training.Actor(parameters, algorithm)
        actions[reach] = np.asarray(actor(np.array([0.1, 0.2, 0.5]), np.array([0.5, -1.0]) * reach))
    np.testing.assert_allclose(actions[1.0], actions[30.0], rtol=1e-6)


def test_actor_refuses_what_does_not_fit(run):
    actor = run.actor
    assert np.asarray(actor(np.zeros((4, 3)), np.zeros((4, 2)))).shape == (4, 2)
    assert np.asarray(actor(np.zeros((4, 3)), [0.1, 0.2])).shape == (4, 2)
    with pytest.raises(ValueError, match="needs a descriptor"):
        actor(np.zeros(3))
    with pytest.raises(ValueError, match="3 entries, got shape"):
        actor(np.zeros(4), [0.0, 0.0])


def test_reach_measures_archive_and_actor(run):
    reach = run.reach()
    assert (reach.descriptor_error == 0).all()
    full = np.isfinite(np.asarray(run.state.archive.fitness))
    error = np.linalg.norm(
        reach.actor_descriptors - np.asarray(run.state.archive.descriptors), axis=-1
    )
    expected = [np.mean(error[i][full[i]]) for i in range(2)]
    np.testing.assert_allclose(reach.actor_descriptor_error, expected, rtol=1e-5)
    np.testing.assert_allclose(
        reach.actor_qd_score, np.nansum(reach.actor_fitness, axis=1), rtol=1e-5
    )


def test_training_equals_a_loop_of_ones_own():
    run = elites.train("point_omni", "me", seeds=(5, 6), evaluations=32 * 3, **SMALL)
    algorithm = elites.build("point_omni", "me", **SMALL)
    key = jax.random.key(5)
    state = jax.jit(algorithm.init)(jax.random.fold_in(key, 0))
    step = jax.jit(algorithm.step)
    for i in (1, 2):
        state, metrics = step(state, jax.random.fold_in(key, i))
    np.testing.assert_allclose(metrics.qd_score, run.metrics["qd_score"][1, 0], rtol=1e-4)


def test_own_algorithm_of_the_docs():
    path = DOCS / "examples" / "own_algorithm.py"
    assert len(path.read_text().splitlines()) < 60
    assert path.read_text() in (DOCS / "your-own-algorithm.md").read_text()
    spec = importlib.util.spec_from_file_location("own_algorithm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.run(elites.Hyperparameters(**SMALL), evaluations=32 * 3)
    assert run.algorithm.offspring == {"ga": 16, "pg": 12, "immigrant": 4}
    assert run.metrics["added.immigrant"].sum() > 0
    assert "immigrant" in {elite.origin for elite in run.archive}


def test_several_devices_share_the_seeds():
    """Four seeds on two devices and on one: each seed comes out the same."""
    script = """
import json, sys, jax, numpy as np, elites
run = elites.train("point_omni", "dcg_me", seeds=4, evaluations=32 * 3, **json.loads(sys.argv[1]))
leaf = run.state.archive.fitness
print(json.dumps({"devices": len(leaf.sharding.device_set),
                  "qd_score": run.metrics["qd_score"].tolist()}))
"""
    arguments = json.dumps(SMALL)
    results = []
    for devices in (1, 2):
        environment = os.environ | {
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", script, arguments],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        results.append(json.loads(done.stdout))
    assert [r["devices"] for r in results] == [1, 2]
    np.testing.assert_allclose(results[0]["qd_score"], results[1]["qd_score"], rtol=1e-4)


def test_nothing_is_lost_on_the_way_to_names():
    """Two variations of one name would be counted as one: refused."""
    algorithm = elites.build("point_omni", "me", **SMALL)
    from elites.core.map_elites import Variation, compose

    twice = [Variation("ga", 4, lambda s, k: None), Variation("ga", 4, lambda s, k: None)]
    with pytest.raises(ValueError, match="same origin"):
        compose("twice", algorithm.problem, algorithm.policy, cells=4, variations=twice)
    assert archives.EMPTY == -1
