"""Evaluations that happen elsewhere: `me` against a serial archive, and against training."""

import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.spatial import cKDTree

import elites
from elites.core import counter, networks
from elites.core import replay as replays
from elites.tasks.rollout import evaluate
from small import SMALL

CELLS, BATCH = 64, 8
NAN, INF = np.nan, np.inf


@functools.cache
def map_elites():
    """Without isotropic noise: a child lies on the line through its parents."""
    return elites.build(
        "point_omni", "me", batch_size=BATCH, cells=CELLS, policy_hidden=(4,), iso_sigma=0.0,
        line_sigma=0.5,
    )  # fmt: skip


# -------------------------------------------------------------------------------------------- me


def off_line(point, a, b):
    """How far a point is from the line through a and b."""
    away, along = point - a, b - a
    share = away @ along / (along @ along) if along.any() else 0.0
    return np.linalg.norm(away - share * along)


def test_map_elites_fills_the_archive_like_a_serial_reference():
    algorithm = map_elites()
    task = elites.tasks.make("point_omni")
    search = elites.ask_tell("point_omni", algorithm, seed=3)
    tree = cKDTree(np.float64(search.state.archive.centroids))
    expected = {}
    for generation in range(5):
        policies = search.ask().policies
        assert policies.shape == (BATCH, algorithm.policy.size)
        if generation:
            parents = [np.float64(elite["policy"]) for elite in expected.values()]
            for policy in policies:
                assert min(off_line(policy, a, b) for a in parents for b in parents) < 1e-5
        results = evaluate(
            task, algorithm.policy, policies, jax.random.key(0), batch=algorithm.padded_batch
        )
        search.tell(results.fitness, results.descriptors)
        fitness, descriptors = np.asarray(results.fitness), np.asarray(results.descriptors)
        before = {cell: elite["fitness"] for cell, elite in expected.items()}
        for i, cell in enumerate(tree.query(descriptors)[1]):
            if cell not in expected or fitness[i] > expected[cell]["fitness"]:
                expected[cell] = {
                    "fitness": fitness[i],
                    "descriptor": descriptors[i],
                    "policy": policies[i],
                    "origin": "ga" if generation else "initial",
                    "born": generation,
                }
        archive = search.archive
        assert [elite.cell for elite in archive] == sorted(expected)
        for elite in archive:
            for field, value in expected[elite.cell].items():
                np.testing.assert_array_equal(getattr(elite, field), value, field)
        if generation:
            improved = sum(before.get(c) != e["fitness"] for c, e in expected.items())
            assert int(search.metrics["added.ga"]) == improved
            assert int(search.metrics["rejected"]) == 0
            assert int(search.metrics["evaluations"]) == BATCH * (generation + 1)
            scores = [elite["fitness"] for elite in expected.values()]
            assert float(search.metrics["qd_score"]) == pytest.approx(sum(scores), rel=1e-6)
            assert float(search.metrics["coverage"]) == pytest.approx(len(scores) / CELLS)
    assert len(expected) > 3
    assert any(elite["origin"] == "ga" for elite in expected.values())


def test_failed_evaluations_are_counted_and_never_archived():
    search = elites.ask_tell("point_omni", map_elites())
    search.ask()
    search.tell(np.full(BATCH, NAN), np.zeros((BATCH, 2)))
    assert len(search.archive) == 0
    search = elites.ask_tell("point_omni", map_elites())
    search.ask()
    search.tell(np.zeros(BATCH), np.full((BATCH, 2), 0.9))
    kept = search.archive.best()
    search.ask()
    fitness = [NAN, INF, -INF, 5.0, 5.0, 5.0, 5.0, 1.0]
    places = [(0, 0), (0, 0), (0, 0), (NAN, 0), (INF, 0), (0, -INF), (-0.9, -0.9), (0.5, -0.5)]
    search.tell(fitness, places, [True] * 6 + [False, True])
    assert int(search.metrics["rejected"]) == 7
    assert int(search.metrics["added.ga"]) == 1
    assert sorted(elite.fitness for elite in search.archive) == [0.0, 1.0]
    assert search.archive.nearest((0.9, 0.9)).fitness == kept.fitness


