"""Why runs of a study failed, in real processes that fail in every way; and what they may run."""

import io
import json
from pathlib import Path

from elites import trust
from elites.study import scheduler, study
from elites.study.engines import LocalEngine
from elites.study.plan import Plan
from elites.study.table import Live
from program import environment, forget

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
    result = scheduler.run_unfinished(made, LocalEngine(2), Live(made, io.StringIO()))
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
