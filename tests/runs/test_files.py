"""Files that were truncated, edited or replaced: one line that names the file and what is wrong.

The first half goes through the commands, the second through the readers of `elites.files`.
`test_fuzz.py` damages the same files at random.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elites
import written
from elites import arrays, files, physics
from elites.files import RunError
from elites.runs import checkpoint as checkpoints
from elites.runs import logs
from elites.runs.directory import RunDirectory
from elites.study.plan import Plan
from elites.study.study import Study
from elites.viewer import data
from program import complaint, edit_json, newest, succeed
from program import elites as run_command

DEEP = 100_000
NAN = "evaluations,metric,value\nnan,qd_score,1\n320,qd_score,2\n"
RESULTS = "evaluations,metric,value,seed\n32,qd_score,1,0\n320,qd_score,2,0\n"


def edit_manifest(run: Path, change) -> None:
    """Change the manifest of the newest checkpoint, with a checksum that matches."""

    def changed(manifest: dict) -> None:
        change(manifest)
        manifest["sha256"] = checkpoints._manifest_digest(manifest)

    edit_json(newest(run) / "manifest.json", changed)


@pytest.fixture
def study(tmp_path) -> Study:
    """A finished study of one run, written by hand."""
    plan = Plan(("point_omni",), ("me",), seeds=2, preset="smoke")
    return written.study(tmp_path / "study", plan, lambda item, seed, i: float(i + seed))


# ------------------------------------------------------------------------------------ commands

TEXTS = ("config.json", "facts.json", "environment.json", "metrics.csv", "evaluation/metrics.csv")


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", ["pipe", "directory", "nested", "not text", "huge", "empty"])
def test_info_names_the_file_that_it_cannot_read(run, name, kind):
    path = run / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(
            {"nested": b"[" * DEEP, "not text": b"\xff\xfe{}"}.get(kind, b"")  # empty
        )
    if kind == "huge":
        os.truncate(path, 1 << 40)  # takes no space
    assert str(path) in complaint(run_command("info", run), 1)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("facts.json", ("iterations", "9"), "'iterations' is '9', not a whole number"),
        ("facts.json", ("iterations", True), "'iterations' is True, not a whole number"),
        ("facts.json", ("descriptor_low", [0, "1"]), "'descriptor_low' is [0, '1'], not a list"),
        ("facts.json", ("descriptor_high", [-1, -1]), "are not a box"),
        (
            "facts.json",
            ("origins", [1]),
            "'origins' is [1], not a list of which each entry is text",
        ),
        ("metrics.csv", ("qd_score", "x"), "line 2: a column 'qd_score' of numbers has 'x'"),
        ("metrics.csv", ("iteration", "1.5"), "line 2: 'iteration' must be a whole number"),
        ("metrics.csv", ("seed", "nan"), "line 2: 'seed' must be a whole number"),
        ("metrics.csv", ("seconds", "-inf"), "line 2: 'seconds' must be a number from 0"),
        ("metrics.csv", ("coverage", None), "needs a column 'coverage' of numbers"),
    ],
)
def test_plot_names_the_file_and_the_field(run, name, change, words):
    field, value = change
    if name.endswith(".json"):
        edit_json(run / name, lambda facts: facts.update({field: value}))
    else:
        header, first, *rest = (run / name).read_text().splitlines()
        cells = dict(zip(header.split(","), first.split(","), strict=True))
        if value is None:
            header = header.replace(field, "another")
        else:
            first = ",".join({**cells, field: value}.values())
        (run / name).write_text("\n".join([header, first, *rest, ""]))
    line = complaint(run_command("plot", run), 1)
    assert str(run / name) in line
    assert words in line


def test_info_names_a_damaged_table_of_the_evaluation(run):
    path = run / "evaluation" / "metrics.csv"
    path.write_text(path.read_text().replace("0,9,", "0,nine,"))
    line = complaint(run_command("info", run), 1)
    assert f"{path}: damaged: line 2: a column 'iteration' of numbers has 'nine'" in line


@pytest.mark.parametrize("text", ["", "seed,iteration\n", "seed,cell\n0,999\n"])
def test_the_page_names_a_damaged_table_of_cells(run, text):
    path = run / "evaluation" / "cells.csv"
    path.write_text(text)
    with pytest.raises(RunError, match=f"{path}: damaged"):
        data.archive(RunDirectory(run), 9, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": True}, "'format' is True, not a whole number"),
        ({"format": "1"}, "'format' is '1', not a whole number"),
        ({"iteration": "9"}, "'iteration' is '9', not a whole number"),
        ({"iteration": True}, "'iteration' is True, not a whole number"),
        ({"information": []}, "'information' is [], not a table"),
        ({"information": {"seconds": "1"}}, "'seconds' is '1', not a whole number or a number"),
        ({"information": {"reevaluated": 9}}, "'reevaluated' is 9, not a list"),
        ({"arrays": {"weights.npz": [1]}}, "entries of weights.npz"),
        ({"iteration": 2**31}, "it is of iteration 2147483648"),
    ],
)
def test_a_manifest_of_other_types_is_refused(run, change, words):
    edit_manifest(run, lambda manifest: manifest.update(change))
    with pytest.raises(checkpoints.CheckpointError) as raised:
        checkpoints.read_manifest(newest(run))
    assert str(newest(run) / "manifest.json") in str(raised.value)
    assert words in str(raised.value)


def test_resume_passes_over_a_manifest_of_other_types(run):
    edit_manifest(run, lambda manifest: manifest["information"].update(reevaluated=9, seconds="1"))
    path = newest(run) / "manifest.json"
    done = succeed("resume", run)
    assert f"{path}, information: damaged: 'seconds' is '1', not a whole number" in done.stderr


def test_a_full_disk_while_locking_names_the_lock(run):
    """A limit on the size of files fails every write, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        done = run_command("pack", run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"{run / 'run.lock'}: File too large" in complaint(done, 1)


def test_a_number_of_iterations_beyond_reason_is_told_at_once(run):
    with open(run / "metrics.csv", "a") as file:
        for seed in (0, 1):
            row = (run / "metrics.csv").read_text().splitlines()[1].split(",")
            file.write(",".join(["2147483646", str(seed), *row[2:]]) + "\n")
    assert "iterations 10 to 2147483645 in metrics.csv" in succeed("info", run).stdout
    with pytest.raises(RunError, match=r"metrics.csv: damaged: it has iteration 2147483646"):
        elites.load(run)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("format", True, "it has no format number"),
        ("first_seed", "0", "first_seed must be a whole number of at least 0, got '0'"),
        ("first_seed", False, "first_seed must be a whole number of at least 0, got False"),
        ("evaluations", 10**400, "'evaluations' is too large a number"),
        ("task", "\ud800", "'task' is not valid Unicode text"),
    ],
)
def test_a_configuration_of_other_types_is_refused(run, field, value, words):
    edit_json(run / "config.json", lambda config: config.update({field: value}))
    done = run_command("info", run)
    line = complaint(done, done.returncode)
    assert done.returncode in (1, 2)
    assert str(run / "config.json") in line
    assert words in line


