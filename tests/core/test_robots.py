"""An archive of the real robots re-evaluates to itself."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import elites
from elites import training
from small import SMALL


# The conditioned algorithm takes long to compile: on two robots, plain MAP-Elites on the others.
@pytest.mark.parametrize(
    ("task", "algorithm"),
    [
        ("ant_omni", "dcg_me"),
        ("anttrap_omni", "me"),
        ("hexapod_omni", "me"),
        ("walker_uni", "dcg_me"),
        ("arm_reach", "dcg_me"),
    ],
)
def test_robots_archive_re_evaluates_to_itself(task, algorithm):
    """On the real robots, whole episodes: the same bits in another program."""
    # Many cells: random hexapods hardly move, and a coarse archive would hold one elite.
    built = elites.build(task, algorithm, **(SMALL | {"cells": 256}))
    # Rollouts are optimised as a user's are; the rest, where little is computed, is not.
    batched = training.Batched(built, 1, compiler_options={"xla_backend_optimization_level": 0})
    batched._evaluate = training.Batched(built, 1)._evaluate
    keys = training.seed_keys([0])
    state = batched.init(training.iteration_keys(keys, 0))
    state, metrics = batched.step(state, training.iteration_keys(keys, 1))
    assert int(metrics.rejected[0]) == 0
    actors = batched.algorithm.actor(state)
    reach = batched.reach(state.archive, actors, keys)
    archive = jax.tree.map(np.asarray, state.archive)
    full = np.isfinite(archive.fitness)
    assert full.any()
    assert (np.asarray(reach.fitness)[full] == archive.fitness[full]).all()
    assert (np.asarray(reach.descriptors)[full] == archive.descriptors[full]).all()
    assert float(reach.descriptor_error[0]) == 0.0
