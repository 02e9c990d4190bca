"""Archives of other programs through the real commands: exported, and started from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elites
from elites.interop import qdax, reading
from program import SMOKE, complaint, succeed
from program import elites as command

QDAX = Path(__file__).parents[1] / "data" / "qdax.npz"


@pytest.fixture(scope="module")
def loaded(finished) -> elites.Run:
    return elites.load(finished)


def test_an_exported_archive_holds_the_elites_of_the_chosen_seed(finished, loaded, tmp_path):
    """By default those of the seed with the highest QD-score."""
    other = 1 - loaded.best
    for seed, options in ((loaded.best, ()), (other, ("--seed", other))):
        archive = loaded.seed(seed).archive
        for form, name in (("pyribs", f"a{seed}.csv"), ("qdax", f"q{seed}")):
            done = succeed("export", finished, tmp_path / name, "--archive", form, *options)
            assert f"{len(archive)} elites of seed {seed}, iteration 9" in done.stdout
            found = reading.read(tmp_path / name)
            np.testing.assert_array_equal(
                found.policies(archive[0].network.sizes), archive.policies
            )
            np.testing.assert_array_equal(found.fitness, archive.fitness)
            np.testing.assert_array_equal(found.descriptors, archive.descriptors)
    succeed("export", finished, tmp_path / "table.csv", "--archive", "csv", "--checkpoint", 8)
    header, *rows = (tmp_path / "table.csv").read_text().splitlines()
    assert header == "cell,fitness,final x,final y,origin,born"
    assert len(rows) == len(elites.load(finished, 8).archive)


def test_results_become_data_frames(loaded):
    pytest.importorskip("pandas", reason="LEFT OUT: needs pandas, pip install pandas")
    archive = loaded.archive
    frame = archive.to_pandas()
    assert list(frame) == ["cell", "fitness", "final x", "final y", "origin", "born"]
    assert frame["origin"].tolist() == [elite.origin for elite in archive]
    assert frame["final y"].tolist() == [float(elite.descriptor[1]) for elite in archive]
    metrics = loaded.metrics.to_pandas()
    last = metrics[(metrics["iteration"] == 9) & (metrics["seed"] == 1)]
    assert last["qd_score"].item() == loaded.metrics["qd_score"][-1, 1]
    assert loaded.seed(1).metrics.to_pandas()["qd_score"].tolist()[-1] == last["qd_score"].item()


def saved(folder: Path) -> Path:
    """Write the repertoire that QDax made as it saved one up to version 0.4."""
    folder.mkdir()
    recorded = np.load(QDAX)
    for name in qdax.FILES:
        np.save(folder / f"{name}.npy", recorded[name])
    return folder


@pytest.mark.parametrize("kind", ["pyribs", "qdax"])
def test_a_run_starts_from_an_archive_of_another_program(finished, tmp_path, kind):
    """Its elites compete by what they do here. The run can be resumed without the archive."""
    source = tmp_path / "archive.csv"
    if kind == "qdax":
        source = saved(tmp_path / "repertoire")
    else:
        succeed("export", finished, source, "--archive", "pyribs")
    given = {row.tobytes() for row in reading.read(source).policies((3, 8, 8, 2))}
    path = tmp_path / "run"
    options = ("--seeds", 2, "--evaluations", 64, "--start-from", source, "--output", path)
    succeed("train", "point_omni", "me", *SMOKE, *options)
    source.rename(tmp_path / "away")
    succeed("resume", path, "--evaluations", 96)
    run = elites.load(path)
    assert run.algorithm.origins == ("initial", "ga", f"start.{kind}")
    for seed in range(2):
        kept = [e for e in run.seed(seed).archive if e.origin == f"start.{kind}"]
        assert kept
        assert {elite.policy.tobytes() for elite in kept} <= given
        assert {elite.born for elite in kept} == {0}
    np.testing.assert_array_equal(run.reevaluate().descriptor_error, np.zeros(2))
    assert f"started from the archive of {source}" in succeed("info", path).stdout


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("point_omni", ("--hp.policy-hidden", 4), "elites have 122 parameters, but a policy of the "
         "new run has 26 (layers 3-4-2)"),
        ("arm_reach", (), "elites have 122 parameters, but a policy of the new run has 160"),
    ],
)  # fmt: skip
def test_an_archive_that_does_not_fit_is_refused(tmp_path, task, options, message):
    source, output = saved(tmp_path / "repertoire"), tmp_path / "run"
    done = command(
        "train", task, "me", *SMOKE, *options, "--start-from", source, "--output", output
    )
    assert f"cannot start from {source}: its {message}" in complaint(done, 2)
    assert not output.exists()


def test_a_damaged_archive_is_refused_before_anything_is_written(tmp_path):
    source, output = tmp_path / "archive.csv", tmp_path / "run"
    source.write_text("solution_0,objective,measures_0\n1,2,x\n")
    done = command("train", "point_omni", "me", *SMOKE, "--start-from", source, "--output", output)
    assert "archive.csv, line 2: could not convert string to float: 'x'" in complaint(done, 2)
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("a.onnx", "--archive", "pyribs"), "the file must end in .csv"),
        (("a.csv", "--archive", "pyribs", "--actor"), "--archive exports all elites"),
        (("a.csv", "--archive", "csv", "--cell", 0), "--archive exports all elites"),
        (("a.csv", "--archive", "ribs"), "must be csv, pyribs or qdax, got 'ribs'"),
        (("a.csv",), "must end in .onnx, .safetensors, .c or .h"),
    ],
)
def test_wrong_options_are_refused(finished, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    assert message in complaint(command("export", finished, *options), 2)
    assert not list(tmp_path.iterdir())
