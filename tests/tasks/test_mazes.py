"""Test the walls, the rewards and the ends of the mazes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quick
from elites import tasks
from elites.core import networks
from elites.tasks import mazes
from elites.tasks.scenes import scene_of

POINT = tasks.make("point_maze")


@functools.cache
def _compiled(steps):
    def run(start, actions):
        def step(state, action):
            state = POINT.step(state, action)
            return state, state

        first = POINT.reset(jax.random.key(0))._replace(inner=start)
        return jax.lax.scan(step, first, actions)[1]

    return jax.jit(jax.vmap(run))


def driven(start, *actions):
    """Return the states of the point after each of a list of actions from a start."""
    actions = np.array(actions, np.float32)
    run = _compiled(len(actions))
    states = run(np.array([start], np.float32), actions[None])
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], states)


UP, DOWN, LEFT, RIGHT = (0, 1), (0, -1), (-1, 0), (1, 0)


@pytest.mark.parametrize(
    ("start", "action", "end"),
    [
        ((0.0, -0.85), UP, (0.0, -0.5)),  # below the lower wall
        ((0.0, 0.1), DOWN, (0.0, -0.49)),  # above it
        ((0.0, 0.0), UP, (0.0, 0.2)),  # below the upper wall
        ((0.0, 0.9), DOWN, (0.0, 0.21)),
        ((-0.9, -0.495), RIGHT, (-0.5, -0.495)),  # against the end of the lower wall
        ((0.9, 0.205), LEFT, (0.5, 0.205)),
        ((-0.75, -0.9), UP, (-0.75, 0.2)),  # past the end of the lower wall
        ((0.75, 0.9), DOWN, (0.75, -0.49)),
        ((1.0, -0.9), UP, (1.0, -0.5)),  # there is no way between a wall and the border
        ((-1.0, 0.9), DOWN, (-1.0, 0.21)),
        ((0.0, -0.9), LEFT, (-1.0, -0.9)),  # the border
        ((0.0, -0.9), RIGHT, (1.0, -0.9)),
        ((0.9, 0.8), UP, (0.9, 1.0)),
    ],
)
def test_a_point_that_drives_into_a_wall_stops_at_it(start, action, end):
    states = driven(start, *[action] * 24)
    np.testing.assert_allclose(states.descriptor[-1], end, atol=1e-6)
    np.testing.assert_array_equal(states.descriptor[-1], states.descriptor[-2])


def test_a_point_at_a_wall_still_slides_along_it():
    states = driven((0.0, -0.5), *[(-0.5, 1)] * 8, *[(0, 0)] * 16)
    np.testing.assert_allclose(states.descriptor[7], (-0.4, -0.5), atol=1e-6)


def test_walks_pass_walls_at_their_openings_alone():
    """Random walks with full steps, which are ten times as long as a wall is thick."""
    rng = np.random.default_rng(0)
    actions = rng.choice([-1.0, 1.0], (64, 200, 2)).astype(np.float32)
    starts = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    places = np.asarray(_compiled(200)(starts, actions).descriptor)
    assert np.abs(places).max() <= 1.0
    x = places[:, 1:, 0]  # the point moves along x first
    for wall, opening in zip(mazes.POINT_WALLS, (x <= -0.5, x >= 0.5), strict=True):
        low, high = np.array(wall.low, np.float32), np.array(wall.high, np.float32)
        assert not ((places > low) & (places < high)).all(axis=-1).any()
        above = places[..., 1] > (low[1] + high[1]) / 2
        passed = above[:, 1:] != above[:, :-1]
        assert passed.sum() > 10
        assert opening[passed].all()


def test_the_way_to_the_goal_is_an_s_and_ends_there():
    """The reward is minus the distance, and the episode ends in the square of the goal."""
    way = [LEFT] * 7 + [UP] * 8 + [RIGHT] * 15 + [UP] * 4 + [LEFT] * 13 + [(0, 0.5)] * 9
    states = driven(mazes.POINT_START, *way)
    ended = np.flatnonzero(states.done)
    assert len(ended)
    assert not states.done[: 7 + 8 + 15 + 4 + 13].any()
    inside = np.abs(states.descriptor[ended[0]] - mazes.POINT_GOAL)
    assert inside.max() <= 0.05 + 1e-6
    distance = np.linalg.norm(states.descriptor - np.array(mazes.POINT_GOAL), axis=-1)
    np.testing.assert_allclose(states.reward, -distance, atol=1e-6)


def test_no_return_is_below_the_offset_of_the_qd_score():
    """The farthest corner of the square, where the point stays for all 200 steps."""
    states = driven((1.0, -1.0), *[(1, -1)] * 24)
    assert POINT.qd_offset == pytest.approx(200 * states.reward[-1]) == pytest.approx(-468.6, 1e-4)


def test_the_point_is_drawn_where_it_is():
    scene = scene_of(POINT)
    state = POINT.reset(jax.random.key(0))._replace(inner=jnp.array([0.25, -0.75]))
    np.testing.assert_allclose(scene.poses(state), [[0.25, -0.75, 0.04, 1, 0, 0, 0]], rtol=1e-6)
    boxes = [shape for shape in scene.shapes if shape.kind == "box"]
    lower = boxes[0]
    np.testing.assert_allclose(np.subtract(lower.position, lower.size)[:2], (-0.5, -0.5))
    np.testing.assert_allclose(np.add(lower.position, lower.size)[:2], (1.0, -0.49))
    assert scene.to_json()["camera"] == "fixed"


# --------------------------------------------------------------------------------------------- ant


@pytest.fixture(scope="module")
@quick.optimising()
def thrown():
    """Return the places where ants start near walls, and the steps of these ants.

    Two ants are thrown at every wall, one from each side, without actions. As many others begin at
    the start and have random policies. The steps are positions [T, n, 3], rewards [T, n] and
    observations [T, n, O], of all ants in two orders.
    """
    task = tasks.make("ant_maze")
    places, speeds = (np.zeros((4 * len(mazes.ANT_WALLS), 2), np.float32) for _ in range(2))
    for number, (wall, side) in enumerate(itertools.product(mazes.ANT_WALLS, (-1.0, 1.0))):
        across = np.array([0.0, 1.0] if wall.along == "x" else [1.0, 0.0])
        beside = 2.0 * side * across - wall.length / 4 * across[::-1]  # away from crossings
        places[number] = np.array([wall.x, wall.y]) + beside
        speeds[number] = -6.0 * side * across
    rest = np.repeat(task.body_model.rest[None], len(places), axis=0)
    rest[:, :2] += places[:, :, None]
    rest[:, 7:9] += speeds[:, :, None]
    network = networks.policy(task.observation_size, task.action_size, (8,))
    keys = jax.random.split(jax.random.key(1), len(places))
    policies = np.array(jax.vmap(functools.partial(networks.init, network))(keys))
    policies[: 2 * len(mazes.ANT_WALLS)] = 0.0
    run = jax.jit(functools.partial(_steps, task, network))
    orders = np.arange(len(places)), np.random.default_rng(2).permutation(len(places))
    found = [jax.tree.map(np.asarray, run(rest[order], policies[order])) for order in orders]
    return places, orders[1], *found


def _steps(task, network, bodies, policies, steps=30):
    layers = networks.unflatten(network, policies)
    first = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), len(bodies)))

    def step(state, _):
        action = networks.apply_each(network, layers, state.observation)
        state = jax.vmap(task.step)(state, action)
        return state, (state.inner[:, :3, 0], state.reward, state.observation)

    return jax.lax.scan(step, first._replace(inner=bodies), None, steps)[1]


def test_the_walls_of_the_ant_hold(thrown):
    """An ant at 6 m/s comes to the wall and stays on its side."""
    places, _, (positions, _, _), _ = thrown
    for number, (wall, side) in enumerate(itertools.product(mazes.ANT_WALLS, (-1.0, 1.0))):
        axis, middle = (1, wall.y) if wall.along == "x" else (0, wall.x)
        distance = side * (positions[:, number, axis] - middle)  # negative behind the wall
        assert distance[2] < side * (places[number, axis] - middle) - 0.5, wall  # it moves there
        assert distance.min() > mazes.ANT_WALL_RADIUS - 0.2, wall


def test_the_ant_pays_for_its_distance_to_the_goal(thrown):
    _, _, (positions, rewards, observations), _ = thrown
    expected = -np.hypot(positions[..., 0] - 35.0, positions[..., 1])
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)
    assert tasks.make("ant_maze").qd_offset == pytest.approx(-1000 * np.hypot(40, 40))
    np.testing.assert_allclose(
        observations[..., :2], (np.clip(positions[..., :2], -5, 40) - 17.5) / 22.5, atol=1e-5
    )


def test_ants_have_the_same_bits_in_another_order(thrown):
    _, order, found, reordered = thrown
    assert len(np.unique(found[0][-1], axis=0)) == len(order)  # each does something else
    for a, b in zip(found, reordered, strict=True):
        np.testing.assert_array_equal(a[:, order], b)


def test_the_maze_is_drawn_with_its_goal():
    shapes = scene_of(tasks.make("ant_maze")).shapes
    scenery = [shape for shape in shapes if shape.body is None and shape.kind != "plane"]
    assert [shape.kind for shape in scenery] == ["capsule"] * 7 + ["sphere"]
    np.testing.assert_allclose(scenery[-1].position, (35.0, 0.0, 0.5))
    assert scenery[0].size == (0.5, 46.0)
