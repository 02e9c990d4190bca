"""Test sizes, bounds, lengths and ends of the tasks, and the checks of own tasks."""

import dataclasses
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import tasks
from elites.core import networks
from elites.tasks import rollout
from elites.tasks.task import Task, TaskState
from recordings import ROBOTS, TASKS, advance, bodies_of, first_world
from reference_engine import about, hamilton, turn

# name: observation, action, episode, parameters of a [128, 128] policy, reach, kind of descriptor
TABLE = {
    "ant_omni": (29, 8, 250, 21_384, (-30.0, 30.0), "final"),
    "anttrap_omni": (29, 8, 250, 21_384, (-30.0, 30.0), "final"),
    "hexapod_omni": (48, 18, 250, 25_106, (-2.0, 2.0), "final"),
    "walker_uni": (19, 6, 1000, 19_846, (0.0, 1.0), "mean"),
}


@pytest.mark.parametrize("name", TASKS)
def test_sizes(name):
    task = tasks.make(name)
    observation, action, length, parameters, (low, high), kind = TABLE[name]
    assert task.name == name
    assert task.observation_size == observation
    assert task.action_size == action
    assert task.episode_length == length
    assert networks.policy(observation, action, (128, 128)).size == parameters
    assert networks.policy(observation, action) == networks.policy(observation, action, (128, 128))
    assert task.descriptor_low == (low, low)
    assert task.descriptor_high == (high, high)
    assert task.descriptor_size == 2
    assert task.episode_descriptor == kind
    assert task.deterministic
    assert sum(size for _, size in task.observation_layout) == observation


@pytest.mark.parametrize("name", tasks.names())
def test_what_a_task_returns_has_the_sizes_it_states(name):
    task = tasks.make(name)
    world = jax.eval_shape(task.reset, jax.random.key(0))
    following = jax.eval_shape(task.step, world, jnp.zeros(task.action_size))
    for state in (world, following):
        assert state.observation.shape == (task.observation_size,)
        assert state.descriptor.shape == (task.descriptor_size,)
        assert state.reward.shape == state.done.shape == ()
        assert state.done.dtype == bool
    assert jax.tree.structure(world) == jax.tree.structure(following)
    if task.bodies is not None:
        assert jax.eval_shape(task.bodies, world).shape == (13, len(task.body_model.bodies))


@pytest.mark.parametrize("name", TASKS)
def test_episodes_start_at_rest_whatever_the_key(name):
    task, world = tasks.make(name), first_world(name)  # one key for each robot
    for leaf in jax.tree.leaves(world):
        np.testing.assert_array_equal(leaf, np.repeat(np.asarray(leaf)[:1], ROBOTS, axis=0))
    np.testing.assert_array_equal(bodies_of(name, world)[0], task.body_model.rest)
    assert not world.reward.any()
    assert not world.done.any()


# ------------------------------------------------------------------------------------- the ends


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("ant_omni", 0.2, 1.0),
        ("anttrap_omni", 0.2, 1.0),
        ("hexapod_omni", 0.05, 0.19),
        ("walker_uni", 0.7, 2.0),
    ],
)
def test_an_episode_ends_when_the_torso_is_too_low_or_too_high(name, low, high):
    """Take one step from many heights around both bounds.

    All bodies move up just fast enough that no ground contact acts.
    """
    task = tasks.make(name)
    states = np.repeat(task.body_model.rest[None], 2 * ROBOTS, axis=0)
    margin = 0.1 * (high - low)
    heights = np.concatenate(
        [np.linspace(bound - margin, bound + margin, ROBOTS) for bound in (low, high)]
    )
    states[:, 2] += (heights - states[:, 2, 0])[:, None].astype(np.float32)
    states[:, 9] = np.float32(1.2 * 9.81 * task.body_model.dt)
    world = advance(name, states, np.zeros((2 * ROBOTS, task.action_size), np.float32))
    z = bodies_of(name, world)[:, 2, 0]
    np.testing.assert_array_equal(world.done, (z < np.float32(low)) | (z > np.float32(high)))
    for bound, near in ((low, slice(0, ROBOTS)), (high, slice(ROBOTS, None))):
        assert world.done[near].any(), bound
        assert not world.done[near].all(), bound


