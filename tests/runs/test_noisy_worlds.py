"""Options for noisy worlds on the command line: what runs record, resume, score and export."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
from elites.core import networks
from elites.core.networks import MLP
from elites.runs import directory as directories
from elites.runs import evaluation, export
from elites.runs.directory import RunDirectory
from elites.training import Elite
from program import SMOKE, bits, complaint, newest, rows, succeed
from program import elites as run_elites

NORMALISED = ("dcg_me", *SMOKE, "--hp.normalise-observations", "--hp.activation", "tanh")


@pytest.fixture(scope="module")
def normalised(tmp_path_factory) -> Path:
    """A run with normalisation, tanh and a QD offset, trained for four iterations in one go."""
    path = tmp_path_factory.mktemp("noisy") / "normalised"
    options = ("--hp.qd-offset", "-10", "--evaluations", 160, "--checkpoint-every", 2)
    succeed("train", "point_omni", *NORMALISED, *options, "--output", path)
    return path


def test_halves_of_a_run_with_normalisation_equal_the_whole(normalised, tmp_path):
    """The statistics are part of a checkpoint."""
    halves = Path(shutil.copytree(normalised, tmp_path / "halves", symlinks=True))
    names = [path.name for path in sorted((halves / "checkpoints").iterdir())]
    assert names == ["000000002", "000000004", "last"]
    shutil.rmtree(halves / "checkpoints" / "000000004")
    succeed("resume", halves)
    assert bits(newest(halves)) == bits(newest(normalised))
    assert any("statistics.mean" in name for name in bits(newest(halves)))
    assert rows(halves / "metrics.csv") == rows(normalised / "metrics.csv")


def test_loaded_elites_and_the_actor_take_raw_observations(normalised):
    """Elites repeat to the bit, and act as the parameters in the archive alone say."""
    run = elites.load(normalised)
    again = run.reevaluate()
    filled = np.isfinite(np.asarray(run.archives.fitness))
    np.testing.assert_array_equal(again.fitness[filled], np.asarray(run.archives.fitness)[filled])
    elite = run.archive[0]
    assert elite.network.activation == "tanh"
    x = np.array([0.4, -0.2, 0.7])
    for kernel, bias in networks.unflatten(elite.network, elite.policy):
        x = np.tanh(x @ np.asarray(kernel) + np.asarray(bias))
    np.testing.assert_allclose(elite([0.4, -0.2, 0.7]), x, atol=1e-5)


def test_an_actor_at_a_descriptor_keeps_its_activation(normalised):
    run = elites.load(normalised)
    policy, _ = export.actor_at(RunDirectory(normalised), run, 4, [0.3, -0.2], None)
    seen = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert run.actor is not None
    expected = run.actor(seen, np.broadcast_to([0.3, -0.2], (20, 2)))
    np.testing.assert_allclose(policy(seen), expected, atol=1e-5)


def test_qd_scores_are_sums_above_the_offset(normalised):
    """Against sums in double precision over the rows of cells.csv."""
    run = RunDirectory(normalised)
    assert directories.read_facts(run)["qd_offset"] == -10
    scores = {
        name: float(values[0]) for name, values in evaluation.read_metrics(run.evaluation).items()
    }
    cells = evaluation.read_cells(run.evaluation, 32, 2)
    above = {name: cells[name] + 10 for name in ("fitness", "actor_fitness")}
    assert scores["qd_score"] == pytest.approx(above["fitness"].sum(), rel=1e-5)
    assert scores["reevaluated_qd_score"] == pytest.approx(above["fitness"].sum(), rel=1e-5)
    assert scores["actor_qd_score"] == pytest.approx(np.nansum(above["actor_fitness"]), rel=1e-5)
    best: dict[int, float] = {}
    for cell, value in zip(cells["actor_cell"], above["actor_fitness"], strict=True):
        if cell >= 0:
            best[int(cell)] = max(best.get(int(cell), -np.inf), value)
    assert scores["actor_rebinned_qd_score"] == pytest.approx(sum(best.values()), rel=1e-5)
    loaded = elites.load(normalised)
    assert loaded.archive.qd_score == pytest.approx(above["fitness"].sum(), rel=1e-5)
    assert float(loaded.metrics["qd_score"][-1, 0]) == pytest.approx(scores["qd_score"], rel=1e-5)


def test_elites_below_the_offset_are_warned_of(normalised, tmp_path):
    told = succeed("info", normalised).stdout
    assert "QD offset       -10" in told
    assert "below the QD offset" not in told
    path = tmp_path / "high"
    options = ("--hp.qd-offset", "24.9", "--output", path)
    succeed("train", "point_omni", "me", *SMOKE, *options)
    fitness = elites.load(path).archive.fitness
    below = int((fitness < np.float32(24.9)).sum())
    assert 1 < below < len(fitness)
    for text in (succeed("info", path).stdout, (path / "summary.md").read_text()):
        assert f"{below} elites below the QD offset 24.9" in text
        assert f"The lowest fitness is {fitness.min():.6g}" in text


@pytest.mark.parametrize("suffix", ["onnx", "safetensors"])
def test_exported_policies_have_their_activation(suffix, tmp_path):
    if suffix == "onnx":
        pytest.importorskip("onnxruntime")
    for name in ("tanh", "elu", "gelu", "silu"):
        network = MLP((5, 16, 16, 3), activation=name)
        policy = np.asarray(3.0 * networks.init(network, jax.random.key(1)))
        elite = Elite(policy, 0.0, np.zeros(2), 0, "ga", 0, network)
        error = export.export(elite, tmp_path / f"{name}.{suffix}", {"task": "none"})
        assert error <= export.TOLERANCE
        relu = dataclasses.replace(network, activation="relu")
        other = dataclasses.replace(elite, network=relu)
        rows_seen = np.random.default_rng(0).normal(size=(9, 5))
        assert np.abs(np.asarray(other(rows_seen)) - np.asarray(elite(rows_seen))).max() > 0.01


def test_the_task_has_an_offset_unless_the_run_chooses_one():
    task = dataclasses.replace(elites.tasks.make("point_omni"), qd_offset=-5.0)
    assert elites.build(task, "me").qd_offset == -5
    assert elites.build(task, "me", qd_offset=-7).qd_offset == -7
    assert elites.build("point_omni", "me").qd_offset == 0


def test_bad_values_are_refused_in_one_line(tmp_path):
    options = (*SMOKE, "--output", tmp_path / "run")
    done = run_elites("train", "point_omni", "me", *options, "--hp.evaluations-per-policy", 3)
    assert "evaluations_per_policy is 3" in complaint(done, 2)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="qd_offset must be a finite number, got inf"):
        elites.Hyperparameters(qd_offset=np.inf)
    with pytest.raises(ValueError, match="task 'point_omni': qd_offset must be a finite number"):
        dataclasses.replace(elites.tasks.make("point_omni"), qd_offset=np.nan)
