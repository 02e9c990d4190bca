"""Training on a task whose episodes run outside of JAX, in worker processes.

The environment is the task point_omni, written for Gymnasium. Its algorithms must therefore do what
they do on point_omni, up to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="LEFT OUT: needs gymnasium")

import elites
import own_environments
import small
from elites import tasks, training
from elites.core import networks
from elites.core.types import ActionNoise
from elites.tasks import gymnasium_tasks as family
from elites.tasks import rollout
from elites.tasks.workers import pool
from elites.tasks.workers.descriptors import Choice
from elites.tasks.workers.environment import Spec

# As in tests/core/test_algorithms.py: what is compiled there is not compiled again here.
SMALL = small.SMALL | {"es_samples": 64, "es_generations": 2}
OWN = Path(own_environments.__file__).resolve()
KEY = jax.random.key(0)
KEYS = training.seed_keys((3, 4))
TRAINED = (
    "dcg_me",
    "me_es",
)  # the others leave out their gradient steps, which take long to compile
NAMES = (
    *TRAINED, "me", "pga_me", "qd_pg", "dcrl_me", "progress_me", "dcg_me_unconditioned_actor",
    "pbt_me",
)  # fmt: skip


@pytest.fixture(scope="module")
def point():
    yield made("point")
    pool.close()


def made(function: str, **options: object) -> elites.Task:
    spec = Spec(
        f"{OWN}:{function}",
        Choice(f"{OWN}:place", over="final"),
        own_environments.LENGTH,
        ((str(OWN), OWN.read_bytes()),),
    )
    bounds = {"low": (-1.0, -1.0), "high": (1.0, 1.0)}
    task = family.build(f"gymnasium:{function}", spec, {**bounds, **options})
    known = tasks.make("point_omni").observation_ranges  # progress_me scales observations by them
    return dataclasses.replace(task, observation_ranges=known)


@functools.cache
def built(task, name: str) -> training.Batched:
    """Return an algorithm over two seeds."""
    return training.Batched(elites.build(task, name, **SMALL), 2)


def started(task, name: str):
    batched, keys = built(task, name), KEYS
    return batched, batched.start(training.iteration_keys(keys, 0)), keys


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_does_what_it_does_inside_of_jax(name, point):
    batched, found = built(point, name), []
    inside = training.Batched(elites.build("point_omni", name, **SMALL), 2)
    # The other stages are the same, so they are compiled once.
    assert dataclasses.replace(
        inside.algorithm.problem, name="", rollout=None
    ) == dataclasses.replace(batched.algorithm.problem, name="", rollout=None, outside=None)
    for evaluate in (batched.compiled.evaluate, inside.compiled.evaluate):
        stages = dataclasses.replace(batched.compiled, evaluate=evaluate)
        if name not in TRAINED:
            stages = dataclasses.replace(stages, train=lambda state, key: (state, {}))
        keys = KEYS
        centroids = np.stack([np.asarray(batched.algorithm.centroids())] * 2)
        state = stages.start(training.iteration_keys(keys, 0), centroids)
        state, metrics = stages.step(state, training.iteration_keys(keys, 1))
        found.append((jax.tree.map(np.asarray, state), training.named(metrics)))
    (outside, metrics), (inside, expected) = found
    for part in ("fitness", "descriptors"):
        np.testing.assert_allclose(
            getattr(outside.archive, part), getattr(inside.archive, part), rtol=1e-3, atol=1e-3
        )
    assert set(metrics) == set(expected)
    for measure in ("evaluations", "env_steps", "rejected"):
        assert np.array_equal(metrics[measure], expected[measure])


def test_workers_add_noise_to_actions(point):
    """The actions of a policy of zeros are the noise alone: two episodes share its seed."""
    network = networks.policy(3, 2, (4,))
    policies = [(network, np.zeros(network.size, np.float32))] * 4
    noise = ActionNoise(np.array([0.0, 0.3, 0.3, 5.0]), np.array([1, 2, 2, 3], np.uint32))
    found = point.outside.run(policies, np.zeros(4, np.uint32), True, noise)
    actions = found.transitions.action
    assert (actions[:, 0] == 0).all()
    np.testing.assert_array_equal(actions[:, 1], actions[:, 2])
    assert 0.2 < actions[:, 1].std() < 0.4
    assert np.abs(actions[:, 3]).max() == 1
    assert len(np.unique(actions[:, 1])) == actions[:, 1].size
    # The environment took them: the point is where they lead.
    expected = np.zeros(2)
    for action in actions[:, 1]:
        expected = np.clip(expected + 0.1 * action, -1, 1)
    np.testing.assert_allclose(found.descriptors[1], expected, atol=1e-4)


def test_two_workers_and_deaths_change_no_bit(point, monkeypatch):
    """Training with one worker, with two, and with two of which some are killed."""
    states = []
    order, orders = pool._order, iter(range(10**9))

    def order_and_kill(worker, *arguments):
        sent = order(worker, *arguments)
        if next(orders) in (5, 40):
            os.kill(worker.process.pid, signal.SIGKILL)
        return sent

    for workers, ordering in (("1", order), ("2", order), ("2", order_and_kill)):
        monkeypatch.setenv(pool.VARIABLE, workers)
        monkeypatch.setattr(pool, "_order", ordering)
        batched, state, keys = started(point, "dcg_me")
        state, _ = batched.step(state, training.iteration_keys(keys, 1))
        states.append([np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)])
    assert next(orders) > 40
    assert states[0] == states[1] == states[2]
    again = batched.reevaluate(state.archive, batched.algorithm.actor(state), keys)
    filled = np.isfinite(state.archive.fitness)
    assert np.array_equal(again.fitness[filled], state.archive.fitness[filled])
    assert np.array_equal(again.descriptors[filled], state.archive.descriptors[filled])


def test_shapes_are_those_of_the_results(point):
    """What is compiled in advance fits, and the memory of the results is counted."""
    for name in ("me", "dcg_me_unconditioned_actor", "dcg_me"):
        batched, state, keys = started(point, name)
        request = batched.compiled.rounds[-1].ask(state, keys).to_evaluate()
        found = batched.compiled.evaluate(request)
        expected = batched.evaluation_shapes(request)
        of_found, of_expected = (
            jax.tree.map(lambda a: (a.shape, a.dtype), tree) for tree in (found, expected)
        )
        assert of_found == of_expected
    needed = batched.compile(state, keys)
    assert needed > training.size_in_bytes(state) + training.size_in_bytes(found)


def test_observations_are_normalised_without_a_learner(point):
    statistics = []
    for task in (point, "point_omni"):
        hp = SMALL | {"normalise_observations": True}
        batched, keys = training.Batched(elites.build(task, "me", **hp), 2), KEYS
        state = batched.start(training.iteration_keys(keys, 0))
        statistics.append(state.statistics)
        request = batched.compiled.rounds[-1].ask(state, keys).to_evaluate()
        steps = batched.evaluation_shapes(request).transitions
        assert steps.observation.shape[1:] == (own_environments.LENGTH, *steps.mask.shape[2:], 3)
        assert steps.action.shape[1] == 0, "nobody learns from them"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *statistics)


def test_one_seed_without_compiling(point):
    """`build` gives an algorithm that evaluates too, but not inside of jit."""
    batched, state, keys = started(point, "dcg_me_unconditioned_actor")
    requests = batched.compiled.rounds[-1].ask(state, keys).to_evaluate()
    of_all = batched.compiled.evaluate(requests)
    second = jax.tree.map(lambda a: a[1], requests)
    found = batched.algorithm.evaluate(second)
    assert len(found.fitness) == batched.algorithm.batch + 1, "the actor's one trajectory"
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(of_all), strict=True):
        assert np.array_equal(a, b[1])
    with pytest.raises(ValueError, match="evaluated by worker processes, which compiled code can"):
        jax.jit(batched.algorithm.evaluate)(second)


def test_random_starts_differ_and_repeat():
    task = made("seeded_point", random_start=True)
    assert not task.deterministic
    network = networks.policy(3, 2, hidden=(4,))
    policies = np.tile(np.asarray(networks.init(network, jax.random.key(0))), (3, 1))
    found, again = (rollout.evaluate(task, network, policies, jax.random.key(1)) for _ in range(2))
    assert len(set(found.fitness.tolist())) == 3, "each evaluation has its own start"
    assert np.array_equal(found.fitness, again.fitness)
    other = rollout.evaluate(task, network, policies, jax.random.key(2))
    assert not set(other.fitness.tolist()) & set(found.fitness.tolist())


def test_there_is_no_rollout_inside_of_jax(point):
    for run in (
        lambda: rollout.problem(point).rollout(lambda seen: seen[:, :2], jax.random.split(KEY, 2)),
        lambda: point.reset(KEY),
    ):
        with pytest.raises(ValueError, match="evaluated by worker processes"):
            run()


def test_the_same_task_is_evaluated_by_ask_and_tell(point):
    """Somebody else may evaluate it as well, through `ask` and `tell`."""
    search = elites.ask_tell(point, "me", **SMALL)
    asked = search.ask()
    n = len(asked.policies)
    search.tell(np.arange(n), np.zeros((n, 2)))
    assert search.archive.qd_score == n - 1
