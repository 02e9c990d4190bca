"""PBT-MAP-Elites: who copies whom, agents with numbers of their own, and the elites' critics.

Choices are checked against slow references in NumPy, on states with recognisable contents: every
number of agent i is i, and every number of the elite in cell c is 100 + c.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites import training
from elites.core import networks, pbt_map_elites, population, td3
from elites.core import replay as replays
from elites.core.algorithms import make_td3
from elites.core.population import Agents, Counts, Traits
from elites.core.types import Evaluation, Transitions
from elites.tasks.rollout import problem
from small import SMALL

INF = np.inf
SIZES = {**SMALL, "pbt_population": 10, "pbt_offspring": 3, "pbt_best": 0.2, "pbt_steps": 4}
RANGES = {
    "pbt_discount": (0.5, 0.6),
    "pbt_actor_learning_rate": (1e-3, 2e-3),
    "pbt_critic_learning_rate": (3e-3, 4e-3),
    "pbt_smoothing_noise": (0.1, 0.2),
    "pbt_smoothing_clip": (0.3, 0.4),
    "pbt_exploration_noise": (0.7, 0.8),
}


@functools.cache
def spec() -> pbt_map_elites.Spec:
    on = problem(elites.tasks.make("point_omni"))
    hp = elites.Hyperparameters(**{**SIZES, **RANGES})
    learner = dataclasses.replace(make_td3(on, hp, actor_hidden=hp.policy_hidden), steps=4)
    return pbt_map_elites.Spec(on, hp, learner)


def filled_with(tree, numbers):
    """Return a tree of shapes [n, ...] in which row i of every array is full of numbers[i]."""

    def fill(leaf):
        column = np.asarray(numbers).reshape(-1, *[1] * (len(leaf.shape) - 1))
        return jnp.asarray(np.broadcast_to(column, leaf.shape), leaf.dtype)

    return jax.tree.map(fill, tree)


def recognisable(fitness, full) -> pbt_map_elites.State:
    """Return a state in which the agents have this fitness, and cells are filled where `full`."""
    cells = spec().hp.cells
    shapes = jax.eval_shape(
        functools.partial(pbt_map_elites.init, spec()), jax.random.key(0), jnp.zeros((cells, 2))
    )
    elite = 100 + np.arange(cells)
    archive = filled_with(shapes.archive, elite)
    archive = archive._replace(fitness=jnp.where(jnp.asarray(full), 1.0, -INF))
    return shapes._replace(
        archive=archive,
        elite_critics=filled_with(shapes.elite_critics, elite),
        elite_traits=filled_with(shapes.elite_traits, elite),
        agents=filled_with(shapes.agents, np.arange(spec().candidates)),
        fitness=jnp.asarray(fitness, jnp.float32),
        replay=filled_with(shapes.replay, np.arange(10)),
        statistics=None,
    )


FITNESS = np.array([3.0, -INF, 7.0, 1.0, 9.0, 9.0, 2.0, -5.0, 4.0, 0.0])
# By hand, the fittest first, the first of equals first. Two are copied by the last two, and the
# four before those are drawn from the archive.
BEST, KEPT, DRAWN, COPYING = [4, 5], [4, 5, 2, 8], [0, 6, 3, 9], [7, 1]


@pytest.fixture(scope="module")
def exploited():
    """Return populations and replay buffers after exploiting with each of 20 keys."""
    full = np.arange(spec().hp.cells) % 3 == 0
    exploit = functools.partial(pbt_map_elites.exploit, spec())
    run = jax.jit(jax.vmap(exploit, in_axes=(None, 0)))
    keys = jax.random.split(jax.random.key(1), 20)
    found = run(recognisable(FITNESS, full), keys)
    nowhere = run(recognisable(FITNESS, np.zeros_like(full)), keys)
    return jax.tree.map(np.asarray, (*found, nowhere[0]))


def same_number(array) -> np.ndarray:
    """Return the number [keys, agents] that fills each agent's part of an array."""
    rows = array.reshape(*array.shape[:2], -1)
    assert (rows == rows[..., :1]).all()
    return rows[..., 0]


