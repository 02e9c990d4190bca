"""Tasks of MuJoCo Playground, against the real package."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

from elites import tasks
from elites.core import networks
from elites.tasks.rollout import evaluate

pytest.importorskip(
    "ml_collections", reason="LEFT OUT: needs playground, pip install 'elites[playground]'"
)
CARTPOLE = "playground:CartpoleBalance"


@pytest.mark.usefixtures("quick_compiler")
def test_the_cartpole_is_simulated_and_described_by_its_velocity():
    name = f"{CARTPOLE},descriptor=mean_velocity,low=-1,high=1,episode_length=4"
    task = tasks.make(name)
    assert (task.observation_size, task.action_size, task.repeatable) == (5, 1, False)
    network = networks.policy(5, 1, hidden=())
    # The bias alone decides: the cart is pushed to one side, to the other, or not at all.
    policies = np.zeros((3, network.size), np.float32)
    policies[:, -1] = [2.0, -2.0, 0.0]
    found = evaluate(task, network, policies, jax.random.key(0), batch=3)
    right, left, still = np.asarray(found.descriptors)[:, 0]
    assert left < still < right
    assert np.asarray(found.valid).all()
    assert (np.asarray(found.fitness) > 0).all()


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
