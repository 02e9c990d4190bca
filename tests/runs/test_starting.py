"""Start a run from the archive of another one: cells, seeds and algorithms may differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import elites
from program import SMOKE, complaint, succeed
from program import elites as run_elites

OTHER = ("--hp.cells", 20, "--seeds", 3, "--evaluations", 64)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Two seeds of MAP-Elites on the point."""
    path = tmp_path_factory.mktemp("starting") / "source"
    succeed("train", "point_omni", "me", *SMOKE, "--seeds", 2, "--output", path)
    return path


@pytest.fixture(scope="module")
def started(source, tmp_path_factory) -> Path:
    """Three seeds with fewer cells that started from it. The source is then taken away."""
    path = tmp_path_factory.mktemp("starting") / "started"
    away = source.with_name("away")
    succeed("train", "point_omni", "me", *SMOKE, *OTHER, "--start-from", source, "--output", path)
    source.rename(away)
    yield path
    away.rename(source)


def elites_of(run: elites.Run, seed: int) -> dict[bytes, elites.training.Elite]:
    return {elite.policy.tobytes(): elite for elite in run.seed(seed).archive}


def test_elites_of_the_source_are_kept_with_their_origin(source, started):
    """Every cell has an elite at least as fit as those of the source that belong there."""
    run, before = elites.load(started), elites.load(source.with_name("away"))
    assert run.algorithm.origins == ("initial", "ga", "start.initial", "start.ga")
    for seed in range(3):
        known, mine = elites_of(before, seed % 2), elites_of(run, seed)
        kept = {p: elite for p, elite in mine.items() if elite.origin.startswith("start.")}
        assert kept
        for policy, elite in kept.items():
            assert elite.origin == f"start.{known[policy].origin}"
            assert (elite.fitness, elite.born) == (known[policy].fitness, 0)
            np.testing.assert_array_equal(elite.descriptor, known[policy].descriptor)
        centroids = run.seed(seed).archive.arrays.centroids
        fitness = run.seed(seed).archive.arrays.fitness
        assert len(centroids) == 20
        for elite in known.values():
            cell = np.square(centroids - elite.descriptor).sum(1).argmin()
            assert fitness[cell] >= elite.fitness
    again = run.reevaluate()
    np.testing.assert_array_equal(again.descriptor_error, np.zeros(3))


def test_the_run_says_where_it_comes_from_and_goes_on_without_it(source, started, tmp_path):
    assert not source.exists()
    told = succeed("info", started).stdout
    assert f"20 cells, started from the archive of {source.resolve()}" in told
    copy = Path(shutil.copytree(started, tmp_path / "copy", symlinks=True))
    succeed("resume", copy, "--evaluations", 128)
    assert "start.ga" in (copy / "evaluation" / "cells.csv").read_text()
    names = elites.load(copy).algorithm.origins
    again = tmp_path / "again"
    succeed("train", "point_omni", "me", *SMOKE, *OTHER, "--start-from", copy, "--output", again)
    assert elites.load(again).algorithm.origins == names  # no "start.start.ga"


def test_python_starts_from_a_run_too(source, started, tmp_path):
    """Whatever the algorithm: here one with actor rollouts. The run can be saved and loaded."""
    del started  # the source is away
    where = source.with_name("away")
    options = {"preset": "smoke", "evaluations": 64, "start_from": where}
    run = elites.train("point_omni", "dcg_me", **options)
    assert {elite.origin for elite in run.archive} & {"start.initial", "start.ga"}
    before = np.isfinite(elites.load(where).seed(0).archive.arrays.fitness)
    assert np.isfinite(run.archive.arrays.fitness)[before].all()
    run.save(tmp_path / "saved")
    loaded = elites.load(tmp_path / "saved")
    assert [elite.origin for elite in loaded.archive] == [elite.origin for elite in run.archive]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("point_omni", "me", "--hp.policy-hidden", 4), "it has policies 3-8-8-2 relu, not 3-4-2"),
        (("point_omni", "me", "--hp.activation", "elu"), "policies 3-8-8-2 relu, not 3-8-8-2 elu"),
        (("arm_reach", "me"), "it has policies 3-8-8-2 relu, not 1-8-8-8 relu"),
    ],
)
def test_policies_that_do_not_fit_are_refused(source, started, tmp_path, options, message):
    del started
    where = source.with_name("away")
    output = tmp_path / "run"
    done = run_elites("train", *options, *SMOKE, "--start-from", where, "--output", output)
    assert message in complaint(done, 2)
    assert not output.exists()


def test_a_source_that_is_no_run_is_refused(tmp_path):
    output = tmp_path / "run"
    options = ("--start-from", tmp_path / "nowhere", "--output", output)
    done = run_elites("train", "point_omni", "me", *SMOKE, *options)
    assert "nowhere" in complaint(done, 2)
    assert not output.exists()