def test_the_worst_copy_the_best_with_their_replay_buffers(exploited):
    agents, replay, _ = exploited
    assert Counts.of(spec().hp) == (2, 2, 4)
    actors, critics = same_number(agents.actors), same_number(agents.critics)
    np.testing.assert_array_equal(actors, critics)
    assert (actors[:, KEPT] == KEPT).all()
    assert np.isin(actors[:, COPYING], BEST).all()
    assert {*actors[:, COPYING].ravel()} == set(BEST), "every one of the best is copied by chance"
    # A buffer belongs to the networks, except for those that were drawn from the archive.
    buffers = same_number(replay.rows)
    np.testing.assert_array_equal(buffers, replay.size)
    np.testing.assert_array_equal(buffers[:, COPYING], actors[:, COPYING])
    assert (buffers[:, KEPT + DRAWN] == KEPT + DRAWN).all()


def test_the_next_worst_become_elites(exploited):
    agents, _, without_elites = exploited
    cells = same_number(agents.actors)[:, DRAWN] - 100
    assert (cells % 3 == 0).all()
    assert ((cells >= 0) & (cells < spec().hp.cells)).all()
    assert len(np.unique(cells)) > 5
    np.testing.assert_array_equal(same_number(agents.critics)[:, DRAWN] - 100, cells)
    # An empty archive has none, so the agents keep their networks.
    assert (same_number(without_elites.actors)[:, DRAWN] == DRAWN).all()


def test_copies_draw_traits_within_their_ranges_and_others_keep_them(exploited):
    traits = exploited[0].traits
    for values, (low, high) in zip(traits, RANGES.values(), strict=True):
        assert (values[:, KEPT] == KEPT).all()
        drawn = values[:, DRAWN + COPYING]
        assert ((drawn >= np.float32(low)) & (drawn <= np.float32(high))).all()
        assert len(np.unique(drawn)) == drawn.size
        assert abs(drawn.mean() - (low + high) / 2) < 0.1 * (high - low)


# ---------------------------------------------------------------------------------------- training

NUMBERS = Traits(  # of three agents, the second of which does not learn
    discount=jnp.array([0.9, 0.99, 0.7]), actor_rate=jnp.array([1e-3, 0.0, 3e-3]),
    critic_rate=jnp.array([2e-3, 0.0, 1e-3]), smoothing_noise=jnp.array([0.2, 0.5, 0.9]),
    smoothing_clip=jnp.array([0.5, 0.1, 0.3]), exploration=jnp.zeros(3),
)  # fmt: skip


@pytest.fixture(scope="module")
def learning():
    """Return three agents, their replay buffers and keys, and the agents after training."""
    learner, layout = spec().td3, spec().layout
    agents = population.draw(learner, spec().hp, jax.random.key(0), 3)._replace(traits=NUMBERS)
    rows = np.random.default_rng(0).normal(size=(3, 50, sum(layout.values())))
    rows[..., -2:] = 0  # neither done nor truncated
    replay = replays.Replay(jnp.asarray(rows, jnp.float32), jnp.zeros(3, int), jnp.full(3, 50))
    keys = jax.random.split(jax.random.key(2), 3)
    train = jax.jit(jax.vmap(functools.partial(population.train, learner, layout, None)))
    after, losses = train(agents, replay, keys)
    return agents, replay, keys, after, losses


def test_an_agent_trains_as_td3_with_its_numbers(learning):
    agents, replay, keys, after, losses = learning
    moved = np.abs(np.asarray(after.actors - agents.actors)).max(1)
    assert (moved[[0, 2]] > 1e-4).all()
    for i in (0, 2):
        numbers = {k: float(v[i]) for k, v in NUMBERS._asdict().items() if k != "exploration"}
        learner = dataclasses.replace(spec().td3, **numbers)
        mine = jax.tree.map(lambda a, i=i: a[i], replay)
        state = td3.restarted(learner, agents.actors[i], agents.critics[i])
        for key in jax.random.split(keys[i], 2):
            sample_key, noise_key = jax.random.split(key)
            rows = replays.sample(mine, sample_key, (learner.delay, learner.batch_size))
            batches = td3.Batch.of_columns(replays.columns(spec().layout, rows), False)
            noise = jax.random.normal(noise_key, batches.action.shape)
            state, loss = jax.jit(functools.partial(td3.update, learner))(state, batches, noise)
        np.testing.assert_allclose(after.actors[i], state.actor, atol=1e-6)
        np.testing.assert_allclose(after.critics[i], state.critics, atol=1e-6)
        assert np.isfinite([losses.critic[i], losses.actor[i], loss.critic]).all()


def test_an_agent_without_a_learning_rate_stays_the_same(learning):
    agents, _, _, after, _ = learning
    np.testing.assert_array_equal(after.actors[1], agents.actors[1])
    np.testing.assert_array_equal(after.critics[1], agents.critics[1])
    for before, now in zip(agents.traits, after.traits, strict=True):
        np.testing.assert_array_equal(before, now)


