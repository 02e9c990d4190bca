"""What a study is expected to take: --dry-run and --measure, progress over runs, and the page."""

import dataclasses
import functools
import importlib.util
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpus
from elites.study import devices, expectation, table
from elites.study.loads import Load
from elites.study.packing import Wish
from elites.study.plan import Plan
from elites.study.seconds import Clock, Measurement, Work
from elites.study.study import Item, open_study
from elites.study.table import Whole
from program import complaint, edit_json, elites, succeed

ROOT = Path(__file__).parents[2]
SMALL = 'tasks = ["ant_omni"]\nalgorithms = ["dcg_me", "pga_me", "me"]\nseeds = 4\n'


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that gives this process a machine. The folder with its programs is returned."""
    monkeypatch.chdir(tmp_path)

    def install(**options):
        for name, value in gpus.install(tmp_path, **options).items():
            monkeypatch.setenv(name, value)
        return tmp_path

    return install


@pytest.fixture
def laptop(tmp_path, monkeypatch):
    """A machine with one core and without a GPU, on which nothing was measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "_cores", lambda: (0,))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def dry_run(*arguments) -> tuple[list[list[str]], str]:
    """Return the rows of the table of a dry run, and what is printed after it."""
    lines = succeed("study", *arguments, "--dry-run").stdout.splitlines()
    end = next(i for i, line in enumerate(lines) if re.match(r"\d+ runs? on ", line))
    rows = [re.split(r"  +", line.strip()) for line in lines[1:end]]
    return rows, "\n".join(lines[end:])


def test_the_hours_of_the_paper_on_a_measured_gpu(machine):
    folder = machine()
    rows, after = dry_run("paper")
    runs = [row for row in rows if row[1] != "all"]
    assert len(runs) == 32
    assert runs[0] == ["ant_omni", "dcg_me", "20", "1", "0.766", "measured", "3906", "0.89"]
    assert {row[0]: row[3] for row in runs if row[1] == "me"} == dict.fromkeys(
        ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni"), "4"
    )
    assert sum(row[5] == "measured" for row in runs) == 1
    total = float(re.search(r"about ([\d.]+) hours", after)[1])
    assert total == pytest.approx(sum(float(row[-1]) for row in runs), abs=0.2)
    assert total == pytest.approx(sum(float(row[-1]) for row in rows if row[1] == "all"), abs=0.05)
    assert "side by side: ant_omni-me-seeds-0-19, ant_omni-me_es-seeds-0-19" in after
    assert gpus.calls(folder) == []  # nothing was started, and nothing written
    assert not (folder / "studies").exists()


def test_hours_from_derived_seconds_are_not_counted_as_measured(machine):
    folder = machine()
    (folder / "trap.toml").write_text(
        'tasks = ["anttrap_omni"]\nalgorithms = ["dcg_me"]\nseeds = 4\n'
    )
    rows, after = dry_run("trap.toml")
    assert rows[0][5] == "measured, less 7 % for checkpoints"
    assert "0.31 hours, 0.00 of them from seconds measured for the same runs" in after
    assert "measured, less N %: seconds of whole runs" in after
    assert "\nmeasured: " not in after
    (folder / "ant.toml").write_text((folder / "trap.toml").read_text().replace("trap", ""))
    _, after = dry_run("ant.toml")
    assert "\nmeasured: " in after
    assert "less N %" not in after


def test_without_the_service_runs_follow_one_another(machine):
    folder = machine(mps=False)
    (folder / "small.toml").write_text(SMALL)
    rows, after = dry_run("small.toml")
    assert [row[3] for row in rows[:3]] == ["1", "1", "1"]
    line = "nvidia-cuda-mps-control is not installed, so runs on the GPU are computed one after"
    assert line in after
    refused = complaint(elites("study", "small.toml", "--side-by-side", 2), 2)
    assert "--side-by-side needs NVIDIA's Multi-Process Service" in refused
    assert not (folder / "studies").exists()


def test_the_user_may_choose_and_memory_limits_the_choice(machine):
    folder = machine()
    (folder / "small.toml").write_text(SMALL)
    rows, _ = dry_run("small.toml")
    assert [row[3] for row in rows[:3]] == ["3", "3", "3"]  # few seeds do not fill a GPU
    rows, _ = dry_run("small.toml", "--side-by-side", 1, "--seeds-per-run", 3)
    assert [(row[1], row[2], row[3]) for row in rows[:2]] == [("dcg_me", "2", "1")] * 2
    rows, _ = dry_run("small.toml", "--jobs", 2)
    assert [row[3] for row in rows[:3]] == ["2", "2", "1"]
    machine(gpu="NVIDIA H200, 4096")  # a run of dcg_me has arrays of 1.8 GB, and needs more
    rows, _ = dry_run("small.toml", "--side-by-side", 3)
    assert [(row[1], row[2], row[3]) for row in rows[:2]] == [("dcg_me", "2", "2")] * 2
    machine(gpu="NVIDIA H200, 3072")  # two of two seeds do not fit either
    rows, _ = dry_run("small.toml", "--side-by-side", 3)
    assert [(row[1], row[2], row[3]) for row in rows[:2]] == [("dcg_me", "2", "1")] * 2
    assert [row[2] for row in rows if row[1] == "me"] == ["4"]


