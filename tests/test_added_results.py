"""Tables that `benchmarks/results.py --add` records: source, configuration, and refusals."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

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
REEVALUATED = "iteration,seed,evaluations,qd_score,descriptor_error\n9,0,320,9,0\n9,1,320,19,0\n"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script, with a folder of its own for tables."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results

    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "plan.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 2\nevaluations = 320\n'
    )
    monkeypatch.setattr(results, "FOLDER", folder)
    return results


@pytest.fixture
def results(script, monkeypatch):
    """The script with its folder, without writing the pages."""
    monkeypatch.setattr(script, "write_pages", lambda check: 0)
    return script


@pytest.fixture
def pages(script, run, tmp_path, monkeypatch):
    """The script with one recorded run, and one page with the table of files."""
    (run / directories.REEVALUATIONS).write_text(REEVALUATED)
    script.adding.record(script.FOLDER, [[run]])
    page = tmp_path / "page.md"
    page.write_text("<!-- begin files --><!-- end files -->\n")
    sections = script.results_sections
    found = SimpleNamespace(recordings=Folder(script.FOLDER).read([]))
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(sections, "FOLDER", script.FOLDER)
    monkeypatch.setattr(sections, "page", lambda data: {page: {"files": sections.files(data)}})
    monkeypatch.setattr(script.results_data, "read", lambda: found)
    monkeypatch.setattr(script.results_figures, "draw", lambda data: [])
    return script


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


def evaluate(run: RunDirectory, iteration: int = 9) -> Path:
    """Write the tables of `elites evaluate --checkpoint`, and return their folder."""
    folder = run.path / f"evaluation_{iteration:09d}"
    folder.mkdir()
    rows = [f"{seed},{iteration},1,1,0.0" for seed in run.config().seed_numbers]
    header = "seed,iteration,qd_score,reevaluated_qd_score,descriptor_error"
    (folder / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the contents of all files in a folder, keyed by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(results, monkeypatch, capsys, *arguments: object) -> str:
    """Return the one line with which the script refuses its arguments. It records nothing."""
    before = contents(results.FOLDER)
    code, said = call(results, monkeypatch, capsys, *arguments)
    assert code == 2
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    assert contents(results.FOLDER) == before
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
        config["callback"] = ["/secret/mine.py:watch"]
        config["hp"]["centroids_file"] = "/secret/cells.csv"

    edit_json(run / directories.CONFIG, of_this_machine)
    assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")
    (path,) = results.FOLDER.glob("point_omni/*.config.json")
    assert path.name == "me.centroids_file_cells.csv.seeds_0-1.config.json"
    kept = json.loads(path.read_text())
    Config.from_json(kept, "kept")  # a name of a callback without its folder is refused
    assert "callback" not in kept
    assert kept["hp"]["centroids_file"] == "cells.csv"
    whole = json.loads((run / directories.CONFIG).read_text())
    assert {k for k in whole if kept.get(k) != whole[k]} == {"callback", "hp"}
    (path,) = results.FOLDER.glob("point_omni/*.environment.json")
    (session,) = json.loads(path.read_text())
    assert session == {
        name: SESSION[name] for name in ("elites", "commit", "source", "python", "jax", "device")
    }
    text = "".join(p.read_text() for p in results.FOLDER.rglob("*.*"))
    assert "secret" not in text


def test_a_configuration_that_is_kept_can_be_read(results, run):
    table = results.adding.record(results.FOLDER, [[run]])[0]
    path = table.with_name("me.seeds_0-1.config.json")
    assert Config.from_json(json.loads(path.read_text()), str(path)) == run.config()


def test_all_sources_of_a_run_are_kept_once(results, run):
    later = [SESSION, {**SESSION, "time": "later"}, {**SESSION, "source": "f" * 16}]
    directories.write_json(run / directories.ENVIRONMENT, later)
    table = results.adding.record(results.FOLDER, [[run]])[0]
    path = table.with_name("me.seeds_0-1.environment.json")
    assert [entry["source"] for entry in json.loads(path.read_text())] == [
        SESSION["source"], "f" * 16
    ]  # fmt: skip


def test_runs_that_differ_in_their_seeds_are_one_table(results, parts, monkeypatch, capsys):
    for run in parts:
        (run / directories.REEVALUATIONS).write_text(
            "iteration,seed,evaluations,qd_score,descriptor_error\n"
            f"9,{run.config().first_seed},320,1,0\n"
        )
        evaluate(run)
    paths = [run.path for run in reversed(parts)]
    assert call(results, monkeypatch, capsys, "--add", *paths, "--new-process") == (0, "")
    tables = sorted(path.name for path in results.FOLDER.glob("point_omni/*.csv"))
    kinds = ("csv", "new_process.csv", "reevaluations.csv")
    assert tables == [f"me.seeds_{seeds}.{kind}" for seeds in ("0-1", "3-3") for kind in kinds]
    recording, other = Folder(results.FOLDER).read([])
    assert (recording.seeds, other.seeds) == ([0, 1], [3])
    assert recording.metrics["qd_score"][:, 1].tolist() == [10.0 + i for i in range(1, 10)]
    again = recording.table("reevaluations").read_text().split()
    assert again[1:] == ["9,0,320,1,0", "9,1,320,1,0"]
    evaluated = recording.table("new_process").read_text().split()
    assert evaluated[1:] == ["0,9,1,1,0.0", "1,9,1,1,0.0"]
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


# ----------------------------------------------------------------------------- what is not recorded


def test_tables_of_training_do_not_show_that_a_new_process_evaluated(
    results, run, monkeypatch, capsys
):
    """Training writes evaluation/ at its end. Only `elites evaluate` names an iteration."""
    assert (run.evaluation / "metrics.csv").exists()
    said = refusal(results, monkeypatch, capsys, "--add", run.path, "--new-process")
    assert f"{run.path}: no process evaluated it after training" in said
    assert f"Run: elites evaluate {run.path} --checkpoint 9" in said
    folder = evaluate(run)
    damaged = (folder / "metrics.csv").read_text().replace(",9,", ",8,")
    (folder / "metrics.csv").write_text(damaged)
    said = refusal(results, monkeypatch, capsys, "--add", run.path, "--new-process")
    assert "its rows are not of iteration 9" in said
    shutil.rmtree(folder)
    evaluate(run)
    edit_json(run / directories.FACTS, lambda facts: facts.update(kept_cells=[1]))
    said = refusal(results, monkeypatch, capsys, "--add", run.path, "--new-process")
    assert "it has kept only some of its elites" in said
    edit_json(run / directories.FACTS, lambda facts: facts.pop("kept_cells"))
    assert call(results, monkeypatch, capsys, "--add", run.path, "--new-process") == (0, "")
    (recording,) = Folder(results.FOLDER).read([])
    assert recording.new_process["iteration"].tolist() == [[9.0, 9.0]]


def test_runs_of_one_table_were_evaluated_at_the_same_iteration(
    results, parts, monkeypatch, capsys
):
    evaluate(parts[0], 9)
    evaluate(parts[1], 8)
    paths = [run.path for run in parts[:2]]
    said = refusal(results, monkeypatch, capsys, "--add", *paths, "--new-process")
    assert f"{parts[1].path}: evaluated at iteration 8, and {parts[0].path} at 9" in said


def test_two_runs_of_the_same_name_are_refused(results, run, tmp_path, monkeypatch, capsys):
    other = tmp_path / "other"
    shutil.copytree(run.path, other)
    edit_json(other / directories.CONFIG, lambda config: config.update(checkpoint_every=7))
    said = refusal(results, monkeypatch, capsys, "--add", run.path, other)
    assert "it would be recorded as point_omni/me.seeds_0-1.csv, and so would" in said
    assert "They differ in checkpoint_every" in said
    edit_json(other / directories.CONFIG, lambda config: config.update(evaluations=321_400))
    edit_json(run / directories.CONFIG, lambda config: config.update(evaluations=321_300))
    said = refusal(results, monkeypatch, capsys, "--add", run.path, other)
    assert "point_omni/me.seeds_0-1.321k.csv" in said


def test_recorded_results_are_not_replaced(results, run, monkeypatch, capsys):
    assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")
    before = contents(results.FOLDER)
    assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")  # the same run again
    assert contents(results.FOLDER) == before
    table = results.FOLDER / "point_omni" / "me.seeds_0-1.csv"
    own = table.with_name("me.seeds_0-1.distilled.csv")
    own.write_text("iteration,seed\n")  # a companion of the same run is kept
    evaluate(run)
    assert call(results, monkeypatch, capsys, "--add", run.path, "--new-process") == (0, "")
    edit_json(run / directories.CONFIG, lambda config: config.update(checkpoint_every=7))
    metrics = run / directories.METRICS
    metrics.write_text(metrics.read_text().replace("19.0", "18.0"))
    said = refusal(results, monkeypatch, capsys, "--add", run.path)
    assert f"{run.path}: it would replace other results. Delete them first" in said
    assert f"{table} and {table.with_name('me.seeds_0-1.config.json')}" in said
    table.unlink()
    table.with_name("me.seeds_0-1.config.json").unlink()
    said = refusal(results, monkeypatch, capsys, "--add", run.path)  # of the run before
    assert f"{table.with_name('me.seeds_0-1.new_process.csv')} and {own}" in said


def test_runs_that_start_from_an_archive_are_refused(results, run, monkeypatch, capsys):
    edit_json(run / directories.CONFIG, lambda config: config.update(start_from="/before"))
    said = refusal(results, monkeypatch, capsys, "--add", run.path)
    assert f"{run.path}: it started from the archive /before" in said


def test_nothing_is_added_or_thinned_while_the_pages_are_checked(
    results, run, tmp_path, monkeypatch, capsys
):
    table = tmp_path / "table.csv"
    table.write_text("iteration\n" + "".join(f"{i}\n" for i in range(1, 500)))
    before = table.read_bytes()
    for more in (("--add", run.path), ("--thin", table)):
        said = refusal(results, monkeypatch, capsys, "--check", *more)
        assert "--check writes nothing. Give it without --add and --thin" in said
    assert table.read_bytes() == before


def test_cells_are_of_the_seed_with_the_best_qd_score(results, run):
    """Seed 1 has the higher QD-score, and the lower sum of fitness: it fills more cells."""
    (run.evaluation / "cells.csv").write_text(
        "seed,iteration,cell,fitness,descriptor_0,descriptor_1\n"
        "0,9,1,-2,0,0\n1,9,1,-3,0,0\n1,9,5,-3,0,0\n"
    )
    table = results.adding.record(results.FOLDER, [[run]])[0]
    rows = results.adding.rows_of(table.with_name("me.seeds_0-1.cells.csv"))
    assert [(row["seed"], row["cell"]) for row in rows] == [("1", "1"), ("1", "5")]


def test_a_stopped_run_has_the_cells_of_the_new_process(results, run, monkeypatch, capsys):
    text = "seed,iteration,cell,fitness\n1,9,5,3\n"
    (evaluate(run) / "cells.csv").write_text(text)
    assert call(results, monkeypatch, capsys, "--add", run.path, "--new-process") == (0, "")
    assert (results.FOLDER / "point_omni" / "me.seeds_0-1.cells.csv").read_text() == text


def test_runs_that_could_not_be_read_back_are_refused(results, run, monkeypatch, capsys):
    def said() -> str:
        return refusal(results, monkeypatch, capsys, "--add", run.path)

    config = run / directories.CONFIG
    edit_json(config, lambda values: values.update(seed_list=[0, 5]))
    assert f"{run.path}: its seeds are 0, 5, and a table has consecutive seeds" in said()
    edit_json(config, lambda values: values.update(seed_list=[0, 1]))
    assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")
    shutil.rmtree(results.FOLDER / "point_omni")
    metrics = run / directories.METRICS
    text = metrics.read_text()
    metrics.write_text(text.replace("\n1,0,", "\n0,0,"))
    assert f"{metrics}: damaged: 'iteration' is 0" in said()
    metrics.write_text(text.replace(",1,", ",3,"))
    assert f"{run.path}: its tables cannot be recorded: point_omni/me.seeds_0-1.csv" in said()
    metrics.write_text(text)
    edit_json(config, lambda values: values.update(task="arm_reach"))
    assert "its task 'arm_reach' is not in" in said()
    edit_json(config, lambda values: values.update(task="point_omni"))
    again = run / directories.REEVALUATIONS
    for damaged, what in (
        ("garbage\n1\n", "has no column 'iteration'"),
        (REEVALUATED.replace("320", "many"), "a column 'evaluations' of numbers has 'many'"),
        (REEVALUATED.replace("qd_score", "score"), "it needs a column 'qd_score' of numbers"),
        (REEVALUATED.replace("9,1,", "9,7,"), "no iteration has all seeds of its name"),
    ):
        again.write_text(damaged)
        assert what in said()
    again.unlink()
    cells = run.evaluation / "cells.csv"
    cells.write_text("cell,fitness\n1,2\n")
    assert f"{cells}: not a table of this kind, it has no column 'seed'" in said()
    cells.write_text("seed,cell,fitness\n7,1,2\n")
    assert "me.seeds_0-1.cells.csv: damaged: seed 7 is not in its name" in said()


def test_one_damaged_run_keeps_the_others_from_being_added(results, parts, monkeypatch, capsys):
    (parts[2] / directories.REEVALUATIONS).write_text("iteration,seed\n9,3\n")
    said = refusal(results, monkeypatch, capsys, "--add", *(run.path for run in parts))
    assert f"{parts[2].path}: its tables cannot be recorded: point_omni/me.seeds_3-3" in said


def test_names_of_tables_have_the_sign_of_a_setting(results, run, monkeypatch, capsys):
    import results_runs

    for offset in (-5.0, 5.0, -1e-05):
        edit_json(run / directories.CONFIG, lambda c, x=offset: c["hp"].update(qd_offset=x))
        assert call(results, monkeypatch, capsys, "--add", run.path) == (0, "")
    found = Folder(results.FOLDER).read([])
    assert {recording.label: recording.path.name for recording in found} == {
        f"me, qd offset {text}": f"me.qd_offset_{text}.seeds_0-1.csv"
        for text in ("-5.0", "5.0", "-1e-05")
    }
    assert results_runs.setting_text((1.0, -2)) == "1.0--2"
    long = f"/{'x' * 200}.csv"
    edit_json(run / directories.CONFIG, lambda config: config["hp"].update(centroids_file=long))
    said = refusal(results, monkeypatch, capsys, "--add", run.path)
    assert f"{run.path}: it differs from the plan in 2 hyperparameters, which are too many" in said


# ------------------------------------------------------------------------------------ damaged files


@pytest.mark.parametrize(
    ("end", "text", "what"),
    [
        ("reevaluations.csv", "garbage", "it needs a column 'iteration' of numbers"),
        ("reevaluations.csv", "iteration,seed\n9,0\n9,1\n", "needs a column 'evaluations'"),
        ("new_process.csv", "iteration,seed\n9,0\n9,1\n", "a column 'reevaluated_qd_score'"),
        ("cells.csv", "garbage\n1\n", "it needs a column 'seed' of numbers"),
        ("config.json", "[]", "not a configuration"),
        ("environment.json", "garbage", "damaged: not valid JSON"),
        ("environment.json", "[]", "damaged: not a list of sessions. Restore the file"),
        ("environment.json", "[1]", "last session: damaged: not a table of named fields"),
        ("environment.json", '[{"source": 1}]', "'source' is 1, not text or null"),
    ],
)
def test_a_damaged_file_is_one_line(pages, end, text, what, monkeypatch, capsys):
    path = pages.FOLDER / "point_omni" / f"me.seeds_0-1.{end}"
    path.write_text(text)
    for arguments in ((), ("--check",)):
        said = refusal(pages, monkeypatch, capsys, *arguments)
        assert str(path) in said
        assert what in said


def test_a_page_without_a_place_is_one_line(pages, tmp_path, monkeypatch, capsys):
    assert call(pages, monkeypatch, capsys) == (0, "")
    page = tmp_path / "page.md"
    assert "me.seeds_0-1.csv" in page.read_text()
    for text, what in ((b"none", "has no place '<!-- begin files -->'"), (b"\xff", "not UTF-8")):
        page.write_bytes(text)
        said = refusal(pages, monkeypatch, capsys)
        assert f"{page}: " in said
        assert what in said
    page.unlink()
    assert f"{page}: No such file" in refusal(pages, monkeypatch, capsys)


def test_an_unreadable_image_is_stale(script, tmp_path):
    digest = script.results_figures._recorded_digest
    path = tmp_path / "image.png"
    assert digest(path) is None
    text = PngInfo()
    text.add_text("Description", "0123")
    Image.effect_noise((64, 64), 50).save(path, pnginfo=text)
    assert digest(path) == "0123"
    path.write_bytes(path.read_bytes()[:1000])
    assert digest(path) is None
    path.write_bytes(b"garbage")
    assert digest(path) is None