def test_descriptors_outside_the_bounds_are_clipped():
    search = elites.ask_tell("point_omni", map_elites())
    search.ask()
    places = np.zeros((BATCH, 2))
    places[0] = 7.0, -0.5
    search.tell(np.zeros(BATCH), places)
    np.testing.assert_array_equal(search.archive.nearest((1.0, -0.5)).descriptor, [1.0, -0.5])


@pytest.mark.parametrize("name", ["me", "me_es"])
def test_a_search_told_what_training_measures_takes_its_steps(name):
    """The same seed, the same results: the same archive to the bit as a training."""
    sizes = SMALL | {"es_generations": 2}
    algorithm = elites.build("point_omni", name, **sizes)
    budget = algorithm.initial_evaluations + 3 * algorithm.evaluations_per_iteration
    trained = elites.train("point_omni", name, seeds=[5], evaluations=budget, **sizes)
    search = elites.ask_tell("point_omni", algorithm, seed=5)
    task = elites.tasks.make("point_omni")
    for _ in range(1 + 3 * len(algorithm.rounds)):
        policies = search.ask().policies
        results = evaluate(
            task, algorithm.policy, policies, jax.random.key(0), batch=algorithm.padded_batch
        )
        search.tell(results.fitness, results.descriptors)
    for name_, mine in search.state.archive._asdict().items():
        expected = getattr(trained.archives, name_)
        if mine is not None:  # a threshold, of annealed archives only
            np.testing.assert_array_equal(mine, expected[0], name_)
        assert (mine is None) == (expected is None)
    for metric, value in search.metrics.items():
        if metric != "env_steps":  # nobody tells how many there were
            assert value == trained.metrics[metric][-1, 0], metric


# ---------------------------------------------------------------------------------------- errors


def test_the_order_of_calls_is_enforced():
    search = elites.ask_tell("point_omni", map_elites())
    with pytest.raises(ValueError, match="call ask before tell"):
        search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))
    search.ask()
    with pytest.raises(ValueError, match="ask was called twice"):
        search.ask()
    search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))
    with pytest.raises(ValueError, match="call ask before tell"):
        search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))


@pytest.mark.parametrize(
    ("field", "fitness", "descriptors", "valid"),
    [
        ("fitness", (BATCH - 1,), (BATCH, 2), (BATCH,)),
        ("fitness", (BATCH, 1), (BATCH, 2), (BATCH,)),
        ("descriptors", (BATCH,), (BATCH, 3), (BATCH,)),
        ("descriptors", (BATCH,), (BATCH,), (BATCH,)),
        ("valid", (BATCH,), (BATCH, 2), (1,)),
    ],
)
def test_wrong_shapes_are_refused_and_nothing_is_lost(field, fitness, descriptors, valid):
    search = elites.ask_tell("point_omni", map_elites())
    search.ask()
    with pytest.raises(ValueError, match=f"^{field} must have shape"):
        search.tell(np.zeros(fitness), np.zeros(descriptors), np.ones(valid, bool))
    assert len(search.archive) == 0
    search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))  # the batch can still be told
    assert len(search.archive) == 1


