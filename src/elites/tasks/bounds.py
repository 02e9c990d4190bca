"""Bounds of descriptors that are not known in advance: estimated from random policies.

The module of a family makes a task with the bounds `UNKNOWN` where it knows none. `estimated`
replaces them by what random policies reach. The result is recorded in the name of the task, so that
every later use has the same bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np

from elites.core import networks
from elites.tasks.rollout import evaluate
from elites.tasks.task import Task

UNKNOWN = 1e9
"""Bound of a descriptor axis, with a minus sign below, that must be estimated."""
POLICIES = 64
"""Number of random policies from which bounds are estimated."""
MARGIN = 0.5
"""Distance of the bounds from the lowest and highest value, as a share of the range between."""
CONSTANT = 1e-6
"""Largest range of an axis that counts as constant, relative to its values if they are above 1.

Such a range is the rounding of 32-bit numbers.
"""

Bounds = tuple[tuple[float, ...], tuple[float, ...]]


def given(task: str, low: Sequence[float], high: Sequence[float], options: dict) -> Bounds:
    """Return the bounds of a descriptor: those of the options `low` and `high` where given.

    `low` and `high` are those that the descriptor has otherwise. Raises a ValueError if an option
    has not one number for each axis. `task` is the task's name, for the message.
    """
    for option in ("low", "high"):
        found = len(options.get(option, low))
        if found != len(low):
            raise ValueError(
                f"task '{task}': {option} has {found} numbers, the descriptor has {len(low)} axes"
            )
    return tuple(options.get("low", low)), tuple(options.get("high", high))


def are_known(task: Task) -> bool:
    """Return whether all bounds of a task's descriptor are known."""
    return UNKNOWN not in map(abs, (*task.descriptor_low, *task.descriptor_high))


def estimated(task: Task) -> Bounds:
    """Return the bounds of a task's descriptor, with estimates in the place of unknown ones.

    Random policies run one episode each. The range of their descriptors is widened on both sides,
    and rounded to three digits. Raises a ValueError if no policy has a finite descriptor.
    """
    network = networks.policy(task.observation_size, task.action_size)
    keys = jax.random.split(jax.random.key(0), POLICIES)
    policies = jax.vmap(lambda key: networks.init(network, key))(keys)
    found = evaluate(task, network, policies, jax.random.key(1), batch=POLICIES)
    descriptors = np.asarray(found.descriptors, np.float64)[np.asarray(found.valid)]
    if not len(descriptors):
        raise ValueError(
            f"task '{task.name}': no bounds of the descriptor can be estimated, because none of "
            f"{POLICIES} random policies has finite numbers. Give them with low= and high="
        )
    low, high = widened(descriptors)
    return (
        tuple(map(_chosen, task.descriptor_low, low, high - low)),
        tuple(map(_chosen, task.descriptor_high, high, high - low)),
    )


def widened(descriptors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds [D] below and above all of the descriptors [n, D], with a margin.

    The margin is a share of the range. If an axis is constant but for rounding, the margin is 0.5,
    or more for values so large that 32-bit numbers could not tell the bounds apart.
    """
    lowest, highest = descriptors.min(axis=0), descriptors.max(axis=0)
    size = highest - lowest
    rounding = CONSTANT * np.maximum(1.0, np.abs(descriptors).max(axis=0))
    margin = np.where(size > rounding, MARGIN * size, np.maximum(0.5, rounding))
    return lowest - margin, highest + margin


def _chosen(bound: float, estimate: float, size: float) -> float:
    """Return a bound if it is known, otherwise its estimate, rounded to a hundredth of `size`."""
    if abs(bound) != UNKNOWN:
        return bound
    return round(estimate, 2 - math.floor(math.log10(size)))


def as_option(bounds: Sequence[float]) -> str:
    """Return the lower or upper bounds of a descriptor as the value of an option: "-1.0/0.5".

    No digit is lost.
    """
    return "/".join(repr(float(bound)) for bound in bounds)


def described(task: Task, bounds: Bounds) -> str:
    """Return a sentence for the user about estimated bounds of a task's descriptor."""
    rows = zip(task.descriptor_axes, *bounds, strict=True)
    axes = "; ".join(f"{axis.label} {float(low)} to {float(high)}" for axis, low, high in rows)
    return (
        f"descriptor bounds estimated from {POLICIES} random policies: {axes} "
        "(low= and high= in the name of the task choose others)"
    )
