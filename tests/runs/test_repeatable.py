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
from elites.tasks import bounds, families
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
    assert "may round an episode differently in another row" in evaluation.NOT_REPEATABLE
    assert "last bits, which depend on the batch" in program.succeed("tasks", TASK).stdout


def test_the_page_is_told_whether_a_run_repeats(trained):
    path, _ = trained
    run = RunDirectory(path)
    assert data.describe(run)["repeatable"] is False
    program.edit_json(path / "facts.json", lambda facts: facts.pop("repeatable"))  # an older run
    assert data.describe(run)["repeatable"] is True
    assert evaluation.note(run) is None
    program.edit_json(
        path / "facts.json", lambda facts: facts.update(repeatable=False, deterministic=False)
    )
    assert evaluation.note(run) is None  # every episode differs anyway


def test_a_constant_axis_is_warned_of_by_its_name(trained, capsys):
    warning = "warning: the descriptor axis 'nothing' has the same value for all initial policies"
    assert trained[1].stderr.count(warning) == 1
    assert "'place'" not in trained[1].stderr
    elites.train(own_tasks.not_repeatable, "me", preset="smoke", evaluations=64, progress=False)
    assert capsys.readouterr().err.count(warning) == 1
    noisy = dataclasses.replace(own_tasks.not_repeatable(), deterministic=False)
    options = {"es_samples": 4, "es_repeats": 2, "evaluations": 8, "progress": False}
    elites.train(noisy, "me_es", preset="smoke", **options)
    assert warning not in capsys.readouterr().err  # one initial policy, evaluated twice


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


def test_estimated_bounds_stay_apart_when_they_are_written():
    """A range of rounding is none. Large values with a small range keep their digits."""
    descriptors = np.array([[1.0, 1000.0, 3e7, 123456.5], [1.0 + 1e-7, 1000.0005, 3e7, 123457.0]])
    low, high = bounds.widened(descriptors)
    np.testing.assert_allclose((high - low)[:3], [1.0, 1.0005, 60.0], rtol=1e-6)
    assert (high - low)[3] == 1.0
    assert (np.float32(low) < np.float32(high)).all()
    written = (families.numbers(bounds.as_option(side)) for side in (low, high))
    np.testing.assert_array_equal(list(written), [low, high])


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
