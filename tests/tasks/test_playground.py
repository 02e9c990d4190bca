"""Tasks of MuJoCo Playground, against the real package."""

from __future__ import annotations

import dataclasses
import importlib.util
import re

import numpy as np
import pytest

import elites
from elites import tasks

if importlib.util.find_spec("mujoco_playground") is None:  # importing it takes seconds
    pytest.skip(
        "LEFT OUT: needs playground, pip install 'elites[playground]'", allow_module_level=True
    )
CARTPOLE = "playground:CartpoleBalance"


def test_the_cartpole_is_simulated_and_described_by_its_velocity():
    name = f"{CARTPOLE},descriptor=mean_velocity,low=-1,high=1,episode_length=4"
    task = tasks.make(name)
    assert (task.observation_size, task.action_size, task.repeatable) == (5, 1, False)
    run = elites.train(name, "me", preset="smoke", evaluations=96, policy_hidden=())
    assert run.archive.coverage > 0.1
    assert (run.archive.fitness > 0).all()
    # The bias alone decides: the cart is pushed to one side, to the other, or not at all.
    moved = {}
    for push in (-2.0, 0.0, 2.0):
        policy = np.zeros(run.algorithm.policy.size, np.float32)
        policy[-1] = push
        done = run.rollout(dataclasses.replace(run.archive[0], policy=policy))
        assert done.valid
        moved[push] = done.descriptor[0]
    assert moved[-2.0] < moved[0.0] < moved[2.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{CARTPOLE},impl=warp", "impl cannot be warp"),
        ("playground:CartPole", "Playground has no environment 'CartPole'."),
        (CARTPOLE, "feet_contact needs to know which geoms are feet"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name, message):
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        tasks.make(name)
    assert "\n" not in str(refused.value)


def test_the_feet_of_its_walkers_are_known():
    assert tasks.make("playground:WalkerWalk").descriptor_names == (
        "contact of right_foot",
        "contact of left_foot",
    )
