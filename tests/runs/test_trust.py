"""A run that names a Python file: the file runs only if this user trusts its contents."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pty
import py_compile
import select
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import elites as package
from elites import trust
from elites.cli import COMMANDS
from program import (
    HERE,
    SMOKE,
    command,
    complaint,
    edit_json,
    elites,
    environment,
    forget,
    succeed,
)

# A task that leaves a mark beside its file whenever its file runs.
TASK = (
    (HERE / "own_tasks.py").read_text()
    + """
from pathlib import Path

Path(__file__).with_suffix(".ran").touch()
"""
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path]:
    """The task of someone else, and a run that was trained on it. Read only."""
    folder = tmp_path_factory.mktemp("theirs")
    task = folder / "task.py"
    task.write_text(TASK)
    succeed("train", f"{task}:paid", "me", *SMOKE, "--output", folder / "run")
    return task, folder / "run"


@pytest.fixture
def received(trained, tmp_path, monkeypatch) -> tuple[Path, Path]:
    """The same task and run on the machine of a user who has trusted nothing yet."""
    theirs, run = trained
    task = Path(shutil.copy(theirs, tmp_path / "task.py"))
    run = Path(shutil.copytree(run, tmp_path / "run", symlinks=True))
    edit_json(run / "config.json", lambda config: config.update(task=f"{task}:paid"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stranger(monkeypatch)
    return task, run


def stranger(monkeypatch) -> None:
    """Make this process forget what it has read and trusted, as another process would."""
    monkeypatch.setattr(trust, "_approved", set())
    forget()


def has_run(task: Path) -> bool:
    """Return whether the file of a task has run since the last call."""
    mark = task.with_suffix(".ran")
    ran = mark.exists()
    mark.unlink(missing_ok=True)
    return ran


def records(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "state" / "elites" / "trusted"
    return sorted(folder.iterdir()) if folder.exists() else []


def test_a_received_run_runs_no_code(received, tmp_path):
    task, run = received
    for arguments in (
        ("export", run, tmp_path / "policy.safetensors"),
        ("view", run, "--export", tmp_path / "page.html"),
        ("evaluate", run),
        ("resume", run, "--evaluations", 352),
        ("distil", run),
        ("pack", run, "--elites", 2, "--half-precision", "--output", tmp_path / "model.zip"),
    ):
        done = elites(*arguments)
        line = complaint(done, 2)
        assert f"{run} needs to run the code in {task}, whose contents you have not trusted" in line
        assert "Read it, then repeat with --trust-task" in line
        assert len(done.stderr.splitlines()) == 1
        assert not has_run(task)
    with pytest.raises(ValueError, match=r"trust_task=True"):
        package.load(run)
    assert not has_run(task)
    assert records(tmp_path) == []


def test_trust_is_given_once_and_kept_for_this_user_alone(received, tmp_path, monkeypatch):
    task, run = received
    succeed("evaluate", run, "--trust-task")
    assert has_run(task)
    (kept,) = records(tmp_path)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert kept.read_text() == f"{kept.name}  {task}\n"
    stranger(monkeypatch)
    succeed("evaluate", run)
    assert has_run(task)
    stranger(monkeypatch)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert "--trust-task" in complaint(elites("evaluate", run), 2)


def test_python_trusts_once_too(received, monkeypatch):
    task, run = received
    package.load(run, trust_task=True)
    assert has_run(task)
    stranger(monkeypatch)
    assert package.load(run).seeds == (0,)


def test_info_and_plot_never_run_the_file(received, tmp_path):
    task, run = received
    succeed("info", run)
    succeed("plot", run)
    succeed("pack", run, "--output", tmp_path / "run.zip")
    succeed("pack", run, "--elites", 2, "--output", tmp_path / "model.zip")
    assert not has_run(task)
    task.unlink()
    succeed("info", run)


def test_every_command_for_runs_asks_or_never_runs_the_file():
    """A new command for runs takes --trust-task, or is entered here with a test above."""
    for name, function in COMMANDS.items():
        parameters = inspect.signature(function).parameters
        takes_runs = "run" in parameters or "runs" in parameters
        never = name in ("info", "plot")
        assert ("trust_task" in parameters) == (takes_runs and not never), name


@pytest.mark.parametrize("how", ["train", "tasks", "save"])
def test_a_file_that_its_user_names_is_trusted(received, tmp_path, monkeypatch, how):
    task, run = received
    if how == "train":
        succeed("train", f"{task}:paid", "me", *SMOKE, "--output", tmp_path / "mine")
    elif how == "tasks":
        succeed("tasks", f"{task}:paid")
    else:
        trained = package.train(f"{task}:paid", "me", preset="smoke", evaluations=64)
        assert records(tmp_path) == []
        trained.save(tmp_path / "mine")
    stranger(monkeypatch)
    succeed("evaluate", run)


def test_an_edited_file_is_trusted_anew(received, tmp_path, monkeypatch):
    task, run = received
    succeed("tasks", f"{task}:paid")
    task.write_text(TASK + "\n# a comment\n")
    stranger(monkeypatch)
    has_run(task)
    line = complaint(elites("evaluate", run), 2)
    assert f"{task}, which changed since you trusted it" in line
    assert not has_run(task)
    succeed("evaluate", run, "--trust-task")
    stranger(monkeypatch)
    succeed("evaluate", run)
    assert len(records(tmp_path)) == 2


def test_an_algorithm_is_a_file_too(received, tmp_path):
    task, run = received
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path / "own.py"))
    edit_json(run / "config.json", lambda config: config.update(algorithm=f"{own}:mutation"))
    line = complaint(elites("evaluate", run), 2)
    unknown = "whose contents you have not trusted"
    assert f"{task}, {unknown} and {own}, {unknown}" in line
    trust.record(f"{task}:paid")
    assert f"the code in {own}, whose contents you have not trusted" in complaint(
        elites("evaluate", run), 2
    )
    assert not has_run(task)


@pytest.mark.parametrize("damage", ["emptied", "other text", "a folder", "a link"])
def test_a_damaged_record_asks_again(received, tmp_path, monkeypatch, damage):
    task, run = received
    trust.record(f"{task}:paid")
    (kept,) = records(tmp_path)
    text = kept.read_text()
    kept.unlink()
    if damage == "a folder":
        kept.mkdir()
    elif damage == "a link":
        (tmp_path / "elsewhere").write_text(text)
        kept.symlink_to(tmp_path / "elsewhere")
    else:
        kept.write_text("" if damage == "emptied" else "0" * 64)
    stranger(monkeypatch)
    assert "--trust-task" in complaint(elites("evaluate", run), 2)
    done = succeed("evaluate", run, "--trust-task")
    assert ("cannot remember" in done.stderr) == (damage == "a folder")


def test_an_unwritable_home_is_a_warning(received, tmp_path, monkeypatch):
    task, run = received
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    done = succeed("evaluate", run, "--trust-task")
    (line,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert line.endswith(f"Not a directory, so elites cannot remember that you trust {task}")
    succeed("evaluate", run)  # in the same process
    stranger(monkeypatch)
    assert "--trust-task" in complaint(elites("evaluate", run), 2)


def test_compiled_code_beside_the_file_does_not_run(received, tmp_path):
    """Python would take it in place of the file that was read and trusted."""
    task, run = received
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('CODE RAN')")
    py_compile.compile(
        str(evil),
        cfile=importlib.util.cache_from_source(str(task)),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    succeed("evaluate", run, "--trust-task")
    assert has_run(task)


def answered(arguments: tuple[object, ...], answer: bytes) -> tuple[int, str]:
    """Run a command on a terminal, type an answer to its question, and return code and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*arguments), env=environment(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 300)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the process has closed the terminal
            break
        if b"[y/N] " in shown and answer:
            os.write(ours, answer)
            answer = b""
    os.close(ours)
    return process.wait(300), shown.decode()


