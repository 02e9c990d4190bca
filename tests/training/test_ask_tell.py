"""Evaluations that happen elsewhere: `me` against a serial archive, and against training."""

import functools

import jax
import numpy as np
import pytest
from scipy.spatial import cKDTree

import elites
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
    search = elites.AskTell(algorithm, seed=3)
    tree = cKDTree(np.float64(search.state.archive.centroids))
    expected = {}
    for generation in range(5):
        policies = search.ask()
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
    search = elites.AskTell(map_elites())
    search.ask()
    search.tell(np.full(BATCH, NAN), np.zeros((BATCH, 2)))
    assert len(search.archive) == 0
    search = elites.AskTell(map_elites())
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
    search = elites.AskTell(map_elites())
    search.ask()
    places = np.zeros((BATCH, 2))
    places[0] = 7.0, -0.5
    search.tell(np.zeros(BATCH), places)
    np.testing.assert_array_equal(search.archive.nearest((1.0, -0.5)).descriptor, [1.0, -0.5])


@pytest.mark.parametrize("name", ["me", "me_es"])
def test_a_search_told_what_training_measures_takes_its_steps(name, quick_compiler):
    """The same seed, the same results: the same archive to the bit as a training."""
    sizes = SMALL | {"es_generations": 2}
    algorithm = elites.build("point_omni", name, **sizes)
    budget = algorithm.initial_evaluations + 3 * algorithm.evaluations_per_iteration
    trained = elites.train("point_omni", name, seeds=[5], evaluations=budget, **sizes)
    search = elites.AskTell(algorithm, seed=5)
    task = elites.tasks.make("point_omni")
    for _ in range(1 + 3 * len(algorithm.rounds)):
        policies = search.ask()
        results = evaluate(
            task, algorithm.policy, policies, jax.random.key(0), batch=algorithm.padded_batch
        )
        search.tell(results.fitness, results.descriptors)
    for name_, mine in search.state.archive._asdict().items():
        np.testing.assert_array_equal(mine, getattr(trained.archives, name_)[0], name_)
    for metric, value in search.metrics.items():
        if metric != "env_steps":  # nobody tells how many there were
            assert value == trained.metrics[metric][-1, 0], metric


# ---------------------------------------------------------------------------------------- errors


def test_the_order_of_calls_is_enforced():
    search = elites.AskTell(map_elites())
    with pytest.raises(ValueError, match="before ask"):
        search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))
    search.ask()
    with pytest.raises(ValueError, match="ask was called twice"):
        search.ask()
    search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))
    with pytest.raises(ValueError, match="before ask"):
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
    search = elites.AskTell(map_elites())
    search.ask()
    with pytest.raises(ValueError, match=f"^{field} must have shape"):
        search.tell(np.zeros(fitness), np.zeros(descriptors), np.ones(valid, bool))
    assert len(search.archive) == 0
    search.tell(np.zeros(BATCH), np.zeros((BATCH, 2)))  # the batch can still be told
    assert len(search.archive) == 1


@pytest.mark.parametrize("name", ["pga_me", "qd_pg", "dcg_me", "dcrl_me"])
def test_algorithms_that_learn_from_transitions_are_refused(name):
    with pytest.raises(ValueError, match=f"^{name} learns from the transitions"):
        elites.AskTell(elites.build("point_omni", name))


def test_the_same_seed_asks_for_the_same_policies():
    first, again, other = (elites.AskTell(map_elites(), seed=s).ask() for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.5
