"""Observation normalisation: statistics against NumPy, and archived policies that stay the same."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from elites import training
from elites.core import counter, map_elites, networks, normalisation, variation
from elites.core.algorithms import ALGORITHMS
from elites.core.networks import MLP
from elites.core.normalisation import Statistics
from elites.core.types import Evaluation, Transitions
from small import SMALL
from specs import spec_of

KEYS = training.seed_keys([0, 1])
STATISTICS = Statistics(
    jnp.float32(100.0), jnp.array([5.0, -3.0, 0.5]), jnp.array([400.0, 0.01, 1.0])
)
SIZES = np.sqrt([400.0, 0.01, 1.0])  # all above the smallest size of 1/30


def evaluation_of(observations: np.ndarray, mask: np.ndarray) -> Evaluation:
    """An evaluation of which only the observations matter."""
    nothing = jnp.zeros(0)
    steps = Transitions(
        jnp.asarray(observations), nothing, nothing, nothing, nothing, nothing, nothing,
        jnp.asarray(mask),
    )  # fmt: skip
    return Evaluation(nothing, nothing, nothing, nothing, steps)


def test_running_statistics_are_those_of_all_observations_together():
    generator = np.random.default_rng(0)
    statistics, seen = normalisation.none_yet(3), []
    for episodes in (4, 1, 7):
        values = generator.normal([100.0, -2.0, 0.0], [5.0, 0.1, 1.0], (6, episodes, 3))
        mask = generator.random((6, episodes)) < 0.7
        seen.append(values[mask])
        statistics = normalisation.updated(statistics, evaluation_of(values, mask))
    expected = np.concatenate(seen)
    assert int(statistics.number) == len(expected)
    np.testing.assert_allclose(statistics.mean, expected.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(statistics.variance, expected.var(0), rtol=1e-3)


def test_without_observations_nothing_is_scaled():
    """A batch of failed episodes changes nothing; an entry that never varies is bounded."""
    statistics = normalisation.none_yet(2)
    rows = jnp.array([[3.0, -7.0]])
    np.testing.assert_array_equal(normalisation.normalised(statistics, rows), rows)
    failed = evaluation_of(np.ones((2, 3, 2)), np.zeros((2, 3), bool))
    np.testing.assert_array_equal(normalisation.updated(statistics, failed).mean, [0, 0])
    assert normalisation.updated(None, failed) is None
    same = evaluation_of(np.ones((2, 3, 2)), np.ones((2, 3), bool))
    constant = normalisation.updated(statistics, same)
    np.testing.assert_allclose(normalisation.normalised(constant, jnp.full((1, 2), 2.0)), 30.0)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_a_folded_policy_acts_on_raw_observations_as_before_on_normalised_ones(activation):
    network = MLP((3, 16, 2), activation=activation)
    policies = jax.vmap(lambda key: networks.init(network, key))(
        jax.random.split(jax.random.key(0), 5)
    )
    raw = normalisation.to_raw(network, policies, STATISTICS)
    rows = np.random.default_rng(1).normal([5.0, -3.0, 0.5], SIZES, (5, 3)).astype(np.float32)
    expected = networks.apply_each(
        network,
        networks.unflatten(network, policies),
        (rows - STATISTICS.mean[None]) / SIZES[None].astype(np.float32),
    )
    got = networks.apply_each(network, networks.unflatten(network, raw), rows)
    np.testing.assert_allclose(got, expected, atol=2e-5)
    back = normalisation.to_normalised(network, raw, STATISTICS)
    np.testing.assert_allclose(back, policies, atol=2e-5)
    assert normalisation.to_raw(network, policies, None) is policies


def started(spec):
    """Return the state of a run with random elites in all cells and random transitions."""
    generator = np.random.default_rng(0)
    centroids = jnp.asarray(generator.uniform(-1, 1, (spec.hp.cells, 2)), jnp.float32)
    state = jax.jit(partial(map_elites.init, spec))(jax.random.key(0), centroids)
    shape = (spec.hp.cells, spec.policy.size)
    policies = jnp.asarray(generator.normal(0, 0.2, shape), jnp.float32)
    archive = state.archive._replace(policies=policies, fitness=jnp.ones(spec.hp.cells))
    if state.replay is None:
        return state._replace(archive=archive)
    rows = jnp.asarray(generator.normal(size=state.replay.rows.shape), jnp.float32)
    replay = state.replay._replace(rows=rows, size=jnp.int32(len(rows)))
    return state._replace(archive=archive, replay=replay)


def test_the_ga_varies_policies_of_normalised_observations():
    """The noise on a weight is divided by the size of its input. The line is the same as ever."""
    spec = spec_of("me", **{**SMALL, "normalise_observations": True})
    state = started(spec)
    plain = state._replace(statistics=None)
    moved = state._replace(statistics=STATISTICS)

    def children(state, **sigmas):
        hp = dataclasses.replace(spec.hp, **sigmas)
        ga = partial(variation.ga, dataclasses.replace(spec, hp=hp), count=6)
        return np.asarray(jax.jit(ga)(state, jax.random.key(3)).policies)

    line = {"iso_sigma": 0.0, "line_sigma": 0.5}
    np.testing.assert_allclose(children(moved, **line), children(plain, **line), atol=2e-5)
    iso = {"iso_sigma": 0.1, "line_sigma": 0.0}
    none = children(plain, iso_sigma=0.0, line_sigma=0.0)
    inputs, outputs = spec.policy.sizes[:2]
    kernel = slice(0, inputs * outputs)
    noise = (children(plain, **iso) - none)[:, kernel].reshape(-1, inputs, outputs)
    scaled = (children(moved, **iso) - none)[:, kernel].reshape(-1, inputs, outputs)
    np.testing.assert_allclose(scaled, noise / SIZES[None, :, None], atol=2e-5)


def test_policy_gradients_do_not_depend_on_the_units_of_observations():
    """The same policies, critic and observations in other units make the same offspring.

    The units differ by powers of two, so that no bit is lost.
    """
    spec = spec_of("dcg_me", **{**SMALL, "normalise_observations": True})
    state = started(spec)
    critic, policy = spec.td3_of("conditioned").critic, spec.policy
    columns = spec.layout["observation"]

    @jax.jit
    def children(units):
        statistics = Statistics(
            STATISTICS.number, STATISTICS.mean * units, STATISTICS.variance * units**2
        )
        part = state.learners["conditioned"]
        part = part._replace(critics=normalisation.to_raw(critic, part.critics, statistics))
        policies = normalisation.to_raw(policy, state.archive.policies, statistics)
        rows = state.replay.rows.at[:, :columns].multiply(units[None])
        changed = state._replace(
            archive=state.archive._replace(policies=policies),
            learners={"conditioned": part},
            replay=state.replay._replace(rows=rows),
            statistics=statistics,
        )
        made = variation.policy_gradient(spec, changed, jax.random.key(5), 4, learner="conditioned")
        return normalisation.to_normalised(policy, made.policies, statistics)

    usual, others = children(jnp.ones(3)), children(jnp.array([64.0, 4.0, 0.5]))
    np.testing.assert_allclose(others, usual, atol=1e-5)
    unmoved = np.asarray(state.archive.policies)
    assert min(np.abs(unmoved - np.asarray(child)[None]).max(1).min() for child in usual) > 1e-3


# ---------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name.startswith("cma_")])
def test_cma_es_refuses_normalisation(name):
    exact = name in ("cma_mega", "cma_maega")  # which need plain vectors, without observations
    task, message = ("sphere", "no observations") if exact else ("point_omni", "normalise_obs")
    with pytest.raises(ValueError, match=message):
        training.build(task, name, normalise_observations=True)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not name.startswith("cma_")])
def test_every_algorithm_can_be_traced_with_normalisation(name):
    """One iteration keeps the shapes of the state, so that training can go on from it."""
    options = {**SMALL, "normalise_observations": True, "activation": "elu"}
    algorithm = training.build("noisy_point_omni", name, **options)
    key, centroids = jax.random.key(0), jnp.zeros((SMALL["cells"], 2))
    state = jax.eval_shape(algorithm.init, key, centroids)
    after, _ = jax.eval_shape(algorithm.step, state, key)
    assert after == state
    assert state.statistics.mean.shape == (3,)
    assert algorithm.policy.activation == "elu"
    if algorithm.main_td3:
        assert algorithm.main_td3.actor.activation == algorithm.main_td3.critic.activation == "elu"


@pytest.fixture(scope="module", params=["me", "me_es"])
def trained(request):
    """Return the parts of a run with normalisation after the start and four iterations."""
    return train(request.param)


def train(name):
    options = {**SMALL, "normalise_observations": True, "es_generations": 2}
    batched = training.Batched(training.build("point_omni", name, **options), 2)
    state = batched.start(training.iteration_keys(KEYS, 0))
    at_start = jax.tree.map(np.array, state)
    told = []
    for i in range(1, 5):
        keys = training.iteration_keys(KEYS, i)
        state, _ = batched.compiled.train(state, keys)
        for ask, tell, evaluations in batched.compiled.rounds:
            asked = ask(state, keys)
            results = batched.compiled.evaluate(asked.to_evaluate())
            steps = results.transitions
            told.append([np.array(a[:, :, :evaluations]) for a in (steps.observation, steps.mask)])
            state, _ = tell(state, asked, results)
    return batched, at_start, state, told


def test_a_run_measures_all_of_its_observations(trained):
    """Statistics of the second seed: those of the start, merged with every later observation.

    Rows that only pad a batch are not counted, as they are not among the steps of the run.
    """
    _, started, state, told = trained
    for at in (started, state):
        np.testing.assert_array_equal(at.statistics.number, counter.value(at.env_steps))
    rows = np.concatenate([observation[1][mask[1]] for observation, mask in told])
    before = jax.tree.map(lambda a: np.float64(a[1]), started.statistics)
    number = before.number + len(rows)
    assert before.number > 0
    assert float(state.statistics.number[1]) == number
    total = before.number * before.mean + rows.sum(0)
    np.testing.assert_allclose(state.statistics.mean[1], total / number, atol=1e-5)
    squares = before.number * (before.variance + before.mean**2) + np.square(rows).sum(0)
    expected = squares / number - (total / number) ** 2
    np.testing.assert_allclose(state.statistics.variance[1], expected, atol=1e-5)


def test_elites_repeat_to_the_bit_while_the_statistics_move(trained):
    batched, started, state, _ = trained
    assert not np.array_equal(started.statistics.mean, state.statistics.mean)
    again = batched.reevaluate(state.archive, batched.algorithm.actor(state), KEYS)
    filled = np.isfinite(state.archive.fitness)
    assert filled.any(axis=1).all()
    np.testing.assert_array_equal(again.fitness[filled], state.archive.fitness[filled])
    np.testing.assert_array_equal(again.descriptor_error, [0.0, 0.0])
