"""Evaluation of a request: rows in order, padding that never matters, shared trajectories."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probe
from elites.core import evaluation as evaluations
from elites.core import networks, td3
from elites.core.spec import Spec
from elites.core.types import Evaluation, Problem, Request, padded_size

POLICY = probe.spec().policy
LOW, HIGH = np.array(probe.LOW), np.array(probe.HIGH)


def request_of(spec: Spec, policies: int, actor_targets: int, seed: int = 0) -> Request:
    """Return a request for random policies, and for a random actor at random descriptors."""
    rng = np.random.default_rng(seed)
    targets = rng.uniform(LOW, HIGH, (actor_targets, 2))
    actor = None if spec.main_td3 is None else rng.normal(size=spec.main_td3.actor.size)
    return Request(
        policies=probe.random_policies(policies, spec.policy.size, seed),
        origins=jnp.zeros(policies, jnp.int32),
        targets=jnp.zeros((policies, 2)),
        actor=None if actor is None else jnp.asarray(actor, jnp.float32),
        actor_targets=jnp.asarray(targets, jnp.float32),
        key=jax.random.key(seed),
    )


@functools.cache
def compiled(spec: Spec):
    return jax.jit(
        functools.partial(evaluations.evaluate, spec.problem, spec.policy, spec.main_td3)
    )


def evaluate(spec: Spec, request: Request) -> Evaluation:
    return jax.tree.map(np.asarray, compiled(spec)(request))


PLAIN = probe.spec(learns=False)
CONDITIONED = probe.spec()
UNCONDITIONED = probe.spec(actor_conditioned=False)
NOISY_UNCONDITIONED = probe.spec(actor_conditioned=False, deterministic=False)


def actions_of_policies(request: Request) -> np.ndarray:
    """Return the actions [T, n, A] of each policy, one after the other."""
    seen = probe.observations(request.key[None], deterministic=True)[:, 0]
    layers = [networks.unflatten(POLICY, policy) for policy in request.policies]
    return np.stack([networks.apply(POLICY, one, seen) for one in layers], axis=1)


def actions_of_actor(spec: Spec, request: Request) -> np.ndarray:
    """Return the actions [T, m, A] of the actor at each target, scaled by hand."""
    seen = probe.observations(request.key[None], deterministic=True)[:, 0]
    scaled = 2 * (np.asarray(request.actor_targets) - LOW) / (HIGH - LOW) - 1
    actions = []
    for target in jnp.asarray(scaled, jnp.float32):
        repeated = jnp.tile(target, (len(seen), 1))
        actions.append(td3.act(spec.main_td3, request.actor, seen, repeated))
    return np.stack(actions, axis=1)


# -------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(("policies", "targets"), [(5, 3), (30, 7)])
def test_rows_are_policies_then_actor_rollouts(policies, targets):
    request = request_of(CONDITIONED, policies, targets)
    found = evaluate(CONDITIONED, request)
    parts = [actions_of_policies(request), actions_of_actor(CONDITIONED, request)]
    expected = np.concatenate(parts, axis=1)
    assert found.fitness.shape == found.valid.shape == found.steps.shape == (policies + targets,)
    np.testing.assert_allclose(found.transitions.action, expected, atol=1e-6)
    np.testing.assert_allclose(found.fitness, expected.sum((0, 2)), atol=1e-5)
    reached = LOW + (expected[-1] + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(found.descriptors, reached, atol=1e-5)
    assert found.valid.all()
    assert (found.steps == probe.STEPS).all()


def numbered(spec: Spec, sizes: list[int]) -> Problem:
    """Return a problem whose fitness is the number of the row, and note the sizes of batches."""

    def rollout(act, keys):
        sizes.append(len(keys))
        return spec.problem.rollout(act, keys)._replace(fitness=jnp.arange(len(keys)))

    return dataclasses.replace(spec.problem, rollout=rollout)


@settings(max_examples=15)
@given(policies=st.integers(1, 70), targets=st.integers(0, 40))
def test_any_request_is_padded_for_the_rollout_and_cut_back(policies, targets):
    sizes: list[int] = []
    problem = numbered(CONDITIONED, sizes)
    request = request_of(CONDITIONED, policies, targets)
    found = jax.eval_shape(
        functools.partial(evaluations.evaluate, problem, POLICY, CONDITIONED.main_td3), request
    )
    assert found.fitness.shape == (policies + targets,)
    assert found.transitions.action.shape == (probe.STEPS, policies + targets, probe.ACTION)
    (size,) = sizes
    assert size == padded_size(policies + targets)


@pytest.mark.parametrize(("policies", "targets"), [(3, 2), (16, 16), (33, 5)])
def test_rows_of_the_padded_batch_that_are_returned(policies, targets):
    sizes: list[int] = []
    request = request_of(CONDITIONED, policies, targets)
    problem = numbered(CONDITIONED, sizes)
    found = jax.jit(functools.partial(evaluations.evaluate, problem, POLICY, CONDITIONED.main_td3))(
        request
    )
    last = np.arange(sizes[0])[sizes[0] - targets :]
    np.testing.assert_array_equal(found.fitness, [*range(policies), *last])


# ----------------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("spec", [PLAIN, CONDITIONED], ids=["without learner", "with learner"])
def test_a_policy_gives_the_same_bits_whatever_pads_the_batch(spec):
    full = request_of(spec, 32, 0)
    expected = evaluate(spec, full)
    for count in (1, 2, 31):
        found = evaluate(spec, full._replace(policies=full.policies[:count]))
        for field in ("fitness", "descriptors", "valid", "steps"):
            np.testing.assert_array_equal(getattr(found, field), getattr(expected, field)[:count])
        for rows, all_rows in zip(found.transitions, expected.transitions, strict=True):
            np.testing.assert_array_equal(rows, all_rows[:, :count])


def test_a_diverging_first_policy_fails_alone():
    """Padding repeats the first policy, so all padding rows diverge too."""
    request = request_of(CONDITIONED, 5, 3)
    healthy = evaluate(CONDITIONED, request)
    found = evaluate(CONDITIONED, request._replace(policies=request.policies.at[0].set(jnp.nan)))
    np.testing.assert_array_equal(found.valid, [False] + [True] * 7)
    for field in ("fitness", "descriptors", "steps"):
        np.testing.assert_array_equal(getattr(found, field)[1:], getattr(healthy, field)[1:])
    assert not found.transitions.mask[:, 0].any()
    np.testing.assert_array_equal(
        found.transitions.action[:, 1:], healthy.transitions.action[:, 1:]
    )


def test_every_row_of_a_stochastic_task_has_its_own_key():
    spec = probe.spec(deterministic=False)
    request = request_of(spec, 6, 4)
    same = request._replace(policies=jnp.tile(request.policies[:1], (6, 1)))
    found = evaluate(spec, same._replace(actor_targets=jnp.tile(request.actor_targets[:1], (4, 1))))
    assert len(np.unique(found.fitness)) == 10
    other = evaluate(spec, same._replace(key=jax.random.key(99)))
    assert (other.fitness[:6] != found.fitness[:6]).all()


# ------------------------------------------------------------------------------- shared trajectory


@pytest.mark.parametrize(
    ("spec", "targets", "rows"),
    [
        (UNCONDITIONED, 7, 1),
        (UNCONDITIONED, 1, 1),
        (UNCONDITIONED, 0, 0),
        (NOISY_UNCONDITIONED, 7, 7),  # each rollout starts differently
        (CONDITIONED, 7, 7),
        (CONDITIONED, 0, 0),
        (PLAIN, 0, 0),
    ],
)
def test_rows_of_the_actor(spec, targets, rows):
    found = evaluate(spec, request_of(spec, 5, targets))
    assert found.fitness.shape == (5 + rows,)
    assert found.descriptors.shape == (5 + rows, 2)
    assert found.transitions.mask.shape[1] == 5 + rows
    assert evaluations.actor_rows(spec.problem, spec.main_td3, targets) == rows


def test_the_shared_trajectory_is_that_of_the_actor():
    request = request_of(UNCONDITIONED, 5, 7)
    found = evaluate(UNCONDITIONED, request)
    expected = actions_of_actor(UNCONDITIONED, request)
    for i in range(7):
        np.testing.assert_allclose(found.transitions.action[:, 5], expected[:, i], atol=1e-6)


# ------------------------------------------------------------------- transitions, without policies


def test_transitions_are_returned_only_for_a_learner():
    found = evaluate(PLAIN, request_of(PLAIN, 5, 0))
    assert {len(field) for field in found.transitions} == {0}
    assert found.fitness.shape == (5,)
    found = evaluate(CONDITIONED, request_of(CONDITIONED, 5, 0))
    assert {len(field) for field in found.transitions} == {probe.STEPS}
    assert found.transitions.mask.all()


def test_a_request_without_policies_rolls_the_actor_out_alone():
    request = request_of(CONDITIONED, 0, 32)
    found = evaluate(CONDITIONED, request)
    expected = actions_of_actor(CONDITIONED, request)
    assert found.fitness.shape == (32,)
    np.testing.assert_allclose(found.transitions.action, expected, atol=1e-6)


def test_taking_rows_takes_them_from_every_field():
    found = evaluate(CONDITIONED, request_of(CONDITIONED, 5, 3))
    taken = evaluations.take(found, jnp.array([6, 0, 0]))
    np.testing.assert_array_equal(taken.fitness, found.fitness[[6, 0, 0]])
    np.testing.assert_array_equal(taken.descriptors, found.descriptors[[6, 0, 0]])
    np.testing.assert_array_equal(taken.valid, found.valid[[6, 0, 0]])
    np.testing.assert_array_equal(taken.steps, found.steps[[6, 0, 0]])
    for rows, all_rows in zip(taken.transitions, found.transitions, strict=True):
        np.testing.assert_array_equal(rows, all_rows[:, [6, 0, 0]])
