"""The command line as a user meets it: the real program in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import elites
from elites import cli, tasks

# Runs the command and then says, on the last line of stderr, which heavy packages it loaded.
WATCHED = """
import atexit, sys
heavy = ("jax", "jaxlib", "matplotlib", "numpy")
atexit.register(lambda: print("loaded:", *[m for m in heavy if m in sys.modules], file=sys.stderr))
from elites.cli import main
sys.exit(main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "elites", *arguments], capture_output=True, text=True
    )


def run_watched(*arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments], capture_output=True, text=True
    )
    *stderr, last = done.stderr.splitlines()
    assert last.startswith("loaded:")
    done.stderr = "\n".join(stderr)
    return done, last.split()[1:]


def test_tasks_lists_every_task_in_aligned_columns():
    done = run("tasks")
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == tasks.names()
    for column in ("bounds", "descriptor"):
        start = header.index(column)
        assert all(row[start - 2 : start] == "  " and row[start] != " " for row in rows)


@pytest.mark.parametrize(
    ("task", "numbers", "bounds"),
    [
        ("ant_omni", "29 8 250 21,384", "[-30, 30]^2"),
        ("anttrap_omni", "29 8 250 21,384", "[-30, 30]^2"),
        ("hexapod_omni", "48 18 250 25,106", "[-2, 2]^2"),
        ("walker_uni", "19 6 1000 19,846", "[0, 1]^2"),
    ],
)
def test_tasks_shows_the_sizes_of_the_paper(capsys, task, numbers, bounds):
    assert cli.main(["tasks"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(f"{task} "))
    assert row.split()[1:5] == numbers.split()
    assert bounds in row


def test_tasks_explains_one():
    done = run("tasks", "ant_omni")
    assert done.returncode == 0, done.stderr
    out = done.stdout
    task = tasks.make("ant_omni")
    assert task.summary in out.splitlines()[0]
    for text in (task.termination_text, task.descriptor_text, "[-30, 30]^2", "21,384"):
        assert text in out
    assert re.search(r"^reward +max\(0, 1 - 0\.5 \|a\|\^2", out, re.M)
    assert re.search(r"^deterministic +yes$", out, re.M)
    assert re.search(r"^  3-6 +torso quaternion", out, re.M)
    assert re.search(r"^  21-28 +joint velocities", out, re.M)
    assert re.search(r"^  7 +motor of joint", out, re.M)
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("name", tasks.names())
def test_tasks_explains_all(capsys, name):
    assert cli.main(["tasks", name]) == 0
    out = capsys.readouterr().out
    task = tasks.make(name)
    assert re.search(rf"^deterministic +{'yes' if task.deterministic else 'no'}", out, re.M)
    # The index ranges cover the observation from its first entry to its last.
    section = out.partition("observation, ")[2].partition("\naction, ")[0]
    ranges = re.findall(r"^  (\d+)(?:-(\d+))?  ", section, re.M)
    covered = [i for low, high in ranges for i in range(int(low), int(high or low) + 1)]
    assert covered == list(range(task.observation_size))


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


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_help_of_a_command_loads_nothing_heavy(command):
    done, loaded = run_watched(command, "--help")
    assert done.returncode == 0
    assert f"usage: elites {command}" in done.stdout
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
