"""MAP-Elites-ES: an evolution strategy that continues from one elite after another.

    train           every `generations`: draw a parent from the archive, reset Adam, switch mode
    first round     perturb the parent; score the copies by fitness (exploit) or by novelty
                    (explore); step along the estimated gradient to the offspring
    second round    evaluate the offspring and add it; it is the next parent

Explore comes first. A parent for exploring is drawn from the 5 most novel cells. A parent for
exploiting is drawn half the time from the 2 fittest cells, otherwise from the 2 fittest of the 5
that improved last.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.core import archive as archives
from elites.core import counter, distances, es, networks, normalisation, novelty
from elites.core.algorithm import Algorithm, Metrics, Round
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.evaluation import evaluate, take
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.normalisation import Statistics
from elites.core.novelty import Memory
from elites.core.td3 import Losses
from elites.core.types import INITIAL, Array, Evaluation, Problem, Request, padded_size

_MOST_NOVEL, _FITTEST, _LAST_IMPROVED = 5, 2, 5
ORIGINS = (INITIAL, "explore", "exploit")
_INITIAL, _EXPLORE, _EXPLOIT = range(3)  # their numbers


class State(NamedTuple):
    """Complete state of a MAP-Elites-ES run: training can continue from it."""

    archive: Archive
    parent: Array  # [P]
    moments: optax.OptState  # of Adam, for this parent
    memory: Memory  # descriptors of past offspring
    iteration: Array  # [] int32, -1 before anything was told
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    statistics: Statistics | None = None  # of observations, for a run that normalises them


@dataclasses.dataclass(frozen=True)
class Spec:
    """Specification of MAP-Elites-ES on a problem."""

    problem: Problem
    hp: Hyperparameters

    def __post_init__(self):
        if self.hp.evaluations_per_policy > 1:
            raise ValueError(
                f"me_es averages the episodes of an offspring by itself: use es_repeats instead of "
                f"evaluations_per_policy, which is {self.hp.evaluations_per_policy}"
            )

    @property
    def cells(self) -> Cells:
        return Cells.of(self.problem, self.hp)

    @property
    def policy(self) -> MLP:
        return self.problem.policy(self.hp.policy_hidden, self.hp.activation)

    @property
    def repeats(self) -> int:
        """Number of episodes over which the results of an offspring are averaged."""
        return 1 if self.problem.deterministic else self.hp.es_repeats

    @property
    def batch(self) -> int:
        """Number of rows of the request that evaluates an offspring, including padding.

        Re-evaluation fills the same rows with elites. The same compiled program then evaluates them
        and reproduces their results exactly.
        """
        return padded_size(self.repeats)


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return the `Algorithm` that a MAP-Elites-ES specification describes."""
    bind, observes = functools.partial, spec.hp.normalise_observations
    return Algorithm(
        name="me_es", problem=spec.problem, policy=spec.policy, cells=spec.cells.count,
        origins=ORIGINS, offspring={"explore or exploit": 1}, batch=spec.batch, actor_rollouts=0,
        padded_batch=spec.batch, main_td3=None, replay_layout=None, hp=spec.hp,
        init=bind(init, spec), first=bind(first, spec), train=bind(choose_parent, spec),
        rounds=(
            Round(bind(ask_copies, spec), bind(tell_copies, spec), spec.hp.es_samples),
            Round(bind(ask_offspring, spec), bind(tell_offspring, spec), spec.repeats),
        ),
        evaluate=bind(evaluate, spec.problem, spec.policy, None, observes=observes),
        actor=lambda state: None,
    )  # fmt: skip


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return an initial state with a random parent and an empty archive."""
    parent = networks.init(spec.policy, jax.random.split(key)[0])
    if spec.problem.vectors is not None:
        parent = jnp.array(spec.problem.vectors.start)
    zero, seen = jnp.zeros((), jnp.uint32), spec.problem.observation_size
    return State(
        archive=archives.empty(centroids, spec.policy.size),
        parent=parent,
        moments=optax.adam(spec.hp.es_learning_rate).init(parent),
        memory=novelty.empty(spec.hp.es_memory, spec.problem.descriptor_size),
        iteration=jnp.full((), -1, jnp.int32), evaluations=zero, env_steps=counter.zero(),
        rejected=zero,
        statistics=normalisation.none_yet(seen) if spec.hp.normalise_observations else None,
    )  # fmt: skip


def first(spec: Spec, state: State, key: Array) -> Request:
    """Return the request that evaluates the random initial parent."""
    return offspring_request(spec, state, jnp.int32(_INITIAL), jax.random.split(key)[1])


class Keys(NamedTuple):
    """Random keys of the parts of an iteration, derived from the iteration's key."""

    parent: Array
    noise: Array
    copies: Array  # of their rollouts
    offspring: Array  # of its rollouts


