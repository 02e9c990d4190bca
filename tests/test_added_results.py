"""Tables that `benchmarks/results.py --add` records: source, configuration, and refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.study.plan import Plan
from elites.study.recorded import Folder
from elites.study.study import Item
from program import edit_json
from written import study

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SESSION = {
    "command": "/secret/elites", "time": "now", "elites": "1", "commit": None,
    "source": "0123456789abcdef", "python": "3", "jax": "1.2", "device": "GPU", "backend": "gpu",
}  # fmt: skip
OF_UNKNOWN_SOURCE = {
    "ant_omni/cma_mega_es.seeds_800-803", "ant_omni/cma_mega_td3.seeds_800-803",
    "ant_omni/me.seeds_800-807", "ant_omni/me_es.seeds_800-807", "ant_omni/pbt_me.seeds_800-803",
    "ant_omni/pga_me.seeds_800-803", "ant_omni/qd_pg.seeds_800-803",
    "hexapod_omni/dcg_me.seeds_800-803.1M",
}  # fmt: skip
"""Tables that were recorded before runs had a digest of their source. No new ones may be added."""


@pytest.fixture
def results(monkeypatch, tmp_path):
    """The script, with a folder of its own for tables, and without writing the pages."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results

    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "plan.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 2\nevaluations = 320\n'
    )
    monkeypatch.setattr(results, "FOLDER", folder)
    monkeypatch.setattr(results, "write_pages", lambda check: 0)
    return results


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    """A finished run of one session, whose source has a digest and no commit."""
    item = Item("point_omni", "me", 0, 2)
    plan = Plan(("point_omni",), ("me",), seeds=2, evaluations=320)
    made = study(tmp_path / "study", plan, lambda item, seed, i: 10.0 * seed + i, [item])
    directories.write_json(made.run(item) / directories.ENVIRONMENT, [SESSION])
    return made.run(item)


@pytest.fixture
def parts(tmp_path) -> list[RunDirectory]:
    """Finished runs of one seed each, with the seeds 0, 1 and 3."""
    items = [Item("point_omni", "me", seed, 1) for seed in (0, 1, 3)]
    plan = Plan(("point_omni",), ("me",), seeds=4, evaluations=320)
    made = study(tmp_path / "parts", plan, lambda item, seed, i: 10.0 * seed + i, items)
    for item in items:
        directories.write_json(made.run(item) / directories.ENVIRONMENT, [SESSION])
    return [made.run(item) for item in items]


def call(results, monkeypatch, capsys, *arguments: object) -> tuple[int, str]:
    """Run the script, and return its exit code and what it complains about."""
    monkeypatch.setattr(sys, "argv", ["results.py", *map(str, arguments)])
    return results.main(), capsys.readouterr().err


def refusal(results, monkeypatch, capsys, *arguments: object) -> str:
    """Return the one line with which the script refuses its arguments. It records nothing."""
    before = sorted(results.FOLDER.rglob("*"))
    code, said = call(results, monkeypatch, capsys, *arguments)
    assert code == 2
    assert said.count("\n") == 1, said
    assert sorted(results.FOLDER.rglob("*")) == before
    return said


def test_every_recorded_run_names_its_source():
    unknown = set()
    for path in RESULTS.glob("*/*.environment.json"):
        for session in json.loads(path.read_text()):
            if not (session.get("commit") or session.get("source")):
                unknown.add(str(path.relative_to(RESULTS)).removesuffix(".environment.json"))
    assert unknown == OF_UNKNOWN_SOURCE


def test_a_run_is_added_with_its_source_and_configuration(results, run, monkeypatch, capsys):
    def of_this_machine(config: dict) -> None:
        config["start_from"] = "/secret/runs/before"
        config["callback"] = ["/secret/mine.py:watch"]
        config["hp"]["centroids_file"] = "/secret/cells.csv"

    edit_json(run / directories.CONFIG, of_this_machine)
    assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")
    (path,) = results.FOLDER.glob("point_omni/*.config.json")
    assert path.name == "me.centroids_file_cells.csv.seeds_0-1.config.json"
    kept = json.loads(path.read_text())
    assert kept["start_from"] == "before"
    assert kept["callback"] == ["mine.py:watch"]
    assert kept["hp"]["centroids_file"] == "cells.csv"
    whole = json.loads((run / directories.CONFIG).read_text())
    assert {k for k in whole if kept[k] != whole[k]} == {"start_from", "callback", "hp"}
    (path,) = results.FOLDER.glob("point_omni/*.environment.json")
    (session,) = json.loads(path.read_text())
    assert session == {
        name: SESSION[name] for name in ("elites", "commit", "source", "python", "jax", "device")
    }
    text = "".join(p.read_text() for p in results.FOLDER.rglob("*.*"))
    assert "secret" not in text


def test_a_configuration_that_is_kept_can_be_read(results, run):
    table = results.adding.add(results.FOLDER, [run])
    path = table.with_name("me.seeds_0-1.config.json")
    assert Config.from_json(json.loads(path.read_text()), str(path)) == run.config()