def test_children_lie_on_the_line_of_actor_and_critics_together():
    hp = dataclasses.replace(spec().hp, iso_sigma=0.0, line_sigma=1.0)
    shapes = jax.eval_shape(lambda: population.draw(spec().td3, hp, jax.random.key(0), 4))
    first, second = filled_with(shapes, [1, 2, 3, 4]), filled_with(shapes, [2, 3, 4, 5])
    vary = functools.partial(population.vary, spec().td3, hp, None)
    child: Agents = jax.jit(vary)(first, second, jax.random.key(0))
    steps = np.asarray(child.actors)[:, 0] - np.arange(1, 5)
    assert len(np.unique(steps)) == 4
    for part in (child.actors, child.critics):
        moved = np.asarray(part).reshape(4, -1) - np.arange(1, 5)[:, None]
        np.testing.assert_allclose(moved, np.broadcast_to(steps[:, None], moved.shape), atol=1e-6)
    np.testing.assert_array_equal(child.traits.discount, first.traits.discount)


# -------------------------------------------------------------------------------------- whole runs


def stored_rewards(stride: int, episodes: int, replay_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Store episodes whose reward is the row they come from. Returns rewards and sizes."""
    small = dataclasses.replace(
        spec(), hp=dataclasses.replace(spec().hp, pbt_replay_size=replay_size)
    )
    rows, steps = stride * episodes, 5
    wide = {"observation": 3, "action": 2, "next_observation": 3, "state_descriptor": 2}
    parts = {n: np.zeros((steps, rows, *([wide[n]] if n in wide else []))) for n in
             Transitions._fields}  # fmt: skip
    parts["reward"] = np.broadcast_to(np.arange(rows, dtype=float), (steps, rows))
    parts["mask"] = np.ones((steps, rows), bool)
    parts["mask"][3:, 1] = False  # an episode that ended early
    transitions = Transitions(**{n: jnp.asarray(a) for n, a in parts.items()})
    nothing = jnp.zeros(rows)
    evaluation = Evaluation(nothing, nothing, nothing, nothing, transitions)
    buffer = replays.empty(small.layout, replay_size)
    state = recognisable(FITNESS, np.zeros(small.hp.cells, bool))._replace(
        replay=jax.tree.map(lambda a: jnp.broadcast_to(a, (10, *a.shape)), buffer)
    )
    request = pbt_map_elites.ask_noisy(small, state, jax.random.key(0))
    after = pbt_map_elites.store(small, state, request, evaluation, stride).replay
    reward = replays.columns(small.layout, after.rows)["reward"][..., 0]
    return np.asarray(reward), np.asarray(after.size)


def test_every_agent_stores_its_own_episodes():
    """Rows are 13 policies, the first 10 of which are agents, and then the same again."""
    rewards, sizes = stored_rewards(stride=13, episodes=2, replay_size=20)
    np.testing.assert_array_equal(sizes, np.where(np.arange(10) == 1, 8, 10))
    for agent in range(10):
        found = sorted(rewards[agent, : sizes[agent]])
        assert found == [agent] * (3 if agent == 1 else 5) + [agent + 13] * 5


def test_a_random_part_of_too_many_steps_is_stored():
    rewards, sizes = stored_rewards(stride=10, episodes=40, replay_size=60)
    assert (sizes > 30).all()
    for agent in range(10):
        found = rewards[agent, : sizes[agent]]
        assert (found % 10 == agent).all()
        assert len(np.unique(found)) > 20, "of all episodes, not only of the last"


@pytest.fixture(scope="module")
def trained():
    """Return an algorithm over two seeds, its states, and a request for exploration with results.

    The sizes are those of tests/core/test_algorithms.py: nothing is compiled twice.
    """
    batched = training.Batched(elites.build("point_omni", "pbt_me", **SMALL), 2)
    keys = training.seed_keys((3, 4))
    state = batched.start(training.iteration_keys(keys, 0))
    states = [jax.tree.map(np.array, state)]
    for i in (1, 2, 3):
        state, _ = batched.step(state, training.iteration_keys(keys, i))
        states.append(jax.tree.map(np.array, state))
    request = batched.compiled.rounds[0].ask(state, training.iteration_keys(keys, 4))
    request = request._replace(action_noise=jnp.full((2, 10), 0.3))
    evaluation = batched.compiled.evaluate(request)
    return batched, states, request, jax.tree.map(np.asarray, evaluation)


def test_critics_and_traits_beside_the_archive_belong_to_the_elites(trained):
    _, states, _, _ = trained
    changed = 0
    for iteration, state in enumerate(states):
        for seed in range(2):
            now = jax.tree.map(lambda a, seed=seed: a[seed], state)
            for cell in range(spec().hp.cells):
                if now.archive.born[cell] == iteration:
                    (agent,) = np.flatnonzero(
                        (now.agents.actors == now.archive.policies[cell]).all(1)
                    )[:1]
                    critics, traits = now.agents.critics, now.agents.traits
                    row, changed = agent, changed + 1
                else:
                    before = states[max(iteration - 1, 0)]
                    critics, traits = before.elite_critics[seed], before.elite_traits
                    traits, row = jax.tree.map(lambda a, s=seed: a[s], traits), cell
                np.testing.assert_array_equal(now.elite_critics[cell], critics[row])
                for mine, theirs in zip(now.elite_traits, traits, strict=True):
                    assert mine[cell] == theirs[row]
    assert changed > 12


def test_the_second_half_repeats_from_saved_arrays(trained):
    batched, states, _, _ = trained
    keys = training.seed_keys((3, 4))
    state = jax.tree.map(jnp.asarray, states[1])
    for i in (2, 3):
        state, _ = batched.step(state, training.iteration_keys(keys, i))
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(states[3]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_exploration_adds_noise_to_actions_and_archives_nothing(trained):
    batched, _, request, evaluation = trained
    steps, network = evaluation.transitions, batched.algorithm.policy
    assert request.policies.shape[1] == 5 * 2
    layers = networks.unflatten(network, request.policies[0])
    clean = np.stack([networks.apply_each(network, layers, o) for o in steps.observation[0]])
    assert (np.abs(steps.action) <= 1).all()
    inside = np.abs(clean) < 0.3  # where clipping is rare
    noise = (steps.action[0] - clean)[inside]
    assert noise.size > 100
    assert abs(noise.std() - 0.3) < 0.05
    assert abs(noise.mean()) < 0.06
    # Episodes of one agent have noise of their own.
    np.testing.assert_array_equal(request.policies[:, 0], request.policies[:, 5])
    assert not np.array_equal(steps.action[0, 0, 0], steps.action[0, 0, 5])
    assert batched.algorithm.evaluations_per_iteration == 10 + 9


def test_ask_and_tell_explores_with_noise():
    """From outside, a search is asked for noisy episodes after the start."""
    search = elites.ask_tell("point_omni", "pbt_me", seed=0, **SMALL)
    rng = np.random.default_rng(0)

    def repeats(asked) -> bool:
        seen = rng.normal(size=(len(asked), 3)).astype(np.float32)
        return np.array_equal(asked.act(seen), asked.act(seen))

    asked = search.ask()
    assert len(asked) == 9
    assert repeats(asked)
    episodes = [
        elites.Episode(rng.normal(size=(5, 3)), rng.uniform(-1, 1, (4, 2)), rng.normal(size=4))
        for _ in range(9)
    ]
    search.tell(rng.normal(size=9), rng.uniform(-1, 1, (9, 2)), episodes=episodes)
    asked = search.ask()
    assert len(asked) == 10
    assert not repeats(asked)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pbt_copying": 0.6, "pbt_drawing": 0.4}, ["6 and 4 agents", "pbt_population, 10"]),
        ({"pbt_copying": 1.5}, ["pbt_copying", "between 0 and 1"]),
        ({"pbt_discount": (0.9, 1.1)}, ["pbt_discount", "between 0 and 1", "1.1"]),
        ({"pbt_discount": (0.9, 0.8)}, ["pbt_discount", "range", "0.8"]),
        ({"pbt_actor_learning_rate": 1e-3}, ["pbt_actor_learning_rate", "two finite numbers"]),
        ({"pbt_smoothing_noise": (0.0, INF)}, ["pbt_smoothing_noise", "finite"]),
        ({"pbt_steps": 5001}, ["pbt_steps", "actor_delay", "5001"]),
        ({"pbt_replay_size": 99}, ["pbt_replay_size", "td3_batch_size", "99"]),
    ],
)
def test_bad_values_are_refused_by_name(values, words):
    with pytest.raises(ValueError, match="pbt_") as caught:
        elites.build("point_omni", "pbt_me", **values)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_plain_vectors_are_refused():
    with pytest.raises(ValueError, match=r"pbt_me learns from the steps.*'sphere'.*use me or dns"):
        elites.build("sphere", "pbt_me")
