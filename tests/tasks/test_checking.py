"""A task that cannot be trained on is refused before training, in the terms of the task."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import tasks
from elites.tasks import checking
from elites.tasks.task import Task, TaskState

POINT = tasks.make("point_omni")


def changed(where: str, **fields) -> Task:
    """The point, with some fields of the state after reset or step computed differently."""

    def altered(function):
        def call(*arguments):
            state = function(*arguments)
            return state._replace(**{name: make(state) for name, make in fields.items()})

        return call

    return dataclasses.replace(POINT, name="broken", **{where: altered(getattr(POINT, where))})


def python_if(state: TaskState, action: jax.Array) -> TaskState:
    if action[0] > 0:
        return POINT.step(state, action)
    return POINT.step(state, -action)


def raising(state: TaskState, action: jax.Array) -> TaskState:
    raise KeyError("gravity")


HERE = re.escape(__file__)
BROKEN = {
    "a reward of shape (1,)": (
        changed("step", reward=lambda s: s.reward[None]),
        r"reward of step must be float32\[\], got float32\[1\]",
    ),
    "an integer for done": (
        changed("reset", done=lambda s: jnp.int32(0)),
        r"done of reset must be bool\[\], got int32\[\]",
    ),
    "an integer reward": (
        changed("step", reward=lambda s: jnp.int32(1)),
        r"reward of step must be float32\[\], got int32\[\]",
    ),
    "an observation of another size": (
        changed("step", observation=lambda s: jnp.zeros(4)),
        r"observation of step must be float32\[3\], got float32\[4\]; observation_size is 3",
    ),
    "a descriptor of another size": (
        changed("reset", descriptor=lambda s: jnp.zeros(1)),
        r"descriptor of reset must be float32\[2\], got float32\[1\]; descriptor_low has 2",
    ),
    "an inner state that changes its type": (
        changed("step", inner=lambda s: (s.inner[0], jnp.int32(1))),
        r"inner\[1\] is float32\[\] after reset and int32\[\] after step",
    ),
    "an inner state that grows": (
        changed("step", inner=lambda s: (*s.inner, jnp.zeros(2))),
        r"inner\[2\] is absent after reset and float32\[2\] after step",
    ),
    "a step that returns nothing": (
        dataclasses.replace(POINT, name="broken", step=lambda state, action: None),
        "step must return a TaskState, it returned None",
    ),
    "a step that raises": (
        dataclasses.replace(POINT, name="broken", step=raising),
        rf"step raised KeyError: 'gravity' \({HERE}, line \d+\)",
    ),
    "a Python if": (
        dataclasses.replace(POINT, name="broken", step=python_if),
        rf"step needs a number that is only known .*\({HERE}, line \d+\)\. Use jnp\.where",
    ),
    "a start that is not finite": (
        changed("reset", observation=lambda s: s.observation * jnp.nan),
        "reset returns numbers that are not finite: observation",
    ),
    "a reward that is never finite": (
        changed("step", reward=lambda s: s.reward / 0.0),
        "within 20 steps every one of 8 random policies has .* not finite: reward",
    ),
    "an inner state that is not finite": (
        changed("reset", inner=lambda s: jax.tree.map(lambda a: a + jnp.inf, s.inner)),
        "reset returns numbers that are not finite: inner",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_wrong_is_said(fault):
    task, message = BROKEN[fault]
    with pytest.raises(ValueError, match=message) as error:
        checking.check(task)
    assert str(error.value).startswith("task 'broken': ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["point_omni", "noisy_point_omni", "arm_reach", "walker_uni"])
def test_good_tasks_pass(name):
    checking.check(tasks.make(name))


def test_steps_after_the_end_of_an_episode_do_not_matter():
    """Rollouts keep the last state of an episode that has ended."""

    def step(state, action):
        after = POINT.step(state, action)
        ended = state.done | (after.reward < 2)  # at once
        return after._replace(done=ended, reward=jnp.where(state.done, jnp.nan, after.reward))

    task = dataclasses.replace(POINT, name="short", step=step)
    assert "found no fault" in checking.check_episodes(task)


def test_lists_are_accepted_where_tuples_are():
    task = dataclasses.replace(
        POINT, name="lists", observation_layout=[["all", 3]], observation_ranges=[[0, -1.0, 1.0]]
    )
    checking.check(task)
    assert task.observation_ranges == ((0, -1.0, 1.0),)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("episode_length", True, "episode_length must be a whole number of at least 1, got True"),
        ("observation_size", 3.0, "observation_size must be a whole number"),
        ("descriptor_low", "01", "descriptor_low must be a tuple of numbers, got '01'"),
        ("descriptor_low", ("0", "1"), "descriptor_low must be a tuple of numbers"),
        ("descriptor_high", None, "descriptor_high must be a tuple of numbers"),
        ("lengthscale", -1.0, "lengthscale must be a finite number above 0, got -1.0"),
        ("lengthscale", 0.0, "lengthscale must be"),
        ("lengthscale", float("inf"), "lengthscale must be"),
        ("lengthscale", float("nan"), "lengthscale must be"),
        ("lengthscale", "0.1", "lengthscale must be a finite number above 0, got '0.1'"),
        ("step", 3, "step must be a function, got 3"),
    ],
)
def test_fields_are_checked(field, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(POINT, **{field: value})


def test_bounds_may_be_arrays():
    task = dataclasses.replace(POINT, descriptor_low=np.array([-2, -2]), descriptor_high=[2, 2.0])
    assert task.descriptor_low == (-2.0, -2.0)
    assert task.descriptor_high == (2.0, 2.0)
    hash(task)
