"""Studies by the real command, in processes that are really killed; and what the report says."""

import dataclasses
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from elites.study import collect, imported
from elites.study.study import Study
from program import HERE, command, complaint, contents, elites, environment, rows, succeed

PLAN = """
tasks = ["point_omni"]
algorithms = ["me", "pga_me"]
seeds = 3
preset = "smoke"
checkpoint_every = 2
"""
RUNS = ("point_omni-me-seeds-0-2", "point_omni-pga_me-seeds-0-2")


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "small.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def finished(plan, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("studies") / "finished"
    done = succeed("study", plan, "--output", path, apart=True)
    assert "2 runs done" in done.stdout
    return path


def page(path: Path) -> str:
    succeed("report", path)
    return (path / "report" / "report.html").read_text()


def without_time(text: str) -> str:
    """A report without what depends on the clock: curves over seconds, the environments of runs."""
    text = re.sub(r'<div class="p2">.*?</figure></div>', "", text, flags=re.DOTALL)
    return re.sub(r'<section id="runs">.*', "", text, flags=re.DOTALL)


def test_a_study_that_is_done_is_done(finished, plan):
    before = contents(finished / "runs")
    done = succeed("study", plan, "--output", finished, apart=True)
    assert "2 runs done" in done.stdout
    assert contents(finished / "runs") == before


def test_seeds_of_an_algorithm_are_one_run_with_their_own_results(finished):
    study = Study(finished)
    assert tuple(item.name for item in study.items()) == RUNS
    results = collect.collect(study)
    assert results.problems == []
    assert [(g.label, g.seeds, g.finished) for g in results.groups] == [
        ("me", [0, 1, 2], 3),
        ("pga_me", [0, 1, 2], 3),
    ]
    qd_score = results.groups[0].final["qd_score"]
    assert len(set(qd_score.tolist())) == 3
    for group in results.groups:
        assert group.archive_evaluations == group.curves["evaluations"][-1, 0]


def test_a_part_of_a_plan_is_run_and_joined_with_another(finished, plan, tmp_path):
    part = tmp_path / "part"
    done = succeed("study", plan, "--output", part, "--only", "me", "1-2", apart=True)
    assert "1 run done" in done.stdout
    assert [path.name for path in (part / "runs").iterdir()] == ["point_omni-me-seeds-1-2"]
    alone = collect.collect(Study(part))
    assert [(g.label, g.seeds, g.finished) for g in alone.groups] == [
        ("me", [1, 2], 2),
        ("pga_me", [], 0),
    ]
    joined = collect.collect(Study(part), Study(finished))
    assert [(g.label, sorted(g.seeds), g.finished) for g in joined.groups] == [
        ("me", [0, 1, 2], 3),
        ("pga_me", [0, 1, 2], 3),
    ]
    assert joined.unfinished == []
    said = complaint(elites("study", plan, "--output", part, "--only", "1"), 2)
    assert "point_omni-me-seeds-1-2 is one run and has begun" in said


def test_an_algorithm_of_ones_own_is_compared_under_its_short_name(tmp_path):
    plan, path = tmp_path / "own.toml", tmp_path / "study"
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path))
    plan.write_text(PLAN.replace('"pga_me"', f'"{own}:mutation"'))
    succeed("study", plan, "--output", path, apart=True)
    assert (path / "runs" / "point_omni-mutation-seeds-0-2" / "summary.md").exists()
    results = collect.collect(Study(path))
    assert results.problems == []
    assert [(g.label, g.finished) for g in results.groups] == [("me", 3), ("mutation", 3)]
    own.write_text("raise SystemExit('CODE RAN')")
    before = page(path)
    own.unlink()
    assert page(path) == before  # a report needs no file of the user's own
    assert str(own) not in before.partition('<section id="runs">')[0]


def progress(path: Path) -> int:
    """How far a study is, on disk: grows with every checkpoint and with every run that ends."""
    found = [int(p.name) for p in path.glob("runs/*/checkpoints/*") if p.name.isdigit()]
    return sum(found) + 1000 * len(list(path.glob("runs/*/summary.md")))


def test_killed_again_and_again_it_comes_to_the_same_report(finished, plan, tmp_path):
    path = tmp_path / "finished"  # its name is the title of the report
    chance = random.Random(1)
    kills = 0
    for i in range(6):
        process = subprocess.Popen(
            command("study", plan, "--output", path),
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        before = progress(path)
        while i > 0 and progress(path) <= before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 3.0 if i == 0 else 0.5))  # the first dies while it starts
        kills += process.poll() is None
        process.kill()  # its workers notice, and end
        process.wait()
    assert kills >= 3
    succeed("study", plan, "--output", path, apart=True)
    assert all(item.attempts == 0 for item in Study(path).items())
    for run in RUNS:
        for table in ("metrics.csv", "evaluation/metrics.csv", "evaluation/cells.csv"):
            assert rows(path / "runs" / run / table) == rows(finished / "runs" / run / table)
    assert without_time(page(path)) == without_time(page(finished))


