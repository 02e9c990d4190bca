"""Evaluate policies outside of JAX, for problems whose episodes run in other processes.

A compiled function turns a request into `Rows`: plain policies with a seed each (see
`evaluation.rows_outside`). `evaluate` hands them to `Problem.outside` and returns the results as
arrays of JAX. All other stages of an algorithm are those of any problem.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from elites.core import networks
from elites.core.networks import MLP
from elites.core.td3 import TD3
from elites.core.types import ActionNoise, Array, Evaluation, Outside, Problem, Transitions


class Rows(NamedTuple):
    """Episodes to run outside: those of the policies, then those of the actor.

    All arrays may have the seeds of a run as an additional first axis.
    """

    policies: Array  # [n, P]
    actors: Array  # [m, P'] the actor at each of its targets, as a plain policy
    seeds: Array  # [n + m] uint32: of the start of each episode; 0 on a deterministic task
    noise: ActionNoise | None = None  # [n + m]


def evaluate(
    problem: Problem, policy: MLP, main_td3: TD3 | None, rows: Rows, *, observes: bool = False
) -> Evaluation:
    """Run the episodes of `rows` outside of JAX and return their results.

    If the arrays of `rows` have the seeds of a run as first axis, so have those of the results. The
    transitions, and `observes`, are as in `evaluation.evaluate`.
    """
    runner = _runner(problem, rows)
    shape = rows.seeds.shape
    policies = list(_policies(policy, _actor_network(problem, main_td3), rows))
    seeds = np.asarray(rows.seeds).reshape(-1)
    record = main_td3 is not None or observes
    if rows.noise is not None:
        noise = ActionNoise(*(np.asarray(part).reshape(-1) for part in rows.noise))
        found = runner.run(policies, seeds, record, noise)
    elif problem.deterministic:
        # Padding and empty cells repeat the same policy, and its episode is always the same.
        chosen, copies = _distinct(policies)
        found = runner.run([policies[i] for i in chosen], seeds[chosen], record)
        if len(chosen) < len(policies):
            found = _taken(found, copies)
    else:
        found = runner.run(policies, seeds, record)
    if main_td3 is None and observes:
        steps = found.transitions
        nothing = jax.tree.map(lambda part: part[:0], steps)
        kept = nothing._replace(observation=steps.observation, mask=steps.mask)
        found = found._replace(transitions=kept)
    return jax.tree.map(jnp.asarray, found if len(shape) == 1 else _by_seed(found, shape[0]))


def shapes(
    problem: Problem, main_td3: TD3 | None, rows: Rows, *, observes: bool = False
) -> Evaluation:
    """Return the shapes and types of the results of `rows`, whose leaves may be shapes as well."""
    assert problem.outside is not None
    *lead, n = rows.seeds.shape
    length = problem.outside.episode_length

    def of(dtype: type, *tail: int) -> Any:
        return jax.ShapeDtypeStruct((*lead, *tail), dtype)

    def step(dtype: type, *width: int, observed: bool = False) -> Any:
        kept = main_td3 is not None or (observes and observed)
        return of(dtype, length if kept else 0, n, *width)

    seen, acted, place = problem.observation_size, problem.action_size, problem.descriptor_size
    transitions = Transitions(
        step(jnp.float32, seen, observed=True), step(jnp.float32, acted), step(jnp.float32),
        step(jnp.float32, seen), step(jnp.bool_), step(jnp.bool_), step(jnp.float32, place),
        step(jnp.bool_, observed=True),
    )  # fmt: skip
    return Evaluation(
        of(jnp.float32, n), of(jnp.float32, n, place), of(jnp.bool_, n), of(jnp.int32, n),
        transitions,
    )  # fmt: skip


def _runner(problem: Problem, rows: Rows) -> Outside:
    """Return what runs the episodes of a problem. Raises a ValueError inside of compiled code."""
    assert problem.outside is not None
    if any(isinstance(leaf, Tracer) for leaf in rows):
        raise ValueError(
            f"task '{problem.name}' is evaluated by worker processes, which compiled code cannot "
            "call: use elites.train, or leave the stage 'evaluate' out of jax.jit"
        )
    return problem.outside


def _actor_network(problem: Problem, main_td3: TD3 | None) -> MLP | None:
    """Return the network of the actor at a fixed target, or None if there is no actor."""
    if main_td3 is None:
        return None
    return networks.folded(
        main_td3.actor, problem.descriptor_size if main_td3.actor_conditioned else 0
    )


def _policies(policy: MLP, actor: MLP | None, rows: Rows) -> Iterator[tuple[MLP, np.ndarray]]:
    """Yield the network and the parameters of every row, seed by seed."""
    several = rows.seeds.ndim == 2
    own, acting = (np.asarray(a if several else a[None]) for a in (rows.policies, rows.actors))
    for seed in range(len(own)):
        yield from ((policy, parameters) for parameters in own[seed])
        if actor is not None:
            yield from ((actor, parameters) for parameters in acting[seed])


def _distinct(policies: list[tuple[MLP, np.ndarray]]) -> tuple[list[int], np.ndarray]:
    """Return the positions of all different policies, and for each policy its place among them."""
    known: dict[tuple[MLP, bytes], int] = {}
    chosen, copies = [], np.zeros(len(policies), np.int64)
    for i, (network, parameters) in enumerate(policies):
        digest = hashlib.blake2b(parameters.tobytes(), digest_size=16).digest()
        place = known.setdefault((network, digest), len(chosen))
        if place == len(chosen):
            chosen.append(i)
        copies[i] = place
    return chosen, copies


def _taken(found: Evaluation, rows: np.ndarray) -> Evaluation:
    """Return an evaluation of the episodes at the positions `rows` of another one, in NumPy."""
    return _changed(found, lambda part, axis: np.take(part, rows, axis))


def _by_seed(found: Evaluation, seeds: int) -> Evaluation:
    """Return an evaluation of all seeds' rows, in NumPy, with the seeds as a first axis."""

    def split(part: np.ndarray, axis: int) -> np.ndarray:
        shape = (*part.shape[:axis], seeds, part.shape[axis] // seeds, *part.shape[axis + 1 :])
        return np.moveaxis(part.reshape(shape), axis, 0)

    return _changed(found, split)


def _changed(found: Evaluation, change: Callable[[Any, int], Any]) -> Evaluation:
    """Return an evaluation with `change(array, axis of its rows)` in place of each array."""
    transitions = jax.tree.map(lambda part: change(part, 1), found.transitions)
    fitness, descriptors, valid, steps = (change(part, 0) for part in found[:4])
    return Evaluation(fitness, descriptors, valid, steps, transitions)
