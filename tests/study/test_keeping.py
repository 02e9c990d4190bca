"""Studies that keep a model of each run: what is kept, and what a kill in between leaves behind."""

import contextlib
import io
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from clocks import TrainingClock, newest_checkpoints
from elites.runs import directory as directories
from elites.runs import evaluation, reducing, rounding, session, sharing
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import keeping, scheduler
from elites.study import study as studies
from elites.study.engines import LocalEngine
from elites.study.packing import Packing
from elites.study.plan import Plan
from elites.study.study import Study
from elites.study.table import Live
from program import command, complaint, contents, edit_json, elites, environment, rows, succeed

PLAN = """
tasks = ["point_omni"]
algorithms = ["me", "pga_me"]
seeds = 2
preset = "smoke"
keep_elites = 5
"""
ME, PGA = "point_omni-me-seeds-0-1", "point_omni-pga_me-seeds-0-1"
STARTS = "a worker starts at"


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "keep.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def study(plan, tmp_path_factory) -> Study:
    path = tmp_path_factory.mktemp("studies") / "kept"
    done = succeed("study", plan, "--output", path, apart=True)
    assert "2 models kept in " in done.stdout
    assert "failed" not in done.stderr
    return Study(path)


@pytest.fixture
def copy(study, tmp_path) -> Study:
    return Study(Path(shutil.copytree(study.path, tmp_path / "kept", symlinks=True)))


def unpacked(model: Path, folder: Path) -> RunDirectory:
    sharing.unpack(model, folder)
    return directories.existing(folder)


def starts(study: Study, name: str) -> int:
    """How often a worker was started for a run."""
    return (study.logs / f"{name}.log").read_text().count(STARTS)


def test_each_run_has_a_model_of_its_best_seed(study, tmp_path):
    assert [path.name for path in study.models()] == [f"{ME}.zip", f"{PGA}.zip"]
    for item in study.items():
        run = study.run(item)
        model = unpacked(study.model(item), tmp_path / item.name)
        kept = directories.kept_cells(model)
        assert kept is not None
        assert 1 <= len(kept) <= 5
        assert directories.has_half_precision(model)
        scores = evaluation.read_metrics(run.evaluation)
        best = int(scores["seed"][scores["qd_score"].argmax()])
        assert list(model.config().seed_numbers) == [best]
        assert rows(model / "metrics.csv") == [
            row for row in rows(run / "metrics.csv") if row["seed"] == str(best)
        ]
        # It is what `elites pack` writes, byte by byte.
        again = tmp_path / f"{item.name}.zip"
        succeed("pack", run.path, "--elites", 5, "--half-precision", "--output", again)
        assert again.read_bytes() == study.model(item).read_bytes()