def test_the_walker_also_ends_when_it_leans_too_far():
    task = tasks.make("walker_uni")
    rest = task.body_model.rest.astype(np.float64)
    pitches = np.concatenate([np.linspace(0.9, 1.1, 16), -np.linspace(0.9, 1.1, 16)])
    states = []
    for pitch in pitches:
        lean, state = about([0, 1, 0], pitch), rest.copy()
        middle = rest[0:3, 0]
        state[0:3] = np.stack([middle + turn(lean, p - middle) for p in rest[0:3].T], -1)
        state[3:7] = np.stack([hamilton(lean, q) for q in rest[3:7].T], -1)
        states.append(state)
    states = np.array(states, np.float32)
    states[:, 2] += np.float32(0.3)
    world = advance("walker_uni", states, np.zeros((ROBOTS, 6), np.float32))
    bodies = bodies_of("walker_uni", world)
    assert ((bodies[:, 2, 0] > 0.7) & (bodies[:, 2, 0] < 2.0)).all()  # height is not the reason
    pitch = 2 * np.arctan2(bodies[:, 5, 0], bodies[:, 3, 0])  # it turns about y alone
    np.testing.assert_allclose(world.observation[:, 3], pitch, atol=1e-5)
    np.testing.assert_array_equal(world.done, np.abs(pitch) > 1.0)
    for side in (world.done[:16], world.done[16:]):
        assert side.any()
        assert not side.all()


# -------------------------------------------------------------- not covered by the recordings


@pytest.mark.parametrize("name", ["ant_omni", "anttrap_omni"])
def test_observed_places_are_clipped_but_the_state_is_not(name):
    task = tasks.make(name)
    states = np.repeat(task.body_model.rest[None], 4, axis=0)
    states[:, 0] += np.array([45.0, -45.0, 0.0, 15.0], np.float32)[:, None]
    states[:, 1] += np.array([0.0, 0.0, 31.0, -3.0], np.float32)[:, None]
    world = advance(name, states, np.zeros((4, 8), np.float32))
    expected = [[1, 0], [-1, 0], [0, 1], [0.5, -0.1]]
    np.testing.assert_allclose(world.observation[:, :2], expected, atol=1e-3)
    np.testing.assert_allclose(world.descriptor[:2, 0], [45.0, -45.0], atol=0.01)


@pytest.mark.parametrize("name", TASKS)
def test_a_reward_is_never_negative(name):
    """For actions outside [-1, 1], the cost of the action exceeds the rest of the reward."""
    task = tasks.make(name)
    action = np.zeros((1, task.action_size), np.float32)
    action[0, 0] = 3.2 if name != "walker_uni" else 40.0
    states = task.body_model.rest[None].copy()
    states[:, 2] += np.float32(0.3)
    if name == "hexapod_omni":
        action[0, 0] = 4.4
    assert advance(name, states, action).reward[0] == 0.0
    assert advance(name, states, 0.0 * action).reward[0] > 0.5


def test_the_walker_is_paid_for_speed():
    task = tasks.make("walker_uni")
    states = np.repeat(task.body_model.rest[None], 2, axis=0)
    states[:, 2] += np.float32(0.3)
    states[1, 7] = 1.5  # all bodies move forward alike
    action = np.full((2, 6), 0.5, np.float32)
    world = advance("walker_uni", states, action)
    moved = bodies_of("walker_uni", world)[:, 0, 0] - states[:, 0, 0]
    expected = moved / task.body_model.dt + 1.0 - 1e-3 * 6 * 0.25
    np.testing.assert_allclose(world.reward, expected, atol=1e-4)
    assert world.reward[1] - world.reward[0] == pytest.approx(1.5, abs=0.05)
    # In the air no foot touches, while both counted as touching at the start.
    np.testing.assert_array_equal(world.descriptor, np.zeros((2, 2)))
    np.testing.assert_array_equal(world.observation[:, :2], np.full((2, 2), 0.5))


# ------------------------------------------------------------------------------------- by name


def test_the_known_tasks():
    assert set(TASKS) < set(tasks.names())
    for name in tasks.names():
        assert tasks.make(name).name == name
        assert tasks.make(name) is tasks.make(name)  # compiled code is shared
        assert tasks.make(name).summary


def test_an_unknown_task_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown task 'ant_omny'") as refusal:
        tasks.make("ant_omny")
    assert "Did you mean 'ant_omni'?" in str(refusal.value)
    for name in tasks.names():
        assert name in str(refusal.value)


def test_nothing_is_suggested_where_nothing_is_close():
    with pytest.raises(ValueError, match="Known tasks") as refusal:
        tasks.check("qqqq")
    assert "Did you mean" not in str(refusal.value)


def test_a_task_of_your_own_joins_the_list_once(monkeypatch):
    monkeypatch.setattr(tasks, "_FACTORIES", dict(tasks._FACTORIES))
    own = small_task(name="own")
    tasks.register("own", lambda: own)
    assert tasks.make("own") is own
    assert "own" in tasks.names()
    for taken in ("own", "ant_omni"):
        with pytest.raises(ValueError, match=f"'{taken}' exists already"):
            tasks.register(taken, lambda: own)


def test_listing_tasks_does_not_load_jax():
    code = "import sys; from elites import tasks; tasks.names(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------ refusals