def test_a_signal_lets_runs_save_and_says_how_to_go_on(plan, tmp_path):
    path = tmp_path / "study"
    slow = tmp_path / "slow.toml"
    slow.write_text(PLAN + "evaluations = 1_000_000_000\n")
    process = subprocess.Popen(
        command("study", slow, "--output", path, "--jobs", 1),
        env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    checkpoints = path / "runs" / RUNS[0] / "checkpoints"
    while not (checkpoints.is_dir() and (checkpoints / "last").exists()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert re.search(rf"Continue with: .* study {slow} --output {path} --jobs 1\n", out)
    assert Study(path).items()[0].attempts == 0
    text = page(path)
    assert "This study is unfinished" in text
    assert "0 of 3 planned seeds finished" in text


def test_a_study_continues_without_its_plan_by_the_command_of_each_run(finished, tmp_path):
    path = tmp_path / "my study"
    shutil.copytree(finished, path, symlinks=True)
    shutil.rmtree(path / "runs" / RUNS[1])
    done = succeed("study", path, "--dry-run")
    assert "pga_me" in done.stdout
    done = succeed("study", path, apart=True)
    assert "2 runs done" in done.stdout
    assert contents(path / "runs" / RUNS[0]) == contents(finished / "runs" / RUNS[0])
    for table in ("metrics.csv", "evaluation/cells.csv"):
        assert rows(path / "runs" / RUNS[1] / table) == rows(finished / "runs" / RUNS[1] / table)
    said = succeed("info", path / "runs" / RUNS[1]).stdout
    recorded = f"elites study '{path}' --only point_omni pga_me 0-2"
    assert re.search(rf"^command +{re.escape(recorded)}$", said, re.MULTILINE)
    shutil.rmtree(path / "runs" / RUNS[1])
    assert "1 run done" in succeed(*shlex.split(recorded)[1:], apart=True).stdout
    assert "nothing left to compute" in succeed("study", path, "--dry-run").stdout
    assert len(succeed("study", path, "--dry-run").stdout.splitlines()) == 1


def test_a_directory_with_the_name_of_a_built_in_plan_is_told_apart(
    finished, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "smoke", symlinks=True)
    shutil.rmtree(Path("smoke", "runs", RUNS[1]))
    assert "Continue with <code>elites study ./smoke</code>" in page(Path("smoke"))
    assert "1 run done" in succeed("study", "./smoke", "--only", "pga_me", apart=True).stdout
    said = succeed("info", Path("smoke", "runs", RUNS[1])).stdout
    recorded = "elites study ./smoke --only point_omni pga_me 0-2"
    assert re.search(rf"^command +{re.escape(recorded)}$", said, re.MULTILINE)
    assert "nothing left to compute" in succeed(*shlex.split(recorded)[1:], "--dry-run").stdout
    assert not Path("studies").exists()


def test_a_plan_that_is_refused_is_not_trusted(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = tmp_path / "own.toml"
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path))
    plan.write_text(PLAN.replace('"pga_me"', f'"{own}:mutation"'))
    trusted = tmp_path / "state" / "elites" / "trusted"
    assert "holds another study" in complaint(elites("study", plan, "--output", finished), 2)
    assert "no such task" in complaint(elites("study", plan, "--only", "mutatoin"), 2)
    assert not trusted.exists()
    succeed("study", plan, "--output", tmp_path / "new", "--dry-run")
    assert len(list(trusted.iterdir())) == 1


def test_code_of_a_study_of_someone_else_does_not_run(tmp_path):
    plan, path = tmp_path / "own.toml", tmp_path / "study"
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path))
    plan.write_text(PLAN.replace('"pga_me"', f'"{own}:mutation"'))
    succeed("study", plan, "--output", path, "--only", "me", "0", apart=True)
    own.write_text("raise SystemExit('CODE RAN')")
    said = complaint(elites("study", path), 2)
    assert f"{path} needs to run the code in {own}, " in said
    assert said.endswith("Read it, then start the study with its TOML file")
    own.unlink()
    said = complaint(elites("study", path), 2)
    assert str(own) in said


def test_a_file_as_the_directory_of_a_study_is_refused(plan):
    said = complaint(elites("study", plan, "--output", plan), 2)
    assert f"{plan} is a file, not a directory. Choose another --output" in said


