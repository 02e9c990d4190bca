"""The iteration that every algorithm but MAP-Elites-ES shares (the paper's algorithm 1).

    train       each learner takes its gradient steps on minibatches of the replay buffer
    ask         each variation makes its offspring; descriptors for the actor rollouts are drawn
    evaluate    offspring and actor run their episodes together (`evaluation.py`)
    tell        offspring compete for their cells; transitions enter the replay buffer

An algorithm is a `Spec`: its variations with their counts, its learners, and the hyperparameters.
`Algorithm.step` in `algorithm.py` is the loop over these stages.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import (
    averaging,
    counter,
    distances,
    dominated_novelty,
    normalisation,
    novelty,
    progress,
    scaling,
    standardisation,
    td3,
)
from elites.core import replay as replays
from elites.core.algorithm import Algorithm, Metrics, Round
from elites.core.archive import Archive
from elites.core.evaluation import actor_rows, evaluate, shares_trajectory, take
from elites.core.sampling import random_policies
from elites.core.spec import Learner, Spec, State
from elites.core.td3 import Losses
from elites.core.types import Array, Evaluation, Request, Results, padded_size


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return the `Algorithm` that a MAP-Elites specification describes."""
    bind, problem, main_td3 = functools.partial, spec.problem, spec.main_td3
    robots = spec.episodes + actor_rows(problem, main_td3, spec.actor_rollouts)
    padded = padded_size(robots) if problem.vectors is None else robots
    observes = spec.hp.normalise_observations
    return Algorithm(
        name=spec.name,
        problem=problem,
        policy=spec.policy,
        cells=spec.cells.count,
        origins=spec.origins,
        offspring={variation.origin: variation.count for variation in spec.variations},
        batch=spec.episodes,
        actor_rollouts=spec.actor_rollouts,
        padded_batch=padded,
        main_td3=main_td3,
        replay_layout=spec.layout if spec.learners else None,
        hp=spec.hp,
        init=bind(init, spec),
        first=bind(first, spec),
        train=bind(train, spec),
        rounds=(Round(bind(ask, spec), bind(tell, spec), spec.episodes),),
        evaluate=bind(evaluate, problem, spec.policy, main_td3, observes=observes),
        actor=bind(actor, spec),
        repeats=spec.hp.evaluations_per_policy,
    )


def actor(spec: Spec, state: State) -> Array | None:
    """Return the parameters of the main learner's actor, or None if there is no learner."""
    return state.learners[spec.learners[0].name].actor if spec.learners else None


