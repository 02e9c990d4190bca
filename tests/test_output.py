"""Standard streams that are closed, broken, full, or unable to encode, in real processes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from elites import output, words
from program import POINT, checkpoints, command, environment, rows

ITERATIONS = [*range(1, 10)]  # of the smoke preset


def shell(redirection: str, *arguments: object, **environ: str) -> subprocess.CompletedProcess:
    """Run a command to its end, with streams that the shell redirects. Return bytes."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)],
        env=environment(**environ),
        capture_output=True,
    )


def check_complete(run: Path, done: subprocess.CompletedProcess) -> None:
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (run / "summary.md").exists()
    assert checkpoints(run)[-1] == 9
    assert [int(row["iteration"]) for row in rows(run / "metrics.csv")] == ITERATIONS


def test_training_goes_on_without_streams(tmp_path):
    run = tmp_path / "run"
    done = shell("<&- >&- 2>&-", "train", *POINT, "--output", run)
    check_complete(run, done)
    assert (done.stdout, done.stderr) == (b"", b"")
    # Nothing was written into the files that took the numbers of the closed streams.
    for name in ("config.json", "facts.json", "environment.json"):
        json.loads((run / name).read_text())


def test_training_goes_on_when_the_readers_are_gone(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("train", *POINT, "--output", run),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    process.wait()
    check_complete(run, subprocess.CompletedProcess([], process.returncode))


def test_a_study_goes_on_when_the_readers_are_gone(tmp_path):
    plan, study = tmp_path / "plan.toml", tmp_path / "study"
    plan.write_text('preset = "smoke"\ntasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 1\n')
    done = shell("2>&- | true", "study", plan, "--output", study)
    (run,) = (study / "runs").iterdir()
    check_complete(run, done)
    again = shell(">/dev/full 2>/dev/full", "study", plan, "--output", study)
    assert again.returncode == 0


STRANGE = os.fsdecode(b"run \xff \xc3\xa9\n\x1b[31m")  # not UTF-8; an accent; a line; red


def test_a_path_that_cannot_be_encoded_is_no_error(tmp_path):
    run = tmp_path / STRANGE
    ascii_only = {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = shell("", "train", *POINT, "--output", run, **ascii_only)
    check_complete(run, done)
    lines = (done.stdout + done.stderr).decode("ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("finished after")]
    assert line.endswith(r"/run \udcff \udcc3\udca9 \x1b[31m")
    # The command that is printed can be copied into a shell.
    done = shell("", "resume", run)
    (line,) = done.stdout.decode().splitlines()
    word = re.findall(r"resume (.*) --evaluations", line)[0]
    seen = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert seen.stdout == os.fsencode(run)


@pytest.mark.parametrize("text", ["runs/a", "my run", "it's", "a\nb", "\x1b[2J", "é", "$HOME`ls`"])
def test_a_quoted_path_is_one_word_of_the_shell(text):
    seen = subprocess.run(["bash", "-c", f"printf %s {words.quoted(text)}"], capture_output=True)
    assert seen.stdout == os.fsencode(text)
    assert words.quoted(text).isprintable()


# ------------------------------------------------------------------------------------- terminals


def on_terminal(*arguments: object, **environ: str) -> str:
    """Run a command on a pseudo-terminal and return all that it prints there."""
    parent, child = pty.openpty()
    kept = {k: v for k, v in environment(**environ).items() if v}
    process = subprocess.Popen(
        command(*arguments), env=kept, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    parts = []
    try:
        while data := os.read(parent, 4096):
            parts.append(data)
    except OSError:  # the process has closed its end
        pass
    os.close(parent)
    assert process.wait() == 0
    return b"".join(parts).decode("ascii" if environ.get("LC_ALL") == "C" else "utf-8")


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def test_a_dumb_terminal_gets_no_control_characters(tmp_path):
    plain = {"TERM": "dumb", "NO_COLOR": "", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    said = on_terminal("train", *POINT, "--output", tmp_path / "run", **plain)
    assert "finished after 9 iterations" in said
    assert not CONTROL.search(said.replace("\r\n", "\n"))
    said = on_terminal("train", "--help", **plain)
    assert "--preset" in said
    assert not CONTROL.search(said.replace("\r\n", "\n"))
    assert "\\u" not in said


def test_no_color_is_obeyed():
    said = on_terminal("train", "--help", NO_COLOR="1", TERM="xterm-256color")
    assert "--preset" in said
    assert "\x1b" not in said


# --------------------------------------------------------------------------------------- in words


def test_output_to_a_reader_that_is_gone_has_its_own_exit_code():
    assert shell("| true", "algorithms").returncode == 0  # the exit code of `true`
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command("algorithms"), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_to_a_full_disk_is_an_error():
    done = shell(">/dev/full", "algorithms")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_streams_that_fail_are_no_error(tmp_path):
    assert output.write("text", None)
    file = open(tmp_path / "file", "w")  # noqa: SIM115
    assert output.write("text", file)
    file.close()
    assert not output.write("text", file)
    assert not output.is_terminal(None)
    assert not output.is_terminal(file)
