"""Runs of tasks that do not repeat to the bit, and descriptors that tell nothing apart."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import elites
import own_tasks
import program
from elites import tasks
from elites.core import networks
from elites.runs import evaluation
from elites.runs.directory import RunDirectory
from elites.tasks import bounds
from elites.tasks.rollout import evaluate
from elites.viewer import data

TASK = f"{program.HERE / 'own_tasks.py'}:not_repeatable"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, program.succeed("train", TASK, "me", *program.SMOKE, "--output", path)


def test_a_run_that_need_not_repeat_says_so_beside_its_results(trained):
    path, done = trained
    assert json.loads((path / "facts.json").read_text())["repeatable"] is False
    shown = [done.stdout, program.succeed("evaluate", path).stdout]
    shown += [program.succeed("info", path).stdout, (path / "summary.md").read_text()]
    assert all(evaluation.NOT_REPEATABLE in text for text in shown)
    assert "last bits, which depend on the batch" in program.succeed("tasks", TASK).stdout


def test_the_page_is_told_whether_a_run_repeats(trained):
    path, _ = trained
    run = RunDirectory(path)
    assert data.describe(run)["repeatable"] is False
    program.edit_json(path / "facts.json", lambda facts: facts.pop("repeatable"))  # an older run
    assert data.describe(run)["repeatable"] is True
    assert evaluation.note(run) is None


@pytest.mark.usefixtures("quick_compiler")
def test_a_constant_axis_is_warned_of_by_its_name(trained, capsys):
    warning = "warning: the descriptor axis 'nothing' has the same value for all initial policies"
    assert trained[1].stderr.count(warning) == 1
    assert "'place'" not in trained[1].stderr
    elites.train(own_tasks.not_repeatable, "me", preset="smoke", evaluations=64, progress=False)
    assert capsys.readouterr().err.count(warning) == 1


@pytest.mark.usefixtures("quick_compiler")
def test_bounds_are_estimated_from_what_random_policies_reach():
    task = own_tasks.not_repeatable()
    unknown = dataclasses.replace(
        task, descriptor_low=(-bounds.UNKNOWN, -20.0), descriptor_high=(bounds.UNKNOWN,) * 2
    )
    assert bounds.are_known(task)
    assert not bounds.are_known(unknown)
    (low, lowest), (high, highest) = bounds.estimated(unknown)
    network = networks.policy(task.observation_size, task.action_size)
    keys = jax.random.split(jax.random.key(0), bounds.POLICIES)
    policies = jax.vmap(lambda key: networks.init(network, key))(keys)
    found = np.asarray(evaluate(task, network, policies, jax.random.key(1)).descriptors[:, 0])
    size = np.ptp(found)
    np.testing.assert_allclose(low, found.min() - size / 2, atol=0.01 * size)
    np.testing.assert_allclose(high, found.max() + size / 2, atol=0.01 * size)
    assert (lowest, highest) == (-20.0, 0.5)  # given, and a constant axis


def test_a_task_without_finite_descriptors_needs_bounds():
    task = dataclasses.replace(
        own_tasks._task("nowhere", lambda p, t: (np.float32(1.0), p * np.nan)),
        descriptor_low=(-bounds.UNKNOWN,) * 2,
    )
    with pytest.raises(ValueError, match="Give them with low= and high="):
        bounds.estimated(task)


def test_names_of_built_in_tasks_are_complete():
    assert tasks.resolve("point_omni") == "point_omni"
    assert tasks.versions(tasks.make("point_omni")) == {}
