"""How a batch of seeds is compiled: devices, donation, and one program for all rollouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import elites
from elites import training
from elites.training import memory, stages
from small import SMALL

pytestmark = pytest.mark.usefixtures("unshared")


def started(name: str, count: int = 2):
    batched = training.Batched(elites.build("point_omni", name, **SMALL), count)
    keys = training.seed_keys(range(count))
    return batched, batched.start(training.iteration_keys(keys, 0)), keys


def test_every_stage_of_an_algorithm_has_its_row_in_the_table():
    names = {"init", "first", "train", "ask", "evaluate", "tell", "step"}
    assert set(stages.STAGES) == names
    donating = {name for name, stage in stages.STAGES.items() if stage.donate}
    assert donating == {"train", "tell", "step"}, "only these return the state that they are given"


def test_a_step_updates_the_replay_buffer_in_place():
    batched, state, keys = started("dcg_me")
    rows = state.replay.rows
    place = rows.unsafe_buffer_pointer()
    state, metrics = batched.step(state, keys)
    assert rows.is_deleted()
    assert state.replay.rows.unsafe_buffer_pointer() == place
    # The metrics of a step can still be read when the next one has used the state up.
    batched.step(state, keys)
    assert all(np.isfinite(values).all() for values in training.named(metrics).values())


@pytest.mark.parametrize("name", ["me", "me_es", "dcg_me"])
def test_rollouts_of_training_and_of_re_evaluation_share_one_program(name):
    """One compiled program for each shape of request: no more after a re-evaluation."""
    batched, state, keys = started(name)
    state, _ = batched.step(state, keys)
    programs = batched.compiled.evaluate._cache_size()
    assert programs == len(batched.compiled.rounds)
    batched.reevaluate(state.archive, batched.algorithm.actor(state), keys)
    assert batched.compiled.evaluate._cache_size() == programs


def test_what_is_compiled_in_advance_is_what_runs(caplog):
    batched, state, keys = started("dcg_me")
    needed = batched.compile(state, keys)
    held = training.size_in_bytes(state)
    assert held < needed < 20 * held

    def compiled(batched, state) -> list[str]:
        caplog.clear()
        with jax.log_compiles(), caplog.at_level("WARNING"):
            batched.step(state, keys)
        return [r.getMessage() for r in caplog.records if "Compiling" in r.getMessage()]

    assert not compiled(batched, state)
    assert compiled(*started("dcg_me")[:2]), "without it, the first step compiles"


@pytest.mark.parametrize("name", ["me", "me_es", "qd_pg", "dcg_me"])
def test_shapes_are_those_of_a_state(name):
    batched, state, keys = started(name)
    shapes = batched.shapes(keys)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    for shape, leaf in zip(jax.tree.leaves(shapes), jax.tree.leaves(state), strict=True):
        assert (shape.shape, shape.dtype) == (leaf.shape, leaf.dtype)


VECTORS = {"grid": (8, 8), "batch_size": 12, "cma_emitters": 3, "iso_sigma": 0.5}


@pytest.mark.parametrize("name", ["me", "cma_mae", "cma_mega"])
def test_one_program_of_an_iteration_gives_the_bits_of_its_stages(name):
    """On plain vectors. Re-evaluating the archive, in a program of its own, gives them too."""
    algorithm = elites.build("vectors:rastrigin,dimensions=6", name, **VECTORS)
    batched, keys = training.Batched(algorithm, 2), training.seed_keys([0, 1])
    assert stages.is_one_program(algorithm)
    whole, staged = (batched.start(training.iteration_keys(keys, 0)) for _ in range(2))
    place = whole.archive.policies.unsafe_buffer_pointer()
    for i in range(1, 5):
        own = training.iteration_keys(keys, i)
        whole, metrics = batched.step(whole, own)
        staged, expected = batched.compiled.step(staged, own)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(staged), strict=True):
        np.testing.assert_array_equal(a, b)
    assert training.named(metrics).keys() == training.named(expected).keys()
    assert whole.archive.policies.unsafe_buffer_pointer() == place, "it is updated in place"
    again = batched.reevaluate(whole.archive, None, keys)
    np.testing.assert_array_equal(again.qd_score, metrics.qd_score)


def test_an_iteration_is_one_program_on_plain_vectors_alone():
    numpy = elites.tasks.vectors.task("sums", _sums, 3, [0.0], [1.0], is_numpy=True)
    assert not stages.is_one_program(elites.build(numpy, "me", **VECTORS | {"grid": (8,)}))
    assert not stages.is_one_program(elites.build("point_omni", "me", **SMALL))


def _sums(rows):
    return rows.sum(1), rows[:, :1]


def test_options_of_a_user_for_memory_are_kept(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000")
    assert not memory.keep_freed_memory.__wrapped__()


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
        flag = f"--xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flag}"}
        done = subprocess.run(
            [sys.executable, "-c", script, arguments],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        results.append(json.loads(done.stdout))
    assert [r["devices"] for r in results] == [1, 2]
    np.testing.assert_allclose(results[0]["qd_score"], results[1]["qd_score"], rtol=1e-4)
