"""The shared iteration: what is stored with a transition, what is counted, who is named.

Most tests run one start and one iteration of every conditioned algorithm on `point_omni`. Its
episodes all last 25 steps and its descriptor is the final position. The stored transitions
therefore show what each episode reached, and which policy or actor acted in it.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
import probe
from elites.core import algorithms, counter, map_elites, networks, td3
from elites.core import replay as replays
from elites.core.algorithm import Algorithm, Metrics
from elites.core.archive import Archive
from elites.core.spec import Learner, Spec, State, Variation
from elites.core.types import Evaluation, Request, Transitions
from elites.core.variation import ga, greedy, injection, policy_gradient
from specs import spec_of

BATCH, STEPS = 8, 25
NOISE = 0.0004 * 2  # on the actor's targets: a share of the range, which is 2

TINY: dict[str, Any] = {
    "batch_size": BATCH, "cells": 64, "policy_hidden": (8,), "actor_hidden": (9,),
    "critic_hidden": (8,), "td3_batch_size": 4, "critic_steps": 1, "actor_delay": 1, "pg_steps": 1,
    "iso_sigma": 0.5,  # so that offspring reach new cells
    "actor_learning_rate": 0.05,  # so that the actor before and after training can be told apart
    "policy_learning_rate": 1e-6,  # so that the parent of a PG offspring can be recognised
    "replay_size": 1000,
}  # fmt: skip


class Stored(NamedTuple):
    """Transitions of the start or of an iteration [25, episodes, width], as inserted."""

    observation: np.ndarray
    action: np.ndarray
    next_observation: np.ndarray
    truncation: np.ndarray
    descriptor: np.ndarray
    target: np.ndarray

    def episodes(self, rows: slice) -> "Stored":
        return Stored(*(column[:, rows] for column in self))


class Trial(NamedTuple):
    """One start and one iteration of an algorithm."""

    algorithm: Algorithm[State]
    before: State  # after the start
    after: State  # after one iteration
    metrics: Metrics
    initial: Stored
    iteration: Stored


def read(spec: Spec, replay: replays.Replay, first: int, count: int) -> Stored:
    """Return `count` transitions of the replay buffer, from row `first` on."""
    rows = np.asarray(replay.rows)[first : first + count].reshape(STEPS, count // STEPS, -1)
    columns = replays.columns(spec.layout, rows)
    return Stored(*(np.asarray(columns[name]) for name in Stored._fields))


@functools.cache
def trial(name: str) -> Trial:
    spec = spec_of(name, **TINY)
    algorithm = map_elites.algorithm(spec)
    # Each is called once: compiling is all the cost, and optimising would be most of it.
    jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    before = jit(algorithm.start)(jax.random.key(0))
    after, metrics = jit(algorithm.step)(before, jax.random.key(1))
    middle, end = int(before.replay.size), int(after.replay.size)
    assert end == int(after.replay.head) < TINY["replay_size"]  # nothing was overwritten
    return Trial(
        algorithm, before, after, metrics,
        read(spec, before.replay, 0, middle), read(spec, after.replay, middle, end - middle),
    )  # fmt: skip


def archived(archive: Archive) -> np.ndarray:
    """Return the descriptors of the elites. On this task they equal the scaled ones."""
    return np.asarray(archive.descriptors)[np.isfinite(archive.fitness)]


def assert_target_is_what_was_reached(stored: Stored):
    """Assert that the target is the descriptor, at every step of every episode."""
    np.testing.assert_array_equal(stored.target, stored.descriptor)


def assert_targets_are_drawn_from(archive: Archive, stored: Stored, noise: float):
    """Assert one target for a whole episode: an elite's descriptor with noise of this deviation."""
    targets = stored.target[0]
    np.testing.assert_array_equal(stored.target, np.tile(targets, (STEPS, 1, 1)))
    distance = np.linalg.norm(targets[:, None] - archived(archive)[None], axis=-1).min(1)
    assert (distance <= max(5 * noise, 1e-6)).all()
    if noise:
        assert (distance > 0).all()
        assert len(np.unique(targets, axis=0)) == len(targets)


