"""A task on which no policy ever has a finite fitness: the run never counts as finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elites.study import study as studies
from elites.study.plan import Plan
from program import HERE, SMOKE, complaint, elites, forget, succeed

# The reward becomes NaN in step 22 of 25, after the steps of the check before training. On
# `half` this happens on one side only.
TASKS = (
    (HERE / "own_tasks.py").read_text().replace("2, 2, 8, low", "2, 2, 25, low")
    + """

def late() -> Task:
    return _task("late", lambda p, t: (jnp.where(t == 22, jnp.nan, 1.0), p))


def half() -> Task:
    return _task("half", lambda p, t: (jnp.where((t == 22) & (p[0] > 0), jnp.nan, 1.0), p))
"""
)


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(TASKS)
    forget()
    return path


@pytest.fixture(scope="module")
def empty(own) -> Path:
    """A run that was trained to its end, with an empty archive."""
    path = own.with_name("run")
    line = complaint(elites("train", f"{own}:late", "me", *SMOKE, "--output", path), 1)
    assert "the archive is empty, because every evaluation was rejected" in line
    assert f"'elites tasks {own}:late --check'" in line
    return path


def test_every_resume_fails_in_the_same_line(empty):
    assert not (empty / "summary.md").exists()
    assert not (empty / "evaluation" / "metrics.csv").exists()
    done = elites("resume", empty)
    assert "the archive is empty" in complaint(done, 1)
    assert len(done.stderr.splitlines()) == 1


def test_a_study_does_not_count_it_as_done(own, empty, tmp_path):
    plan = Plan((f"{own}:late",), ("me",), seeds=1, preset="smoke")
    (tmp_path / "study").mkdir()
    study = studies.open_study(tmp_path / "study", plan)
    (item,) = study.items()
    path = shutil.copytree(empty, study.run(item).path, symlinks=True)
    assert study.state(item) == "queued"
    # Earlier versions wrote tables and a summary.
    succeed("evaluate", path)
    assert (path / "evaluation" / "metrics.csv").exists()
    assert study.state(item) == "queued"
    (path / "summary.md").write_text("# late\n")
    assert study.state(item) == "queued"
    assert "the archive is empty" in complaint(elites("resume", path), 1)


def test_the_check_names_the_step(own):
    line = complaint(elites("tasks", f"{own}:late", "--check"), 2)
    assert "every one of 8 random policies" in line
    assert line.endswith("first in step 22 of 25: reward")


def test_the_check_runs_whole_episodes(own):
    said = succeed("tasks", f"{own}:paid", "--check").stdout
    assert said == "paid: 25 steps of 8 random policies found no fault\n"


def test_the_check_tells_of_some_policies(own):
    said = succeed("tasks", f"{own}:half", "--check").stdout
    assert "not finite, first in step 22 of 25: reward. Training rejects such" in said
