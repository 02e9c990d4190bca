"""Every algorithm of the registry passes the same tests.

- It runs on every task, and its metrics count evaluations and additions.
- The same key gives the same bits, and a seed does not depend on the seeds beside it.
- Re-evaluating its archive reproduces it exactly.
- It reads the hyperparameters that `usage` lists, and no others.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar, NamedTuple

import jax
import numpy as np
import pytest

import elites
import small
from elites import tasks, training
from elites.core import algorithms, catalogue, counter, usage
from elites.core.algorithm import Metrics
from elites.core.algorithms import ALGORITHMS
from elites.core.hyperparameters import Hyperparameters
from elites.tasks.rollout import problem

SMALL = small.SMALL | {"es_samples": 64, "es_generations": 2}
ITERATIONS = 3
VECTORS = "vectors:sphere,dimensions=10"
ON_VECTORS = ("cma_me", "cma_me_random", "cma_mae", "cma_mega", "cma_maega")


def task_of(name: str) -> str:
    """Return the small task that an algorithm is run on."""
    return VECTORS if name in ON_VECTORS else "point_omni"


def built(name: str, task: str | None = None) -> training.Batched:
    """Return an algorithm over two seeds."""
    return _built(name, task or task_of(name))


def trained(name: str, task: str | None = None, seeds: tuple[int, int] = (3, 4)):
    """Return the states of two seeds, from the start on, and the metrics of each iteration."""
    return _trained(name, task or task_of(name), seeds)


# Separate from their defaults, so that a call with and one without the default share an entry.
@functools.cache
def _built(name: str, task: str) -> training.Batched:
    # Vectors can have any fitness, and an elite below the offset lowers the QD-score.
    offset = {"qd_offset": -1e6} if task == VECTORS else {}
    return training.Batched(elites.build(task, name, **SMALL | offset), 2)


@functools.cache
def _trained(name: str, task: str, seeds: tuple[int, int]):
    batched = built(name, task)
    keys = training.seed_keys(seeds)
    state, metrics = batched.start(training.iteration_keys(keys, 0)), []
    states = [kept(state)]
    for i in range(1, ITERATIONS + 1):
        state, values = batched.step(state, training.iteration_keys(keys, i))
        states.append(kept(state))
        metrics.append(training.named(values))
    return states, metrics


def kept(state):
    """Return a copy: a step donates its input."""
    return jax.tree.map(np.array, state)


def reevaluated(batched: training.Batched, state, keys):
    return batched.reevaluate(state.archive, batched.algorithm.actor(state), keys)


def bits(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def test_catalogue_names_what_is_built():
    assert list(catalogue.ALGORITHMS) == list(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_runs_and_counts(name):
    states, metrics = trained(name)
    algorithm = built(name).algorithm
    for i, row in enumerate(metrics, start=1):
        evaluations = algorithm.initial_evaluations + i * algorithm.evaluations_per_iteration
        assert (row["evaluations"] == evaluations).all()
        assert (row["rejected"] == 0).all()
        for metric, values in row.items():
            assert values.shape == (2,)
            assert np.isfinite(values).all(), metric
    qd_scores = np.stack([row["qd_score"] for row in metrics])
    assert (np.diff(qd_scores, axis=0) >= 0).all(), "an archive never gets worse"
    # Every elite has one of the named origins, and was added no later than now.
    archive = jax.tree.map(np.asarray, states[-1].archive)
    full = np.isfinite(archive.fitness)
    assert ((archive.origin >= 0) == full).all()
    assert archive.origin.max() < len(algorithm.origins)
    assert archive.born.max() <= ITERATIONS
    added = sum(v for row in metrics for k, v in row.items() if k.startswith("added."))
    assert (added >= (archive.born > 0).sum(1)).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_key_same_bits(name):
    states, _ = trained(name)
    batched = built(name)
    keys = training.seed_keys((3, 4))
    again = batched.start(training.iteration_keys(keys, 0))
    assert bits(again) == bits(states[0])
    again, _ = batched.step(again, training.iteration_keys(keys, 1))
    assert bits(again) == bits(states[1])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_seed_does_not_depend_on_its_neighbours(name):
    """The same seed beside another seed, and in another position: iterations agree to 1e-4."""
    here, _ = trained(name, seeds=(3, 4))
    there, _ = trained(name, seeds=(7, 3))
    for a, b in zip(jax.tree.leaves(here[2]), jax.tree.leaves(there[2]), strict=True):
        np.testing.assert_allclose(a[0], b[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["dcg_me"])
def test_iterations_of_a_seed_alone_in_a_scan_agree_with_the_seed_in_a_batch(name):
    algorithm = built(name).algorithm
    key = training.seed_keys([3])
    keys = jax.numpy.concatenate([training.iteration_keys(key, i) for i in (1, 2)])
    state = jax.jit(algorithm.start)(training.iteration_keys(key, 0)[0])
    scanned, metrics = jax.jit(functools.partial(jax.lax.scan, algorithm.step))(state, keys)
    assert metrics.qd_score.shape == (2,)
    assert int(scanned.iteration) == 2
    beside, _ = trained(name)
    for a, b in zip(jax.tree.leaves(scanned), jax.tree.leaves(beside[2]), strict=True):
        np.testing.assert_allclose(a, b[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_reevaluation_reproduces_the_archive(name):
    states, _ = trained(name)
    batched = built(name)
    found = reevaluated(batched, states[-1], training.seed_keys((0, 1)))
    assert (np.asarray(found.descriptor_error) == 0.0).all()
    archive = states[-1].archive
    full = np.isfinite(archive.fitness)
    assert (np.asarray(found.fitness)[full] == np.asarray(archive.fitness)[full]).all()
    assert np.isnan(np.asarray(found.fitness)[~full]).all()
    learner = batched.algorithm.main_td3
    has_conditioned_actor = bool(learner and learner.actor_conditioned)
    assert np.isfinite(found.actor_descriptor_error).all() == has_conditioned_actor
    assert np.isfinite(found.actor_qd_score).all() == has_conditioned_actor
    assert np.isfinite(found.actor_fitness)[full].all() == has_conditioned_actor
    assert np.isnan(found.actor_fitness[~full]).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_is_evaluated_before_the_start(name):
    batched, algorithm = built(name), built(name).algorithm
    centroids = np.stack([algorithm.centroids()] * 2)
    state = kept(batched.compiled.init(training.seed_keys((0, 1)), jax.numpy.asarray(centroids)))
    assert not np.isfinite(state.archive.fitness).any()
    assert (state.iteration == -1).all()
    for count in (state.evaluations, counter.value(state.env_steps), state.rejected):
        assert (count == 0).all()
    started = trained(name)[0][0]
    assert (started.iteration == 0).all()
    assert (started.evaluations == algorithm.initial_evaluations).all()
    assert (counter.value(started.env_steps) > 0).all()
    assert set(started.archive.origin.flat) == {-1, 0}  # empty, or initial


@functools.cache
def traced_once(task: str) -> elites.Task:
    """Return a task whose physics is not traced again for every algorithm."""
    made = tasks.make(task)
    return dataclasses.replace(made, reset=jax.jit(made.reset), step=jax.jit(made.step))


def stages_traced_once(algorithm):
    """Return an algorithm whose start and step share what is traced of the stages of both."""
    rounds = tuple(each._replace(tell=jax.jit(each.tell)) for each in algorithm.rounds)
    init, evaluate = jax.jit(algorithm.init), jax.jit(algorithm.evaluate)
    return dataclasses.replace(algorithm, init=init, evaluate=evaluate, rounds=rounds)


# Robots take long to trace. Each is combined with the algorithms that differ most.
ROBOTS = [name for name in tasks.names() if tasks.make(name).body_model is not None]
DIFFERENT = ("me_es", "qd_pg", "dcg_me", "progress_me")
# To an algorithm, these differ from another task in numbers alone.
ALIKE = ("ant_maze", "point_maze")
PAIRS = [
    (name, task)
    for name in ALGORITHMS
    for task in (VECTORS, *tasks.names())
    if task == VECTORS or name not in catalogue.WITH_EXACT_GRADIENTS
    if task != VECTORS or (name.startswith("cma_") and name != "cma_mega_td3")
    if not name.startswith("cma_") or task in (VECTORS, "point_omni")
    if (name in DIFFERENT or task not in ROBOTS) and task not in ALIKE
    if name == "dcg_me" or task != "ant_uni"  # with four descriptor axes
]


FIELDS = [field.name for field in dataclasses.fields(Hyperparameters)]


class Recorded(Hyperparameters):
    """Hyperparameters that note in `read` which of them are read."""

    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str):
        if name in FIELDS:
            self.read.add(name)
        return super().__getattribute__(name)


class Traced(NamedTuple):
    """Shapes and types of a traced algorithm, and the hyperparameters that it has read."""

    blank: object
    state: object
    after: object
    metrics: Metrics
    read: set[str]


@functools.cache
def traced(name: str, task: str) -> Traced:
    """Trace the start and a step of an algorithm on a task. Nothing is compiled or run."""
    made = problem(tasks.make(task) if task == VECTORS else traced_once(task))
    hp = Recorded.of(SMALL)
    Recorded.read.clear()
    algorithm = stages_traced_once(algorithms.make(name, made, hp))
    key = jax.random.key(0)
    blank = jax.eval_shape(algorithm.init, key, algorithm.centroids())
    state = jax.eval_shape(algorithm.start, key)
    after, metrics = jax.eval_shape(algorithm.step, state, key)
    return Traced(blank, state, after, metrics, set(Recorded.read))


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_algorithms_fit_the_tasks(name, task):
    """Traced, not run: shapes and types fit, and a step returns a state like its input."""
    found = traced(name, task)
    for other in (found.blank, found.after):
        assert jax.tree.structure(other) == jax.tree.structure(found.state)
        for a, b in zip(jax.tree.leaves(found.state), jax.tree.leaves(other), strict=True):
            # With the weak type of a Python number, the next step would compile once more.
            assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
    assert found.metrics.qd_score.shape == ()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_reads_the_hyperparameters_that_are_listed(name):
    """Those that it reads on some task while it is built and traced, as `usage.READ` has them."""
    read = {field for each, task in PAIRS if each == name for field in traced(name, task).read}
    assert sorted(read) == sorted(usage.READ[name])


def test_reevaluation_of_a_stochastic_task_draws_new_episodes():
    """On a task with a random start, re-evaluation does not reproduce the archive."""
    states, _ = trained("me", task="noisy_point_omni")
    batched = built("me", "noisy_point_omni")
    found = reevaluated(batched, states[-1], training.seed_keys((0, 1)))
    assert (np.asarray(found.descriptor_error) > 1e-3).all()


def test_me_es_averages_its_offspring_on_a_stochastic_task():
    algorithm = built("me_es", "noisy_point_omni").algorithm
    assert algorithm.evaluations_per_iteration == SMALL["es_samples"] + 30
    assert built("me_es").algorithm.evaluations_per_iteration == SMALL["es_samples"] + 1