def assert_acted(trial: Trial, stored: Stored, actor):
    """Assert that the stored actions are those of this actor at the stored target."""
    learner = trial.algorithm.main_td3
    actions = td3.act(learner, actor, jnp.asarray(stored.observation), jnp.asarray(stored.target))
    np.testing.assert_allclose(actions, stored.action, atol=1e-5)


def parents(trial: Trial, stored: Stored) -> np.ndarray:
    """Return the cell of the archive whose policy acted in each episode."""
    archive, policy = trial.before.archive, trial.algorithm.policy
    cells = np.flatnonzero(np.isfinite(archive.fitness))
    layers = networks.unflatten(policy, archive.policies[cells])
    each = jax.vmap(lambda layers: networks.apply(policy, layers, jnp.asarray(stored.observation)))
    error = abs(np.asarray(each(layers)) - stored.action[None]).max(axis=(1, 3))
    assert (error.min(0) < 1e-4).all()
    assert (np.sort(error, axis=0)[1] > 1e-3).all()  # no other policy acts like it
    return cells[error.argmin(0)]


CONDITIONED = [
    "dcg_me", "dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives",
    "dcg_me_unconditioned_actor", "dcrl_me", "progress_me",
]  # fmt: skip
ACTOR_EPISODES = {"dcg_me": BATCH, "dcg_me_unconditioned_actor": BATCH}


@pytest.mark.parametrize("name", CONDITIONED)
def test_every_episode_is_stored_completely_with_what_it_reached(name):
    run = trial(name)
    for stored in (run.initial, run.iteration):
        assert stored.action.shape[1] == BATCH + ACTOR_EPISODES.get(name, 0)
        np.testing.assert_array_equal(stored.observation[0], 0)
        np.testing.assert_array_equal(stored.next_observation[:-1], stored.observation[1:])
        np.testing.assert_array_equal(stored.truncation[:-1], 0)
        np.testing.assert_array_equal(stored.truncation[-1], 1)
        reached = np.broadcast_to(stored.next_observation[-1:, :, :2], stored.descriptor.shape)
        np.testing.assert_allclose(stored.descriptor, reached, atol=1e-6)
        assert len(np.unique(stored.descriptor[0, :BATCH], axis=0)) > 4


@pytest.mark.parametrize("name", CONDITIONED)
def test_evaluations_count_offspring_and_steps_count_all(name):
    """Actor rollouts are not evaluations. A trajectory shared by all targets is simulated once."""
    run = trial(name)
    episodes = BATCH + {"dcg_me": BATCH, "dcg_me_unconditioned_actor": 1}.get(name, 0)
    assert [int(s.evaluations) for s in (run.before, run.after)] == [BATCH, 2 * BATCH]
    steps = [counter.value(s.env_steps) for s in (run.before, run.after)]
    assert steps == [25 * episodes, 50 * episodes]
    assert int(run.metrics.evaluations) == 2 * BATCH
    assert counter.value(run.metrics.env_steps) == 50 * episodes


@pytest.mark.parametrize("name", CONDITIONED)
def test_the_first_policies_are_stored_with_what_they_reached(name):
    run = trial(name)
    assert_target_is_what_was_reached(run.initial.episodes(slice(BATCH)))