def test_another_plan_in_the_same_directory_is_refused(finished, plan, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(PLAN.replace("seeds = 3", "seeds = 2"))
    before = contents(finished)
    said = complaint(elites("study", other, "--output", finished), 2)
    assert "holds another study: seeds is 3, not 2" in said
    assert contents(finished) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study", "papre"), "unknown plan 'papre'"),
        (("study", "smoke", "--jobs", 0), "--jobs must be at least 1"),
        (("study", "smoke", "--gpus", 1), "are for --engine ray"),
        (("study", "smoke", "--engine", "ray", "--jobs", 2), "--jobs is for --engine local"),
        (("report", "nowhere"), "nowhere: no such directory"),
    ],
)
def test_refusals(arguments, message):
    assert message in complaint(elites(*arguments), 2)


def test_a_run_is_not_a_study(finished):
    said = complaint(elites("report", finished / "runs" / RUNS[0]), 2)
    assert "a run, not a study, which has a file plan.json" in said


def test_a_folder_without_a_plan_is_refused_with_the_files_that_were_looked_for(finished, tmp_path):
    for arguments in ((tmp_path,), (finished, "--join", tmp_path)):
        assert complaint(elites("report", *arguments), 2).endswith(
            f"{tmp_path}: neither a study, which has a file plan.json, nor a folder of recorded "
            "tables, which has a file plan.toml"
        )


# -------------------------------------------------------------------------------------- the report


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    path = tmp_path / "copy"
    shutil.copytree(finished, path, symlinks=True)
    return path


def test_the_report_has_what_a_reader_looks_for(finished):
    text = page(finished)
    assert text.count("<figure") == 5  # curves over three axes, archives, additions
    for words in ("Metrics at the end", "Rank-sum tests", "Bonferroni", "Too few seeds to tell"):
        assert words in text
    assert "unfinished" not in text
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>', "", text)
    assert "<script" not in text
    pdfs = sorted(p.name for p in (finished / "report").glob("*.pdf"))
    assert len(pdfs) == 5
    assert (finished / "report" / pdfs[0]).read_bytes().startswith(b"%PDF")


def test_half_a_line_of_metrics_does_not_break_it(copy):
    path = copy / "runs" / RUNS[0] / "metrics.csv"
    text = path.read_text()
    path.write_text(text[: len(text) - 20])
    assert "Metrics at the end" in page(copy)


def test_a_failed_run_is_named_and_its_results_are_shown(copy):
    study = Study(copy)
    failed = [dataclasses.replace(i, attempts=2, error="the disk is full") for i in study.items()]
    study.write_items(failed)
    (study.run(failed[0]) / "summary.md").unlink()
    shutil.rmtree(study.run(failed[0]).checkpoints)
    shutil.rmtree(study.run(failed[1]).path)
    text = page(copy)
    assert f"{RUNS[0]} failed, its results so far are shown: the disk is full" in text
    assert f"{RUNS[1]} failed, it has no results: the disk is full" in text


def test_a_damaged_run_is_named_and_left_out(copy):
    (copy / "runs" / RUNS[0] / "metrics.csv").write_text("iteration,seed\n1,2,3\n4,5\n")
    text = page(copy)
    assert "Problems:" in text
    assert RUNS[0] in text
    assert "pga_me" in text


def test_an_evaluation_of_another_iteration_is_not_taken_for_the_end(copy):
    run = sorted((copy / "runs").iterdir())[0]
    table = run / "evaluation" / "metrics.csv"
    header, *lines = table.read_text().splitlines()
    place = header.split(",").index("iteration")
    rows = [line.split(",") for line in lines]
    for row in rows:
        row[place] = "1"
    table.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    problems = collect.collect(Study(copy)).problems
    assert len(problems) == 1
    assert f"{run / 'evaluation'} is not of iteration" in problems[0]


def test_results_of_another_program_lie_beside_ours(copy, tmp_path):
    foreign = tmp_path / "theirs.csv"
    lines = ["evaluations,metric,value,seed"]
    lines += [f"{e},qd_score,{e * (1 + s)},{s}" for s in range(3) for e in (64, 160, 320)]
    foreign.write_text("\n".join(lines) + "\n")
    succeed("report", copy, "--add", foreign)
    text = (copy / "report" / "report.html").read_text()
    assert "theirs on point_omni: imported, 3 seeds" in text
    assert re.search(r"<th scope='row'>theirs</th><td>QD-score</td><td>640</td>", text)
    assert "Metrics after 320 evaluations" in text  # not "at the end": budgets may differ
    assert "theirs" in page(copy)  # kept with the study
    succeed("report", copy, "--add", foreign)  # the same once more
    before = (copy / "imported" / "theirs.csv").read_bytes()
    foreign.write_text("evaluations,metric,value\n64,qd_score,1\n")
    said = complaint(elites("report", copy, "--add", foreign), 2)
    assert "exists already, with other contents" in said
    assert (copy / "imported" / "theirs.csv").read_bytes() == before
    foreign.rename(tmp_path / "me.csv")
    said = complaint(elites("report", copy, "--add", tmp_path / "me.csv"), 2)
    assert "'me' is the name of other results of this study" in said


