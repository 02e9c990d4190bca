"""CMA-MEGA and CMA-MAEGA: emitters that search the coefficients of gradients by CMA-ES.

Each of E emitters has a solution point theta. Fitness and descriptor have gradients there, of
length 1: the rows of a matrix J [1 + D, P]. A sample of CMA-ES is a vector c of 1 + D coefficients,
and the policy theta + c J is a branch.

    ask         the E points, then b branches of each
    tell        add the points, then the branches; rank the branches of each emitter and adapt its
                distribution of coefficients; move its point to the weighted mean of the parents,
                or restart it at a random elite

The gradients are exact on problems that can be differentiated (Fontaine and Nikolaidis, 2021 and
2023). On other tasks they are estimated (Tjanaka et al., 2022), in a round before this one:

    ask         mirrored copies of each point, with small perturbations
    tell        estimate the gradients from the ranks of the copies' results, see `es`

With a TD3 learner, its critic gives the gradient of the fitness (`critic_gradients`), and its actor
is evaluated beside the branches.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import averaging, cma_es, cma_me, counter, critic_gradients, emitters, es
from elites.core.algorithm import Algorithm, Metrics, Round
from elites.core.archive import Archive
from elites.core.cma_es import Gaussians
from elites.core.emitters import Keys, Spec
from elites.core.evaluation import evaluate, jacobian
from elites.core.replay import Replay
from elites.core.sampling import random_policies
from elites.core.td3 import Losses, TD3State
from elites.core.types import INITIAL, Array, Evaluation, Request, Results

ORIGINS = (INITIAL, "point", "branch", "greedy")
_INITIAL, _POINT, _BRANCH, _GREEDY = range(4)  # their numbers; the last only with a learner
_SMALL = 1e-8  # added to the length of a gradient, which may be 0


class State(NamedTuple):
    """Complete state of a run of CMA-MEGA or CMA-MAEGA: training can continue from it."""

    archive: Archive
    gaussians: Gaussians  # over 1 + D coefficients
    points: Array  # [E, P] theta
    gradients: Array | None  # [E, 1 + D, P] estimated at the points; None where they are exact
    replay: Replay | None  # of a learner
    learners: dict[str, TD3State]  # at most one
    iteration: Array  # [] int32, -1 before anything was told
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    restarts: Array  # [] uint32 of all emitters together


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return the `Algorithm` that a specification describes."""
    bind, times = functools.partial, spec.hp.evaluations_per_policy
    rows, td3 = row_count(spec) * times, spec.td3
    rounds = (Round(bind(ask, spec), bind(tell, spec), rows),)
    if spec.gradients != "exact":
        copies = spec.emitters * spec.hp.cma_copies * times
        rounds = (Round(bind(ask_copies, spec), bind(tell_copies, spec), copies), *rounds)
    offspring = {"point": spec.emitters, "branch": spec.hp.batch_size - spec.emitters}
    offspring |= {} if td3 is None else {"greedy": 1}
    return Algorithm(
        name=spec.name, problem=spec.problem, policy=spec.policy, cells=spec.cells.count,
        origins=origins_of(spec), offspring=offspring, batch=rows, actor_rollouts=0,
        padded_batch=emitters.padded(spec, rows), main_td3=td3, hp=spec.hp,
        replay_layout=None if td3 is None else critic_gradients.family(spec).layout,
        init=bind(init, spec), first=bind(first, spec), train=bind(train, spec), rounds=rounds,
        evaluate=bind(evaluate, spec.problem, spec.policy, td3),
        actor=critic_gradients.actor, repeats=times,
    )  # fmt: skip


def row_count(spec: Spec) -> int:
    """Return the number of policies of a request: points, branches and the actor of a learner."""
    return spec.hp.batch_size + (spec.td3 is not None)