def test_dcg_stores_offspring_with_their_own_descriptor():
    run = trial("dcg_me")
    assert_target_is_what_was_reached(run.iteration.episodes(slice(BATCH)))
    # The last half are the PG offspring. What is stored is what they reached themselves, not their
    # parents.
    cells = parents(run, run.iteration.episodes(slice(BATCH // 2, BATCH)))
    assert len(cells) == BATCH // 2


def test_dcg_stores_actor_rollouts_with_what_was_asked():
    run = trial("dcg_me")
    fresh, trained = (s.learners["conditioned"].actor for s in (run.before, run.after))
    assert np.abs(np.asarray(fresh - trained)).max() > 0.01
    first, second = (
        run.initial.episodes(slice(BATCH, None)),
        run.iteration.episodes(slice(BATCH, None)),
    )
    # The untrained actor is asked for what the first policies reached. The trained one is asked for
    # descriptors of the archive before the offspring are added.
    assert_targets_are_drawn_from(run.before.archive, first, NOISE)
    assert_targets_are_drawn_from(run.before.archive, second, NOISE)
    # There were new elites that must not have been asked for.
    assert len(archived(run.after.archive)) > len(archived(run.before.archive)) + 1
    assert_acted(run, first, fresh)
    assert_acted(run, second, trained)


@pytest.mark.parametrize("name", ["dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives"])
def test_without_actor_evaluation_everything_is_stored_with_what_it_reached(name):
    run = trial(name)
    assert_target_is_what_was_reached(run.initial)
    assert_target_is_what_was_reached(run.iteration)


def test_an_unconditioned_actor_is_stored_once_for_every_drawn_target():
    run = trial("dcg_me_unconditioned_actor")
    fresh, trained = (s.learners["conditioned"].actor for s in (run.before, run.after))
    assert_target_is_what_was_reached(run.iteration.episodes(slice(BATCH)))
    for stored, actor in ((run.initial, fresh), (run.iteration, trained)):
        rollouts = stored.episodes(slice(BATCH, None))
        for column in rollouts._replace(target=rollouts.descriptor):
            np.testing.assert_array_equal(column, np.broadcast_to(column[:, :1], column.shape))
        assert_targets_are_drawn_from(run.before.archive, rollouts, NOISE)
        assert_acted(run, rollouts, actor)


def test_dcrl_stores_the_targets_of_gradients_and_injections():
    run = trial("dcrl_me")
    assert run.algorithm.offspring == {"ga": 4, "pg": 2, "injection": 2}
    ga, pg, injected = (run.iteration.episodes(s) for s in (slice(4), slice(4, 6), slice(6, 8)))
    assert_target_is_what_was_reached(ga)

    # PG: exactly the descriptor of the parent, which is not what the child reached.
    assert_targets_are_drawn_from(run.before.archive, pg, 0.0)
    expected = np.asarray(run.before.archive.descriptors)[parents(run, pg)]
    np.testing.assert_allclose(pg.target[0], expected, atol=1e-6)

    # Injection: a descriptor of the archive without noise, and the trained actor asked for it.
    assert_targets_are_drawn_from(run.before.archive, injected, 0.0)
    assert_acted(run, injected, run.after.learners["conditioned"].actor)
    assert not np.allclose(injected.target, injected.descriptor, atol=1e-3)


# ------------------------------------------------------------------------------- layout, refusals

_TRANSITION = ["observation", "action", "reward", "next_observation", "done", "truncation"]
COLUMNS = {
    "pga_me": _TRANSITION,
    "qd_pg": [*_TRANSITION, "state_descriptor"],
    "dcg_me": [*_TRANSITION, "descriptor", "target"],
    "dcg_me_unconditioned_actor": [*_TRANSITION, "descriptor", "target"],
    "dcrl_me": [*_TRANSITION, "descriptor", "target"],
    "progress_me": [
        *_TRANSITION,
        "descriptor",
        "target",
        "state_descriptor",
        "next_state_descriptor",
    ],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_replay_buffer_has_the_columns_that_the_learners_read(name):
    layout = spec_of(name, **(TINY | {"diversity_critic_steps": 1})).layout
    states = ("state_descriptor", "next_state_descriptor")
    widths = dict.fromkeys(("descriptor", "target", "action", *states), 2)
    widths |= dict.fromkeys(("observation", "next_observation"), 3)
    assert dict(layout) == {column: widths.get(column, 1) for column in COLUMNS[name]}


def test_a_conditioned_learner_beside_one_of_novelty_has_all_columns():
    problem = probe.problem()
    learners = (
        Learner("plain", algorithms.make_td3(problem, probe.HP)),
        Learner("conditioned", algorithms.conditioned_td3(problem, probe.HP)),
        Learner("novelty", algorithms.make_td3(problem, probe.HP), rewards_novelty=True),
    )
    spec = dataclasses.replace(probe.spec(), learners=learners)
    assert set(spec.layout) == {*_TRANSITION, "descriptor", "target", "state_descriptor"}
    assert spec.main_td3 is spec.td3_of("plain")
    assert spec.td3_of("conditioned") is learners[1].td3


@pytest.mark.parametrize("origins", [("ga", "ga"), ("initial",), ("ga", "initial")])
def test_origins_must_differ(origins):
    variations = tuple(Variation(origin, 2, ga) for origin in origins)
    with pytest.raises(
        ValueError, match=f"probe: .* origin twice in initial, {', '.join(origins)}"
    ):
        dataclasses.replace(probe.spec(), variations=variations)


def test_learners_have_names_of_their_own():
    learner = Learner("plain", algorithms.make_td3(probe.problem(), probe.HP))
    with pytest.raises(ValueError, match="probe: the same learner twice in plain, plain"):
        dataclasses.replace(probe.spec(), learners=(learner, learner))


@pytest.mark.parametrize("rollouts", [-1, 2.0])
def test_actor_rollouts_are_a_whole_number(rollouts):
    with pytest.raises(ValueError, match="actor_rollouts must be a whole number of at least 0"):
        dataclasses.replace(probe.spec(), actor_rollouts=rollouts)


def test_there_must_be_a_variation():
    with pytest.raises(ValueError, match="probe: there must be at least one variation"):
        dataclasses.replace(probe.spec(), variations=())


def test_a_variation_without_offspring_is_refused():
    with pytest.raises(ValueError, match="variation 'ga' must make at least 1 offspring, got 0"):
        dataclasses.replace(probe.spec(), variations=(Variation("ga", 0, ga),))
    with pytest.raises(ValueError, match="the name of a variation has at most 100 characters"):
        dataclasses.replace(probe.spec(), variations=(Variation("x" * 101, 1, ga),))
    with pytest.raises(ValueError, match="pga_me: variation 'pg' must make at least 1"):
        elites.build("point_omni", "pga_me", batch_size=2)


def wrong_number(spec, state, key, count):
    return ga(spec, state, key, count + 1)


def wrong_type(spec, state, key, count):
    return ga(spec, state, key, count).policies


def no_targets(spec, state, key, count):
    return ga(spec, state, key, count)._replace(targets=None)


def unannounced_parents(spec, state, key, count):
    made = ga(spec, state, key, count)
    return made._replace(parent_descriptors=made.targets)


def unknown_learner(spec, state, key, count):
    return policy_gradient(spec, state, key, count, learner="nobody")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (wrong_number, r"variation 'own' must return Offspring with policies of shape \(2, \d+\)"),
        (wrong_type, "variation 'own' must return Offspring"),
        (unknown_learner, "probe has no learner 'nobody'; known: "),
        (no_targets, "variation 'own' must return Offspring"),
        (unannounced_parents, "variation 'own': parent_descriptors must have shape"),
        (functools.partial(greedy, learner="nobody"), "probe has no learner 'nobody'"),
        (functools.partial(injection, learner="nobody"), "probe has no learner 'nobody'"),
    ],
)
def test_a_mistake_in_a_variation_is_named(make, message):
    count = 1 if getattr(make, "func", None) is greedy else 2
    spec = dataclasses.replace(probe.spec(), variations=(Variation("own", count, make),))
    state = jax.eval_shape(lambda k: map_elites.init(spec, k, probe.centroids()), jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(map_elites.algorithm(spec).rounds[0].ask, state, jax.random.key(1))


def test_learners_of_both_kinds_train_side_by_side():
    """The descriptors that are stored for one learner do not reach the other."""
    problem = probe.problem()
    learners = (
        Learner("plain", algorithms.make_td3(problem, probe.HP)),
        Learner("conditioned", algorithms.conditioned_td3(problem, probe.HP)),
    )
    spec = dataclasses.replace(probe.spec(), learners=learners)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda k: map_elites.init(spec, k, probe.centroids()), key)
    after, losses = jax.eval_shape(map_elites.algorithm(spec).train, state, key)
    assert set(losses) == {"plain", "conditioned"}
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


def test_actor_rollouts_need_a_learner():
    with pytest.raises(ValueError, match="probe: actor_rollouts needs a learner"):
        probe.spec(learns=False, actor_rollouts=3)


# --------------------------------------------------------------------------------- failed rollouts


def invented(spec: Spec, valid: list[bool], fitness: list[float]) -> Evaluation:
    """Return an evaluation with these results, whose transitions are those of `probe`."""
    n = len(valid)
    layout = spec.layout
    steps, mask = probe.STEPS, jnp.broadcast_to(jnp.array(valid)[None], (probe.STEPS, n))
    fields = {
        name: jnp.zeros((steps, n, layout[name]))
        for name in ("observation", "action", "next_observation")
    }
    fields |= {name: jnp.zeros((steps, n)) for name in ("reward", "done", "truncation")}
    return Evaluation(
        fitness=jnp.array(fitness),
        descriptors=jnp.broadcast_to(jnp.array([[1.0, 10.2]]), (n, 2)),
        valid=jnp.array(valid),
        steps=jnp.full(n, steps),
        transitions=Transitions(**fields, state_descriptor=jnp.zeros((steps, n, 2)), mask=mask),
    )


def begun(spec):
    """Return a new state and its first request."""

    @jax.jit
    def begin(key):
        state = map_elites.init(spec, key, probe.centroids())
        return state, map_elites.first(spec, state, key)

    return begin(jax.random.key(0))


@pytest.mark.parametrize(
    ("actor_conditioned", "actor_valid", "failed"),
    [
        (True, [False, True, False], 2),
        (True, [True, True, True], 0),
        (True, [False, False, False], 3),
        (False, [False], 1),  # the trajectory that all targets share counts once
        (False, [True], 0),
    ],
)
def test_rejected_counts_offspring_and_actor_rollouts(actor_conditioned, actor_valid, failed):
    spec = probe.spec(actor_rollouts=3, actor_conditioned=actor_conditioned)
    state, request = begun(spec)
    # Of four offspring one diverged and one has a fitness that is not a number.
    valid, fitness = [True, False, True, True, *actor_valid], [0.5, 9.0, np.nan, 0.2]
    fitness += [np.nan] * len(actor_valid)  # the actor's fitness plays no part
    evaluation = invented(spec, valid, fitness)
    tell = jax.jit(functools.partial(map_elites.tell, spec))
    for times in (1, 2):  # counted since the start
        state, metrics = tell(state, request, evaluation)
        assert int(state.rejected) == int(metrics.rejected) == times * (2 + failed)
        assert int(state.evaluations) == times * 4
        assert counter.value(state.env_steps) == times * probe.STEPS * (4 + len(actor_valid))
        assert int(state.iteration) == times - 1
    assert np.isfinite(state.archive.fitness).sum() == 1
    assert float(state.archive.fitness.max()) == 0.5


def test_a_diverging_actor_is_rejected_at_every_target():
    """The same through real rollouts: the actor's parameters are not numbers."""
    spec = probe.spec(actor_rollouts=3)
    algorithm = map_elites.algorithm(spec)
    state = jax.jit(algorithm.start)(jax.random.key(0), probe.centroids())
    assert int(state.rejected) == 0
    learner = state.learners["conditioned"]
    broken = learner._replace(actor=jnp.full_like(learner.actor, jnp.nan))
    state = state._replace(learners={"conditioned": broken})
    ask, tell, _ = algorithm.rounds[-1]

    @jax.jit
    def exchange(state: State, key) -> tuple[State, Metrics]:
        request: Request = ask(state, key)
        return tell(state, request, algorithm.evaluate(request))

    stored = int(state.replay.size)
    state, metrics = exchange(state, jax.random.key(1))
    assert int(metrics.rejected) == 3
    assert int(state.replay.size) == stored + 4 * probe.STEPS  # offspring alone


def test_without_actor_rollouts_only_offspring_are_rejected():
    spec = probe.spec(learns=False)
    state, request = begun(spec)
    evaluation = invented(spec, [False, True, True, True], [1.0, np.inf, 1.0, 1.0])
    state, _ = jax.jit(functools.partial(map_elites.tell, spec))(state, request, evaluation)
    assert int(state.rejected) == 2


# ------------------------------------------------------------------------------------ small buffers


def test_a_buffer_smaller_than_an_iteration_holds_steps_of_all_times():
    """Not the ends of the episodes alone."""
    algorithm = elites.build("point_omni", "dcg_me", **(TINY | {"replay_size": 200}))
    state = jax.jit(algorithm.start)(jax.random.key(0))
    rows = replays.columns(algorithm.replay_layout, np.asarray(state.replay.rows))
    steps = np.round(rows["observation"][: int(state.replay.size), 2] * 25)
    assert 150 < int(state.replay.size) <= 200  # of 16 episodes with 25 steps
    early = np.sum(steps < 12)
    assert abs(early - 0.48 * len(steps)) < 0.15 * len(steps)