def test_a_model_is_used_like_any_other(study, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = study.kept / f"{PGA}.zip"
    assert "in half precision" in succeed("info", "--pretrained", model).stdout
    said = succeed("evaluate", "--pretrained", model).stdout.splitlines()
    assert [line.split()[-1] for line in said if "descriptor error" in line] == ["0"]


def test_another_process_evaluates_the_archives_of_all_seeds(study):
    for item in study.items():
        assert starts(study, item.name) == 2
        run = study.run(item)
        (folder,) = run.path.glob("evaluation_*")
        found, own = (rows(place / "metrics.csv") for place in (folder, run.evaluation))
        assert [row["descriptor_error"] for row in found] == ["0.0", "0.0"]
        assert found == own
        assert evaluation.error_in_new_process(run) == 0
        assert "descriptor error of the archives in a new process: 0" in (
            study.logs / f"{item.name}.log"
        ).read_text("utf-8")


def test_an_error_in_a_new_process_is_the_largest_of_all_seeds(copy):
    run = copy.run(copy.items()[0])
    (folder,) = run.path.glob("evaluation_*")
    table = folder / "metrics.csv"
    header, *lines = table.read_text().splitlines()
    place = header.split(",").index("descriptor_error")
    cells = [line.split(",") for line in lines]
    for error, row in zip(("0.25", "0.5"), cells, strict=True):
        row[place] = error
    table.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n")
    assert evaluation.error_in_new_process(run) == 0.5
    succeed("report", copy.path)
    assert "<td>0.5</td>" in models_of(copy)
    cells[0][place] = "nan"  # an archive without elites
    table.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n")
    assert evaluation.error_in_new_process(run) == 0.5
    cells[1][place] = "nan"
    table.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n")
    assert evaluation.error_in_new_process(run) is None
    table.write_text("seed,iteration\n")
    succeed("report", copy.path)
    assert f"{ME}: " in (copy.report / "report.html").read_text("utf-8")
    shutil.rmtree(folder)
    assert evaluation.error_in_new_process(run) is None
    assert evaluation.error_in_new_process(RunDirectory(copy.path / "runs" / "none")) is None


def models_of(study: Study) -> str:
    """The section on models of a study's report, or "" if it has none."""
    page = (study.report / "report.html").read_text("utf-8")
    return page.partition("<h2>Models</h2>")[2].partition("</section>")[0]


def test_the_report_lists_the_models(copy, plan):
    succeed("report", copy.path)
    assert all(f">{name}.zip</" in models_of(copy) for name in (ME, PGA))
    assert models_of(copy).count("<td>0</td>") == 2
    shutil.rmtree(copy.kept)
    succeed("report", copy.path)
    assert models_of(copy) == ""
    page = (copy.report / "report.html").read_text("utf-8")
    assert "This study is unfinished" not in page  # all runs are trained, which is what it shows


def test_a_finished_study_keeps_nothing_twice(copy, plan):
    study = copy
    (study.kept / "of_mine.zip").write_bytes(b"not a model of its runs")
    before = contents(study.path)
    assert "2 models kept" in succeed("study", plan, "--output", study.path, apart=True).stdout
    assert contents(study.path) == before


def test_a_model_that_is_missing_is_written_again(copy, plan):
    before = contents(copy.path)
    (copy.kept / f"{ME}.zip").unlink()
    said = succeed("study", plan, "--output", copy.path, apart=True).stderr
    assert f"{ME}: running" in said
    assert (starts(copy, ME), starts(copy, PGA)) == (3, 2)
    after = contents(copy.path)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {f"logs/{ME}.log"}
    assert set(before) == set(after)


def test_a_kill_while_a_model_is_written_loses_nothing(copy, plan):
    models = {path.name: path.read_bytes() for path in copy.models()}
    shutil.rmtree(copy.kept)
    process = subprocess.Popen(
        command("study", plan, "--output", copy.path, "--jobs", 1),
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not list(copy.kept.glob(".packing-*")):
        assert process.poll() is None
        time.sleep(0.002)
    for worker in _workers(copy):
        os.kill(worker, signal.SIGKILL)
    process.kill()
    process.wait()
    while _workers(copy):
        time.sleep(0.05)
    assert len(copy.models()) < 2
    assert list(copy.kept.glob(".packing-*"))
    succeed("report", copy.path)
    succeed("study", plan, "--output", copy.path, apart=True)
    assert {path.name: path.read_bytes() for path in copy.kept.iterdir()} == models


def _workers(study: Study) -> list[int]:
    """The ids of the workers of a study that are running."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"elites.study.worker" in words and str(study.path).encode() in words:
                found.append(int(path.parent.name))
    return found


def test_a_signal_while_a_model_is_written_leaves_no_half_of_it(copy, plan):
    shutil.rmtree(copy.kept)
    process = subprocess.Popen(
        command("study", plan, "--output", copy.path, "--jobs", 1),
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not list(copy.kept.glob(".packing-*")):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "everything is saved" in out
    assert "failed" not in err
    # The one whose worker got the signal is not written, and no other has begun.
    assert [path.name for path in copy.kept.iterdir()] in ([], [f"{ME}.zip"])


def test_a_run_that_writes_its_model_is_shown_as_running(copy):
    (copy.kept / f"{ME}.zip").unlink()
    rows = Live(copy, io.StringIO()).rows(copy.items(), {ME: "keep"})
    assert rows == [[ME, "running", "writing its model"], [PGA, "done", ""]]


def test_networks_that_rounding_would_spoil_keep_their_precision(copy, monkeypatch, capsys):
    item = copy.items()[0]
    copy.model(item).unlink()
    monkeypatch.setattr(rounding, "LOSS", float("-inf"))
    model = copy.kept / "new.zip"
    assert len(keeping._pack(copy.run(item), model, 5).cells) == 5
    assert "the model has single precision" in capsys.readouterr().out
    model = unpacked(model, copy.path / "model")
    assert not directories.has_half_precision(model)


@pytest.mark.parametrize(
    ("task", "preset"),
    [("noisy_point_omni", "smoke"), ("vectors:sphere,dimensions=4", "vectors")],
)
def test_only_networks_of_deterministic_tasks_are_rounded(tmp_path, task, preset):
    plan = Plan((task,), ("me",), seeds=1, preset=preset, evaluations=2000, keep_elites=3)
    study = studies.open_study(tmp_path, plan)
    (item,) = study.items()
    session.start(study.run(item).path, study.config(item))
    study.kept.mkdir()
    excerpt = keeping._pack(study.run(item), study.model(item), study.keeps_elites)
    assert len(excerpt.cells) == 3
    assert excerpt.rounded is None
    assert excerpt.cells == sorted(
        reducing.spread(
            excerpt.weights["archive.fitness"][0], excerpt.weights["archive.descriptors"][0], 3
        )
    )


def test_a_run_that_is_computed_again_replaces_its_model(copy, plan):
    old = copy.run(copy.items()[0])
    shutil.rmtree(old.path)
    (copy.kept / f"{ME}.zip").write_bytes(b"of the run that was deleted")
    succeed("study", plan, "--output", copy.path, apart=True)
    assert [item.attempts for item in copy.items()] == [0, 0]
    assert zipfile.is_zipfile(copy.kept / f"{ME}.zip")
    assert evaluation.error_in_new_process(old) == 0


def test_what_a_killed_process_left_is_removed_and_counts_as_no_model(copy, plan):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = f"{platform.node()}-{gone.pid}"
    left = copy.kept / f".{ME}.writing-{owner}.zip"
    for path in (left, copy.kept / f".{ME}.zip"):
        path.write_bytes(b"half")
    last = copy.kept / f".packing-{owner}-x1" / "checkpoints" / "last"
    last.parent.mkdir(parents=True)
    last.symlink_to("000000009")
    assert len(copy.models()) == 2
    succeed("report", copy.path)  # this link is our own
    (copy.kept / f"{ME}.zip").unlink()
    succeed("study", plan, "--output", copy.path, apart=True)
    assert sorted(path.name for path in copy.kept.iterdir()) == [f"{ME}.zip", f"{PGA}.zip"]


def test_a_finished_study_gets_models_by_a_plan_that_asks_for_them(copy, plan, tmp_path):
    """As one that was begun before plans had the field."""
    models = {path.name: path.read_bytes() for path in copy.models()}
    shutil.rmtree(copy.kept)
    edit_json(copy.path / "plan.json", lambda saved: saved.pop("keep_elites"))
    without = tmp_path / "without.toml"
    without.write_text(PLAN.replace("keep_elites = 5\n", ""))
    nothing = succeed("study", without, "--output", copy.path, "--dry-run").stdout
    assert "nothing left to compute" in nothing
    missing = succeed("study", plan, "--output", copy.path, "--dry-run").stdout
    assert missing.count("no iteration left") == 2
    assert "2 runs on " in missing
    assert "about 0.00 hours" in missing
    assert "--measure" not in missing
    assert not copy.kept.exists()
    succeed("study", plan, "--output", copy.path, apart=True)
    assert {path.name: path.read_bytes() for path in copy.models()} == models
    assert Study(copy.path).keeps_elites == 5
    before = contents(copy.path / "runs")
    succeed("study", without, "--output", copy.path, apart=True)
    assert Study(copy.path).keeps_elites == 0
    assert contents(copy.path / "runs") == before
    assert {path.name: path.read_bytes() for path in copy.models()} == models


def test_models_of_unfinished_runs_are_kept_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    endless = Plan(
        ("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke", evaluations=10**9,
        checkpoint_every=3, keep_elites=4,
    )  # fmt: skip
    (tmp_path / "endless").mkdir()
    study = studies.open_study(tmp_path / "endless", endless)
    earlier: list[int] = []
    for _ in range(2):  # the second session continues
        monkeypatch.setattr(scheduler, "time", TrainingClock(study))
        engine = LocalEngine(Packing(2), environment=environment())
        live = Live(study, io.StringIO())
        result = scheduler.run_unfinished(study, engine, live, stop_after=60.0)
        assert (result.done, result.failed, result.stopped) == (0, [], True)
        reached = newest_checkpoints(study)
        assert sorted(path.name for path in study.kept.iterdir()) == [
            f"{name}.iteration-{n}.zip" for name, n in zip((ME, PGA), reached, strict=True)
        ]
        assert all(new > old for new, old in zip(reached, earlier, strict=False))
        earlier = reached
    for item, iteration in zip(study.items(), reached, strict=True):
        assert evaluation.error_in_new_process(study.run(item)) == 0
        model = unpacked(study.model(item, iteration), tmp_path / item.name)
        assert rows(model / "metrics.csv")[-1]["iteration"] == str(iteration)
        assert len(directories.kept_cells(model) or ()) == 4
        assert study.state(item) == "queued"
    succeed("info", "--pretrained", study.model(item, iteration))
    succeed("report", study.path)
    assert models_of(study).count("<td>0</td>") == 2
    assert all(path.name in models_of(study) for path in study.models())


def test_of_two_models_that_a_kill_left_the_one_of_the_finished_run_counts(copy, plan):
    (item, _) = copy.items()
    for iteration in (9, 12):
        shutil.copy(copy.model(item), copy.model(item, iteration))
    assert copy.newest_model_of(item) == copy.model(item)
    assert "2 models kept" in succeed("study", plan, "--output", copy.path, apart=True).stdout
    assert [path.name for path in copy.models()] == [f"{ME}.zip", f"{PGA}.zip"]
    for iteration in (9, 12):
        shutil.copy(copy.model(item), copy.model(item, iteration))
    copy.model(item).unlink()
    assert copy.newest_model_of(item) == copy.model(item, 12)
    succeed("report", copy.path)
    assert f"{ME}.iteration-12.zip" in models_of(copy)
    assert f"{ME}.iteration-9.zip" not in models_of(copy)


def test_the_model_of_a_finished_run_replaces_that_of_the_unfinished_one(copy, plan):
    (copy.kept / f"{ME}.zip").rename(copy.kept / f"{ME}.iteration-5.zip")
    assert [copy.state(item) for item in copy.items()] == ["queued", "done"]
    other = copy.kept / f"{ME}-of-mine.zip"
    other.write_bytes(b"another file")
    succeed("study", plan, "--output", copy.path, apart=True)
    assert sorted(path.name for path in copy.kept.iterdir()) == sorted(
        [f"{ME}.zip", f"{PGA}.zip", other.name]
    )


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_time_that_is_no_time_is_refused(plan, tmp_path, minutes):
    said = complaint(elites("study", plan, "--output", tmp_path, "--stop-after", minutes), 2)
    assert f"--stop-after must be greater than 0, got {minutes}" in said
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_has_nothing_to_stop(plan, tmp_path):
    words = ("study", plan, "--output", tmp_path, "--stop-after", 5, "--dry-run")
    said = complaint(elites(*words), 2)
    assert said.endswith("--stop-after has no effect with --dry-run, which starts nothing")


def test_a_study_that_was_stopped_says_how_to_continue(plan, tmp_path):
    done = elites("study", plan, "--output", tmp_path / "s", "--stop-after", 1e-6, apart=True)
    assert done.returncode == 3, done.stderr
    assert "stopping after 0 s: running runs save and end" in done.stderr
    command = f"study {plan} --output {tmp_path / 's'} --stop-after 1e-06"
    assert "stopped with 0 runs done; everything is saved. Continue with: " in done.stdout
    assert command in done.stdout
    # A dry run does not take the option.
    assert f"study {plan} --output {tmp_path / 's'} --dry-run --measure" in done.stderr
    succeed("study", plan, "--output", tmp_path / "s", apart=True)


def test_a_model_does_not_name_the_folder_of_its_study(study, tmp_path):
    model = unpacked(study.kept / f"{ME}.zip", tmp_path / "model")
    (session,) = read_sessions(model)
    assert session["command"] == f"elites study ./{study.path.name} --only point_omni me 0-1"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("elites train point_omni --output '/home/of us/my runs/x' --seeds 2",
         "elites train point_omni --seeds 2"),
        ("elites train point_omni --output=/runs/x pga_me", "elites train point_omni pga_me"),
        ("elites resume '/home/of us/x' --evaluations 5", "elites resume ./x --evaluations 5"),
        ("elites study '/home/of us/our study' --only point_omni",
         "elites study './our study' --only point_omni"),
        ("elites study ./paper --only ant_omni", "elites study ./paper --only ant_omni"),
        ("elites resume --evaluations 5 '/home/of us/x'", "elites resume --evaluations 5 ./x"),
        ("elites train /home/us/own.py:task --start-from=/runs/x", "elites train ./own.py:task "
         "--start-from=./x"),
        ("elites.train(...) in Python, and save", "elites.train(...) in Python, and save"),
        ("elites train 'unbalanced", "elites train 'unbalanced"),
    ],
)  # fmt: skip
def test_a_command_in_a_model_names_no_folder(command, expected):
    assert reducing._without_folders({"command": command})["command"] == expected


def test_a_run_is_no_study_to_continue(study):
    run = study.run(study.items()[0]).path
    line = complaint(elites("study", run), 2)
    assert line.endswith(f"{run} is a run, not a study. Continue it with 'elites resume'")


def test_studies_that_keep_models_and_others_can_be_joined(study):
    plan = study.plan()
    studies.refuse_other_settings(plan, Plan(("point_omni",), ("me",), preset="smoke"), study.path)


def test_a_run_without_a_checkpoint_says_so(copy, plan):
    shutil.rmtree(copy.kept)
    shutil.rmtree(copy.path / "runs" / ME / "checkpoints")
    done = elites("study", plan, "--output", copy.path, apart=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"failed: {ME}: ")
    assert last.endswith("has no checkpoint, so there are no elites to keep")
    assert [path.name for path in copy.models()] == [f"{PGA}.zip"]
