"""Agents of a population: TD3 learners with hyperparameters of their own.

An agent is an actor, two critics and `Traits`. `train` takes the TD3 steps of one agent, and `vary`
makes new agents from pairs of others. `pbt_map_elites.py` uses them.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from elites.core import normalisation, standardisation, td3
from elites.core import replay as replays
from elites.core.hyperparameters import Hyperparameters
from elites.core.normalisation import Statistics
from elites.core.replay import Layout, Replay
from elites.core.td3 import TD3, Losses
from elites.core.variation import iso_line

Array = jax.Array
T = TypeVar("T")


class Traits(NamedTuple):
    """Hyperparameters that each agent has for itself. All but the last are fields of `TD3`."""

    discount: Array  # [n], as all others
    actor_rate: Array
    critic_rate: Array
    smoothing_noise: Array
    smoothing_clip: Array
    exploration: Array  # standard deviation of the noise on its actions


class Agents(NamedTuple):
    """Networks and hyperparameters of n agents."""

    actors: Array  # [n, P]
    critics: Array  # [n, 2, Pc]
    traits: Traits  # [n]


class Counts(NamedTuple):
    """Numbers of agents that are copied, that copy, and that are drawn from the archive."""

    best: int
    copying: int
    drawing: int

    @classmethod
    def of(cls, hp: Hyperparameters) -> Counts:
        """Return the numbers that the hyperparameters choose.

        Raises a ValueError if they are more than the agents of the population.
        """
        n = hp.pbt_population
        best = max(1, round(hp.pbt_best * n))
        counts = cls(best, round(hp.pbt_copying * n), round(hp.pbt_drawing * n))
        if sum(counts) > n:
            raise ValueError(
                f"pbt_best, pbt_copying and pbt_drawing are {counts.best}, {counts.copying} and "
                f"{counts.drawing} agents, together more than pbt_population, {n}"
            )
        return counts


def draw(learner: TD3, hp: Hyperparameters, key: Array, count: int) -> Agents:
    """Return `count` agents with random networks and traits."""
    network_key, trait_key = jax.random.split(key)
    keys = jax.random.split(network_key, count)
    made = jax.vmap(lambda each: td3.init(learner, each))(keys)
    return Agents(made.actor, made.critics, draw_traits(hp, trait_key, count))


def draw_traits(hp: Hyperparameters, key: Array, count: int) -> Traits:
    """Return the traits of `count` agents, drawn uniformly from their ranges."""
    ranges = (
        hp.pbt_discount, hp.pbt_actor_learning_rate, hp.pbt_critic_learning_rate,
        hp.pbt_smoothing_noise, hp.pbt_smoothing_clip, hp.pbt_exploration_noise,
    )  # fmt: skip
    keys = jax.random.split(key, len(ranges))
    bounds = enumerate(ranges)
    return Traits(*(jax.random.uniform(keys[i], (count,), jnp.float32, *b) for i, b in bounds))


def taken(tree: T, rows: Array) -> T:
    """Return a tree with the rows at the indices `rows` of every array."""
    return jax.tree.map(lambda a: a[rows], tree)


def replaced(tree: T, rows: Array, new: T) -> T:
    """Return a tree whose rows at the indices `rows` are those of `new`.

    Rows of `new` with an index out of range are left out.
    """
    return jax.tree.map(lambda a, b: a.at[rows].set(b, mode="drop"), tree, new)


def train(
    learner: TD3,
    layout: Layout,
    statistics: Statistics | None,
    agent: Agents,
    replay: Replay,
    key: Array,
) -> tuple[Agents, Losses]:
    """Train one agent on its replay buffer. Returns the agent and the mean losses.

    The arrays of `agent` have no leading axis. Its traits replace the numbers of `learner`. Target
    networks and optimisers start anew. Minibatches are sampled in the loop over steps: those of all
    steps and agents together would need gigabytes.
    """
    numbers = agent.traits._asdict()
    del numbers["exploration"]
    learner = dataclasses.replace(learner, **numbers)
    moments = None if statistics is None else normalisation.moments(statistics)
    state = td3.restarted(learner, agent.actors, agent.critics)
    if moments is not None:
        state = standardisation.to_standardised(learner, state, moments)

    def turn(state: td3.TD3State, key: Array) -> tuple[td3.TD3State, Losses]:
        sample_key, noise_key = jax.random.split(key)
        rows = replays.sample(replay, sample_key, (learner.delay, learner.batch_size))
        batches = td3.Batch.of_columns(replays.columns(layout, rows), conditioned=False)
        if moments is not None:
            batches = standardisation.standardise_batches(moments, batches)
        noise = jax.random.normal(noise_key, batches.action.shape)
        return td3.update(learner, state, batches, noise)

    state, losses = jax.lax.scan(turn, state, jax.random.split(key, learner.steps // learner.delay))
    if moments is not None:
        state = standardisation.to_raw(learner, state, moments)
    agent = agent._replace(actors=state.actor, critics=state.critics)
    return agent, jax.tree.map(jnp.mean, losses)


def vary(
    learner: TD3,
    hp: Hyperparameters,
    statistics: Statistics | None,
    first: Agents,
    second: Agents,
    key: Array,
) -> Agents:
    """Return the children [n] of two agents each: `iso_line` of actor and critics together.

    A child has the traits of its first parent.
    """
    actor, critic = learner.actor, learner.critic

    def vectors(agents: Agents) -> Array:
        actors = normalisation.to_normalised(actor, agents.actors, statistics)
        critics = agents.critics.reshape(-1, critic.size)
        critics = normalisation.to_normalised(critic, critics, statistics)
        return jnp.concatenate([actors, critics.reshape(len(actors), -1)], axis=1)

    children = iso_line(vectors(first), vectors(second), key, hp.iso_sigma, hp.line_sigma)
    critics = children[:, actor.size :].reshape(-1, critic.size)
    critics = normalisation.to_raw(critic, critics, statistics)
    return Agents(
        normalisation.to_raw(actor, children[:, : actor.size], statistics),
        critics.reshape(-1, 2, critic.size),
        first.traits,
    )