def test_foreign_seeds_are_not_extrapolated(tmp_path):
    foreign = tmp_path / "theirs.csv"
    lines = ["evaluations,metric,value,seed", "64,qd_score,1,0", "1000,qd_score,9,0"]
    foreign.write_text("\n".join([*lines, "64,qd_score,1,1", "128,qd_score,2,1"]) + "\n")
    (group,) = imported.read(foreign, ["point_omni"])
    assert group.curves["evaluations"][-1].tolist() == [128, 128]
    assert group.final["qd_score"].tolist() == [pytest.approx(1 + 8 * 64 / 936), 2.0]


@pytest.mark.parametrize(
    ("header", "space"),
    [
        ("evaluations,metric,value,Seed", ""),
        ("\ufeffEvaluations, Metric ,VALUE, seed ", " "),
    ],
)
def test_foreign_columns_are_known_in_any_spelling(tmp_path, header, space):
    foreign = tmp_path / "theirs.csv"
    rows = [(e, "qd_score", e * (1 + s), s) for s in range(3) for e in (64, 160, 320)]
    lines = [",".join(f"{space}{cell}{space}" for cell in row) for row in rows]
    foreign.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    (group,) = imported.read(foreign, ["point_omni"])
    assert (group.label, group.seeds) == ("theirs", [0, 1, 2])
    assert group.final["qd_score"].tolist() == [320, 640, 960]


def test_foreign_seeds_are_not_extrapolated_to_the_left(tmp_path):
    foreign = tmp_path / "theirs.csv"
    lines = ["evaluations,metric,value,seed", "64,qd_score,1,0", "256,qd_score,7,0"]
    foreign.write_text("\n".join([*lines, "128,qd_score,5,1", "256,qd_score,9,1"]) + "\n")
    (group,) = imported.read(foreign, ["point_omni"])
    assert group.curves["evaluations"][:, 0].tolist() == [128, 256]
    assert group.curves["qd_score"].tolist() == [[3.0, 5.0], [7.0, 9.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "needs the columns evaluations, metric, value"),
        ("evaluations,metric,value\n64,speed,3\n", "line 2: unknown metric 'speed'"),
        ("evaluations,metric,value\n64,qd_score,fast\n", "line 2: not a number"),
        (
            "evaluations,metric,value,task\n64,qd_score,3,moon\n",
            "line 2: task 'moon' is not one of",
        ),
        (
            "evaluations,metric,value\n64,qd_score,1\n128,qd_score,3\n64,qd_score,2\n",
            "theirs.csv, line 4: a second value of qd_score for 'theirs' on point_omni, seed 0, "
            "after 64 evaluations; the first is in line 2. Number the seeds in a column 'seed'",
        ),
        (
            "evaluations,metric,value,label,seed\n64,qd_score,1,a,7\n\n64.0,qd_score,1,a,7\n",
            "line 4: a second value of qd_score for 'a' on point_omni, seed 7, after 64",
        ),
        ("evaluations,metric,value,Seed,seed\n64,qd_score,1,0,1\n", "2 columns named 'seed'"),
        ("evaluations,metric,value\n64,qd_score\n", "line 2: 2 fields, but the header has 3"),
        ("evaluations,metric,value\nnan,qd_score,1\n", "line 2: not a finite number"),
        (
            "evaluations,metric,value,seed\n64,qd_score,1,0\n128,qd_score,1,1\n",
            "no evaluations in common: one begins after 128 evaluations, another ends after 64",
        ),
    ],
)
def test_foreign_results_that_cannot_be_used_are_refused(copy, tmp_path, text, message):
    foreign = tmp_path / "theirs.csv"
    foreign.write_text(text)
    assert message in complaint(elites("report", copy, "--add", foreign), 2)
    assert not (copy / "imported").exists()


def test_names_are_text_not_markup(copy):
    strange = copy.with_name("<script>alert(1)</script>&".replace("/", "_"))
    copy.rename(strange)
    text = page(strange)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
