"""Tasks of MuJoCo models of one's own, against MuJoCo itself, and what is refused."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import elites
from elites import tasks
from elites.core import networks
from elites.tasks import bounds

mujoco = pytest.importorskip("mujoco", reason="LEFT OUT: needs mujoco, pip install 'elites[mjx]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("mujoco.mjx", reason="LEFT OUT: needs MJX, pip install 'elites[mjx]'")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LEAPER = EXAMPLES / "leaper.xml"
STEPS, HEALTHY = 25, (0.45, 0.75)


def own(function: str) -> str:
    return f"{EXAMPLES / 'leaper.py'}:{function}"


def test_episodes_are_those_of_mujoco_itself():
    """MuJoCo's own simulator takes the same steps, with the actions of the same policies."""
    task = tasks.make(f"mjx:{LEAPER},feet=foot,episode_length={STEPS},healthy=0.45/0.75")
    assert (task.observation_size, task.action_size, task.repeatable) == (7, 2, False)
    run = elites.train(
        task, "me", preset="smoke", evaluations=96, policy_hidden=(4,), iso_sigma=2.0
    )
    found, differences = list(run.archive), []
    for elite in found[:8]:
        reward, contact, steps = _of_mujoco(elite.network, elite.policy)
        np.testing.assert_allclose(elite.fitness, reward, atol=0.05)
        differences.append(abs(float(elite.descriptor[0]) - contact))
        assert run.rollout(elite).steps == steps
    # A foot that rolls is a hair above or below the ground, which both round differently.
    assert np.mean(differences) < 0.06
    assert len(found) > 3


def _of_mujoco(network, policy) -> tuple[float, float, int]:
    """Fitness, share of steps with contact, and steps of an episode of MuJoCo's simulator."""
    model = mujoco.MjModel.from_xml_path(str(LEAPER))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    layers = networks.unflatten(network, policy)
    low, high = model.actuator_ctrlrange.T
    foot = model.geom("foot").id
    reward, touched, steps = 0.0, 0, 0
    while steps < STEPS:
        steps += 1
        seen = np.concatenate([data.qpos[1:], np.clip(data.qvel, -10, 10)])
        action = np.asarray(networks.apply(network, layers, seen.astype(np.float32)))
        data.ctrl[:] = low + (action + 1) / 2 * (high - low)
        before = float(data.body("torso").xpos[0])
        for _ in range(4):  # physics steps of 5 ms in 20 ms
            mujoco.mj_step(model, data)
        reward += (data.body("torso").xpos[0] - before) / 0.02
        touched += any(foot in contact.geom and contact.dist <= 0 for contact in data.contact)
        if not HEALTHY[0] <= data.body("torso").xpos[2] <= HEALTHY[1]:
            break
    return reward, touched / steps, steps


def test_functions_of_ones_own_give_reward_and_descriptor():
    name = f"mjx:{LEAPER},reward={own('reward')},descriptor={own('posture')},over=final"
    task = tasks._simulated(tasks.absolute(f"{name},random_start=yes"))
    assert task.episode_descriptor == "final"
    assert not task.deterministic
    assert not bounds.are_known(task)
    assert task.reward_text == own("reward")
    shape = jax.eval_shape(task.reset, jax.random.key(0))
    assert shape.descriptor.shape == (2,)


def test_a_run_names_its_files_with_their_absolute_paths(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    name = "mjx:leaper.xml,descriptor=leaper.py:posture,low=-1/0,high=1/0.3"
    assert tasks.resolve(name) == (f"mjx:{LEAPER},descriptor={own('posture')},high=1/0.3,low=-1/0")
    assert tasks.make(name).name == "mjx:leaper.xml,descriptor=posture"


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (('ctrlrange="-1 1"', ""), "", "the actuator 'hip' of {file} has no ctrlrange"),
        (("<mujoco", "<mujoke"), "", "MuJoCo cannot read {file}"),
        (('<motor name="hip"', '<velocity name="hip"'), ",feet=toe", "there is no geom 'toe'"),
        (("", ""), "", "feet_contact needs to know which geoms are feet"),
        (("", ""), ",healthy=1", "healthy must be a lowest and a highest number"),
        (("", ""), ",reward=missing.py:f", "there is no file missing.py"),
    ],
)
def test_unsuitable_models_are_refused_in_one_line(tmp_path, change, options, message):
    file = tmp_path / "robot.xml"
    file.write_text(LEAPER.read_text().replace(*change))
    with pytest.raises(ValueError, match=re.escape(message.format(file=file))) as refused:
        tasks.make(f"mjx:{file}{options}")
    assert "\n" not in str(refused.value)


def test_a_model_without_motors_is_refused(tmp_path):
    file = tmp_path / "robot.xml"
    file.write_text(re.sub(r"(?s)<actuator>.*</actuator>", "", LEAPER.read_text()))
    with pytest.raises(ValueError, match=r"robot\.xml has no actuators to control"):
        tasks.make(f"mjx:{file}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mjx:robot", "name a model file, mjx:FILE.xml, got 'robot'"),
        ("mjx:nowhere.xml", "there is no file nowhere.xml"),
    ],
)
def test_a_file_that_does_not_exist_is_refused(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tasks.check(name)