def split(key: Array) -> Keys:
    """Return the random keys of the parts of an iteration, derived from the iteration's key."""
    ask_key, copies_key, offspring_key = jax.random.split(key, 3)
    parent_key, noise_key = jax.random.split(ask_key)
    return Keys(parent_key, noise_key, copies_key, offspring_key)


# ----------------------------------------------------------------------------------------- parents


def choose_parent(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Replace the parent with an elite from the archive, once every `es_generations` iterations.

    Returns the new state and an empty dictionary in place of losses. A new parent starts without
    momentum. In all other iterations, the state is returned unchanged.
    """
    due = (state.iteration % spec.hp.es_generations == 0) & (state.iteration > 0)
    due &= archives.filled(state.archive).any()  # without any elite, keep the parent
    drawn = state.archive.policies[draw_parent(spec, state, split(key).parent)]
    parent = jnp.where(due, drawn, state.parent)
    moments = jax.tree.map(
        lambda fresh, old: jnp.where(due, fresh, old),
        optax.adam(spec.hp.es_learning_rate).init(parent),
        state.moments,
    )
    return state._replace(parent=parent, moments=moments), {}


def exploring(spec: Spec, state: State) -> Array:
    """Return a scalar boolean: whether the search currently follows novelty instead of fitness."""
    return (state.iteration // spec.hp.es_generations) % 2 == 0


def distance_to_memory(spec: Spec, state: State, descriptors: Array) -> Array:
    """Return the novelty [n] of n descriptors [n, D].

    It is the mean distance to the nearest descriptors of past offspring.
    """
    points = distances.weighted(descriptors, spec.problem.weights)
    return novelty.mean_distance(state.memory, points, spec.hp.es_neighbours, squared=False)


def draw_parent(spec: Spec, state: State, key: Array) -> Array:
    """Return the index, a scalar, of the cell whose elite becomes the next parent.

    It is drawn from the most novel cells when exploring, otherwise from the fittest. If fewer cells
    are filled than the draw considers, it is drawn from all filled cells.
    """
    archive = state.archive
    full = archives.filled(archive)
    pick_key, coin_key = jax.random.split(key)

    def one_of_best(score: Array, count: int, among: Array) -> Array:
        best = jax.lax.top_k(jnp.where(among, score, -jnp.inf), min(count, spec.hp.cell_count))[1]
        available = jnp.minimum(among.sum(), count)
        return best[jax.random.randint(pick_key, (), 0, jnp.maximum(available, 1))]

    cell_novelty = distance_to_memory(spec, state, archive.descriptors)
    youngest = min(_LAST_IMPROVED, spec.hp.cell_count)
    by_age = jax.lax.top_k(jnp.where(full, archive.born, -2), youngest)[1]
    recent = full & jnp.zeros(spec.hp.cell_count, bool).at[by_age].set(True)
    fittest = jnp.where(
        jax.random.bernoulli(coin_key),
        one_of_best(archive.fitness, _FITTEST, full),
        one_of_best(archive.fitness, _FITTEST, recent),
    )
    most_novel = one_of_best(cell_novelty, _MOST_NOVEL, full)
    return jnp.where(exploring(spec, state), most_novel, fittest)


# ------------------------------------------------------------------------------ first round: copies


def ask_copies(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for copies of the parent with random perturbations, in mirrored pairs.

    In a run that normalises observations, the parameters of the policy of normalised observations
    are perturbed.
    """
    keys = split(key)
    noise = es.noise(keys.noise, spec.hp.es_samples // 2, spec.policy.size)
    parent = normalisation.to_normalised(spec.policy, state.parent[None], state.statistics)[0]
    copies = es.population(parent, noise, spec.hp.es_sigma)
    copies = normalisation.to_raw(spec.policy, copies, state.statistics)
    origin = jnp.int32(_INITIAL)  # copies are not archived, so none carries it
    return request(spec, copies, origin, keys.copies, noise)


def tell_copies(
    spec: Spec, state: State, request: Request, copies: Evaluation
) -> tuple[State, None]:
    """Return the state with the offspring in place of its parent, and None in place of metrics.

    The offspring is the parent after one Adam step along the gradient that the results of the
    copies estimate.
    """
    distance = distance_to_memory(spec, state, copies.descriptors)
    score = jnp.where(exploring(spec, state), distance, copies.fitness)
    # A failed copy ranks last in both modes, whatever else was reported about it.
    finite = jnp.isfinite(copies.fitness) & jnp.isfinite(copies.descriptors).all(-1)
    failed = ~(copies.valid & finite)
    ranks = es.centred_ranks(jnp.where(failed, -jnp.inf, score))
    assert request.noise is not None
    # The statistics are those that the copies were made with. They are updated afterwards.
    before = normalisation.to_normalised(spec.policy, state.parent[None], state.statistics)[0]
    descent = -es.gradient(ranks, request.noise, spec.hp.es_sigma) + spec.hp.es_l2 * before
    parent, moments = networks.descend(before, descent, state.moments, spec.hp.es_learning_rate)
    return state._replace(
        parent=normalisation.to_raw(spec.policy, parent[None], state.statistics)[0],
        moments=moments,
        statistics=normalisation.updated(state.statistics, copies),
        evaluations=state.evaluations + jnp.uint32(spec.hp.es_samples),
        env_steps=counter.add(state.env_steps, copies.steps.sum()),
        rejected=state.rejected + failed.sum().astype(jnp.uint32),
    ), None


# ------------------------------------------------------------------------- second round: offspring


def ask_offspring(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for the offspring, which `tell_copies` has stored as the state's parent."""
    origin = jnp.where(exploring(spec, state), _EXPLORE, _EXPLOIT)
    return offspring_request(spec, state, origin, split(key).offspring)


def tell_offspring(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add the offspring to the archive. Returns the new state and the iteration's metrics.

    Its fitness and descriptor are averages over its `spec.repeats` episodes. Further rows of the
    evaluation are padding.
    """
    average = jnp.mean if spec.hp.average == "mean" else jnp.median
    episodes = take(evaluation, jnp.arange(spec.repeats))
    fitness = average(episodes.fitness, 0)[None]
    descriptors = average(episodes.descriptors, 0)[None]
    valid = episodes.valid.all(0)[None]
    iteration, origin = state.iteration + 1, request.origins[:1]
    archive, added, rejected, *_ = archives.add(
        state.archive, state.parent[None], fitness, descriptors, valid, origin,
        iteration, spec.cells,
    )  # fmt: skip
    state = state._replace(
        archive=archive,
        memory=novelty.append(
            state.memory, distances.weighted(descriptors, spec.problem.weights), ~rejected
        ),
        iteration=iteration,
        evaluations=state.evaluations + jnp.uint32(spec.repeats),
        env_steps=counter.add(state.env_steps, episodes.steps.sum()),
        rejected=state.rejected + rejected.sum().astype(jnp.uint32),
        statistics=normalisation.updated(state.statistics, episodes),
    )
    offset = spec.problem.offset(spec.hp.qd_offset)
    return state, Metrics.of(state, ORIGINS, origin, added, offset)


def offspring_request(spec: Spec, state: State, origin: Array, key: Array) -> Request:
    """Return a request that evaluates the state's parent in all `spec.batch` rows."""
    return request(spec, jnp.tile(state.parent, (spec.batch, 1)), origin, key)


def request(
    spec: Spec, policies: Array, origin: Array, key: Array, noise: Array | None = None
) -> Request:
    """Return a request for policies [n, P] that all have the same origin."""
    n, size = len(policies), spec.problem.descriptor_size
    return Request(
        policies=policies,
        origins=jnp.broadcast_to(origin.astype(jnp.int32), n),
        targets=jnp.zeros((n, size)),
        actor=None,
        actor_targets=jnp.zeros((0, size)),
        key=key,
        noise=noise,
    )