def origins_of(spec: Spec) -> tuple[str, ...]:
    """Return the names of the origins of elites."""
    return ORIGINS if spec.td3 is not None else ORIGINS[:-1]


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with an empty archive and emitters at their starts."""
    zero, points = jnp.zeros((), jnp.uint32), cma_me.starts(spec, key)
    shape = (spec.emitters, spec.dimensions, spec.policy.size)
    return State(
        archive=archives.empty(centroids, spec.policy.size, spec.annealing),
        gaussians=cma_es.init(spec.cma, jnp.zeros(shape[:2])),
        points=points,
        gradients=None if spec.gradients == "exact" else jnp.zeros(shape),
        replay=critic_gradients.empty_replay(spec), learners=critic_gradients.init(spec, key),
        iteration=jnp.full((), -1, jnp.int32), evaluations=zero, env_steps=counter.zero(),
        rejected=zero, restarts=zero,
    )  # fmt: skip


def first(spec: Spec, state: State, key: Array) -> Request:
    """Return the first request of a run.

    With exact gradients it is like all others. Without, it is for the points and random policies.
    """
    request = ask(spec, state, key)
    origins = jnp.full_like(request.origins, _INITIAL)
    if spec.gradients == "exact":
        return request._replace(origins=origins)
    count, key = row_count(spec), Keys.of(request.key).samples
    drawn = random_policies(spec.problem, spec.policy, key, count - spec.emitters)
    policies = jnp.concatenate([state.points, drawn])
    return cma_me.request(spec, policies, origins[:count], request.key, request.actor)


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Train the learner, if there is one, and decompose the covariances if it is time.

    Returns the new state and the learner's mean losses.
    """
    losses = {}
    if spec.td3 is not None:
        learners, losses = critic_gradients.train(spec, state, key)
        state = state._replace(learners=learners)
    gaussians = emitters.decomposed_when_due(spec, state.gaussians, state.iteration)
    return state._replace(gaussians=gaussians), losses


class StageKeys(NamedTuple):
    """Random keys of the stages of an iteration, derived from the iteration's key."""

    learner: Array
    branches: Array
    noise: Array
    copies: Array  # of their rollouts

    @classmethod
    def of(cls, key: Array) -> StageKeys:
        return cls(*jax.random.split(key, 4))


# ------------------------------------------------------------------------------ estimated gradients