def test_an_unknown_gpu_is_measured_first(machine):
    folder = machine(gpu="Other GPU, 8192")
    (folder / "small.toml").write_text(SMALL)
    _, after = dry_run("small.toml")
    assert after.startswith("3 runs on Other GPU (1 GPU of 8.59 GB): hours unknown\n")
    assert "Measure with: " in after
    assert "--dry-run --measure" in after


def test_what_is_measured_is_kept(laptop):
    Path("point.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 2\npreset = "smoke"\n'
    )
    rows, after = dry_run("point.toml")
    assert rows[0][4:] == ["?", "not measured", "9", "?"]
    assert "the time of 1 run is unknown" in after
    measured = succeed("study", "point.toml", "--dry-run", "--measure").stdout
    assert re.search(r"1 of 1: point_omni-me-seeds-0-1: [\d.e-]+ s an iteration, stored", measured)
    rows, after = dry_run("point.toml")
    assert rows[0][5] == "measured"
    assert "is unknown" not in after
    again = succeed("study", "point.toml", "--dry-run", "--measure").stdout
    assert "1 of 1" not in again
    Path("point.toml").write_text(Path("point.toml").read_text() + "[hp]\ncells = 16\n")
    assert dry_run("point.toml")[0][0][5] == "not measured"  # another run than the measured one


def test_time_on_a_cpu_is_that_on_the_cores_which_a_run_gets():
    items = [Item("point_omni", name, 0, 2) for name in ("me", "pga_me")]
    found = {
        (item.task, item.algorithm): Load(Work(item.task, item.algorithm, (32,)), 1000, 10**6)
        for item in items
    }
    machine = devices.Machine("laptop, 3 cores", memory=10**10, cores=(4, 5, 7))
    of = functools.partial(expectation.device_of_a_run, loads=found, machine=machine)
    assert of(items, wish=Wish()) == ("laptop, 3 cores, 1 for a run", [5])  # the other gets two
    assert of(items[:1], wish=Wish()) == ("laptop, 3 cores, 3 for a run", [4, 5, 7])
    assert of(items, wish=Wish(jobs=5)) == ("laptop, 3 cores, 1 for a run", [5])
    gpu = devices.Machine("NVIDIA H200", ("0",), 10**11, cores=())
    assert expectation.device_of_a_run(items, found, gpu, Wish()) == ("NVIDIA H200", [])


