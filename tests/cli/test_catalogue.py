"""The commands that list and explain tasks and algorithms."""

from __future__ import annotations

import re

import pytest

from elites import cli, tasks
from elites.core import catalogue, usage
from elites.tasks import families
from processes import run


def test_tasks_lists_every_task_in_aligned_columns():
    done = run("tasks")
    assert done.returncode == 0, done.stderr
    listed, _, others = done.stdout.partition("\n\n")
    header, *rows = listed.splitlines()
    assert [row.split()[0] for row in rows] == tasks.names()
    for column in ("bounds", "descriptor"):
        start = header.index(column)
        assert all(row[start - 2 : start] == "  " and row[start] != " " for row in rows)
    for family in families.FAMILIES.values():
        (row,) = (line for line in others.splitlines() if family.summary in line)
        assert row.endswith(family.example)
        assert family.is_installed == (f"pip install 'elites[{family.extra}]'" not in row)


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
    for text in (task.termination_text, task.descriptor_text, "final x (m), -30 to 30", "21,384"):
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


def test_algorithms_lists_every_algorithm(capsys):
    assert cli.main(["algorithms"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == list(catalogue.ALGORITHMS)


def test_algorithms_explains_one(capsys):
    assert cli.main(["algorithms", "dcg_me"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dcg_me: DCG-MAP-Elites\n")
    assert re.search(r"^offspring +in an iteration: ga 128, pg 128$", out, re.M)
    assert re.search(r"^evaluations +256 in an iteration$", out, re.M)
    assert "sees observation and descriptor" in out


@pytest.mark.parametrize("name", catalogue.ALGORITHMS)
def test_algorithms_explains_all(capsys, name):
    assert cli.main(["algorithms", name]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(f"{name}: ")
    assert out.endswith(f"reads the hyperparameters {', '.join(usage.read_by(name))}")
