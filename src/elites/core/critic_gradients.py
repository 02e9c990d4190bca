"""The gradient of the fitness by a TD3 critic, for CMA-MEGA (Tjanaka et al., 2022).

A learner is trained as in PGA-MAP-Elites, on the transitions of all episodes. The gradient of the
fitness at a policy pi is that of the mean over observations s of Q_1(s, pi(s)).

The functions of `map_elites` train the learner and store transitions. They work on a `spec.State`,
whose fields the state of CMA-MEGA has too.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp

from elites.core import map_elites, td3
from elites.core import replay as replays
from elites.core.archive import Archive
from elites.core.emitters import Keys, Spec
from elites.core.replay import Replay
from elites.core.spec import Learner, State, Variation
from elites.core.spec import Spec as FamilySpec
from elites.core.td3 import Losses, TD3State
from elites.core.types import Array, Evaluation, Request
from elites.core.variation import greedy

NAME = "quality"  # of the learner


class Learning(Protocol):
    """State of an algorithm with at most one learner."""

    @property
    def archive(self) -> Archive: ...
    @property
    def replay(self) -> Replay | None: ...
    @property
    def learners(self) -> dict[str, TD3State]: ...
    @property
    def iteration(self) -> Array: ...
    @property
    def evaluations(self) -> Array: ...
    @property
    def env_steps(self) -> Array: ...
    @property
    def rejected(self) -> Array: ...


def family(spec: Spec) -> FamilySpec:
    """Return a specification of the MAP-Elites family that has the learner."""
    assert spec.td3 is not None
    variations = (Variation("greedy", 1, partial(greedy, learner=NAME)),)
    learners = (Learner(NAME, spec.td3),)
    return FamilySpec(spec.name, spec.problem, spec.hp, variations, learners)


def _family_state(state: Learning) -> State:
    return State(
        state.archive, state.replay, state.learners, None, state.iteration, state.evaluations,
        state.env_steps, state.rejected,
    )  # fmt: skip


def init(spec: Spec, key: Array) -> dict[str, TD3State]:
    """Return the untrained learner by its name, or nothing if there is none."""
    return {} if spec.td3 is None else {NAME: td3.init(spec.td3, Keys.of(key).directions)}


def empty_replay(spec: Spec) -> Replay | None:
    """Return an empty replay buffer, or None if there is no learner."""
    if spec.td3 is None:
        return None
    return replays.empty(family(spec).layout, spec.hp.replay_size)


def actor(state: Learning) -> Array | None:
    """Return the parameters of the learner's actor, or None if there is no learner."""
    return state.learners[NAME].actor if state.learners else None


def train(spec: Spec, state: Learning, key: Array) -> tuple[dict[str, TD3State], dict[str, Losses]]:
    """Return the learner after its gradient steps, and its mean losses."""
    after, losses = map_elites.train(family(spec), _family_state(state), key)
    return after.learners, losses


def stored(spec: Spec, state: Learning, request: Request, evaluation: Evaluation) -> Replay | None:
    """Return the replay buffer with the transitions of an evaluation."""
    origins = jnp.zeros_like(request.origins)  # they say nothing about the transitions here
    request = request._replace(origins=origins)
    return map_elites.store(family(spec), _family_state(state), request, evaluation).replay


def of_fitness(spec: Spec, points: Array, state: Learning, key: Array) -> Array:
    """Return the gradients [E, P] of the fitness at policies [E, P]."""
    config, learner = spec.td3, state.learners[NAME]
    assert config is not None
    assert state.replay is not None
    layout = family(spec).layout
    rows = replays.sample(state.replay, key, (spec.hp.cma_critic_batch,))
    batch = td3.Batch.of_columns(replays.columns(layout, rows), conditioned=False)

    def value(policy: Array) -> Array:
        return -td3.actor_loss(config, policy, learner.critics[0], batch)

    return jax.lax.map(jax.grad(value), points)  # one after another: the batch is large