MEASURING = """
import io, json, os, sys
from elites.study import measuring
case = {"config": {}, "trusted": [], "cores": [int(sys.argv[1])]}
sys.stdin = io.StringIO(json.dumps(case))
try:
    measuring.main()
except Exception:
    print(sorted(os.sched_getaffinity(0)))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="LEFT OUT: no choice of cores")
def test_a_measuring_process_uses_the_cores_of_a_run_alone():
    """A configuration that cannot be read ends it before it computes."""
    core = max(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", MEASURING, str(core)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"[{core}]"


def test_a_study_without_a_gpu_computes_a_run_on_each_core(laptop, monkeypatch):
    monkeypatch.setattr(devices, "_memory", lambda: 64 * 10**9)
    Path("small.toml").write_text(SMALL + 'preset = "smoke"\n')

    def printed(cores: int, *options) -> str:
        monkeypatch.setattr(devices, "_cores", lambda: tuple(range(cores)))
        rows, after = dry_run("small.toml", *options)
        seeds = {row[2] for row in rows if row[1] != "all"}
        assert seeds == ({"1"} if "--seeds-per-run" in options else {"4"})
        return after

    assert "at a time" not in printed(1)
    assert "3 runs on " in (after := printed(2))
    assert "\n2 runs at a time, each on cores of its own\n" in after
    assert "\n3 runs at a time" in printed(16)
    assert "\n12 runs at a time" in printed(16, "--seeds-per-run", 1)
    for option in ("--jobs", "--side-by-side"):
        assert "\n2 runs at a time" in printed(16, option, 2)
    monkeypatch.setattr(devices, "_memory", lambda: 2 * 10**9)  # for one process at a time
    assert "at a time" not in printed(2)


def test_hours_on_cores_are_at_least_those_of_the_longest_run():
    pairs = [("point_omni", name) for name in ("me", "pga_me")]
    items = [Item(task, name, 0, 1) for task, name in pairs]
    work = {pair: Work(*pair, (32,)) for pair in pairs}
    found = {pair: Load(work[pair], 1000, 10**6) for pair in pairs}
    machine = devices.Machine("laptop", memory=10**10, cores=(0, 1))
    me, pga = (Measurement("laptop", *pair, 1, 1.0, "here") for pair in pairs)
    times = [me, dataclasses.replace(pga, seconds=9.0)]
    expected = expectation.expect(items, found, machine, Clock("laptop", times), Wish())
    assert expected.packing.devices == 2
    assert expected.hours == pytest.approx(1.07 * 9000 / 3600)
    assert expected.measured_hours == pytest.approx(expected.hours)
    alone = expectation.expect(items, found, machine, Clock("laptop", times), Wish(jobs=1))
    assert alone.hours == pytest.approx(1.07 * 10_000 / 3600)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--side-by-side", 0), "--side-by-side must be at least 1, got 0"),
        (("--seeds-per-run", -1), "--seeds-per-run must be at least 1, got -1"),
        (("--jobs", 2, "--side-by-side", 2), "give --jobs or --side-by-side, not both"),
        (("--engine", "ray", "--dry-run"), "--measure are for --engine local"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, what):
    assert what in complaint(elites("study", "smoke", *options), 2)


PAIR = Plan(("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke")


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study"
    path.mkdir()
    return open_study(path, PAIR)


def test_a_study_that_has_its_runs_keeps_them(study, laptop):
    Path("pair.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me", "pga_me"]\nseeds = 2\npreset = "smoke"\n'
    )
    options = ("pair.toml", "--output", study.path, "--seeds-per-run", 1)
    line = complaint(elites("study", *options, "--dry-run"), 2)
    assert f"{study.path} has its runs already" in line
    rows, _ = dry_run("pair.toml", "--output", study.path, "--only", "me", 1)
    assert [row[1:3] for row in rows] == [["me", "1"]]
    assert len(study.items()) == 2  # a dry run does not split
    finish(study, study.items()[0])
    rows, after = dry_run("pair.toml", "--output", study.path)
    assert [row[1] for row in rows] == ["pga_me"]
    assert after.startswith("1 run on ")
    edit_json(study.path / "index.json", lambda data: data["runs"][0].update(algorithm="dcg_me"))
    line = complaint(elites("study", "pair.toml", "--output", study.path, "--dry-run"), 1)
    assert "damaged: the plan has no run of dcg_me on point_omni" in line


def progress(study, item, iteration: int, total: int) -> None:
    """Write the files of a run that has finished some of its iterations."""
    run = study.run(item).path
    run.mkdir(parents=True, exist_ok=True)
    (run / "facts.json").write_text(f'{{"iterations": {total}}}')
    rows = [f"{i},0,{i}.0" for i in range(1, iteration + 1)]
    (run / "metrics.csv").write_text("\n".join(["iteration,seed,seconds", *rows, ""]))


def finish(study, item) -> None:
    progress(study, item, 1, 1)
    (study.run(item).path / "summary.md").write_text("done")


def test_progress_over_all_runs_counts_their_expected_time(study, monkeypatch):
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(table.time, "monotonic", lambda: next(clock))
    me, pga = items = study.items()
    whole = Whole(study, lambda item: (100, 1.0 if item == me else 3.0))
    assert whole.text(items) == "0 % done"
    progress(study, pga, 20, 100)
    assert whole.text(items) == "15 % done, about 57 s left"  # 60 of 400 seconds in ten
    finish(study, me)
    assert whole.text(items) == "40 % done, about 30 s left"  # 160 in twenty
    finish(study, pga)
    assert whole.text(items) == "100 % done"


def test_without_an_expectation_progress_is_shown_once_all_runs_have_begun(study):
    me, pga = items = study.items()
    whole = Whole(study)
    progress(study, me, 5, 10)
    assert whole.text(items) == ""
    progress(study, pga, 1, 10)
    assert whole.text(items) == "30 % done"


def test_the_performance_page_agrees_with_the_dry_run():
    path = ROOT / "docs" / "site" / "hours.py"
    spec = importlib.util.spec_from_file_location("hours", path)
    assert spec is not None
    assert spec.loader is not None
    hours = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hours)
    text = hours.PAGE.read_text("utf-8")
    assert hours.page(text) == text, "run python docs/site/hours.py"
    assert hours.section().count("| `walker_uni` |") == 5