def test_all_sources_of_a_run_are_kept_once(results, run):
    later = [SESSION, {**SESSION, "time": "later"}, {**SESSION, "source": "f" * 16}]
    directories.write_json(run / directories.ENVIRONMENT, later)
    path = results.adding.add(results.FOLDER, [run]).with_name("me.seeds_0-1.environment.json")
    assert [entry["source"] for entry in json.loads(path.read_text())] == [
        SESSION["source"], "f" * 16
    ]  # fmt: skip


def test_runs_that_differ_in_their_seeds_are_one_table(results, parts, monkeypatch, capsys):
    for run in parts:
        (run / directories.REEVALUATIONS).write_text(
            f"iteration,seed,evaluations\n9,{run.config().first_seed},320\n"
        )
    paths = [run.path for run in reversed(parts)]
    assert call(results, monkeypatch, capsys, "--add", *paths, "--new-process") == (0, "")
    tables = sorted(path.name for path in results.FOLDER.glob("point_omni/*.csv"))
    kinds = ("csv", "new_process.csv", "reevaluations.csv")
    assert tables == [f"me.seeds_{seeds}.{kind}" for seeds in ("0-1", "3-3") for kind in kinds]
    recording, other = Folder(results.FOLDER).read([])
    assert (recording.seeds, other.seeds) == ([0, 1], [3])
    assert recording.metrics["qd_score"][:, 1].tolist() == [10.0 + i for i in range(1, 10)]
    again = recording.table("reevaluations").read_text().split()
    assert again == ["iteration,seed,evaluations", "9,0,320", "9,1,320"]
    evaluated = recording.table("new_process").read_text().split()
    assert [line.split(",")[:3] for line in evaluated[1:]] == [
        ["0", "9", "9.0"],
        ["1", "9", "19.0"],
    ]
    kept = json.loads(recording.path.with_suffix(".config.json").read_text())
    assert (kept["first_seed"], kept["seeds"]) == (0, 2)


def test_runs_that_do_not_fit_together_are_refused(results, parts, run, monkeypatch, capsys):
    first, second, _ = parts
    said = refusal(results, monkeypatch, capsys, "--add", first.path, run.path)
    assert "has seed 0, and so has" in said
    table = second / directories.METRICS
    table.write_text("\n".join(table.read_text().split()[:-1]) + "\n")
    said = refusal(results, monkeypatch, capsys, "--add", first.path, second.path)
    assert f"{first.path}: ended at iteration 9, and the runs with the seeds after it at 8" in said
    (second.evaluation / "metrics.csv").unlink()
    said = refusal(results, monkeypatch, capsys, "--add", second.path, "--new-process")
    assert f"{second.path}: was not evaluated. Run: elites evaluate" in said


@pytest.mark.parametrize("sessions", [[], [{**SESSION, "source": None}, SESSION]])
def test_a_run_of_an_unknown_source_is_refused(results, run, sessions, monkeypatch, capsys):
    directories.write_json(run / directories.ENVIRONMENT, sessions)
    said = refusal(results, monkeypatch, capsys, "--add", run.path)
    assert f"{run.path}: environment.json has neither a commit nor a source" in said
    assert "--unknown-source" in said
    assert call(results, monkeypatch, capsys, "--add", run.path, "--unknown-source")[0] == 0
    assert list(results.FOLDER.glob("point_omni/me.seeds_0-1.csv"))


def test_paths_that_are_no_runs_are_refused(results, run, tmp_path, monkeypatch, capsys):
    said = refusal(results, monkeypatch, capsys, "--add", run.path, tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'}: no such directory" in said
    assert "not a run, it has no config.json" in refusal(
        results, monkeypatch, capsys, "--add", tmp_path
    )
    own = "/secret/mine.py:task"
    edit_json(run / directories.CONFIG, lambda config: config.update(task=own))
    assert f"'{own}' is not a task or an algorithm of elites" in refusal(
        results, monkeypatch, capsys, "--add", run.path
    )
    edit_json(run / directories.CONFIG, lambda config: config.update(task="point_omni"))
    (run / directories.METRICS).write_text("iteration,seed\n")
    assert "metrics.csv: it has no rows" in refusal(results, monkeypatch, capsys, "--add", run.path)


def test_files_that_are_no_tables_are_not_thinned(results, run, tmp_path, monkeypatch, capsys):
    plan, table = results.FOLDER / "plan.toml", tmp_path / "table.csv"
    long = "".join(f"{i}\n" for i in range(1, 500))
    table.write_text(f"iteration\n{long}")
    said = refusal(results, monkeypatch, capsys, "--thin", table, plan)
    assert f"{plan}: not a table of metrics, its name does not end in .csv" in said
    assert table.read_text() == f"iteration\n{long}"  # all are read before one is written
    assert "No such file" in refusal(
        results, monkeypatch, capsys, "--thin", tmp_path / "nowhere.csv"
    )
    for text, what in (
        ("", "it has no rows"),
        ("a,b\n1,2\n", "no column 'iteration'"),
        ("iteration\nfirst\n", "the iteration 'first' is not a whole number"),
    ):
        (tmp_path / "other.csv").write_text(text)
        assert what in refusal(results, monkeypatch, capsys, "--thin", tmp_path / "other.csv")
    assert call(results, monkeypatch, capsys, "--thin", table) == (0, "")
    assert table.read_text().split()[1:4] == ["1", "10", "20"]