def ask_copies(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for copies of each point with random perturbations, in mirrored pairs."""
    keys = StageKeys.of(key)
    pairs, e, size = spec.hp.cma_copies // 2, spec.emitters, spec.policy.size
    noise = es.noise(keys.noise, e * pairs, size)
    each = functools.partial(es.population, sigma=spec.hp.es_sigma)
    copies = jax.vmap(each)(state.points, noise.reshape(e, pairs, size))
    origins = jnp.full(e * 2 * pairs, _INITIAL, jnp.int32)  # copies are not archived
    policies, actor = copies.reshape(-1, size), critic_gradients.actor(state)
    made = cma_me.request(spec, policies, origins, keys.copies, actor)
    return made._replace(noise=noise)


def tell_copies(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, None]:
    """Return the state with estimated gradients at the points, and None in place of metrics.

    The results of the copies estimate all of them, but the critic of a learner that of the fitness.
    """
    assert request.noise is not None
    e, size = spec.emitters, spec.policy.size
    results = cma_me.results_of(spec, request, evaluation)
    failed = averaging.failed(results)
    fitness = jnp.where(failed, -jnp.inf, results.fitness)
    outcomes = jnp.concatenate([fitness[:, None], results.descriptors], axis=1)
    outcomes = outcomes.reshape(e, -1, spec.dimensions)

    def estimated(outcomes: Array, noise: Array, failed: Array) -> Array:
        ranks = jax.vmap(es.centred_ranks, 1)(outcomes)  # [1 + D, copies]
        # A failed episode is bad, but it says nothing about the descriptor.
        lost = jnp.tile(failed.reshape(2, -1).any(0), 2)[None]
        ranks = ranks.at[1:].set(jnp.where(lost, 0.0, ranks[1:]))
        return jax.vmap(lambda scores: es.gradient(scores, noise, spec.hp.es_sigma))(ranks)

    noise = request.noise.reshape(e, -1, size)
    gradients = jax.vmap(estimated)(outcomes, noise, failed.reshape(e, -1))
    state = cma_me.counted(spec, state, request, evaluation)
    if spec.td3 is not None:
        of_fitness = critic_gradients.of_fitness(
            spec, state.points, state, Keys.of(request.key).samples
        )
        gradients = gradients.at[:, 0].set(of_fitness)
        state = state._replace(replay=critic_gradients.stored(spec, state, request, evaluation))
    return state._replace(gradients=gradients), None


# ----------------------------------------------------------------------------------------- branches


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for the E points, then for b branches of each, first emitter first.

    The actor of a learner comes between them.
    """
    key, directions = StageKeys.of(key).branches, state.gradients
    if directions is None:
        directions = jacobian(spec.problem, state.points)
    length = jnp.sqrt(jnp.einsum("ecp,ecp->ec", directions, directions, precision="highest"))
    directions = directions / (length + _SMALL)[..., None]
    coefficients = cma_es.sample(spec.cma, state.gaussians, Keys.of(key).samples)
    offsets = jnp.einsum("ekc,ecp->ekp", coefficients, directions, precision="highest")
    branches = (state.points[:, None] + offsets).reshape(-1, spec.policy.size)
    actor = critic_gradients.actor(state)
    greedy = jnp.zeros((0, spec.policy.size)) if actor is None else actor[None]
    parts = {_POINT: state.points, _GREEDY: greedy, _BRANCH: branches}
    origins = jnp.concatenate([jnp.full(len(p), name, jnp.int32) for name, p in parts.items()])
    return cma_me.request(spec, jnp.concatenate([*parts.values()]), origins, key, actor)


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add points and branches to the archive, adapt the emitters and move their points.

    Returns the new state and the iteration's metrics.
    """
    n, iteration = row_count(spec), state.iteration + 1
    head = n - spec.emitters * spec.samples  # points, and the actor of a learner
    policies, origins = request.policies[:n], request.origins[:n]
    results = cma_me.results_of(spec, request, evaluation)
    first, rest = (Results(*(a[rows] for a in results)) for rows in (slice(head), slice(head, n)))
    of_points = cma_me.add(spec, state.archive, policies[:head], first, origins[:head], iteration)
    archive = of_points.archive  # against which the branches are judged
    of_branches = cma_me.add(spec, archive, policies[head:], rest, origins[head:], iteration)
    if spec.td3 is not None:
        state = state._replace(replay=critic_gradients.stored(spec, state, request, evaluation))
    state = cma_me.counted(spec, state, request, evaluation)
    state = state._replace(archive=of_branches.archive, iteration=iteration)
    ranked = emitters.rank(spec, of_branches, rest)
    state = moved(spec, state, ranked, policies[head:], request.key)
    added = jnp.concatenate([of_points.added, of_branches.added])
    offset = spec.problem.offset(spec.hp.qd_offset)
    metrics = Metrics.of(state, origins_of(spec), origins, added, offset)
    return state, metrics._replace(restarts=state.restarts)


def moved(spec: Spec, state: State, ranked: emitters.Ranked, branches: Array, key: Array) -> State:
    """Return the state with adapted distributions and moved points, restarted where exhausted.

    Where gradients are estimated, there are none before the first iteration, and nothing moves.
    """
    keys, points = Keys.of(key), state.points
    # The coefficients are drawn once more from the key that drew them.
    coefficients = cma_es.sample(spec.cma, state.gaussians, keys.samples)
    best_first = emitters.in_order(coefficients, ranked.order)
    gaussians = cma_es.update(spec.cma, state.gaussians, best_first, ranked.parents)
    weights = cma_es.weights_of(spec.samples, ranked.parents)
    steps = branches.reshape(spec.emitters, spec.samples, -1) - points[:, None]
    steps = emitters.in_order(steps, ranked.order)
    step = jnp.einsum("ek,ekp->ep", weights, steps, precision="highest")
    again = emitters.exhausted(spec, gaussians, ranked)
    elites = emitters.random_elites(state.archive, keys.restarts, points)
    fresh = cma_es.init(spec.cma, jnp.zeros_like(gaussians.mean))
    gaussians = cma_es.where(again, fresh, gaussians)
    points = jnp.where(again[:, None], elites, points + spec.hp.cma_ascent * step)
    if spec.gradients != "exact":
        again &= state.iteration > 0
        begun = jnp.broadcast_to(state.iteration > 0, again.shape)
        gaussians = cma_es.where(begun, gaussians, state.gaussians)
        points = cma_es.where(begun, points, state.points)
    restarts = state.restarts + again.sum().astype(jnp.uint32)
    return state._replace(gaussians=gaussians, points=points, restarts=restarts)
