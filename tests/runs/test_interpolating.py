"""Test `elites evaluate --interpolate`: the actor between elites."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import numpy as np
import pytest

import elites
from elites.runs import reducing
from elites.runs.directory import RunDirectory
from elites.training import interpolating
from elites.viewer import data
from program import ONE_LAYER, SMOKE, complaint, succeed
from program import elites as command


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("between") / "run"
    given = ("point_omni", "dcg_me", *SMOKE, *ONE_LAYER, "--seeds", 2, "--evaluations", 320)
    succeed("train", *given, "--output", path)
    return path


@pytest.fixture(scope="module")
def said(run):
    return succeed("evaluate", run, "--interpolate", "--points", 100).stdout


def rows_of(run, name: str = "requests") -> list[dict[str, float]]:
    with (run / "interpolation" / f"{name}.csv").open() as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def test_requests_cover_the_space_and_results_are_those_of_the_actor(run, said):
    rows = [row for row in rows_of(run) if row["seed"] == 0]
    trained = elites.load(run)
    low, high = trained.algorithm.problem.descriptor_low, trained.algorithm.problem.descriptor_high
    for axis in range(2):
        asked = np.unique([row[f"request_{axis}"] for row in rows])
        step = (high[axis] - low[axis]) / 10
        np.testing.assert_allclose(asked, low[axis] + step * (np.arange(10) + 0.5), rtol=1e-5)
    # The point ends where the sum of its actions leads: `Run.reevaluate` has the same actor.
    with pytest.raises(TypeError):
        trained.interpolate(points=2.5)
    found = trained.interpolate(points=100)
    np.testing.assert_allclose([row["error"] for row in rows], found.error[0], rtol=1e-5)
    place = np.array([[row["reached_0"], row["reached_1"]] for row in rows])
    wanted = np.array([[row["request_0"], row["request_1"]] for row in rows])
    np.testing.assert_allclose(
        [row["error"] for row in rows], np.linalg.norm(place - wanted, axis=1), rtol=1e-4
    )


def test_a_reduced_run_is_compared_with_its_whole_archive(run, said, tmp_path):
    reducing.reduce(RunDirectory(run), tmp_path, elites=2, seed=1)
    succeed("evaluate", tmp_path, "--interpolate", "--points", 100)
    whole = [row for row in rows_of(run) if row["seed"] == 1]
    few = rows_of(tmp_path)
    for name in ("distance", "filled", "error"):
        np.testing.assert_allclose([r[name] for r in few], [r[name] for r in whole], rtol=1e-5)
    assert sum(row["filled"] for row in few) > 2


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--points", 50), "--points is for --interpolate: give both, or neither"),
        (("--interpolate", "--points", 0), "--points must be between 1 and 1,000,000, got 0"),
        (("--interpolate", "--points", 10**9), "and 1,000,000, got 1000000000"),
    ],
)
def test_wrong_numbers_of_points_are_refused(run, given, text):
    assert text in complaint(command("evaluate", run, *given), 2)


def test_distances_are_those_to_the_nearest_elite(run, said):
    trained = elites.load(run)
    for index, seed in enumerate(trained.seeds):
        archive = trained.seed(index).archive
        cells = {elite.cell for elite in archive}
        for row in [row for row in rows_of(run) if row["seed"] == seed][::7]:
            place = np.array([row["request_0"], row["request_1"]])
            nearest = archive.nearest(place).descriptor
            assert row["distance"] == pytest.approx(
                float(np.linalg.norm(place - nearest)), rel=1e-4
            )
            assert bool(row["filled"]) == (int(row["cell"]) in cells)


def test_the_table_adds_up_and_the_figure_is_drawn(run, said):
    lines = said.splitlines()
    assert lines[2].startswith("up to ½ spacing of cells  ")
    assert "100 requests to each actor" in lines[0]
    metrics = rows_of(run, "metrics")
    for seed in (0, 1):
        assert sum(row["requests"] for row in metrics if row["seed"] == seed) == 100
    for row in metrics:
        chosen = [
            other["error"]
            for other in rows_of(run)
            if other["seed"] == row["seed"]
            and row["distance_from"] <= other["distance"] < row["distance_to"]
        ]
        assert len(chosen) == row["requests"]
        if chosen:
            assert row["error"] == pytest.approx(float(np.median(chosen)), rel=1e-5)
    assert (run / "figures" / "interpolation.png").stat().st_size > 10_000


def test_the_page_gets_the_errors_of_empty_cells_too(run, said):
    directory = RunDirectory(run)
    last = data.iterations(directory)[-1]
    archive = data.archive(directory, last, 0)
    between, fitness = archive["between_error"], archive["fitness"]
    assert len(between) == len(fitness)
    known = [v is not None for v in between]
    assert any(k and f is None for k, f in zip(known, fitness, strict=True))
    cell = known.index(True)
    errors = [row["error"] for row in rows_of(run) if row["seed"] == 0 and row["cell"] == cell]
    assert between[cell] == pytest.approx(float(np.median(errors)), rel=1e-4)


def test_spread_requests_in_many_dimensions_are_even():
    problem = SimpleNamespace(
        descriptor_size=18, descriptor_low=(-1.0,) * 18, descriptor_high=(3.0,) * 18
    )
    found = interpolating.spread(problem, 500)
    assert found.shape == (500, 18)
    assert len(np.unique(found, axis=0)) == 500
    np.testing.assert_allclose(found.mean(0), 1.0, atol=0.25)
    assert found.min() >= -1.0
    assert found.max() <= 3.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--interpolate", "--checkpoint", 12345), "12345"),
    ],
)
def test_bad_input_gets_one_line(run, options, says):
    failed = command("evaluate", run, *options)
    assert failed.returncode in (1, 2)
    assert says in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_an_algorithm_without_an_actor_is_refused(tmp_path):
    succeed("train", "point_omni", "me", *SMOKE, "--evaluations", 64, "--output", tmp_path / "run")
    failed = command("evaluate", tmp_path / "run", "--interpolate")
    assert failed.returncode == 2
    assert "nothing to interpolate" in failed.stderr
