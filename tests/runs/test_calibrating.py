"""`elites calibrate`: requests at which the actor hits the cells, and policies made from them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import elites
from elites.runs import formats
from program import complaint, rows, succeed
from program import elites as run_command


@pytest.fixture(scope="module")
def run(conditioned, tmp_path_factory):
    """A small run with a conditioned actor."""
    path = tmp_path_factory.mktemp("calibrate") / "dcg"
    return Path(shutil.copytree(conditioned, path, symlinks=True))


@pytest.fixture(scope="module")
def said(run):
    return succeed("calibrate", run, "--rounds", 3).stdout


def test_errors_fall_and_tables_are_written(run, said):
    assert "asked for centroids" in said
    for row in rows(run / "calibration" / "metrics.csv"):
        # The task is deterministic, so the nearest of four requests is at least as near.
        plain, better = (float(row[f"{n}_descriptor_error"]) for n in ("plain", "calibrated"))
        assert better < plain
    table = rows(run / "calibration" / "requests.csv")
    assert {row["seed"] for row in table} == {"0", "1"}
    assert len(table) == 2 * 32  # every cell, also empty ones
    errors = np.array(
        [
            np.hypot(*(float(row[f"reached_{i}"]) - float(row[f"centroid_{i}"]) for i in range(2)))
            for row in table
        ]
    )
    assert np.isfinite(errors).all()


def test_python_finds_the_same_requests(run, said):
    found = elites.load(run).calibrate(rounds=3)
    table = [row for row in rows(run / "calibration" / "requests.csv") if row["seed"] == "1"]
    written = [[float(row["request_0"]), float(row["request_1"])] for row in table]
    np.testing.assert_allclose(found.requests[1], written, rtol=1e-6)
    # What a request led to is reached by that request.
    np.testing.assert_allclose(
        found.request(found.reached[1, 5], seed=1), found.requests[1, 5], atol=1e-6
    )
    with pytest.raises(ValueError, match="a descriptor has 2 numbers"):
        found.request([1.0])


def test_the_actor_is_exported_for_one_descriptor(run, said, tmp_path):
    file = tmp_path / "policy.onnx"
    said = succeed("export", run, file, "--actor", "--descriptor", 0.3, -0.2, "--seed", 1).stdout
    loaded = elites.load(run)
    asked = loaded.calibrate(rounds=3).request([0.3, -0.2], seed=1)
    given = [float(text) for text in re.findall(r"asked for \[(.*?), (.*?)\]", said)[0]]
    np.testing.assert_allclose(given, asked, atol=1e-6)
    assert "(calibrated)" in said
    observations = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    actor = loaded.seed(1).actor
    assert actor is not None
    np.testing.assert_allclose(
        formats.run(file, {"observation": observations}),
        actor(observations, np.broadcast_to(asked, (20, 2))),
        atol=1e-5,
    )


def test_requests_of_another_iteration_are_not_used(run, said, tmp_path):
    table = run / "calibration" / "requests.csv"
    before = table.read_text()
    try:
        table.write_text(re.sub(r"^(\d+),9,", r"\1,4,", before, flags=re.MULTILINE))
        file = tmp_path / "policy.onnx"
        text = succeed("export", run, file, "--actor", "--descriptor", 0.25, 0.5).stdout
    finally:
        table.write_text(before)
    assert "asked for [0.25, 0.5] (not calibrated)" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("calibrate", "RUN", "--rounds", 0), "--rounds must be at least 1"),
        (("export", "RUN", "x.onnx", "--actor", "--descriptor", 1.0), "needs 2 finite numbers"),
        (("calibrate", "ME"), "trains no actor that takes a descriptor"),
    ],
)
def test_bad_input_is_one_line(run, finished, tmp_path, arguments, says):
    places = {"RUN": run, "ME": finished, "x.onnx": tmp_path / "x.onnx"}
    found = [places.get(argument, argument) for argument in arguments]
    assert says in complaint(run_command(*found), 2)


def test_on_a_task_with_noise_old_and_new_requests_meet_the_same_noise():
    run = elites.train("noisy_point_omni", "dcg_me", preset="smoke", evaluations=64)
    few, many = run.calibrate(rounds=1), run.calibrate(rounds=12)
    assert many.after.descriptor_error[0] < few.before.descriptor_error[0]