def small_task(**fields) -> Task:
    def state_of(reward):
        return TaskState((), jnp.ones(3), reward, jnp.bool_(False), jnp.zeros(2))

    return Task(
        **{
            "name": "small",
            "observation_size": 3,
            "action_size": 2,
            "episode_length": 4,
            "descriptor_low": (0.0, 0.0),
            "descriptor_high": (1.0, 1.0),
            "reset": lambda key: state_of(jnp.float32(0.0)),
            "step": lambda state, action: state_of(action.sum()),
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"observation_size": 0}, ("observation_size", "at least 1", "0")),
        ({"action_size": -1}, ("action_size", "-1")),
        ({"episode_length": 2.5}, ("episode_length", "2.5")),
        ({"descriptor_low": ()}, ("descriptor_low", "0 entries", "descriptor_high", "2")),
        ({"descriptor_low": (), "descriptor_high": ()}, ("descriptor_low", "descriptor_high")),
        ({"descriptor_high": (1.0,)}, ("descriptor_low has 2", "descriptor_high 1")),
        ({"descriptor_high": (1.0, 0.0)}, ("descriptor dimension 1", "low < high", "0.0")),
        ({"descriptor_low": (-math.inf, 0.0)}, ("descriptor dimension 0", "finite", "-inf")),
        ({"descriptor_low": (math.nan, 0.0)}, ("descriptor dimension 0", "finite", "nan")),
        ({"episode_descriptor": "last"}, ("episode_descriptor", "'final' or 'mean'", "'last'")),
        ({"observation_layout": (("x", 2),)}, ("observation_layout", "2 entries", "3")),
    ],
)
def test_a_task_that_contradicts_itself_is_refused(fields, named):
    with pytest.raises(ValueError, match="task 'small'") as refusal:
        small_task(**fields)
    for part in named:
        assert part in str(refusal.value)


def test_policies_of_the_wrong_width_are_refused_with_both_numbers():
    task, network = small_task(), networks.policy(3, 2, (4,))
    assert network.size == 26
    for policies in (np.zeros((5, 25)), np.zeros(26), np.zeros((2, 5, 26))):
        with pytest.raises(ValueError, match="26 columns") as refusal:
            rollout.evaluate(task, network, policies, jax.random.key(0))
        assert str(tuple(policies.shape)) in str(refusal.value)
        assert "3-4-2" in str(refusal.value)


@pytest.mark.parametrize("sizes", [(3, 4, 1), (4, 4, 2)])
def test_a_network_that_does_not_fit_the_task_is_refused(sizes):
    network = networks.MLP(sizes)
    with pytest.raises(ValueError, match="maps 3 observations to 2 actions") as refusal:
        rollout.evaluate(small_task(), network, np.zeros((1, network.size)), jax.random.key(0))
    assert f"maps {sizes[0]} to {sizes[-1]}" in str(refusal.value)


def test_no_policies_and_no_batch_are_refused():
    task, network = small_task(), networks.policy(3, 2, (4,))
    with pytest.raises(ValueError, match="policies is empty"):
        rollout.evaluate(task, network, np.zeros((0, 26)), jax.random.key(0))
    with pytest.raises(ValueError, match="batch must be at least 1, got 0"):
        rollout.evaluate(task, network, np.zeros((1, 26)), jax.random.key(0), batch=0)


def test_a_shorter_task_is_the_same_task_with_another_limit():
    task = tasks.make("walker_uni")
    shorter = dataclasses.replace(task, episode_length=10)
    assert shorter.step is task.step
    assert hash(shorter) != hash(task)
    assert dataclasses.replace(task, episode_length=1000) == task


def test_bounds_that_are_equal_in_32_bits_are_refused():
    task = tasks.make("point_omni")
    with pytest.raises(ValueError, match="dimension 0 needs finite bounds with low < high in 32"):
        dataclasses.replace(task, descriptor_low=(1e9, -1.0), descriptor_high=(1e9 + 1, 1.0))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("descriptor", np.zeros(1), r"descriptor of a state must have shape \(2,\), got \(1,\)"),
        ("descriptor", np.zeros(3), r"descriptor of a state must have shape \(2,\), got \(3,\)"),
        ("observation", np.zeros(2), r"observation of a state must have shape \(3,\), got"),
        ("reward", np.zeros(1), r"reward of a state must have shape \(\), got \(1,\)"),
    ],
)
def test_states_of_another_shape_than_declared_are_refused(field, value, message):
    task = tasks.make("point_omni")

    def reset(key):
        return task.reset(key)._replace(**{field: jax.numpy.asarray(value)})

    wrong = dataclasses.replace(task, reset=reset)
    keys = jax.random.split(jax.random.key(0), 4)
    with pytest.raises(ValueError, match=f"task 'point_omni': {message}"):
        rollout.rollout(wrong, lambda observation: np.zeros((4, 2)), keys)
