"""MAP-Elites-ES: an evolution strategy walks from elite to elite.

    every `generations`:  draw a parent from the archive, forget momentum, switch the mode
    perturb the parent;  score the copies by fitness (exploit) or novelty (explore)
    step along the estimated gradient;  evaluate the offspring, add it;  it is the next parent

Explore comes first. A parent for exploring is drawn from the 5 most novel cells; one for exploiting
half the time from the 2 fittest cells, else from the 2 fittest of the 5 that improved last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.core import archive as archives
from elites.core import es, networks, novelty
from elites.core.archive import Archive
from elites.core.map_elites import (
    INITIAL,
    Algorithm,
    Metrics,
    Outside,
    Pause,
    Phase,
    Revisit,
    Wanted,
    without_transitions,
)
from elites.core.networks import MLP
from elites.core.novelty import Memory
from elites.core.problem import Array, Evaluation, Problem, evaluation_shape

_EXPLORE, _EXPLOIT = 0, 1
_MOST_NOVEL, _FITTEST, _LAST_IMPROVED = 5, 2, 5


class State(NamedTuple):
    archive: Archive
    parent: Array  # [P]
    moments: Any  # of Adam, for this parent
    memory: Memory  # descriptors of all past offspring
    iteration: Array
    evaluations: Array
    env_steps: Array
    rejected: Array


class Proposal(NamedTuple):
    """What a generation asks to evaluate first: perturbed copies of the (possibly new) parent."""

    copies: Array  # [samples, P]
    noise: Array  # [samples / 2, P]
    parent: Array  # [P]
    moments: Any


def build(
    problem: Problem,
    policy: MLP,
    *,
    cells: int,
    samples: int,
    sigma: float,
    rate: float,
    l2: float,
    generations: int,
    neighbours: int,
    memory_size: int,
    repeats: int,
) -> Algorithm:
    adam = optax.adam(rate)
    repeats = 1 if problem.deterministic else repeats
    offspring_lanes = evaluation_shape(repeats)

    def evaluate(wanted: Wanted, key: Array) -> tuple[Evaluation, Evaluation]:
        count = wanted.policies.shape[0]
        lanes = evaluation_shape(count)
        layers = networks.unflatten(
            policy, wanted.policies[jnp.minimum(jnp.arange(lanes), count - 1)]
        )
        evaluation = without_transitions(
            problem.rollout(
                lambda observation: networks.apply_each(policy, layers, observation),
                jax.random.split(key, lanes),
            )
        )
        return evaluation, evaluation

    def first(evaluation: Evaluation, count: int) -> tuple[Array, Array, Array]:
        """Fitness, descriptors and validity, without padding."""
        return evaluation.fitness[:count], evaluation.descriptors[:count], evaluation.valid[:count]

    def want(policies: Array) -> Wanted:
        return Wanted(policies, None, jnp.zeros((0, problem.descriptor_size)))

    def offspring_mean(fitness: Array, descriptors: Array, valid: Array):
        """One result from the repeated evaluations of an offspring."""
        return fitness.mean(0)[None], descriptors.mean(0)[None], valid.all(0)[None]

    def enter(state: State, policy_vector: Array, fitness, descriptors, valid, origin: Array):
        archive, added, rejected = archives.add(
            state.archive, policy_vector[None], fitness, descriptors, valid, origin[None],
            state.iteration,
        )  # fmt: skip
        memory = novelty.append(state.memory, descriptors, ~rejected)
        spoilt = state.rejected + rejected.sum().astype(jnp.uint32)
        return state._replace(archive=archive, memory=memory, rejected=spoilt), added[0]

    def blank(key: Array, centroids: Array) -> State:
        parent = networks.init(policy, key)
        return State(
            archive=archives.empty(centroids, policy.size),
            parent=parent,
            moments=adam.init(parent),
            memory=novelty.empty(memory_size, problem.descriptor_size),
            iteration=jnp.zeros((), jnp.int32),
            evaluations=jnp.zeros((), jnp.uint32),
            env_steps=jnp.zeros((), jnp.uint32),
            rejected=jnp.zeros((), jnp.uint32),
        )

    def welcome(state: State, fitness, descriptors, valid) -> State:
        """Archive the one policy that a run starts with."""
        result = offspring_mean(fitness, descriptors, valid)
        state, _ = enter(state, state.parent, *result, jnp.int32(0))
        return state._replace(evaluations=state.evaluations + jnp.uint32(repeats))

    def copies_of_parent(state: State) -> Array:
        return jnp.tile(state.parent, (repeats, 1))

    def parent_in_all_lanes(state: State) -> Wanted:
        """In the shape in which an archive is evaluated again."""
        return want(jnp.tile(state.parent, (offspring_lanes, 1)))

    def begin(key: Array, centroids: Array) -> Pause:
        blank_key, rollout_key = jax.random.split(key)
        state = blank(blank_key, centroids)
        return Pause(state, (), parent_in_all_lanes(state), rollout_key)

    def archive_first(state: State, memo, results) -> State:
        own, _ = results
        state = welcome(state, *first(own, repeats))
        return state._replace(env_steps=own.steps[:repeats].sum().astype(jnp.uint32))

    def exploring(generation: Array) -> Array:
        return (generation // generations) % 2 == _EXPLORE

    def draw_parent(state: State, explore: Array, key: Array) -> Array:
        """A cell to go on from. With few filled cells, the best of those there are."""
        archive = state.archive
        full = archives.filled(archive)
        pick_key, coin_key = jax.random.split(key)

        def one_of_best(score: Array, count: int, among: Array) -> Array:
            best = jax.lax.top_k(jnp.where(among, score, -jnp.inf), min(count, cells))[1]
            available = jnp.minimum(among.sum(), count)
            return best[jax.random.randint(pick_key, (), 0, jnp.maximum(available, 1))]

        cell_novelty = novelty.mean_distance(
            state.memory, archive.descriptors, neighbours, squared=False
        )
        by_age = jax.lax.top_k(jnp.where(full, archive.born, -2), min(_LAST_IMPROVED, cells))[1]
        recent = full & jnp.zeros(cells, bool).at[by_age].set(True)
        fittest = jnp.where(
            jax.random.bernoulli(coin_key),
            one_of_best(archive.fitness, _FITTEST, full),
            one_of_best(archive.fitness, _FITTEST, recent),
        )
        return jnp.where(explore, one_of_best(cell_novelty, _MOST_NOVEL, full), fittest)

    def ask(state: State, key: Array) -> Proposal:
        parent_key, noise_key = jax.random.split(key)
        turn = (state.iteration % generations == 0) & (state.iteration > 0)
        turn &= archives.filled(state.archive).any()  # without any elite, the parent goes on
        cell = draw_parent(state, exploring(state.iteration), parent_key)
        drawn = state.archive.policies[cell]
        parent = jnp.where(turn, drawn, state.parent)
        moments = jax.tree.map(
            lambda fresh, old: jnp.where(turn, fresh, old), adam.init(parent), state.moments
        )
        noise = es.noise(noise_key, samples // 2, policy.size)
        return Proposal(es.population(parent, noise, sigma), noise, parent, moments)

    def improve(state: State, proposal: Proposal, fitness, descriptors, valid) -> State:
        """Follow the gradient of fitness or novelty: the state whose parent is the offspring."""
        fresh = novelty.mean_distance(state.memory, descriptors, neighbours, squared=False)
        score = jnp.where(exploring(state.iteration), fresh, fitness)
        # A failed copy ranks last in both modes, whatever else was reported of it.
        told = valid & jnp.isfinite(fitness) & jnp.isfinite(descriptors).all(-1)
        ranks = es.centred_ranks(jnp.where(told, score, -jnp.inf))
        descent = -es.gradient(ranks, proposal.noise, sigma) + l2 * proposal.parent
        parent, moments = networks.descend(proposal.parent, descent, proposal.moments, rate)
        return state._replace(
            parent=parent,
            moments=moments,
            evaluations=state.evaluations + jnp.uint32(samples),
            rejected=state.rejected + (~valid).sum().astype(jnp.uint32),
        )

    def conclude(state: State, fitness, descriptors, valid) -> tuple[State, Metrics]:
        """Add the offspring, `state.parent`, from its evaluations [repeats]."""
        origin = jnp.where(exploring(state.iteration), 1, 2)
        explored = exploring(state.iteration)
        state = state._replace(
            iteration=state.iteration + 1, evaluations=state.evaluations + jnp.uint32(repeats)
        )
        result = offspring_mean(fitness, descriptors, valid)
        state, added = enter(state, state.parent, *result, origin)
        metrics = Metrics(
            **archives.summary(state.archive)._asdict(),
            evaluations=state.evaluations,
            env_steps=state.env_steps,
            added={"explore": (added & explored).sum(), "exploit": (added & ~explored).sum()},
            rejected=state.rejected,
            critic_loss={},
            actor_loss={},
        )
        return state, metrics

    def advance(state: State, key: Array) -> Pause:
        ask_key, copies_key, offspring_key = jax.random.split(key, 3)
        proposal = ask(state, ask_key)
        return Pause(state, (proposal, offspring_key), want(proposal.copies), copies_key)

    def follow(state: State, memo, results) -> Pause:
        proposal, offspring_key = memo
        copies, _ = results
        state = improve(state, proposal, *first(copies, samples))
        spent = copies.steps[:samples].sum().astype(jnp.uint32)
        state = state._replace(env_steps=state.env_steps + spent)
        return Pause(state, (), parent_in_all_lanes(state), offspring_key)

    def complete(state: State, memo, results) -> tuple[State, Metrics]:
        own, _ = results
        spent = own.steps[:repeats].sum().astype(jnp.uint32)
        state = state._replace(env_steps=state.env_steps + spent)
        return conclude(state, *first(own, repeats))

    def revisit(archive: Archive, actor: Array | None, index: Array) -> Wanted:
        del actor  # it has none
        return want(archive.policies[index])

    return Algorithm(
        name="me_es",
        problem=problem,
        policy=policy,
        cells=cells,
        origins=(INITIAL, "explore", "exploit"),
        offspring={"explore or exploit": 1},
        initial_evaluations=repeats,
        evaluations_per_iteration=samples + repeats,
        evaluation_shape=offspring_lanes,
        evaluate=evaluate,
        starting=(begin, archive_first),
        stepping=(advance, follow, complete),
        reach=Revisit(offspring_lanes, revisit, None, conditioned=False),
        outside=Outside(
            blank,
            first=Phase(
                lambda state, key: (copies_of_parent(state), ()),
                lambda state, _, *results: (welcome(state, *results), None),
            ),
            cycle=(
                Phase(
                    lambda state, key: ((proposal := ask(state, key)).copies, proposal),
                    lambda state, proposal, *results: (improve(state, proposal, *results), None),
                ),
                Phase(
                    lambda state, key: (copies_of_parent(state), ()),
                    lambda state, _, *results: conclude(state, *results),
                ),
            ),
        ),
    )