def test_the_same_seed_asks_for_the_same_policies():
    first, again, other = (
        elites.ask_tell("point_omni", map_elites(), seed=s).ask().policies for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.5


# ------------------------------------------------------------------- algorithms that learn


def episodes_of(evaluation, rows: range) -> list[elites.Episode]:
    """Return what training's own rollouts recorded as episodes from outside."""
    steps = jax.tree.map(np.asarray, evaluation.transitions)
    found = []
    for row in rows:
        t = int(steps.mask[:, row].sum())
        observations = np.concatenate(
            [steps.observation[:t, row], steps.next_observation[t - 1 : t, row]]
        )
        found.append(
            elites.Episode(
                observations,
                steps.action[:t, row],
                steps.reward[:t, row],
                terminated=bool(steps.done[t - 1, row]),
                state_descriptors=steps.state_descriptor[:t, row],
            )
        )
    return found


def answer(search, evaluate_) -> None:
    """Tell a search what training's own rollouts would have measured for the pending request."""
    asked = search.ask()
    request = search._request
    evaluation = evaluate_(request)
    n, m = len(request.policies), len(asked.actor_targets)
    first = 0 if len(asked.policies) else n
    rows = range(first, first + len(asked))
    assert len(asked) == len(asked.policies) + m
    index = np.array(rows)
    search.tell(
        np.asarray(evaluation.fitness)[index],
        np.asarray(evaluation.descriptors)[index],
        episodes=episodes_of(evaluation, rows),
        asked=asked,
    )


# Two learners; actor rollouts that share an episode; a start that measures observations; actor
# rollouts of an actor that is untrained while the statistics of observations are not.
LEARNING = [
    ("qd_pg", {}),
    ("dcg_me_unconditioned_actor", {}),
    ("progress_me", {}),
    ("dcg_me", {"normalise_observations": True}),
]


@pytest.mark.parametrize(("name", "options"), LEARNING)
def test_a_learning_search_told_what_training_measures_takes_its_steps(name, options):
    sizes = SMALL | options
    trained = elites.train("point_omni", name, seeds=[5], evaluations=32 * 3, **sizes)
    algorithm = elites.build("point_omni", name, **sizes)
    search = elites.ask_tell("point_omni", algorithm, seed=5)
    evaluate_ = jax.jit(algorithm.evaluate)
    while search.iteration <= 2:
        answer(search, evaluate_)
    for (path, mine), theirs in zip(
        jax.tree_util.tree_leaves_with_path(search.state),
        jax.tree.leaves(trained.state),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs[0], rtol=1e-4, atol=1e-4, err_msg=str(path))
    for metric, value in search.metrics.items():
        np.testing.assert_allclose(value, trained.metrics[metric][-1, 0], rtol=1e-4, err_msg=metric)


@pytest.mark.parametrize("name", ["me", "me_es", "qd_pg", "dcg_me"])
@pytest.mark.parametrize("between", ["ask and tell", "tell and ask"])
def test_a_search_continues_from_its_file_to_the_same_bits(name, between, tmp_path):
    algorithm = elites.build("point_omni", name, **SMALL)
    evaluate_ = jax.jit(algorithm.evaluate)

    def told(search) -> None:
        request = search._request
        evaluation = evaluate_(request)
        asked = search.asked()
        first = 0 if len(asked.policies) else len(request.policies)
        rows = range(first, first + len(asked))
        episodes = episodes_of(evaluation, rows) if algorithm.main_td3 else None
        index = np.array(rows)
        search.tell(
            np.asarray(evaluation.fitness)[index],
            np.asarray(evaluation.descriptors)[index],
            episodes=episodes,
        )

    straight = elites.ask_tell("point_omni", algorithm, seed=2)
    broken = elites.ask_tell("point_omni", algorithm, seed=2)
    while straight.iteration <= 2:
        straight.ask()
        told(straight)
        if between == "tell and ask":
            broken.save(tmp_path / "search.npz")
            broken = elites.ask_tell("point_omni", algorithm, seed=2)
            broken.load(tmp_path / "search.npz")
        asked = broken.ask()
        if between == "ask and tell":
            broken.save(tmp_path / "search.npz")
            broken = elites.ask_tell("point_omni", algorithm, seed=2)
            broken.load(tmp_path / "search.npz")
            np.testing.assert_array_equal(broken.asked().policies, asked.policies)
            assert broken.asked().number == asked.number
        told(broken)
    for a, b in zip(jax.tree.leaves(straight.state), jax.tree.leaves(broken.state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert straight.metrics.keys() == broken.metrics.keys()
    assert list(tmp_path.iterdir()) == [tmp_path / "search.npz"]


def test_a_search_saved_in_one_process_is_told_in_another(tmp_path):
    """Asked there, told here: as if it had been one process."""
    script = f"""
import elites, numpy as np
search = elites.ask_tell("point_omni", "me", seed=4, batch_size=8, cells=64, policy_hidden=(4,))
search.ask()
search.save({str(tmp_path / "search.npz")!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    sizes = {"batch_size": 8, "cells": 64, "policy_hidden": (4,)}
    here = elites.ask_tell("point_omni", "me", seed=4, **sizes)
    other = elites.ask_tell("point_omni", "me", seed=4, **sizes)
    here.load(tmp_path / "search.npz")
    other.ask()
    np.testing.assert_array_equal(here.asked().policies, other.asked().policies)
    for search in (here, other):
        search.tell(np.arange(8.0), np.linspace(-0.9, 0.9, 16).reshape(8, 2))
    np.testing.assert_array_equal(here.ask().policies, other.ask().policies)


TOLD_ELSEWHERE = """
import sys
sys.path[:0] = {path!r}
import test_ask_tell as here
search = here.small_search()
for _ in range(3):
    here.told_the_same(search)
search.ask()
search.save({file!r})
"""


def small_search() -> elites.AskTell:
    sizes = {"batch_size": 8, "cells": 16, "critic_steps": 2, "pg_steps": 1, "td3_batch_size": 4}
    networks_ = dict.fromkeys(("policy_hidden", "actor_hidden", "critic_hidden"), (4,))
    return elites.ask_tell(outside(), "dcg_me", seed=4, replay_size=100, **sizes, **networks_)


def told_the_same(search: elites.AskTell, pending: bool = False) -> None:
    """Tell results that depend only on what is asked, now or before (`pending`)."""
    asked = search.asked() if pending else search.ask()
    count = len(asked)
    actions = np.asarray(asked.act(np.zeros((count, 3), np.float32)))
    episodes = [
        elites.Episode(np.zeros((3, 3)), np.stack([a, a]), np.array([1.0, a[0]]), False)
        for a in actions
    ]
    search.tell(1.0 + actions[:, 0], 0.9 * actions, episodes=episodes)


def test_a_learning_search_goes_on_in_another_process_to_the_same_bits(tmp_path):
    """Three requests told and a fourth asked there, told here: the whole state is the same."""
    file = str(tmp_path / "search.npz")
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    script = TOLD_ELSEWHERE.format(path=paths, file=file)
    subprocess.run([sys.executable, "-c", script], check=True)
    here, straight = small_search(), small_search()
    here.load(file)
    told_the_same(here, pending=True)
    for _ in range(4):
        told_the_same(straight)
    for a, b in zip(jax.tree.leaves(here.state), jax.tree.leaves(straight.state), strict=True):
        np.testing.assert_array_equal(a, b)
    assert here.metrics.keys() == straight.metrics.keys()
    for name, value in here.metrics.items():
        np.testing.assert_array_equal(value, straight.metrics[name])


def test_a_search_takes_what_training_takes():
    """An algorithm as a function, a preset, and a record of hyperparameters."""
    builders = elites.core.algorithms
    hp = elites.Hyperparameters(cells=7, batch_size=8)
    search = elites.ask_tell(outside(), builders.me, hp=hp)
    assert (search.algorithm.name, search.algorithm.cells) == ("me", 7)
    assert elites.ask_tell(outside(), "me", preset="smoke").algorithm.cells == 32
    assert elites.ask_tell(outside(), "me", preset="smoke", cells=9).algorithm.cells == 9
    with pytest.raises(ValueError, match=r"hp must be an elites\.Hyperparameters record, got"):
        elites.ask_tell(outside(), "me", hp={"cells": 3})
    with pytest.raises(ValueError, match="Did you mean 'seed'"):
        elites.ask_tell(outside(), "me", sead=3)


def outside(**changes):
    return elites.ExternalTask(
        **{
            "name": "robot", "observation_size": 3, "action_size": 2, "episode_length": 4,
            "descriptor_low": (-1.0, -1.0), "descriptor_high": (1.0, 1.0), **changes,
        }
    )  # fmt: skip


def test_saving_a_search_leaves_other_files_alone(tmp_path):
    theirs = tmp_path / f".search.npz.{os.getpid()}"
    theirs.write_text("precious")
    elites.ask_tell(outside(), "me", batch_size=8, cells=16).save(tmp_path / "search.npz")
    assert theirs.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([theirs.name, "search.npz"])


def test_a_file_of_another_search_is_refused(tmp_path):
    path = tmp_path / "search.npz"
    search = elites.ask_tell(outside(), "me", batch_size=8, cells=16)
    search.save(path)
    for other, message in (
        (elites.ask_tell(outside(), "me", batch_size=8, cells=16, seed=1), "seed is 0, not 1"),
        (elites.ask_tell(outside(name="b"), "me", batch_size=8, cells=16), "task is 'robot'"),
        (elites.ask_tell(outside(), "me", batch_size=8, cells=17), "cells is '16', not '17'"),
        (elites.ask_tell(outside(), "me_es", cells=16), "algorithm is 'me', not 'me_es'"),
        (
            elites.ask_tell(outside(descriptor_high=(5.0, 5.0)), "me", batch_size=8, cells=16),
            "task's descriptor_high is ",
        ),
        (
            elites.ask_tell(outside(lengthscale=0.5), "me", batch_size=8, cells=16),
            "task's lengthscale is '0.1', not '0.5'",
        ),
        (
            elites.ask_tell(outside(), "me", batch_size=8, cells=16, iso_sigma=9.0),
            "hyperparameter iso_sigma is '0.005', not '9.0'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            other.load(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="damaged: "):
        search.load(path)


def told_right(search, episodes) -> dict:
    n = len(search.asked())
    return {
        "fitness": np.zeros(n), "descriptors": np.zeros((n, 2)), "episodes": episodes(n),
    }  # fmt: skip


def an_episode(t=3, **changes) -> elites.Episode:
    fields = {
        "observations": np.zeros((t + 1, 3)), "actions": np.zeros((t, 2)), "rewards": np.zeros(t),
        "state_descriptors": np.zeros((t, 2)), **changes,
    }  # fmt: skip
    return elites.Episode(**fields)


TINY = {
    "batch_size": 6, "cells": 16, "policy_hidden": (4,), "actor_hidden": (4,),
    "critic_hidden": (4,), "td3_batch_size": 4, "critic_steps": 2, "diversity_critic_steps": 2,
    "pg_steps": 1, "replay_size": 100, "novelty_memory": 20,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"fitness": np.zeros(6) * 1j},
            "fitness must be real numbers, got an array of type complex",
        ),
        ({"fitness": ["a"] * 6}, "fitness must be real numbers"),
        ({"valid": np.full(6, np.nan)}, "valid must be True or False for every row"),
        ({"valid": np.full(6, 2)}, "valid must be True or False for every row"),
        ({"episodes": None}, "qd_pg learns from transitions: give episodes, a list of 6"),
        ({"episodes": [an_episode()] * 5}, "episodes must have 6 entries, got 5"),
        ({"episodes": [an_episode(5)] * 6}, "rewards must be a vector of 1 to 4 steps, got"),
        ({"episodes": [an_episode(0)] * 6}, "rewards must be a vector of 1 to 4 steps, got"),
        (
            {"episodes": [an_episode(observations=np.zeros((3, 3)))] * 6},
            r"episode 0: observations must have shape \(4, 3\) for 3 rewards, got \(3, 3\)",
        ),
        (
            {"episodes": [an_episode(), an_episode(actions=np.full((3, 2), np.inf))] * 3},
            "episode 1: actions must be finite; give None for an episode that failed",
        ),
        (
            {"episodes": [an_episode(state_descriptors=None)] * 6},
            "episode 0: qd_pg rewards states and needs state_descriptors",
        ),
    ],
)
def test_wrong_results_are_refused_in_a_sentence_and_nothing_is_lost(changes, message):
    search = elites.ask_tell(outside(), "qd_pg", **TINY)
    asked = search.ask()
    right = told_right(search, lambda n: [an_episode()] * n)
    with pytest.raises(ValueError, match=message):
        search.tell(**(right | changes))
    assert search.asked().number == asked.number
    search.tell(**right)
    assert len(search.archive) == 1


def test_results_of_another_request_are_refused():
    search = elites.ask_tell(outside(), "me", **TINY)
    first = search.ask()
    results = {"fitness": np.zeros(6), "descriptors": np.zeros((6, 2))}
    search.tell(**results, asked=first)
    second = search.ask()
    with pytest.raises(ValueError, match="results of request 0, but request 1 is waiting"):
        search.tell(**results, asked=first)
    search.tell(**results, asked=second)
    with pytest.raises(ValueError, match=r"call ask before tell \(requests told so far: 2\)"):
        search.tell(**results, asked=second)
    with pytest.raises(AttributeError):
        search.state = search.state


def test_episodes_of_any_length_are_stored():
    """Lengths from 1 to the most: the replay buffer holds their steps, in order of time."""
    search = elites.ask_tell(outside(), "qd_pg", **TINY)
    asked = search.ask()
    lengths = [1, 4, 2, 3, 4, 1]
    episodes = [
        an_episode(t, rewards=np.full(t, 10.0 * row), terminated=row % 2 == 0)
        for row, t in enumerate(lengths)
    ]
    episodes[4] = None  # it failed
    search.tell(np.zeros(len(asked)), np.zeros((len(asked), 2)), episodes=episodes)
    replay = search.state.replay
    stored = int(replay.size)
    assert stored == sum(lengths) - 4
    columns = replays.columns(search.algorithm.replay_layout, np.asarray(replay.rows)[:stored])
    rewards, counts = np.unique(columns["reward"], return_counts=True)
    assert dict(zip(rewards, counts, strict=True)) == {0.0: 1, 10.0: 4, 20.0: 2, 30.0: 3, 50.0: 1}
    assert columns["done"].sum() == 2  # rows 0 and 2; row 4 failed
    assert columns["truncation"].sum() == 3
    assert counter.value(search.state.env_steps) == stored
    assert int(search.state.rejected) == 1


def test_the_function_of_a_request_acts_as_its_policies_and_its_actor():
    search = elites.ask_tell(outside(), "dcg_me", **TINY)
    first = search.ask()
    assert (len(first.policies), len(first.actor_targets)) == (6, 0)
    places = np.linspace(-0.9, 0.9, 12).reshape(6, 2)
    search.tell(np.zeros(6), places, episodes=[an_episode()] * 6)
    second = search.ask()
    assert (len(second.policies), len(second.actor_targets)) == (0, 6)
    # The untrained actor is asked for what the policies reached.
    near = np.abs(second.actor_targets[:, None] - places[None]).max(-1).min(1)
    assert (near < 0.01).all()
    observations = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    actor = elites.training.Actor(
        np.asarray(search.algorithm.actor(search.state)), search.algorithm
    )
    np.testing.assert_allclose(
        second.act(observations), actor(observations, second.actor_targets), atol=1e-5
    )
    with pytest.raises(ValueError, match=r"observations must have shape \(6, 3\), got \(5, 3\)"):
        second.act(observations[:5])
    search.tell(np.zeros(6), places, episodes=[an_episode()] * 6)
    assert search.iteration == 1
    third = search.ask()
    assert (len(third.policies), len(third.actor_targets)) == (6, 6)
    layers = networks.unflatten(search.algorithm.policy, third.policies)
    expected = networks.apply_each(search.algorithm.policy, layers, observations)
    np.testing.assert_allclose(third.act(np.tile(observations, (2, 1)))[:6], expected, atol=1e-5)


# ---------------------------------------------------------------- a simulator in another process


@pytest.mark.parametrize(
    ("name", "iterations", "coverage"), [("dcg_me", 6, 0.5), ("qd_pg", 6, 0.5), ("me_es", 40, 0.1)]
)
def test_the_example_trains_on_a_simulator_in_another_process(
    name, iterations, coverage, tmp_path, monkeypatch
):
    # The other process finds the example by its name, on the same path.
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    module = importlib.import_module("outside_simulator")
    sizes = SMALL | {"es_samples": 16, "es_sigma": 0.1, "es_learning_rate": 0.1, "iso_sigma": 0.2}
    found = module.search(name, iterations, save=tmp_path / "search.npz", **sizes)
    assert found.archive.coverage >= coverage
    again = elites.ask_tell(
        outside(name="point", episode_length=25, deterministic=True), name, **sizes
    )
    again.load(tmp_path / "search.npz")
    assert again.archive.qd_score == found.archive.qd_score


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"descriptor_high": (-1.0, 1.0)},
            "descriptor dimension 0 needs finite bounds with low < high",
        ),
        ({"descriptor_high": (1.0,)}, "descriptor_low has 2 entries and descriptor_high 1"),
        ({"observation_size": 0}, "observation_size must be at least 1, got 0"),
        ({"episode_length": 0}, "episode_length must be at least 1, got 0"),
        ({"lengthscale": 0.0}, "lengthscale must be a finite number above 0, got 0.0"),
        ({"descriptor_low": "ab"}, "descriptor_low must be a tuple of numbers, got 'ab'"),
    ],
)
def test_a_task_outside_is_checked_like_any_other(changes, message):
    with pytest.raises(ValueError, match=f"task 'robot': {message}"):
        elites.ask_tell(outside(**changes), "me", **TINY)


def test_a_task_is_what_training_accepts():
    """A function that returns a task, and bounds as arrays."""
    search = elites.ask_tell(lambda: elites.tasks.make("point_omni"), "me", **TINY)
    assert search.algorithm.problem.name == "point_omni"
    low, high = np.full(2, -1.0), [1.0, 1.0]
    search = elites.ask_tell(outside(descriptor_low=low, descriptor_high=high), "me", **TINY)
    assert search.algorithm.problem.descriptor_low == (-1.0, -1.0)
    with pytest.raises(ValueError, match="built already takes no hyperparameters"):
        elites.ask_tell("point_omni", map_elites(), preset="smoke")


def test_an_algorithm_of_another_task_is_refused():
    with pytest.raises(ValueError, match="me was built for task 'point_omni', not for 'robot'"):
        elites.ask_tell(outside(), map_elites())


def test_a_seed_beyond_32_bits_is_refused():
    with pytest.raises(ValueError, match="a seed must be between 0"):
        elites.ask_tell(outside(), "me", seed=2**32, **TINY)


def test_states_beyond_the_bounds_are_not_more_novel():
    """State descriptors from outside are clipped, as those of the library's own rollouts are."""
    search = elites.ask_tell(outside(), "qd_pg", **TINY)
    n = len(search.ask())
    far = an_episode(state_descriptors=np.full((3, 2), 9.0))
    search.tell(np.zeros(n), np.zeros((n, 2)), episodes=[far] * n)
    memory = search.state.memory
    np.testing.assert_array_equal(np.asarray(memory.points)[np.asarray(memory.age) >= 0], [[1, 1]])
