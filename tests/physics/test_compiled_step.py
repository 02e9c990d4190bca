"""Check the compiled step: no scatter, one batch axis under any vmap, no rank promotion."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import physics, tasks
from handmade import body, hinge, motor, world
from recordings import ROBOTS, TASKS, advance, bodies_of, compiled_step, first_world, recording


def step_of(name):
    return functools.partial(physics.step, tasks.make(name).body_model)


def lowered_text(function, *arguments):
    """Return the programs for a CPU and a GPU in one text. Needs no GPU."""
    platforms = ("cpu", "cuda")
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=platforms).as_text()


def scatters(text):
    """Return the scatter operations of a program in StableHLO or HLO."""
    return re.findall(r"stablehlo\.\w*scatter\w*|\b[\w-]*scatter[\w-]*\(", text)


@pytest.mark.parametrize("name", TASKS)
def test_a_step_scatters_nothing(name):
    """Scatter-adds on a GPU have no fixed order, so the last bits would change between runs."""
    model = tasks.make(name).body_model
    shapes = (
        jax.ShapeDtypeStruct((ROBOTS, *model.rest.shape), jnp.float32),
        jax.ShapeDtypeStruct((ROBOTS, model.action_size), jnp.float32),
    )
    text = lowered_text(jax.vmap(step_of(name)), *shapes)
    # Sums over rows are products on a CPU and gathers on a GPU: both programs are in the text.
    assert "stablehlo.dot_general" in text
    assert "stablehlo.gather" in text
    assert not scatters(text)


@pytest.mark.parametrize("name", TASKS)
def test_a_compiled_step_of_the_task_scatters_nothing(name):
    text = compiled_step(name).as_text()
    assert "multiply(" in text
    assert not scatters(text)


def test_a_scatter_would_be_found():
    def add_up(index, x):
        return jnp.zeros(3).at[index].add(x)

    arguments = jnp.array([0, 1, 1]), jnp.ones(3)
    assert scatters(lowered_text(add_up, *arguments))
    assert scatters(jax.jit(add_up).lower(*arguments).as_text(dialect="hlo"))


@pytest.fixture(scope="module")
def walkers():
    """Return states and actions of 32 walkers, and their next states under one vmap."""
    data = recording("walker_uni")
    states, actions = data["state"][:ROBOTS], data["action"][:ROBOTS]
    world = advance("walker_uni", states, actions)
    angles, velocities = world.observation[:, 4:10], world.observation[:, 13:19]
    return states, actions, (bodies_of("walker_uni", world), angles, velocities)


def seen(result):
    """Return state, joint angles and joint velocities of a step's result."""
    state, sensors = result
    return state, sensors.angles, sensors.velocities


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-5)


def test_nested_vmap_is_the_flat_one(walkers):
    states, actions, flat = walkers
    split = [a.reshape(2, ROBOTS // 2, *a.shape[1:]) for a in (states, actions)]
    nested = seen(jax.jit(jax.vmap(jax.vmap(step_of("walker_uni"))))(*split))
    assert_same([a.reshape(-1, *a.shape[2:]) for a in nested], flat)


def test_one_robot_alone_and_many_agree(walkers):
    states, actions, flat = walkers
    step = jax.jit(step_of("walker_uni"))
    for i in (0, 17):
        assert_same(seen(step(states[i], actions[i])), [a[i] for a in flat])


def test_mapping_over_actions_or_states_alone():
    model = physics.build(
        world(body("parent"), body("child"), joints=[hinge()], actuators=[motor()])
    )
    step = functools.partial(physics.step, model)
    rng = np.random.default_rng(0)
    actions = jnp.asarray(rng.uniform(-1, 1, (4, 1)), jnp.float32)
    states = jnp.asarray(model.rest + 0.1 * rng.normal(size=(4, 13, 2)), jnp.float32)

    @jax.jit
    def all_ways(states, actions):
        flat, state, action = jax.vmap(step), states[3], actions[3]
        return (
            (
                jax.vmap(step, in_axes=(None, 0))(state, actions),
                jax.vmap(step, in_axes=(0, None))(states, action),
            ),
            (
                flat(jnp.repeat(state[None], 4, axis=0), actions),
                flat(states, jnp.repeat(action[None], 4, axis=0)),
            ),
        )

    assert_same(*all_ways(states, actions))


@pytest.mark.parametrize("name", TASKS)
def test_tables_broadcast_without_changing_rank(name):
    """A table must be [rows, 1] to broadcast against [rows, n]; [rows] would be a mistake."""
    task = tasks.make(name)
    with jax.numpy_rank_promotion("raise"):
        jax.eval_shape(jax.vmap(task.reset), jax.random.split(jax.random.key(0), 5))
        jax.eval_shape(
            jax.vmap(task.step), first_world(name), jnp.zeros((ROBOTS, task.action_size))
        )
