"""`elites distil`: a run of its own, that every command accepts."""

from __future__ import annotations

import dataclasses
import json
from unittest import mock

import numpy as np
import pytest

import elites
from elites.runs import distilling, saved
from elites.runs import job as jobs
from elites.runs.directory import RunDirectory, RunError
from program import SMOKE, bits, complaint, newest, rows, succeed
from program import elites as run_command

OPTIONS = ("--steps", 20, "--hidden", 16, "--checkpoint-every", 2, "--reevaluate-every", 2)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A small run of plain MAP-Elites, which has no actor."""
    path = tmp_path_factory.mktemp("distil") / "me"
    succeed("train", "point_omni", "me", *SMOKE, "--seeds", 2, "--output", path)
    return path


@pytest.fixture(scope="module")
def distilled(source):
    """A distillation of six iterations, in the default place."""
    succeed("distil", source, *OPTIONS, "--iterations", 6)
    return source.with_name("me-distilled")


def test_the_archive_is_the_source_s_and_there_is_an_actor(source, distilled):
    before, after = elites.load(source), elites.load(distilled)
    assert before.actors is None
    assert after.actors is not None
    for old, new in zip(before.archives, after.archives, strict=True):
        np.testing.assert_array_equal(old, new)
    assert after.algorithm.origins == before.algorithm.origins
    # The actor can be asked for any descriptor.
    action = after.actor(np.zeros(3, np.float32), [0.5, 0.5])
    assert np.shape(action) == (2,)


def test_every_command_works_on_it(distilled, tmp_path):
    assert "distil on point_omni" in succeed("info", distilled).stdout
    assert "re-binned" in succeed("evaluate", distilled).stdout
    succeed("plot", distilled)
    assert (distilled / "figures" / "actor.png").exists()
    succeed("export", distilled, tmp_path / "actor.onnx", "--actor")
    succeed("view", distilled, "--export", tmp_path / "page.html")
    succeed("pack", distilled, "--output", tmp_path / "packed.zip")
    succeed("unpack", tmp_path / "packed.zip", "--output", tmp_path / "copy")
    assert "distil" in succeed("info", tmp_path / "copy").stdout


def test_halves_equal_the_whole(source, distilled, tmp_path):
    halves = tmp_path / "halves"
    succeed("distil", source, *OPTIONS, "--iterations", 3, "--output", halves)
    budget = json.loads((distilled / "config.json").read_text())["evaluations"]
    succeed("resume", halves, "--evaluations", budget)
    assert newest(halves).name == newest(distilled).name == "000000006"
    assert bits(newest(halves)) == bits(newest(distilled))
    assert rows(halves / "metrics.csv") == rows(distilled / "metrics.csv")


def test_it_resumes_without_its_source(source, distilled, tmp_path):
    """After the first checkpoint, the archive is the run's own."""
    moved = tmp_path / "moved"
    succeed("distil", source, *OPTIONS, "--iterations", 2, "--output", moved)
    hidden = source.rename(source.with_name("hidden"))
    try:
        succeed("resume", moved, "--evaluations", 32 * 5)
        assert newest(moved).name == "000000004"
        assert elites.load(moved).actors is not None
    finally:
        hidden.rename(source)


def test_bad_input_is_refused_in_a_line(source, distilled, tmp_path):
    assert "no such directory" in complaint(run_command("distil", "nowhere"), 2)
    assert "holds a run already" in complaint(run_command("distil", source), 2)
    assert "--iterations must be" in complaint(run_command("distil", source, "--iterations", 0), 2)
    line = complaint(run_command("train", "point_omni", "distil", "--output", tmp_path / "x"), 2)
    assert "use 'elites distil RUN'" in line
    for option in ("--hidden", "--steps", "--learning-rate", "--checkpoint-every"):
        done = run_command("distil", source, option, 0, "--output", tmp_path / "y")
        assert f"elites: {option} must be" in complaint(done, 2)
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


def test_an_archive_that_changed_or_is_empty_is_refused(source, tmp_path):
    config = RunDirectory(source).config().for_distillation(str(source), 1, actor_hidden=(8,))
    job = jobs.build(config, RunDirectory(tmp_path / "new"))
    found = distilling.source_archive(config, job.shapes.archive)
    assert found.fitness.shape == (2, config.hp.cells)
    larger = dataclasses.replace(config, hp=dataclasses.replace(config.hp, cells=40))
    shapes = jobs.build(larger, RunDirectory(tmp_path / "new")).shapes.archive
    with pytest.raises(RunError, match="has changed since the distillation was planned"):
        distilling.source_archive(config, shapes)
    loaded = elites.load(source)
    fitness = loaded.archives.fitness.at[1].set(-np.inf)
    empty = dataclasses.replace(loaded, archives=loaded.archives._replace(fitness=fitness))
    with (
        mock.patch.object(saved, "load_checkpoint", return_value=(empty, 0)),
        pytest.raises(RunError, match="the archive of a seed is empty"),
    ):
        distilling.source_archive(config, job.shapes.archive)
