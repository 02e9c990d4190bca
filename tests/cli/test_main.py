"""Help, version and exit codes of the real program, and that they appear without heavy packages."""

from __future__ import annotations

import re

import pytest

import elites
from elites import cli, tasks
from processes import run, run_watched


def test_version():
    done, loaded = run_watched("--version")
    assert (done.returncode, done.stdout) == (0, f"elites {elites.__version__}\n")
    assert loaded == []


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(arguments):
    done, loaded = run_watched(*arguments)
    assert done.returncode == 0
    assert loaded == []
    for name in cli.COMMANDS:
        assert re.search(rf"^  {name} +\w", done.stdout, re.M)
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_help_of_a_command_loads_nothing_heavy(command):
    done, loaded = run_watched(command, "--help")
    assert done.returncode == 0
    assert f"usage: elites {command}" in done.stdout
    assert "(default: None)" not in done.stdout.partition("hp options")[0]
    assert loaded == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tasks", "ant_omi"], ["unknown task 'ant_omi'", "'ant_omni'?", *tasks.names()]),
        (["tasks", "qwertz"], ["unknown task 'qwertz'", *tasks.names()]),
        (["tasks", "ant_omni", "twice"], ["'twice'", "elites tasks --help"]),
        (["tasks", "--hlp"], ["unknown option '--hlp'", "'--help'?"]),
        (["demo", "--otput=x"], ["unknown option '--otput'", "'--output'?"]),
        (["demo", "--output"], ["--output"]),
        (["study", "smoke", "--only"], ["--only needs at least one value", "study --help"]),
        (["study", "--only", "--dry-run", "smoke"], ["--only needs at least one value"]),
        (["resume", "run", "--log", "--device", "cpu"], ["--log needs at least one value"]),
        (["taks"], ["unknown command 'taks'", "'tasks'?", *cli.COMMANDS]),
        (["--verison"], ["unknown option '--verison'", "'--version'?"]),
    ],
)
def test_bad_input_is_refused_in_one_line_before_jax_loads(arguments, expected):
    done, loaded = run_watched(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("elites: ")
    for text in expected:
        assert text in line
    assert "jax" not in loaded


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("ELITES_DEBUG", "1")
    done = run("tasks", "nothing")
    assert "Traceback" in done.stderr
    assert "unknown task 'nothing'" in done.stderr
