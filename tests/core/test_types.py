"""The shared records: descriptors scaled to [-1, 1], the size of a padded batch, metrics."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probe
from elites.core import algorithm, types
from elites.core import archive as archives
from elites.core.td3 import Losses


@pytest.mark.parametrize("leading", [(), (3,), (4, 3)])
def test_descriptors_are_scaled_from_the_bounds_to_one(leading):
    problem = probe.problem()
    low, high = np.array(problem.descriptor_low), np.array(problem.descriptor_high)
    for share, scaled in ((0.0, -1.0), (0.5, 0.0), (0.75, 0.5), (1.0, 1.0)):
        descriptors = np.broadcast_to(low + share * (high - low), (*leading, 2))
        found = problem.normalise(jnp.asarray(descriptors, jnp.float32))
        assert found.shape == (*leading, 2)
        np.testing.assert_allclose(found, scaled, atol=1e-6)


def test_sizes_of_a_problem_follow_from_its_bounds():
    problem = probe.problem()
    assert problem.descriptor_size == 2
    np.testing.assert_allclose(problem.ranges, (8.0, 0.5))
    assert problem.policy((16,)).sizes == (problem.observation_size, 16, problem.action_size)


@pytest.mark.parametrize(("batch", "size"), [(1, 32), (31, 32), (32, 32), (33, 64), (512, 512)])
def test_a_batch_is_padded_to_a_multiple_of_32(batch, size):
    assert types.padded_size(batch) == size


@pytest.mark.parametrize("batch", [0, -32])
def test_a_batch_of_nothing_is_refused(batch):
    with pytest.raises(ValueError, match=f"at least 1, got {batch}"):
        types.padded_size(batch)


class State(NamedTuple):
    """The fields that every algorithm's state has."""

    archive: archives.Archive
    evaluations: jax.Array
    env_steps: jax.Array
    rejected: jax.Array


def test_metrics_count_additions_by_origin():
    archive = archives.empty(jnp.zeros((4, 2)), 1)
    archive = archive._replace(fitness=jnp.array([-jnp.inf, 2.0, -1.0, -jnp.inf]))
    numbers = {"evaluations": 10, "env_steps": 70, "rejected": 3}
    state = State(archive, **{name: jnp.uint32(value) for name, value in numbers.items()})
    origins = jnp.array([0, 1, 1, 2, 2, 2])  # 0 is the start: it is not counted
    added = jnp.array([True, True, False, True, True, False])
    found = algorithm.Metrics.of(state, ["initial", "ga", "pg"], origins, added)
    assert {name: int(value) for name, value in found.added.items()} == {"ga": 1, "pg": 2}
    assert {name: int(getattr(found, name)) for name in numbers} == numbers
    assert float(found.qd_score) == 1.0
    assert float(found.coverage) == 0.5
    assert float(found.max_fitness) == 2.0
    found = algorithm.Metrics.with_losses(
        found, {"quality": Losses(jnp.float32(3.0), jnp.float32(-4.0))}
    )
    assert found.critic_loss == {"quality": 3.0}
    assert found.actor_loss == {"quality": -4.0}
