"""Run episodes of many policies at once.

    for each step:  action = act(observation);  state = task.step(state, action)

An episode that has ended keeps its last state, and its remaining steps are masked: they do not
count for fitness, descriptor or transitions. An episode that produces a number that is not finite
has failed. It is invalid as a whole, and none of its steps is stored.

The compiled program depends on the number of robots that are simulated together, and so do the last
bits of a trajectory. `evaluate` therefore always runs full batches of one padded size. The result
of a policy then does not depend on the other policies in its batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks
from elites.core.evaluation import noisy
from elites.core.networks import MLP
from elites.core.types import Act, Evaluation, Outside, Problem, Transitions, padded_size
from elites.tasks.task import Array, Task, TaskState


class _Episodes(NamedTuple):
    """State of n episodes while they run: the carry of the loop over steps."""

    state: TaskState  # [n, ...] last state of each episode
    alive: Array  # [n] whether the episode goes on
    valid: Array  # [n] whether all its states were finite
    fitness: Array  # [n]
    descriptor: Array  # [n, D] last descriptor, or the sum of all
    steps: Array  # [n]


def rollout(task: Task, act: Act, keys: Array, noise: Array | None = None) -> Evaluation:
    """Run n episodes of a task and return their results. `keys` [n] has one random key per episode.

    `act` maps observations [n, O] to actions [n, A]. `noise` [n] is the standard deviation of
    Gaussian noise that is added to all actions of an episode. None adds no noise.
    """
    return record(task, act, keys, lambda state: None, noise)[0]


def record(
    task: Task,
    act: Act,
    keys: Array,
    measure: Callable[[TaskState], Any],
    noise: Array | None = None,
) -> tuple[Evaluation, Any]:
    """Run n episodes as `rollout` does. Returns their results and a recording of every step.

    The recording is `measure(state)` with leading axes [episode_length, n]. Its first entry belongs
    to the state after the first step. An episode that has ended keeps its last state.
    """
    if task.outside is not None:
        raise ValueError(
            f"task '{task.name}' is evaluated by worker processes: it has no rollout inside of JAX"
        )
    noise_keys = keys
    if noise is not None:
        keys, noise_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    state = jax.vmap(task.reset)(keys)
    _check_state(task, state)
    bounds = jnp.array(task.descriptor_low)[None], jnp.array(task.descriptor_high)[None]

    def step(episodes: _Episodes, time: Array):
        acting = act if noise is None else _exploring(act, noise, noise_keys, time)
        episodes, transitions = _step(task, acting, bounds, episodes, time)
        return episodes, (transitions, jax.vmap(measure)(episodes.state))

    episodes, (transitions, measured) = jax.lax.scan(
        step, _start(task, state), jnp.arange(task.episode_length)
    )
    return _finish(task, bounds, episodes, transitions), measured


def _exploring(act: Act, noise: Array, keys: Array, time: Array) -> Act:
    """Return `act` with noise on its actions, for the step at index `time`.

    `noise` [n] and `keys` [n] are the standard deviations and random keys of the episodes.
    """
    step_keys = jax.vmap(lambda key: jax.random.fold_in(key, time))(keys)
    return lambda observation: noisy(act(observation), noise, step_keys)


def _start(task: Task, state: TaskState) -> _Episodes:
    """Return n episodes before their first step, given their states after `reset`."""
    n = state.reward.shape[0]
    return _Episodes(
        state=state,
        alive=jnp.ones(n, bool),
        valid=_is_finite(task, state, n),
        fitness=jnp.zeros(n),
        descriptor=jnp.zeros((n, task.descriptor_size)),
        steps=jnp.zeros(n, jnp.int32),
    )


def _step(
    task: Task, act: Act, bounds: tuple[Array, Array], episodes: _Episodes, time: Array
) -> tuple[_Episodes, Transitions]:
    """Take one step in every episode that has not ended.

    Returns the episodes after the step and its transitions, one for each of the n episodes.
    `bounds` are the lower and upper descriptor bounds [1, D], and `time` is the index of the step.
    """
    state = episodes.state
    action = act(state.observation)
    following = jax.vmap(task.step)(state, action)
    good = _is_finite(task, following, len(episodes.alive))
    taken = episodes.alive & good
    truncation = taken & ~following.done & (time == task.episode_length - 1)
    transitions = Transitions(
        state.observation,
        action,
        following.reward,
        following.observation,
        following.done,
        truncation,
        # Clipped like the descriptor of an episode, so that leaving the bounds is not novel.
        jnp.clip(state.descriptor, *bounds),
        taken,
    )
    descriptor = following.descriptor
    if task.episode_descriptor == "mean":
        descriptor = episodes.descriptor + descriptor
    episodes = _Episodes(
        state=_select(taken, following, state),
        alive=taken & ~following.done,
        valid=episodes.valid & (good | ~episodes.alive),
        fitness=episodes.fitness + jnp.where(taken, following.reward, 0.0),
        descriptor=_select(taken, descriptor, episodes.descriptor),
        steps=episodes.steps + taken,
    )
    return episodes, transitions


def _finish(
    task: Task, bounds: tuple[Array, Array], episodes: _Episodes, transitions: Transitions
) -> Evaluation:
    """Return the results of n episodes that have run for all steps.

    `transitions` are those of all steps, and `bounds` the lower and upper descriptor bounds [1, D].
    """
    descriptors = episodes.descriptor
    if task.episode_descriptor == "mean":
        descriptors = descriptors / jnp.maximum(episodes.steps, 1)[:, None]
    descriptors = jnp.clip(descriptors, *bounds)
    valid = episodes.valid & jnp.isfinite(episodes.fitness) & jnp.isfinite(descriptors).all(-1)
    # Masked at the end, because a failed episode also loses the steps before its failure.
    mask = transitions.mask & valid[None]
    return Evaluation(
        fitness=episodes.fitness,
        descriptors=descriptors,
        valid=valid,
        steps=episodes.steps,
        transitions=_select(mask, transitions, jax.tree.map(jnp.zeros_like, transitions)),
    )


def _check_state(task: Task, state: TaskState) -> None:
    """Raise a ValueError if a field of the states of n robots does not have the declared shape."""
    for name, shape in task.state_shapes.items():
        found = getattr(state, name).shape[1:]
        if found != shape:
            raise ValueError(
                f"task '{task.name}': {name} of a state must have shape {shape}, got {found}"
            )


def rollout_policies(task: Task, network: MLP, policies: Array, keys: Array) -> Evaluation:
    """Run one episode of each of n policies [n, P] and return the results.

    `keys` [n] has one random key per episode.
    """
    layers = networks.unflatten(network, policies)
    return rollout(
        task, lambda observation: networks.apply_each(network, layers, observation), keys
    )


def evaluate(task: Task, network: MLP, policies: Array, key: Array, batch: int = 256) -> Evaluation:
    """Run one episode of each of k policies [k, P] and return the results, without transitions.

    The policies run in batches of `batch`, rounded up to a multiple of 32. The last batch is
    padded. On a deterministic task and with the same `batch`, the result of a policy is the same to
    the last bit at any position and beside any other policies.
    """
    policies = jnp.asarray(policies, jnp.float32)
    check_policies(task, network, policies)
    batch = padded_size(batch)
    count = policies.shape[0]
    if count == 0:
        raise ValueError("policies is empty: nothing to evaluate")
    if task.outside is not None:
        return _evaluate_outside(task, task.outside, network, policies, key)
    parts = []
    for index, first in enumerate(range(0, count, batch)):
        # The batch is padded with copies of the first policy.
        rows = np.arange(first, first + batch)
        rows = np.where(rows < count, rows, 0)
        keys = jax.random.split(jax.random.fold_in(key, index), batch)
        parts.append(_evaluate_batch(task, network, policies[rows], keys))
    found = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)
    time_first = jax.tree.map(lambda a: a.swapaxes(0, 1), found.transitions)
    return found._replace(transitions=time_first)


def problem(task: Task) -> Problem:
    """Return the `Problem` of a task: the sizes, bounds and rollout that algorithms need."""
    return Problem(
        name=task.name,
        observation_size=task.observation_size,
        action_size=task.action_size,
        descriptor_low=task.descriptor_low,
        descriptor_high=task.descriptor_high,
        deterministic=task.deterministic,
        lengthscale=task.lengthscale,
        rollout=functools.partial(rollout, task),
        final_descriptor=task.episode_descriptor == "final",
        observation_ranges=task.observation_ranges,
        outside=task.outside,
        qd_offset=task.qd_offset,
        vectors=task.vectors,
    )


def _evaluate_outside(
    task: Task, runner: Outside, network: MLP, policies: Array, key: Array
) -> Evaluation:
    """Return the results of policies [k, P] on a task whose episodes run outside of JAX."""
    seeds = np.zeros(len(policies), np.uint32)
    if not task.deterministic:
        seeds = np.asarray(jax.random.bits(key, (len(policies),)))
    found = runner.run([(network, row) for row in np.asarray(policies)], seeds, record=False)
    return jax.tree.map(jnp.asarray, found)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate_batch(task: Task, network: MLP, policies: Array, keys: Array) -> Evaluation:
    evaluation = rollout_policies(task, network, policies, keys)
    none = jax.tree.map(lambda a: a[:0].swapaxes(0, 1), evaluation.transitions)
    return evaluation._replace(transitions=none)


def check_policies(task: Task, network: MLP, policies: Array) -> None:
    """Raise a ValueError if a network does not fit the task.

    Also raises one if `policies` is not a matrix [n, P] of parameters of this network.
    """
    if network.sizes[0] != task.observation_size or network.sizes[-1] != task.action_size:
        raise ValueError(
            f"task '{task.name}' maps {task.observation_size} observations to {task.action_size} "
            f"actions; the network maps {network.sizes[0]} to {network.sizes[-1]}"
        )
    if policies.ndim != 2 or policies.shape[1] != network.size:
        raise ValueError(
            f"policies must be a matrix with {network.size} columns, the parameters of a "
            f"{'-'.join(map(str, network.sizes))} network; got shape {tuple(policies.shape)}"
        )


def _is_finite(task: Task, state: TaskState, n: int) -> Array:
    """Return booleans [n]: whether the numbers of the states of n episodes are finite."""
    return finite(state if task.checks_inner else state._replace(inner=()), n)


def finite(tree: Any, n: int) -> Array:
    """Return booleans [n]: whether all floating-point numbers of each of n episodes are finite.

    The leaves of `tree` have the episodes as their first axis. Integers, random keys and leaves
    without elements are ignored.
    """
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating) and a.size]
    checks = [jnp.isfinite(a).reshape(n, -1).all(-1) for a in leaves]
    return functools.reduce(jnp.logical_and, checks) if checks else jnp.ones(n, bool)


def _select(condition: Array, new, old):
    """Return a tree with the leaves of `new` where `condition` is True, and of `old` elsewhere.

    `condition` is [n] or [T, n], which are also the leading axes of all leaves.
    """

    def pick(a, b):
        wide = condition.reshape(*condition.shape, *[1] * (a.ndim - condition.ndim))
        return jnp.where(wide, a, b)

    return jax.tree.map(pick, new, old)
