"""Test the standard names of tasks."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest

import brax_models
from elites import cli, packages, tasks
from elites.core import networks
from elites.core.catalogue import suggestion
from elites.tasks.scenes import scene_of
from elites.tasks.standard import STANDARD
from elites.viewer.recording import RecordingRequest, record

OF_BRAX = [name for name, full in STANDARD.items() if full.startswith("brax:")]


@pytest.fixture
def without_brax(monkeypatch):
    """Pretend that brax is not installed."""
    found = packages.is_installed
    monkeypatch.setattr(packages, "is_installed", lambda name: name != "brax" and found(name))


def test_walker2d_uni_is_walker_uni():
    """The functions are the same objects, so every bit of an episode is the same."""
    walker, alias = tasks.make("walker_uni"), tasks.make("walker2d_uni")
    assert alias.name == "walker2d_uni"
    assert dataclasses.replace(alias, name="walker_uni") == walker
    assert tasks.versions(alias) == {}


def test_standard_names_are_known_but_not_listed_as_tasks_of_their_own():
    assert not set(STANDARD) & set(tasks.names())
    with pytest.raises(ValueError, match="Did you mean 'hopper_uni'") as refusal:
        tasks.check("hoper_uni")
    for name in STANDARD:
        assert name in str(refusal.value)
    assert suggestion("hoper_uni", tasks.names()) == ""
    with pytest.raises(ValueError, match="exists already"):
        tasks.register("hopper_uni", lambda: None)


@pytest.mark.parametrize("name", OF_BRAX)
def test_a_missing_package_is_refused_in_one_line(without_brax, name, capsys):
    assert cli.main(["tasks", name]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "needs the package brax: pip install 'elites[brax]'" in said


def test_the_list_says_which_package_is_missing(without_brax, capsys):
    assert cli.main(["tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, full in STANDARD.items():
        (line,) = (line for line in lines if line.startswith(f"{name} "))
        assert full in line
        assert ("pip install 'elites[brax]'" in line) == (name in OF_BRAX)


@pytest.mark.parametrize(
    ("name", "observation", "action", "low", "high"),
    [
        ("hopper_uni", 11, 3, (0.0,), (1.0,)),
        ("halfcheetah_uni", 17, 6, (0.0, 0.0), (1.0, 1.0)),
        ("humanoid_omni", 244, 17, (-30.0, -30.0), (30.0, 30.0)),
    ],
)
def test_tasks_of_brax_under_their_standard_names(name, observation, action, low, high):
    pytest.importorskip("brax", reason="LEFT OUT: needs brax, elites[brax]")
    task = tasks.make(name)
    assert task.name == name
    assert tasks.make(name) is task
    assert (task.observation_size, task.action_size) == (observation, action)
    assert (task.descriptor_low, task.descriptor_high) == (low, high)
    assert task.episode_length == 1000
    assert task.qd_offset == {"hopper_uni": -900.0, "halfcheetah_uni": -9231.0}.get(name, 0.0)
    assert tasks.is_built_in(task)
    assert tasks.lasting_name(task) == tasks.lasting_name(name) == name
    assert "brax" in tasks.versions(task)
    assert task.scene is not None
    assert ("without that for forward speed" in task.reward_text) == (name == "humanoid_omni")


def test_making_a_task_writes_no_log(tmp_path, monkeypatch):
    """MuJoCo warns of this model, by default in a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    brax_models.load("half_cheetah")
    assert list(tmp_path.iterdir()) == []


def test_robots_without_a_reward_for_speed_are_refused():
    pytest.importorskip("brax", reason="LEFT OUT: needs brax, elites[brax]")
    with pytest.raises(ValueError, match="inverted_pendulum of brax has no reward for forward"):
        tasks.make("brax:inverted_pendulum,forward_reward=no,descriptor=mean_height")


def test_a_recording_of_a_brax_robot_is_one_robot():
    """The bodies stay together, within the slack of brax's springs.

    Without actions and without the reward for speed, every step of the hopper is worth 1.
    """
    pytest.importorskip("brax", reason="LEFT OUT: needs brax, elites[brax]")
    task = tasks.make("brax:hopper,episode_length=8,forward_reward=no")
    network = networks.policy(task.observation_size, task.action_size, (4,))
    asked = RecordingRequest(network, np.zeros(network.size, np.float32), np.ones(1, np.float32))
    (recording,) = record(task, asked)
    assert recording.fitness == 8.0
    assert recording.poses.shape == (9, 4, 7)
    packed = recording.to_json()["poses"]
    numbers = np.frombuffer(base64.b64decode(packed["numbers"]), "<i2").reshape(9, 4, 7) / 32767
    places, turns = numbers[..., :3] * packed["scale"], numbers[..., 3:]
    np.testing.assert_allclose(np.linalg.norm(turns, axis=-1), 1.0, atol=1e-3)
    offsets = brax_models.load("hopper").body_pos[1:]
    for child in (1, 2, 3):  # each hangs on the one before
        w, axis = turns[:, child - 1, :1], turns[:, child - 1, 1:]
        twice = 2 * np.cross(axis, offsets[child])
        hinge = places[:, child - 1] + offsets[child] + w * twice + np.cross(axis, twice)
        assert np.linalg.norm(hinge - places[:, child], axis=-1).max() < 0.02
    scene = scene_of(task)
    assert scene.bodies == ("torso", "thigh", "leg", "foot")
    assert scene.dt == pytest.approx(0.008)
    foot = scene.shapes[-1]
    assert (foot.body, foot.kind) == (3, "capsule")
    lowest = places[0, 3, 2] + foot.position[2] - foot.size[0]  # it lies along x
    assert lowest == pytest.approx(0.0, abs=0.05)  # it starts at the ground
