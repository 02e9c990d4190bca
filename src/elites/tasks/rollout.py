"""Run episodes of many policies at once.

    for each step:  action = act(observation);  world = task.step(world, action)

An episode that has ended keeps its last state, and its remaining steps are masked: they add nothing
to fitness, descriptor or transitions. An episode that produces a non-finite number has failed: it
is invalid as a whole, and none of its steps may be stored.

The compiled program, and with it the last bits of a trajectory, depends on the number of robots
simulated together. `evaluate` therefore always runs full batches of one padded size, so that a
policy's result does not depend on the other policies in its batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites.core import networks
from elites.core.networks import MLP
from elites.core.types import Act, Evaluation, Problem, Transitions, padded_size
from elites.tasks.task import Array, Task, TaskState


class _Episode(NamedTuple):
    """Running state of n episodes, the carry of the loop over steps."""

    world: TaskState
    alive: Array
    valid: Array
    fitness: Array
    descriptor: Array
    steps: Array


def rollout(task: Task, act: Act, keys: Array) -> Evaluation:
    """Run n episodes, one for each key. `act` maps observations [n, O] to actions [n, A]."""
    return record(task, act, keys, lambda world: None)[0]


def record(
    task: Task, act: Act, keys: Array, look: Callable[[TaskState], Any]
) -> tuple[Evaluation, Any]:
    """Run episodes as `rollout` does, and record `look(world)` as [episode_length, n, ...].

    The first entry is the world after the first step. After its end, an episode keeps its state.
    """
    n = keys.shape[0]
    world = jax.vmap(task.reset)(keys)
    _check_state(task, world)
    low, high = jnp.array(task.descriptor_low)[None], jnp.array(task.descriptor_high)[None]

    def step(episode: _Episode, time: Array):
        world = episode.world
        action = act(world.observation)
        following = jax.vmap(task.step)(world, action)
        finite = _finite(following)
        taken = episode.alive & finite
        truncation = taken & ~following.done & (time == task.episode_length - 1)
        transitions = Transitions(
            world.observation,
            action,
            following.reward,
            following.observation,
            following.done,
            truncation,
            # Clipped like an episode's descriptor, so that leaving the bounds is not novel.
            jnp.clip(world.descriptor, low, high),
            taken,
        )
        step_descriptor = following.descriptor
        if task.episode_descriptor == "mean":
            step_descriptor = episode.descriptor + step_descriptor
        episode = _Episode(
            world=_select(taken, following, world),
            alive=taken & ~following.done,
            valid=episode.valid & (finite | ~episode.alive),
            fitness=episode.fitness + jnp.where(taken, following.reward, 0.0),
            descriptor=_select(taken, step_descriptor, episode.descriptor),
            steps=episode.steps + taken,
        )
        return episode, (transitions, jax.vmap(look)(episode.world))

    start = _Episode(
        world=world,
        alive=jnp.ones(n, bool),
        valid=_finite(world),
        fitness=jnp.zeros(n),
        descriptor=jnp.zeros((n, task.descriptor_size)),
        steps=jnp.zeros(n, jnp.int32),
    )
    episode, (transitions, seen) = jax.lax.scan(step, start, jnp.arange(task.episode_length))

    descriptors = episode.descriptor
    if task.episode_descriptor == "mean":
        descriptors = descriptors / jnp.maximum(episode.steps, 1)[:, None]
    descriptors = jnp.clip(descriptors, low, high)
    valid = episode.valid & jnp.isfinite(episode.fitness) & jnp.isfinite(descriptors).all(-1)
    # Masked here and not step by step: a failed episode also loses the steps before the failure.
    mask = transitions.mask & valid[None]
    evaluation = Evaluation(
        fitness=episode.fitness,
        descriptors=descriptors,
        valid=valid,
        steps=episode.steps,
        transitions=_select(mask, transitions, jax.tree.map(jnp.zeros_like, transitions)),
    )
    return evaluation, seen


def _check_state(task: Task, world: TaskState) -> None:
    """Raise a ValueError if a task's states have other shapes than it declares."""
    expected = {
        "observation": (task.observation_size,),
        "descriptor": (task.descriptor_size,),
        "reward": (),
        "done": (),
    }
    for name, shape in expected.items():
        found = getattr(world, name).shape[1:]
        if found != shape:
            raise ValueError(
                f"task '{task.name}': {name} of a state must have shape {shape}, got {found}"
            )


def rollout_policies(task: Task, network: MLP, policies: Array, keys: Array) -> Evaluation:
    """Run one episode of each policy, a row of `policies` [n, P]."""
    layers = networks.unflatten(network, policies)
    return rollout(
        task, lambda observation: networks.apply_each(network, layers, observation), keys
    )


def evaluate(task: Task, network: MLP, policies: Array, key: Array, batch: int = 256) -> Evaluation:
    """Evaluate any number of policies [k, P] in padded batches, `batch` rounded up to 32s.

    Returns no transitions. On a deterministic task and for the same `batch`, a policy gives the
    same bits whatever its position and the policies beside it.
    """
    policies = jnp.asarray(policies, jnp.float32)
    check_policies(task, network, policies)
    batch = padded_size(batch)
    count = policies.shape[0]
    if count == 0:
        raise ValueError("policies is empty: nothing to evaluate")
    parts = []
    for index, first in enumerate(range(0, count, batch)):
        # Padding repeats the first row, so that it needs no special case.
        rows = np.arange(first, first + batch)
        rows = np.where(rows < count, rows, 0)
        keys = jax.random.split(jax.random.fold_in(key, index), batch)
        parts.append(_evaluate_batch(task, network, policies[rows], keys))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)


def problem(task: Task) -> Problem:
    """Return a task as the algorithms see it."""
    return Problem(
        name=task.name,
        observation_size=task.observation_size,
        action_size=task.action_size,
        descriptor_low=task.descriptor_low,
        descriptor_high=task.descriptor_high,
        deterministic=task.deterministic,
        lengthscale=task.lengthscale,
        rollout=functools.partial(rollout, task),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate_batch(task: Task, network: MLP, policies: Array, keys: Array) -> Evaluation:
    evaluation = rollout_policies(task, network, policies, keys)
    none = jax.tree.map(lambda a: a[:0].swapaxes(0, 1), evaluation.transitions)
    return evaluation._replace(transitions=none)


def check_policies(task: Task, network: MLP, policies: Array) -> None:
    """Raise a ValueError if a network or a matrix of policies does not fit the task."""
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


def _finite(tree) -> Array:
    """Return for each episode whether every number in every leaf [n, ...] is finite."""
    leaves = [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]
    checks = [jnp.isfinite(a).reshape(a.shape[0], -1).all(-1) for a in leaves]
    return functools.reduce(jnp.logical_and, checks)


def _select(condition: Array, new, old):
    """Return `new` where the condition, [n] or [T, n], holds, and `old` elsewhere."""

    def pick(a, b):
        wide = condition.reshape(*condition.shape, *[1] * (a.ndim - condition.ndim))
        return jnp.where(wide, a, b)

    return jax.tree.map(pick, new, old)