def test_a_yes_on_a_terminal_is_trust(received, tmp_path):
    task, run = received
    policy = ("export", run, tmp_path / "policy.safetensors")
    code, shown = answered(policy, b"n\n")
    assert code == 2, shown
    assert f"{task}, whose contents you have not trusted" in shown.replace("\r\n", "")
    assert not has_run(task)
    code, shown = answered(policy, b"y\n")
    assert code == 0, shown
    assert has_run(task)
    assert len(records(tmp_path)) == 1
    succeed("evaluate", run)


def test_pack_needs_trust_only_to_round_policies(received, tmp_path, monkeypatch):
    task, run = received
    trust.record(f"{task}:paid")
    task.write_text(TASK + "\n# a comment\n")
    stranger(monkeypatch)
    file = tmp_path / "model.zip"
    half = ("pack", run, "--elites", 2, "--half-precision", "--output", file)
    line = complaint(elites(*half), 2)
    assert f"{task}, which changed since you trusted it" in line
    assert line.endswith("repeat with --trust-task (in Python: trust_task=True)")
    for options in (("--elites", 2), ()):
        done = elites("pack", run, *options, "--trust-task", "--output", file)
        assert "--trust-task is for --half-precision" in complaint(done, 2)
    assert not has_run(task)
    assert not file.exists()
    code, shown = answered(half, b"n\n")
    assert code == 2, shown
    assert not has_run(task)
    assert not file.exists()
    succeed(*half, "--trust-task")
    assert has_run(task)
    file.unlink()
    stranger(monkeypatch)
    succeed(*half)  # the contents are trusted from now on