# --------------------------------------------------------------------------------------- studies


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("tasks = ['point_omni']\n# é".encode("latin-1"), "byte 25 is not UTF-8 text"),
        (b"tasks = " + b"[" * DEEP, "nested too deeply"),
        (b"seeds = " + b"[" * 60 + b"]" * 60, "nested too deeply"),
        (
            b"tasks = ['point_omni']\nalgorithms = ['me']\nfirst_seed = '0'",
            "line 3: first_seed must",
        ),
        (b"tasks = ['point_omni']\nalgorithms = ['me']\nseeds = true", "line 3: seeds must be a"),
        (
            b"tasks = ['point_omni']\nalgorithms = ['me']\nseeds = nan",
            "'seeds' is nan, not a finite",
        ),
    ],
)
def test_a_damaged_plan_is_named(tmp_path, content, words):
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    line = complaint(run_command("study", path, "--output", tmp_path / "study"), 2)
    assert str(path) in line
    assert words in line


def test_a_plan_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "plan.toml")
    line = complaint(run_command("study", tmp_path / "plan.toml"), 2)
    assert f"{tmp_path / 'plan.toml'}: not a plain file" in line


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("plan.json", {"format": True}, "'format' is True, not a whole number"),
        ("plan.json", {"first_seed": "0"}, "first_seed must be a whole number, got '0'"),
        ("index.json", {"runs": {}}, "'runs' is {}, not a list"),
        (
            "index.json",
            {"runs": [{"task": "point_omni"}]},
            "run 1: damaged: 'algorithm' is missing",
        ),
        ("index.json", ("first_seed", "0"), "run 1: damaged: 'first_seed' is '0', not a whole"),
        ("index.json", ("seeds", True), "run 1: damaged: 'seeds' is True, not a whole number"),
        ("index.json", ("seeds", -1), "run 1: damaged: -1 seeds from 0 on are not seeds"),
        ("index.json", ("algorithm", "../../x/y"), "is not the name of a run"),
    ],
)
def test_a_damaged_study_names_file_and_field(study, name, change, words):
    def damage(data: dict) -> None:
        if isinstance(change, dict):
            data.update(change)
        else:
            data["runs"][0][change[0]] = change[1]

    edit_json(study.path / name, damage)
    done = run_command("report", study.path)
    line = complaint(done, done.returncode)
    assert str(study.path / name) in line
    assert words in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NAN, "line 2: not a finite number"),
        (RESULTS.replace("320", "1e400"), "line 3: not a finite number"),
        ("", "needs the columns"),
        ('"' + "a" * 200_000, "field larger than field limit"),
    ],
)
def test_results_of_another_program_with_a_mistake_are_refused(study, tmp_path, text, words):
    path = tmp_path / "foreign.csv"
    path.write_text(text)
    line = complaint(run_command("report", study.path, "--add", path), 2)
    assert str(path) in line
    assert words in line
    assert not study.imported.exists()


