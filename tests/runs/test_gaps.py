"""Tables that are older than the checkpoint: said once, shown, and never taken for others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elites
from elites.runs import figures, gaps, logs
from elites.runs.directory import RunDirectory
from elites.viewer import data
from program import POINT, newest, rows, succeed


def keep(path: Path, wanted: Callable[[int], bool]) -> None:
    """Keep the rows of some iterations only."""
    header, *lines = path.read_text().splitlines()
    kept = [line for line in lines if wanted(int(line.split(",")[0]))]
    path.write_text("\n".join([header, *kept]) + "\n")


def warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if "warning" in line]


@pytest.fixture(scope="module")
def reevaluated(tmp_path_factory) -> Path:
    """Nine iterations and two seeds; re-evaluations of 2, 4, 6, 8 and 9. Read only."""
    path = tmp_path_factory.mktemp("runs") / "reevaluated"
    succeed("train", *POINT, "--seeds", 2, "--reevaluate-every", 2, "--output", path)
    return path


@pytest.fixture
def holed(reevaluated, tmp_path) -> Path:
    """A copy whose tables were restored from a backup of iteration 3, and then resumed."""
    path = Path(shutil.copytree(reevaluated, tmp_path / "run", symlinks=True))
    for table in ("metrics.csv", "reevaluations.csv"):
        keep(path / table, lambda iteration: iteration <= 3)
    # The backup was made while iteration 4 was being written: it has one seed's row.
    whole = (reevaluated / "metrics.csv").read_text().splitlines()
    with open(path / "metrics.csv", "a") as file:
        file.write(next(line for line in whole if line.startswith("4,0,")) + "\n")
    done = succeed("resume", path, "--evaluations", 32 * 13)
    first, second = warnings(done.stderr)
    assert f"{path / 'metrics.csv'} lacks rows of iterations 4 to 9" in first
    assert f"{path / 'reevaluations.csv'} lacks rows of iterations 4, 6 and 8 to 9" in second
    return path


def test_a_whole_run_has_no_gap(reevaluated):
    assert gaps.find(RunDirectory(reevaluated)) == []
    assert "missing" not in succeed("info", reevaluated).stdout


def test_info_shows_the_gap(holed):
    shown = [line for line in succeed("info", holed).stdout.splitlines() if "missing" in line]
    assert [line.split(None, 1)[1] for line in shown] == [
        "iterations 4 to 9 in metrics.csv; iterations 4, 6 and 8 to 9 in reevaluations.csv"
    ]
    # and it is not forgotten
    done = succeed("resume", holed, "--evaluations", 32 * 14)
    assert ["4 to 9" in line or "4, 6 and 8 to 9" in line for line in warnings(done.stderr)] == [
        True,
        True,
    ]


def test_a_finished_run_with_an_old_table_is_told_of_too(reevaluated, tmp_path):
    path = Path(shutil.copytree(reevaluated, tmp_path / "run", symlinks=True))
    keep(path / "metrics.csv", lambda iteration: iteration <= 7)
    (path / "reevaluations.csv").unlink()
    done = succeed("resume", path)
    assert "finished already" in done.stdout
    first, second = warnings(done.stderr)
    assert "metrics.csv lacks rows of iterations 8 to 9" in first
    assert "reevaluations.csv lacks rows of iterations 2, 4, 6 and 8 to 9" in second
    assert "iterations 8 to 9 in metrics.csv" in succeed("info", path).stdout


def test_metrics_of_a_loaded_run_stay_with_their_iterations(holed, reevaluated, capsys):
    run, whole = elites.load(holed), elites.load(reevaluated)
    (line,) = [line for line in warnings(capsys.readouterr().err) if "metrics.csv" in line]
    assert "lacks rows of iterations 4 to 9" in line
    for name in ("qd_score", "coverage", "env_steps"):
        assert run.metrics[name].shape == (12, 2)
        np.testing.assert_array_equal(run.metrics[name][:3], whole.metrics[name][:3])
        assert np.isnan(run.metrics[name][3:9]).all()
        assert not np.isnan(run.metrics[name][9:]).any()
    np.testing.assert_array_equal(run.metrics["evaluations"][:, 1], 32 * np.arange(2, 14))
    np.testing.assert_array_equal(run.metrics["evaluations"][:9], whole.metrics["evaluations"])
    last = rows(holed / "metrics.csv")[-2:]
    assert run.metrics["qd_score"][-1].tolist() == [float(row["qd_score"]) for row in last]


def test_curves_are_drawn_over_their_evaluations(holed):
    succeed("plot", holed)
    table = logs.metrics(RunDirectory(holed))
    assert table["iteration"][:, 0].tolist() == [1, 2, 3, 10, 11, 12]
    figure = figures._curves_figure({"me": table}, {"task": "point_omni"})
    spent = [32 * (1 + i) for i in (1, 2, 3, 10, 11, 12)]
    assert figure.axes[0].lines[0].get_xdata().tolist() == spent
    (label,) = figure.axes[0].get_legend().get_texts()
    assert label.get_text() == "me (without iterations 4 to 9)"
    figures.plt.close(figure)


def test_the_viewer_names_the_gap(holed, reevaluated):
    answer = data.metrics(RunDirectory(holed))
    assert answer["iteration"] == [1, 2, 3, 10, 11, 12]
    assert answer["evaluations"] == [32 * (1 + i) for i in answer["iteration"]]
    assert [len(row) for row in answer["values"]["qd_score"]] == [2] * 6
    assert answer["missing"] == "iterations 4 to 9"
    assert data.metrics(RunDirectory(reevaluated))["missing"] is None


def test_rows_that_are_found_again_close_the_gap(holed, reevaluated):
    for table in ("metrics.csv", "reevaluations.csv"):
        lines = (reevaluated / table).read_text().splitlines(keepends=True)[1:]
        with open(holed / table, "a") as file:
            file.writelines(line for line in lines if 4 <= int(line.split(",")[0]) <= 9)
    assert gaps.find(RunDirectory(holed)) == []
    assert logs.metrics(RunDirectory(holed))["iteration"][:, 1].tolist() == [*range(1, 13)]
    done = succeed("resume", holed, "--evaluations", 32 * 14)
    assert warnings(done.stderr) == []
    assert newest(holed).name == "000000013"


def test_rows_behind_the_checkpoint_are_no_matter(reevaluated, tmp_path):
    """They are computed again."""
    path = Path(shutil.copytree(reevaluated, tmp_path / "run", symlinks=True))
    keep(path / "metrics.csv", lambda iteration: iteration != 9)
    shutil.rmtree(newest(path))
    done = succeed("resume", path)
    assert warnings(done.stderr) == []
    assert rows(path / "metrics.csv") == rows(reevaluated / "metrics.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iteration,seed,qd_score\n1,0,2\n1,1,2\n1,2,2\n", "it has rows of 3 seeds, but the run"),
        ("iteration,seed,qd_score\niteration,seed,qd_score\n1,0,2\n", "a column 'iteration' of"),
        ("step,seed,qd_score\n1,0,2\n", "a column 'iteration' of numbers"),
    ],
)
def test_rows_that_cannot_be_placed_are_refused(tmp_path, text, message):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(elites.runs.directory.RunError, match=message):
        logs.read_metrics(tmp_path / "metrics.csv", 2)
