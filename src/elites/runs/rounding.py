"""Round the elites of a seed to half precision, which halves the size of a packed model.

A policy with rounded weights acts differently. Errors grow during an episode, so some rounded
policies end in another cell, and some robots fall. Each rounded policy is therefore evaluated
again. It remains an elite, with the results of its rounded weights, if it still reaches its cell
with nearly the fitness that it had.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from elites.runs import directory as directories
from elites.runs import job, saved
from elites.runs.checkpoint import Arrays
from elites.runs.directory import RunDirectory

LOSS = 0.05
"""Largest share of its fitness that an elite may lose."""


class NoElitesError(ValueError):
    """No rounded policy reaches its cell with nearly the fitness that it had."""


def rounded(run: RunDirectory, weights: Arrays, index: int, iteration: int) -> Arrays:
    """Return the arrays [1, ...] of a seed in which the policies of the elites are rounded.

    Cells whose elite rounding changes too much become empty. `weights` are the arrays of the seed
    with this index, at a checkpoint of the run. Raises a `NoElitesError` if all cells become empty,
    and another ValueError if the task is not deterministic.
    """
    if not directories.read_facts(run)["deterministic"]:
        raise ValueError(
            f"{run.path}: --half-precision keeps elites that still reach their cell, but the "
            "episodes of this task differ. Leave it out"
        )
    policies = half(weights["archive.policies"])
    with job.memory_errors_explained():
        results, _ = saved.load_checkpoint(run, iteration)
        archives = results.archives
        others = archives.policies.at[index].set(jnp.asarray(policies[0]))
        again = dataclasses.replace(
            results, archives=archives._replace(policies=others)
        ).reevaluate()
    before = weights["archive.fitness"][0]
    fitness, reached = again.fitness[index], again.cells[index]
    with np.errstate(invalid="ignore"):  # cells without results are NaN
        remains = (reached == np.arange(len(before))) & (before - fitness <= LOSS * np.abs(before))
    if not remains.any():
        raise NoElitesError(
            f"{run.path}: with half precision, no elite reaches its cell any more. Leave out "
            "--half-precision"
        )
    return {
        **weights,
        "archive.policies": policies,
        "archive.fitness": np.where(remains, fitness, -np.inf)[None].astype(before.dtype),
        "archive.descriptors": np.where(remains[:, None], again.descriptors[index], 0)[None],
    }


def half(values: np.ndarray) -> np.ndarray:
    """Return numbers rounded to half precision, as an array of the same type."""
    with np.errstate(over="ignore"):  # too large ones become infinite, and their policies invalid
        return values.astype(np.float16).astype(values.dtype)