def test_a_byte_order_mark_is_no_part_of_a_file(study, tmp_path):
    """Excel writes one at the beginning of a CSV file, and other programs elsewhere."""
    (tmp_path / "plain.csv").write_text(RESULTS)
    (tmp_path / "excel.csv").write_text(RESULTS, encoding="utf-8-sig")
    groups = [
        elites.study.imported.read(tmp_path / name, ["point_omni"])
        for name in ("plain.csv", "excel.csv")
    ]
    np.testing.assert_equal(groups[0][0].curves, groups[1][0].curves)
    (tmp_path / "plan.toml").write_text("a = 1", encoding="utf-8-sig")
    assert files.read_toml(tmp_path / "plan.toml") == {"a": 1}
    plan = study.path / "plan.json"
    plan.write_text(plan.read_text(), encoding="utf-8-sig")
    assert study.plan().seeds == 2


# --------------------------------------------------------------------------------------- readers


def test_a_link_is_followed_only_where_the_user_named_it(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert files.read_text(tmp_path / "link", follow=True) == "text"
    with pytest.raises(RunError, match="link is a symbolic link, and elites follows none inside"):
        files.read_text(tmp_path / "link")


@pytest.mark.skipif(sys.platform != "linux", reason="reads a file of the Linux kernel")
def test_a_file_that_is_longer_than_it_was_when_opened_is_not_cut():
    growing = Path("/proc/self/status")  # whose size is 0, whatever it contains
    assert b"Name:" in files.read_bytes(growing)
    with pytest.raises(RunError, match="more than the 0 MB that such a file may have"):
        files.read_bytes(growing, most=5)


def test_devices_and_large_files_are_not_read(tmp_path):
    with pytest.raises(RunError, match="/dev/zero: not a plain file"):
        files.read_text(Path("/dev/zero"))
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 10**12)
    with pytest.raises(RunError, match="has 1,000,000 MB, more than the 8 MB"):
        files.read_json(tmp_path / "large")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * DEEP, "nested too deeply"),
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ('{"a": {"b": [1, NaN]}}', r"'a.b.1' is nan, not a finite number"),
        ('{"a": 1e999}', r"'a' is inf, not a finite number"),
        ('{"a": 99999999999999999999}', "'a' is too large a number"),
        ('{"a": "\\ud800"}', "'a' is not valid Unicode text"),
        ('{"\\ud800": 1}', "not valid Unicode text"),
        ("9" * 5000, "damaged"),
        ('{"a": 1', "damaged"),
    ],
)
def test_values_that_cannot_be_used_are_named(tmp_path, text, words):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(RunError, match=words):
        files.read_json(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1\n2,3\n", "line 2 has 1 fields, the header 2"),
        ("a,a\n1,2\n", "2 columns named 'a'"),
        ("\n\n\n", "line 1 is empty"),
        ("a,b\n1,2\n\n3,4\n", "line 3 has 0 fields, the header 2"),
        ('a,b\n1,"' + "x" * 200_000 + "\n", "line 2: field larger than field limit"),
    ],
)
def test_a_table_with_a_mistake_names_the_line(tmp_path, text, words):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(RunError, match=words):
        files.read_csv(path)


