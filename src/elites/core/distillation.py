"""Distil an archive into one policy that takes the requested descriptor as an input.

    ask      elites drawn from the archive, and the policy asked for their descriptors, are rolled
             out side by side
    tell     every observation is stored with the action that the elite takes there
    train    the policy regresses on the stored actions, given observation and descriptor

The elites' own episodes alone would be behaviour cloning. The policy's episodes, labelled by the
elite that it is asked to imitate, also teach it how to recover from its own errors (DAgger, dataset
aggregation). The archive never changes, so it may come from any algorithm.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.core import archive as archives
from elites.core import counter, networks, normalisation, td3
from elites.core import replay as replays
from elites.core.algorithm import Algorithm, Metrics, Round
from elites.core.archive import Archive
from elites.core.catalogue import DISTIL
from elites.core.evaluation import evaluate
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.normalisation import Statistics
from elites.core.replay import Layout, Replay
from elites.core.td3 import TD3, Losses
from elites.core.types import Array, Evaluation, Problem, Request, padded_size

LEARNER = "distilled"
_ITERATIONS_KEPT = 32  # so many iterations share the replay buffer
_HALVED_AFTER = 10  # iterations until the learning rate is half of its first value


class Student(NamedTuple):
    """Parameters and optimiser state of the policy that is being fitted."""

    actor: Array  # [Pa]
    moments: optax.OptState


class State(NamedTuple):
    """Complete state of a distillation: fitting can continue from it."""

    archive: Archive
    replay: Replay
    learners: dict[str, Student]
    iteration: Array  # [] int32
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    statistics: Statistics | None = None  # of observations, for a run that normalises them


@dataclasses.dataclass(frozen=True)
class Spec:
    """Specification of the distillation of an archive on a problem."""

    problem: Problem
    hp: Hyperparameters
    actor: TD3
    """TD3 configuration that determines the network and the inputs of the fitted policy."""
    origins: tuple[str, ...]
    """Names of the variations that the archive's elites originate from."""

    def __post_init__(self):
        if self.problem.vectors is not None:
            raise ValueError(
                f"task '{self.problem.name}' has no policies to distil: its elites are plain "
                "vectors"
            )

    @property
    def policy(self) -> MLP:
        """Network shape of the archive's policies."""
        return self.problem.policy(self.hp.policy_hidden, self.hp.activation)

    @property
    def layout(self) -> Layout:
        """Number of values in each column of the replay buffer, keyed by the column's name."""
        problem = self.problem
        return {
            "observation": problem.observation_size,
            "action": problem.action_size,
            "target": problem.descriptor_size,
        }


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return an `Algorithm` that distils an archive.

    Pass the archive to distil to its method `start`.
    """
    bind, batch = functools.partial, spec.hp.batch_size
    return Algorithm(
        name=DISTIL, problem=spec.problem, policy=spec.policy, cells=spec.hp.cell_count,
        origins=spec.origins, offspring={}, batch=batch, actor_rollouts=batch,
        padded_batch=padded_size(2 * batch), main_td3=spec.actor, replay_layout=spec.layout,
        hp=spec.hp, init=bind(init, spec), first=bind(ask, spec), train=bind(train, spec),
        rounds=(Round(bind(ask, spec), bind(tell, spec), batch),),
        evaluate=bind(evaluate, spec.problem, spec.policy, spec.actor),
        actor=lambda state: state.learners[LEARNER].actor,
        repeats=spec.hp.evaluations_per_policy,
    )  # fmt: skip


class Keys(NamedTuple):
    """Random keys of the stages, derived from the key of the start or of an iteration."""

    init: Array
    train: Array
    cells: Array
    rollouts: Array

    @classmethod
    def of(cls, key: Array) -> Keys:
        return cls(*jax.random.split(key, 4))


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with an untrained policy, an empty archive and an empty replay buffer.

    `Algorithm.start` then replaces the archive with the one to distil.
    """
    actor = networks.init(spec.actor.actor, Keys.of(key).init)
    zero, seen = jnp.zeros((), jnp.uint32), spec.problem.observation_size
    return State(
        archive=archives.empty(centroids, spec.policy.size),
        replay=replays.empty(spec.layout, spec.hp.replay_size),
        learners={LEARNER: Student(actor, optax.adam(spec.hp.distil_learning_rate).init(actor))},
        iteration=jnp.full((), -1, jnp.int32),
        evaluations=zero,
        env_steps=counter.zero(),
        rejected=zero,
        statistics=normalisation.none_yet(seen) if spec.hp.normalise_observations else None,
    )


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Fit the policy to the stored actions, by gradient steps on sampled minibatches.

    Returns the new state and the mean loss, in a dictionary with the learner's name as its key. In
    a run that normalises observations, the policy is fitted as one of normalised observations.
    """
    seen = state.statistics
    rate = spec.hp.distil_learning_rate / (1.0 + state.iteration / _HALVED_AFTER)
    shape = (spec.hp.distil_steps, spec.hp.distil_batch_size)
    rows = replays.sample(state.replay, Keys.of(key).train, shape)

    def step(student: Student, rows: Array) -> tuple[Student, Array]:
        batch = replays.columns(spec.layout, rows)

        def loss(actor: Array) -> Array:
            observation = normalisation.normalised(seen, batch["observation"])
            action = td3.act(spec.actor, actor, observation, batch["target"])
            return jnp.mean(jnp.square(action - batch["action"]))

        value, gradient = jax.value_and_grad(loss)(student.actor)
        return Student(*networks.descend(student.actor, gradient, student.moments, rate)), value

    student = _changed(spec, normalisation.to_normalised, state.learners[LEARNER], seen)
    student, losses = jax.lax.scan(step, student, rows)
    student = _changed(spec, normalisation.to_raw, student, seen)
    return state._replace(learners={LEARNER: student}), {LEARNER: Losses(None, losses.mean())}


def _changed(
    spec: Spec,
    change: Callable[[MLP, Array, Statistics | None], Array],
    student: Student,
    statistics: Statistics | None,
) -> Student:
    """Return the student with its policy changed by `to_normalised` or `to_raw`."""
    return student._replace(actor=change(spec.actor.actor, student.actor[None], statistics)[0])


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Return the policies to evaluate: random elites, and the policy at their descriptors."""
    keys = Keys.of(key)
    cells = archives.sample(state.archive, keys.cells, spec.hp.batch_size)
    descriptors = state.archive.descriptors[cells]
    return Request(
        policies=state.archive.policies[cells],
        origins=state.archive.origin[cells],
        targets=descriptors,
        actor=state.learners[LEARNER].actor,
        actor_targets=descriptors,
        key=keys.rollouts,
    )


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add observations of all episodes to the replay buffer, labelled with the elites' actions.

    Only a random part of the steps is stored. Returns the new state and the iteration's metrics.
    """
    steps, problem = evaluation.transitions, spec.problem
    teachers = networks.unflatten(
        spec.policy, jnp.concatenate([request.policies, request.policies])
    )
    actions = jax.lax.map(
        lambda seen: networks.apply_each(spec.policy, teachers, seen), steps.observation
    )
    targets = problem.normalise(jnp.concatenate([request.targets, request.actor_targets]))
    columns = {
        "observation": steps.observation,
        "action": actions,
        "target": jnp.broadcast_to(targets[None], (*steps.mask.shape, targets.shape[-1])),
    }
    # The buffer then holds the episodes of many iterations.
    mask = replays.thin(steps.mask, spec.hp.replay_size / _ITERATIONS_KEPT, request.key).reshape(-1)
    flat = {name: values.reshape(mask.size, -1) for name, values in columns.items()}
    state = state._replace(
        replay=replays.insert(state.replay, spec.layout, flat, mask),
        iteration=state.iteration + 1,
        evaluations=state.evaluations + jnp.uint32(len(request.policies)),
        env_steps=counter.add(state.env_steps, evaluation.steps.sum()),
        rejected=state.rejected + jnp.sum(~evaluation.valid).astype(jnp.uint32),
        statistics=normalisation.updated(state.statistics, evaluation),
    )
    none = jnp.zeros(len(request.policies), bool)
    offset = problem.offset(spec.hp.qd_offset)
    return state, Metrics.of(state, (), request.origins, none, offset)