def test_a_yes_on_a_terminal_lets_pack_round_policies(received, tmp_path):
    task, run = received
    file = tmp_path / "model.zip"
    half = ("pack", run, "--elites", 2, "--half-precision", "--output", file)
    code, shown = answered(half, b"y\n")
    assert code == 0, shown
    assert has_run(task)
    assert file.exists()


def test_the_question_shows_no_control_characters(received, tmp_path):
    task, run = received
    strange = Path(shutil.copy(task, tmp_path / "task\x1b]0;title\x07.py"))
    edit_json(run / "config.json", lambda config: config.update(task=f"{strange}:paid"))
    code, shown = answered(("export", run, tmp_path / "policy.safetensors"), b"n\n")
    assert code == 2, shown
    assert "[y/N]" in shown
    assert "task\\x1b]0;title\\x07.py" in shown.replace("\r\n", "")
    assert "\x1b" not in shown
    assert "\x07" not in shown


@pytest.fixture
def distillation(received, tmp_path) -> tuple[Path, Path]:
    """A distillation without a checkpoint, whose source names an algorithm that is not trusted."""
    task, _ = received
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path / "own.py"))
    source = tmp_path / "source"
    trust.record(f"{own}:mutation")
    succeed("train", f"{task}:paid", f"{own}:mutation", *SMOKE, "--output", source)
    succeed("distil", source, "--iterations", 1, "--steps", 1, "--hidden", 4,
            "--output", tmp_path / "distilled")  # fmt: skip
    shutil.rmtree(tmp_path / "distilled" / "checkpoints")
    shutil.rmtree(tmp_path / "distilled" / "evaluation")
    own.write_text(own.read_text() + "\n# a comment\n")
    return own, tmp_path / "distilled"


def test_trust_includes_what_a_distillation_starts_from(distillation, monkeypatch):
    own, run = distillation
    stranger(monkeypatch)
    done = elites("resume", run)
    line = complaint(done, 2)
    assert f"{run} needs to run the code in {own}, which changed since you trusted it" in line
    assert "--trust-task" in line
    assert len(done.stderr.splitlines()) == 1  # nothing was compiled
    succeed("resume", run, "--trust-task")