def test_a_body_model_is_read_as_carefully(tmp_path):
    path = tmp_path / "body.json"
    for content, words in ((b"[" * DEEP, "nested"), (b"\xff", "UTF-8"), (b"{}", "must be a list")):
        path.write_bytes(content)
        with pytest.raises(physics.ModelError, match=f"{path}: .*{words}"):
            physics.load(path)


def test_a_saved_search_is_read_as_carefully(tmp_path):
    path = tmp_path / "search.npz"
    search = elites.ask_tell("point_omni", "me", preset="smoke")
    search.save(path)
    search.load(path)
    good = arrays.read_arrays(path)
    facts = json.loads(str(good["search"]))
    for position in ([], {"iteration": True, "round": 0, "told": 0}, {"iteration": -1}, "x"):
        changed = {**good, "search": np.array(json.dumps({**facts, "position": position}))}
        path.unlink()
        np.savez(path, **changed)
        with pytest.raises(ValueError, match=f"{path} is not a saved search, or is damaged"):
            search.load(path)
    shutil.rmtree(path, ignore_errors=True)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a plain file"):
        search.load(path)


# Small files that would take far more memory than their size if all of it were taken apart.
HOSTILE = {
    "config.json": (b"[" + b"0," * 3_900_000 + b"0]", "not a table of named fields"),
    "large.json": (b"[" + b"0," * 5_000_000 + b"0]", "has 10 MB, more than the 8 MB"),
    "newlines.csv": (b"\n" * 20_000_000, "line 1 is empty"),
    "metrics.csv": (b"iteration,seed\n" + b"\n" * 20_000_000, "line 2 has 0 fields"),
    "long.csv": (b"a" * 20_000_000, "longer than 1 MB"),
}
READ = """
import resource, sys
from pathlib import Path
from elites import files
from elites.runs import directory, logs

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before, path = most(), Path(sys.argv[1])
try:
    if path.suffix == ".json":
        files.read_record(path, {})
    else:
        logs.read_table(path)
except files.RunError as error:
    print(most() - before, error)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_small_file_takes_little_memory(tmp_path, name):
    content, words = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(content)
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True)
    kilobytes, message = done.stdout.split(" ", 1)
    assert re.search(words, message), message
    assert int(kilobytes) < 200_000, (name, kilobytes)


def test_a_table_is_read_in_parts(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    path.write_text("iteration,origin\n" + "".join(f"{i},o{i}\n" for i in range(10)) + "10,o")
    whole = logs.read_table(path)
    monkeypatch.setattr(logs, "_CELLS", 4)
    for name, column in logs.read_table(path).items():
        np.testing.assert_array_equal(column, whole[name])
    assert whole["iteration"].tolist() == [*range(10)]
    path.write_text(path.read_text().replace("8,o8", "x,o8"))
    with pytest.raises(RunError, match="line 10: a column 'iteration' of numbers has 'x'"):
        logs.read_table(path)