class StartKeys(NamedTuple):
    """Random keys for the parts of the start, derived from the start's key."""

    policies: Array
    learners: Array
    rollouts: Array
    targets: Array

    @classmethod
    def of(cls, key: Array) -> StartKeys:
        policies, learners, others = jax.random.split(key, 3)
        rollouts, targets, _ = jax.random.split(others, 3)
        return cls(policies, learners, rollouts, targets)


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with untrained learners, an empty archive and an empty replay buffer."""
    keys = jax.random.split(StartKeys.of(key).learners, len(spec.learners) or 1)
    zero, size = jnp.zeros((), jnp.uint32), spec.problem.descriptor_size
    seen = spec.problem.observation_size
    return State(
        archive=archives.empty(centroids, spec.policy.size),
        replay=replays.empty(spec.layout, spec.hp.replay_size) if spec.learners else None,
        learners={part.name: td3.init(part.td3, keys[i]) for i, part in enumerate(spec.learners)},
        memory=novelty.empty(spec.hp.novelty_memory, size) if spec.rewards_novelty else None,
        iteration=jnp.full((), -1, jnp.int32),
        evaluations=zero,
        env_steps=counter.zero(),
        rejected=zero,
        moments=standardisation.unit(seen) if spec.standardises else None,
        statistics=normalisation.none_yet(seen) if spec.hp.normalise_observations else None,
        population=dominated_novelty.empty(spec.population, spec.policy.size, size),
    )


def first(spec: Spec, state: State, key: Array) -> Request:
    """Return the first request of a run: random policies, and rollouts of the untrained actor.

    The actor's target descriptors are drawn from the state's archive. A search with a population
    that starts from an archive evaluates random elites instead, which then are its population.
    """
    keys = StartKeys.of(key)
    policies = random_policies(spec.problem, spec.policy, keys.policies, spec.batch)
    if spec.population:
        elites = state.archive.policies[archives.sample(state.archive, keys.learners, spec.batch)]
        policies = jnp.where(archives.filled(state.archive).any(), elites, policies)
    request = Request(
        policies=policies,
        origins=jnp.zeros(spec.batch, jnp.int32),
        targets=jnp.zeros((spec.batch, spec.problem.descriptor_size)),
        actor=actor(spec, state),
        actor_targets=draw_targets(spec, state.archive, keys.targets),
        key=keys.rollouts,
    )
    return averaging.repeated(request, spec.hp.evaluations_per_policy)


# --------------------------------------------------------------------------------------- iteration


class Keys(NamedTuple):
    """Random keys of the stages of an iteration, derived from the iteration's key."""

    train: Array
    variations: Array
    targets: Array
    rollouts: Array

    @classmethod
    def of(cls, key: Array) -> Keys:
        return cls(*jax.random.split(key, 4))


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Run the learners' gradient steps on minibatches from the replay buffer.

    Returns the new state and each learner's mean losses, keyed by its name.
    """
    learners, losses = {}, {}
    keys = jax.random.split(Keys.of(key).train, len(spec.learners) or 1)
    for i, learner in enumerate(spec.learners):
        assert state.replay is not None
        sample_key, noise_key = jax.random.split(keys[i])
        shape = (learner.td3.steps, learner.td3.sampled_rows)
        rows = replays.columns(spec.layout, replays.sample(state.replay, sample_key, shape))
        if learner.rewards_novelty:
            assert state.memory is not None
            points = distances.weighted(rows["state_descriptor"], spec.problem.weights)
            reward = novelty.rewards(state.memory, points, spec.hp.novelty_neighbours)
            rows["reward"] = reward[..., None]
        if learner.progress is not None:
            noise_key, relabel_key = jax.random.split(noise_key)
            for name in ("state_descriptor", "next_state_descriptor"):
                rows[name] = spec.problem.normalise(rows[name])
            weight = progress.weight_in(learner.progress, state.archive)
            rows = progress.relabelled_columns(learner.progress, weight, rows, relabel_key)
        batches = td3.Batch.of_columns(rows, learner.td3.critic_conditioned)
        learners[learner.name], losses[learner.name] = _train(state, learner, batches, noise_key)
    return state._replace(learners=learners), losses


def _train(
    state: State, learner: Learner, batches: td3.Batch, key: Array
) -> tuple[td3.TD3State, Losses]:
    """Train one learner on minibatches. Returns its new state and the mean losses."""
    factor = None
    if learner.rate_factor is not None:
        factor = learner.rate_factor.at(archives.summary(state.archive).coverage)
    before, moments = state.learners[learner.name], scaling.moments(state, learner)
    if moments is None:
        return td3.train(learner.td3, before, batches, key, factor)
    before = standardisation.to_standardised(learner.td3, before, moments)
    batches = standardisation.standardise_batches(moments, batches)
    after, losses = td3.train(learner.td3, before, batches, key, factor)
    return standardisation.to_raw(learner.td3, after, moments), losses


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Return the request of an iteration: the offspring of all variations, and actor rollouts."""
    keys = Keys.of(key)
    each = jax.random.split(keys.variations, len(spec.variations))
    made = [v.offspring(spec, state, each[i]) for i, v in enumerate(spec.variations)]
    origins = [jnp.full(v.count, i, jnp.int32) for i, v in enumerate(spec.variations, start=1)]
    parents = None
    if any(variation.outward for variation in spec.variations):
        known = ((o.parent_descriptors, o.targets) for o in made)
        parents = jnp.concatenate([own if own is not None else target for own, target in known])
    request = Request(
        policies=jnp.concatenate([offspring.policies for offspring in made]),
        origins=jnp.concatenate(origins),
        targets=jnp.concatenate([offspring.targets for offspring in made]),
        actor=actor(spec, state),
        # Drawn before the addition, so that offspring and actor share one batch of rollouts.
        actor_targets=draw_targets(spec, state.archive, keys.targets),
        key=keys.rollouts,
        parent_descriptors=parents,
    )
    return averaging.repeated(request, spec.hp.evaluations_per_policy)


