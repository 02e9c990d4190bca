"""Tasks of brax, against the real package: the whole life of a run, and what is refused."""

from __future__ import annotations

import json

import pytest

import program
from elites import tasks

pytest.importorskip("brax", reason="brax is not installed: pip install 'elites[brax]'")

HOPPER = "brax:hopper,episode_length=8"
SMALL = (
    "--preset", "smoke", "--no-figures", "--hp.batch-size", 32, "--hp.cells", 16,
    "--checkpoint-every", 1,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two iterations that was stopped after one and resumed."""
    path = tmp_path_factory.mktemp("brax") / "run"
    program.succeed("train", HOPPER, *SMALL, "--evaluations", 64, "--output", path)
    program.succeed("resume", path, "--evaluations", 96)
    return path


def test_a_run_records_the_simulator_and_resumes(run):
    assert program.checkpoints(run) == [1, 2]
    facts = json.loads((run / "facts.json").read_text())
    assert facts["task"] == HOPPER
    assert facts["repeatable"] is True
    assert facts["descriptor_names"] == ["contact of foot_geom"]
    first, second = json.loads((run / "environment.json").read_text())
    versions = tasks.versions(tasks.make(HOPPER))
    assert list(versions) == ["brax", "mujoco", "mujoco-mjx"]
    assert first["simulator"] == second["simulator"] == versions
    assert facts["fingerprint"]["task"]["simulator"] == versions
    info = program.succeed("info", run).stdout
    assert f"brax {versions['brax']}" in info


def test_re_evaluation_reproduces_the_archive(run):
    done = program.succeed("evaluate", run)
    assert "rounds an episode differently" not in done.stdout
    (row,) = program.rows(run / "evaluation" / "metrics.csv")
    assert float(row["descriptor_error"]) == 0.0
    assert row["reevaluated_qd_score"] == row["qd_score"]
    assert float(row["coverage"]) > 1 / 16  # feet are lifted by some policies and not by others
