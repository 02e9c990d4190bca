"""CMA-ME and CMA-MAE: emitters that search the space of policies by CMA-ES.

    train       decompose the covariances, every few iterations
    ask         sample b policies from the distribution of each of E emitters
    tell        add all of them to the archive; rank the samples of each emitter by what became of
                them, adapt its distribution, and restart it from a random elite if it is exhausted

CMA-ME (Fontaine et al., 2020) has three kinds of emitters, which differ in their `emitters.Rules`.
CMA-MAE (Fontaine and Nikolaidis, 2023) has an annealed archive: a sample must beat the threshold of
its cell, which rises slowly to the fitness of the elite.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import averaging, cma_es, counter, emitters
from elites.core.algorithm import Algorithm, Metrics, Round, S
from elites.core.archive import Addition, Archive
from elites.core.cma_es import Gaussians
from elites.core.emitters import Keys, Spec
from elites.core.evaluation import evaluate
from elites.core.sampling import random_policies
from elites.core.td3 import Losses
from elites.core.types import INITIAL, Array, Evaluation, Request, Results

ORIGINS = (INITIAL, "emitter")
_INITIAL, _EMITTER = range(2)  # their numbers


class State(NamedTuple):
    """Complete state of a run of CMA-ME or CMA-MAE: training can continue from it."""

    archive: Archive
    gaussians: Gaussians
    directions: Array | None  # [E, D] of random direction emitters
    iteration: Array  # [] int32, -1 before anything was told
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    restarts: Array  # [] uint32 of all emitters together


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return the `Algorithm` that a specification describes."""
    bind, rows = functools.partial, spec.hp.batch_size * spec.hp.evaluations_per_policy
    return Algorithm(
        name=spec.name, problem=spec.problem, policy=spec.policy, cells=spec.cells.count,
        origins=ORIGINS, offspring={"emitter": spec.hp.batch_size}, batch=rows, actor_rollouts=0,
        padded_batch=emitters.padded(spec, rows), main_td3=None, replay_layout=None, hp=spec.hp,
        init=bind(init, spec), first=bind(first, spec), train=bind(train, spec),
        rounds=(Round(bind(ask, spec), bind(tell, spec), rows),),
        evaluate=bind(evaluate, spec.problem, spec.policy, None), actor=lambda state: None,
        repeats=spec.hp.evaluations_per_policy,
    )  # fmt: skip


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with an empty archive and emitters at their starts."""
    zero = jnp.zeros((), jnp.uint32)
    directions = None
    if spec.chosen.ranker.endswith("rd"):
        directions = emitters.random_directions(spec, Keys.of(key).directions)
    return State(
        archive=archives.empty(centroids, spec.policy.size, spec.annealing),
        gaussians=cma_es.init(spec.cma, starts(spec, key)),
        directions=directions,
        iteration=jnp.full((), -1, jnp.int32), evaluations=zero, env_steps=counter.zero(),
        rejected=zero, restarts=zero,
    )  # fmt: skip


def starts(spec: Spec, key: Array) -> Array:
    """Return the points [E, P] that the emitters start from.

    Plain vectors have one start for all. On other problems, each emitter has a random policy.
    """
    if spec.problem.vectors is not None:
        start = jnp.array(spec.problem.vectors.start, jnp.float32)
        return jnp.broadcast_to(start[None], (spec.emitters, spec.policy.size))
    return random_policies(spec.problem, spec.policy, Keys.of(key).starts, spec.emitters)


def first(spec: Spec, state: State, key: Array) -> Request:
    """Return the first request of a run, which is like all others."""
    request = ask(spec, state, key)
    return request._replace(origins=jnp.full_like(request.origins, _INITIAL))


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Decompose the covariances if it is time. Returns the state, and no losses."""
    gaussians = emitters.decomposed_when_due(spec, state.gaussians, state.iteration)
    return state._replace(gaussians=gaussians), {}


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for E * b samples, those of the first emitter first."""
    key = jax.random.split(key)[1]
    samples = cma_es.sample(spec.cma, state.gaussians, Keys.of(key).samples)
    origins = jnp.full(spec.hp.batch_size, _EMITTER, jnp.int32)
    return request(spec, samples.reshape(-1, spec.policy.size), origins, key)


def request(
    spec: Spec, policies: Array, origins: Array, key: Array, actor: Array | None = None
) -> Request:
    """Return a request for policies [n, P] of these origins [n]."""
    size = spec.problem.descriptor_size
    made = Request(
        policies=policies,
        origins=origins,
        targets=jnp.zeros((len(policies), size)),
        actor=actor,
        actor_targets=jnp.zeros((0, size)),
        key=key,
    )
    return averaging.repeated(made, spec.hp.evaluations_per_policy)


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add the samples to the archive and adapt the emitters.

    Returns the new state and the iteration's metrics.
    """
    n = spec.hp.batch_size
    policies, origins = request.policies[:n], request.origins[:n]
    results = results_of(spec, request, evaluation)
    iteration = state.iteration + 1
    addition = add(spec, state.archive, policies, results, origins, iteration)
    state = counted(spec, state, request, evaluation)
    state = state._replace(archive=addition.archive, iteration=iteration)

    ranked = emitters.rank(spec, addition, results, state.directions)
    samples = policies.reshape(spec.emitters, spec.samples, -1)
    best_first = emitters.in_order(samples, ranked.order)
    gaussians = cma_es.update(spec.cma, state.gaussians, best_first, ranked.parents)
    again, keys = emitters.exhausted(spec, gaussians, ranked), Keys.of(request.key)
    begin = emitters.random_elites(state.archive, keys.restarts, state.gaussians.mean)
    directions = state.directions
    if directions is not None:
        drawn = emitters.random_directions(spec, keys.directions)
        directions = jnp.where(again[:, None], drawn, directions)
    state = state._replace(
        gaussians=cma_es.where(again, cma_es.init(spec.cma, begin), gaussians),
        directions=directions,
        restarts=state.restarts + again.sum().astype(jnp.uint32),
    )
    offset = spec.problem.offset(spec.hp.qd_offset)
    metrics = Metrics.of(state, ORIGINS, origins, addition.added, offset)
    return state, metrics._replace(restarts=state.restarts)


def results_of(spec: Spec, request: Request, evaluation: Evaluation) -> Results:
    """Return the results [n] of the n policies of a request, averaged over their episodes."""
    times = spec.hp.evaluations_per_policy
    return averaging.of_policies(evaluation, len(request.policies), times, spec.hp.average)


def add(
    spec: Spec,
    archive: Archive,
    policies: Array,
    results: Results,
    origins: Array,
    iteration: Array,
) -> Addition:
    """Add policies [n, P] with their results [n] to an archive."""
    return archives.add(
        archive, policies, **results._asdict(), origin=origins, iteration=iteration,
        cells=spec.cells, annealing=spec.annealing,
    )  # fmt: skip


def counted(spec: Spec, state: S, request: Request, evaluation: Evaluation) -> S:
    """Return the state with all episodes of a request counted."""
    rows = len(request.policies)
    failed = averaging.failed(averaging.of_policies(evaluation, rows, 1, spec.hp.average))
    return state._replace(
        evaluations=state.evaluations + jnp.uint32(rows),
        env_steps=counter.add(state.env_steps, evaluation.steps.sum()),
        rejected=state.rejected + failed.sum().astype(jnp.uint32),
    )
