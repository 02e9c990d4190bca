"""The end of a run: figures, summary and events cannot fail it, whatever they meet."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from elites.runs import figures, lock, logs, trainer
from elites.runs.directory import RunDirectory
from elites.study.plan import Plan
from elites.study.study import Item, open_study
from elites.viewer import data
from program import POINT, SMOKE, checkpoints, elites, succeed

MORE = ("--evaluations", 32 * 11)  # one iteration more than the smoke preset


def shows_no_control_characters(text: str) -> bool:
    """Return whether a text is printable line by line, so that it cannot control a terminal."""
    return all(line.isprintable() or line == "" for line in text.split("\n"))


def check_complete(done, path: Path, warning: str) -> None:
    """Check that a command succeeded with one warning and that the run says it is finished."""
    assert done.returncode == 0, done.stderr
    assert "finished after" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert warning in line
    assert "Traceback" not in done.stderr
    again = succeed("resume", path)
    assert "finished already" in again.stdout
    assert "warning" not in again.stderr


# ------------------------------------------------------------------------------------------ faults


def test_figures_that_cannot_be_drawn_do_not_fail_a_run(run):
    shutil.rmtree(run / "figures")
    (run / "figures").write_text("a file in place of the folder")
    done = elites("resume", run, *MORE)
    check_complete(done, run, "drawing figures failed (FileExistsError: ")
    assert checkpoints(run)[-1] == 10
    assert "Figures: none" in (run / "summary.md").read_text()
    assert (run / "figures").read_text() == "a file in place of the folder"


@pytest.mark.parametrize("error", [ValueError("two\nlines"), MemoryError()])
def test_errors_of_drawing_are_one_line(error, run, monkeypatch):
    def draw(run):
        raise error

    monkeypatch.setattr(figures, "draw_run", draw)
    done = elites("resume", run, *MORE)
    check_complete(done, run, f"drawing figures failed ({type(error).__name__}: ")
    assert f"'elites plot {run}' draws them" in done.stderr


def test_events_that_cannot_be_written_do_not_fail_a_run(run):
    shutil.rmtree(run / "events")
    (run / "events").write_text("a file in place of the folder")
    done = elites("resume", run, *MORE)
    check_complete(done, run, "TensorBoard")
    assert str(run / "events") in done.stderr


def test_events_that_fail_later_are_reported_once(tmp_path):
    errors = []
    events = logs.Events(tmp_path, 0, errors.append)
    assert events._file is not None
    events._file.close()
    events._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for step in range(3):
        events.scalars(step, {"qd_score \ud800": 1.0})
    events.sync()
    events.close()
    (error,) = errors
    assert error.strerror == "No space left on device"
    assert Path(error.filename).parent == tmp_path


def test_a_summary_that_cannot_be_written_does_not_fail_a_run(tmp_path, monkeypatch):
    """Also in a study, which takes a summary as the mark of a finished run."""
    path = tmp_path / "study"
    plan = Plan(("point_omni",), ("me",), seeds=1, preset="smoke")
    path.mkdir()
    study = open_study(path, plan)
    (item,) = study.items()

    def write(*_):
        raise OSError(28, "No space left on device", "summary.md")

    monkeypatch.setattr(trainer.summary, "write", write)
    done = elites("train", *POINT, "--output", study.run(item).path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "summary.md" in line
    assert "No space left on device" in line
    assert study.state(item) == "done"
    assert study.state(Item("point_omni", "me", 7, 1)) == "queued"


def test_a_lock_that_cannot_be_released_does_not_fail_a_run(tmp_path, monkeypatch):
    opened = lock._open_lock

    class Failing:
        """A lock file on a disk that is full by the end."""

        def __init__(self, file):
            self.file, self.written = file, False

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def truncate(self):
            if self.written:
                raise OSError(28, "No space left on device")
            self.written = True

    monkeypatch.setattr(lock, "_open_lock", lambda path: Failing(opened(path)))
    with lock.locked(tmp_path / "run") as stale:
        assert stale is None
        (tmp_path / "run" / "config.json").write_text("{}")


# ------------------------------------------------------------------------------------------- texts

HOSTILE = {
    "null": "a\x00b",
    "terminal": "\x1b[2J\x1b]0;title\x07 \x9b31m red",
    "direction": "abc \u202e txt.exe \u2066",
    "surrogates": "half \ud800 \udcff",
    "markup": "<script>alert(1)</script> </svg> &amp; [link](x) `code` | *bold*",
    "formats": "{} {0} {x!r} %s %d %(name)s $x^2$ $(id) \\frac",
    "long": "word " * 2000 + "w" * 5000,
    "foreign": "机器人 روبوت 🤖 e\u0301",
}

TASK = """
import dataclasses, json
from pathlib import Path
from elites import tasks

TEXTS = json.loads(Path({texts!r}).read_text())

def hostile():
    text = " ".join(TEXTS.values())
    return dataclasses.replace(
        tasks.make("point_omni"), name=text + "\\n# second line", descriptor_text=text,
        descriptor_names=(text, TEXTS["formats"]), descriptor_units=(TEXTS["markup"], text),
    )
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A finished run of a task whose texts are hostile, and what training printed."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "texts.json").write_text(json.dumps(HOSTILE))
    (folder / "mine.py").write_text(TASK.format(texts=str(folder / "texts.json")))
    options = ("me", *SMOKE[:2], "--output", folder / "run")
    return folder / "run", succeed("train", f"{folder / 'mine.py'}:hostile", *options)


def test_any_text_is_drawn_and_written(hostile):
    path, done = hostile
    assert "warning" not in done.stderr.lower()
    names = {file.name for file in (path / "figures").iterdir()}
    assert names >= {"archive.png", "archive.pdf", "curves.png", "origin.pdf"}
    summary = (path / "summary.md").read_text("utf-8")
    assert shows_no_control_characters(summary)
    assert "<script>" not in summary
    assert sum(line.startswith("# ") for line in summary.splitlines()) == 1
    assert shows_no_control_characters(done.stdout + done.stderr)


def test_any_text_is_shown_by_the_commands(hostile, tmp_path):
    path, _ = hostile
    assert shows_no_control_characters(succeed("info", path).stdout)
    done = succeed("plot", path, path, "--output", tmp_path / "both")
    assert shows_no_control_characters(done.stdout + done.stderr)
    assert len(list((tmp_path / "both").iterdir())) == 2


def test_any_text_reaches_the_page(hostile):
    about = data.describe(RunDirectory(hostile[0]))
    sent = json.dumps(about, ensure_ascii=False).encode("utf-8")
    assert b"<script>" in sent  # the page shows it as text
    assert shows_no_control_characters(sent.decode())
    assert len(sent) < 20_000


def test_a_foreign_run_cannot_control_the_terminal(run):
    records = json.loads((run / "environment.json").read_text())
    records[0]["command"] = records[0]["time"] = HOSTILE["terminal"]
    records[-1]["device"] = HOSTILE["terminal"]
    (run / "environment.json").write_text(json.dumps(records))
    assert shows_no_control_characters(succeed("info", run).stdout)
    (run / "config.json").write_text('{"format": "\\u001b[2J"}')
    done = elites("info", run)
    assert done.returncode in (1, 2)
    assert shows_no_control_characters(done.stderr)