def draw_targets(spec: Spec, archive: Archive, key: Array) -> Array:
    """Return target descriptors [actor_rollouts, D] for the actor, in task units.

    They are the descriptors of elites drawn from the archive, plus noise.
    """
    cell_key, noise_key = jax.random.split(key)
    drawn = archive.descriptors[archives.sample(archive, cell_key, spec.actor_rollouts)]
    if not spec.actor_rollouts:
        return drawn
    noise = jax.random.normal(noise_key, drawn.shape)
    return drawn + spec.hp.descriptor_noise * jnp.array(spec.problem.ranges)[None] * noise


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add the offspring to the archive and all transitions to the replay buffer.

    Returns the new state and the iteration's metrics.
    """
    rows, times = len(request.policies), spec.hp.evaluations_per_policy
    iteration = state.iteration + 1
    results = averaging.of_policies(evaluation, rows, times, spec.hp.average)
    n = rows // times
    policies, origins = request.policies[:n], request.origins[:n]
    archive, added, rejected, *_ = archives.add(
        state.archive,
        policies,
        **results._asdict(),
        origin=origins,
        iteration=iteration,
        cells=spec.cells,
    )
    if times > 1:  # count every episode
        rejected = averaging.failed(averaging.of_policies(evaluation, rows, 1, spec.hp.average))
    failed = jnp.concatenate([rejected, ~evaluation.valid[rows:]])  # actor rollouts count too
    population = state.population
    if population is not None:
        population = dominated_novelty.survivors(
            population, policies, results, spec.hp.dns_neighbours, spec.problem.weights
        )
    state = state._replace(
        archive=archive,
        iteration=iteration,
        evaluations=state.evaluations + jnp.uint32(rows),
        env_steps=counter.add(state.env_steps, evaluation.steps.sum()),
        rejected=state.rejected + failed.sum().astype(jnp.uint32),
        population=population,
    )
    state = scaling.measured(spec, state, evaluation)
    if spec.learners:
        state = store(spec, state, request, evaluation)
    offset = spec.problem.offset(spec.hp.qd_offset)
    metrics = Metrics.of(state, spec.origins, origins, added, offset)
    return state, metrics._replace(nearer=nearer(spec, request, results))


def nearer(spec: Spec, request: Request, results: Results) -> dict[str, Array]:
    """Return by variation which share of its outward offspring came nearer to their target.

    Outward offspring have another target than their parent's descriptor. They count if they end
    nearer to the target than their parent did. A failed episode does not count. The share is NaN
    in an iteration without outward offspring, such as one whose archive has no empty cell.
    Variations that never have any have no entry.
    """
    if request.parent_descriptors is None:
        return {}
    weights, n = spec.problem.weights, len(results.fitness)
    targets = request.targets[:n]
    before = distances.between(request.parent_descriptors[:n], targets, weights)
    after = distances.between(results.descriptors, targets, weights)
    closer = results.valid & (after < before)
    shares = {}
    for i, part in enumerate(spec.variations, start=1):
        if part.outward:
            outward = (request.origins[:n] == i) & (before > 0)
            count = jnp.sum(outward)
            share = jnp.sum(outward & closer) / jnp.maximum(count, 1)
            shares[part.origin] = jnp.where(count > 0, share, jnp.nan)
    return shares


def store(spec: Spec, state: State, request: Request, evaluation: Evaluation) -> State:
    """Return the state with all transitions added to its replay buffer.

    If they are more than it can hold, a random part of them is added. Each transition is stored
    with two descriptors: the one its episode reached, and the target. If a learner is rewarded for
    novelty, the state descriptors are also added to the novelty memory.
    """
    n, m = len(request.policies), len(request.actor_targets)
    if m and shares_trajectory(spec.problem, spec.main_td3):
        # The one trajectory is stored once for every target.
        rows = jnp.concatenate([jnp.arange(n), jnp.full(m, n)])
        evaluation = take(evaluation, rows)
    stores_target = jnp.array([False, *(v.stores_target for v in spec.variations)])
    by_target = stores_target[request.origins][:, None]
    targets = jnp.where(by_target, request.targets, evaluation.descriptors[:n])
    targets = jnp.concatenate([targets, request.actor_targets])

    steps = evaluation.transitions
    shape, mask = (*steps.mask.shape, spec.problem.descriptor_size), steps.mask.reshape(-1)
    available = steps._asdict() | {
        "descriptor": jnp.broadcast_to(spec.problem.normalise(evaluation.descriptors)[None], shape),
        "target": jnp.broadcast_to(spec.problem.normalise(targets)[None], shape),
    }
    if spec.rewards_progress:
        available["next_state_descriptor"] = next_descriptors(evaluation)
    columns = {name: available[name].reshape(mask.size, -1) for name in spec.layout}
    stored = mask
    if mask.size > spec.hp.replay_size:  # inserting all would keep only the ends of episodes
        stored = replays.thin(mask, spec.hp.replay_size, request.key)
    assert state.replay is not None
    state = state._replace(replay=replays.insert(state.replay, spec.layout, columns, stored))
    if state.memory is not None:
        points = distances.weighted(columns["state_descriptor"], spec.problem.weights)
        memory = novelty.insert_distant(state.memory, points, mask, spec.hp.novelty_threshold)
        state = state._replace(memory=memory)
    return state


def next_descriptors(evaluation: Evaluation) -> Array:
    """Return the descriptors [T, n, D] of the states after each step, in task units.

    After the last step of an episode it is the descriptor of the episode.
    """
    steps = evaluation.transitions
    following = jnp.concatenate([steps.state_descriptor[1:], steps.state_descriptor[:1]])
    goes_on = jnp.concatenate([steps.mask[1:], jnp.zeros_like(steps.mask[:1])])
    return jnp.where(goes_on[..., None], following, evaluation.descriptors[None])
