"""Why runs of a study failed, in real processes that fail in every way; and what they may run."""

import io
import json
import os
from pathlib import Path

import pytest

from elites import trust
from elites.files import RunError
from elites.study import scheduler, study
from elites.study.engines import LocalEngine
from elites.study.packing import Packing
from elites.study.plan import Plan, read
from elites.study.table import Live
from program import complaint, contents, elites, environment, forget

OWN = '''"""Algorithms that end their process, each in its own way."""

import os
import signal

from elites.core import map_elites
from elites.core.spec import Spec, Variation


def killed(problem, hp):
    os.kill(os.getpid(), signal.SIGKILL)


def leaves(problem, hp):
    os._exit(4)


def exits(problem, hp):
    raise SystemExit("enough")


def mistaken(problem, hp):
    def variation(spec, state, key, count):
        return {}["a key that is missing"]

    return map_elites.algorithm(Spec("mistaken", problem, hp, (Variation("v", 32, variation),)))
'''
LINE = OWN[: OWN.index("return {}")].count("\n") + 1
OLD = "elites: the disk was full\nelites: recovered the lock left by process 1 on here\n"


def compute(path: Path, own: Path, names: tuple[str, ...], monkeypatch) -> dict[str, str]:
    """Compute a study of algorithms of one file, each once, and return their errors by name."""
    monkeypatch.setattr(scheduler, "ATTEMPTS", 1)
    monkeypatch.setattr(study, "ATTEMPTS", 1)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    plan = Plan(("point_omni",), tuple(f"{own}:{n}" for n in names), seeds=1, preset="smoke")
    path.mkdir()
    made = study.open_study(path, plan)
    made.logs.mkdir()
    for item in made.items():
        (made.logs / f"{item.name}.log").write_text(OLD)
    result = scheduler.run_unfinished(
        made, LocalEngine(Packing(otherwise=2)), Live(made, io.StringIO())
    )
    assert result.done == 0
    index = json.loads((path / "index.json").read_text())["runs"]
    return {entry["algorithm"].rpartition(":")[2]: entry["error"] for entry in index}


def test_the_reason_of_a_failure_is_that_of_this_attempt(tmp_path, monkeypatch):
    own = tmp_path / "own.py"
    own.write_text(OWN)
    trust.record(f"{own}:killed")
    path = tmp_path / "study"
    errors = compute(path, own, ("killed", "leaves", "exits", "mistaken"), monkeypatch)
    log = path / "logs" / "point_omni-{}-seeds-0-0.log"
    assert errors == {
        "killed": f"killed by SIGKILL (signal 9); see {str(log).format('killed')}",
        "leaves": f"ended with exit code 4 and gave no reason; see {str(log).format('leaves')}",
        "exits": f"{own}: 'exits' failed: it calls sys.exit('enough') ({own}, line "
        f"{OWN[: OWN.index('raise')].count(chr(10)) + 1}), which would end elites. Remove that "
        "call",
        "mistaken": f"KeyError: 'a key that is missing' ({own}, line {LINE})",
    }
    assert "Traceback" in Path(str(log).format("mistaken")).read_text()


def test_a_worker_runs_what_the_study_trusts_and_never_asks(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trust, "_approved", set())
    own = tmp_path / "own.py"
    own.write_text("open(__file__ + '.ran', 'w')\n" + OWN)
    errors = compute(tmp_path / "first", own, ("killed",), monkeypatch)
    assert (
        f"needs to run the code in {own}, whose contents you have not trusted" in errors["killed"]
    )
    assert errors["killed"].endswith("Start the study again to use it")
    assert not (tmp_path / "own.py.ran").exists()
    # Trusted by the process of the study alone, because nothing can be recorded.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    trust.record(f"{own}:killed")
    assert "SIGKILL" in compute(tmp_path / "second", own, ("killed",), monkeypatch)["killed"]
    assert (tmp_path / "own.py.ran").exists()
    # Edited while the study runs.
    own.write_text(own.read_text() + "# edited\n")
    errors = compute(tmp_path / "third", own, ("killed",), monkeypatch)
    assert "Start the study again to use it" in errors["killed"]
    forget()


def test_workers_import_from_where_the_study_does(tmp_path, monkeypatch):
    """Not from the current folder, unless the process of the study does so as well."""
    own, here = tmp_path / "own.py", tmp_path / "here"
    own.write_text(OWN.replace("os._exit(4)", "import neighbour\n\n    os._exit(neighbour.CODE)"))
    here.mkdir()
    (here / "tyro.py").write_text("open('ran', 'w')\nraise SystemExit('not the package')\n")
    (here / "neighbour.py").write_text("CODE = 7\n")
    monkeypatch.chdir(here)
    trust.record(f"{own}:leaves")
    errors = compute(tmp_path / "first", own, ("leaves",), monkeypatch)
    assert "No module named 'neighbour'" in errors["leaves"]
    assert not (here / "ran").exists()
    (here / "tyro.py").unlink()
    monkeypatch.syspath_prepend(here)
    assert "exit code 7" in compute(tmp_path / "second", own, ("leaves",), monkeypatch)["leaves"]


LINKS = ("logs", "logs/point_omni-killed-seeds-0-0.log", "report", "report/report.html", "runs",
         "runs/point_omni-killed-seeds-0-0", "imported", "index.json")  # fmt: skip


def test_links_inside_of_a_study_are_refused(tmp_path):
    plan, outside = tmp_path / "plan.toml", tmp_path / "outside"
    plan.write_text('tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 1\npreset = "smoke"\n')
    outside.mkdir()
    (outside / "file").write_text("precious")
    for number, name in enumerate(LINKS):
        path = tmp_path / f"study{number}"
        path.mkdir()
        study.open_study(path, read(str(plan)))
        link = path / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(outside / "file" if link.suffix else outside)
        for command in (("study", plan, "--output", path), ("report", path)):
            line = complaint(elites(*command), 1)
            assert f"{link} is a symbolic link, and elites follows none inside of a study" in line
    assert contents(outside) == {"file": b"precious"}
    assert [entry.name for entry in outside.iterdir()] == ["file"]


def test_a_log_that_becomes_a_link_is_not_followed(tmp_path):
    made = study.open_study(tmp_path, Plan(("point_omni",), ("me",), seeds=1, preset="smoke"))
    made.logs.mkdir()
    (tmp_path / "theirs").write_text("precious")
    log = made.logs / f"{made.items()[0].name}.log"
    log.symlink_to(tmp_path / "theirs")
    with pytest.raises(RunError, match="is a symbolic link"):
        LocalEngine().start(made, made.items()[0], "train")
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(RunError, match="not a plain file"):
        LocalEngine().start(made, made.items()[0], "train")
    assert (tmp_path / "theirs").read_text() == "precious"
