"""PBT-MAP-Elites: a population of TD3 agents, each with hyperparameters of its own.

An agent is an actor, two critics, the hyperparameters of `Traits` and a replay buffer. The archive
holds the actors, and the state holds critics and traits of each elite beside it.

    train           exploit: the worst agents copy one of the best, the next worst become elites;
                    explore: each of those draws new traits; then every agent takes its TD3 steps
                    on its own replay buffer, and the GA makes offspring of elites
    first round     every agent runs episodes with noise on its actions, for its replay buffer
    second round    agents and offspring are evaluated without noise and compete for their cells

Pierrot and Flajolet (2023) train agents inside of environments that persist. Here they collect
whole episodes, which are used for training in the next iteration. `docs/pbt-and-dns.md` lists all
deviations.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import averaging, counter, normalisation, population
from elites.core import replay as replays
from elites.core.algorithm import Algorithm, Metrics, Round
from elites.core.archive import Archive
from elites.core.cells import Cells
from elites.core.evaluation import evaluate
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.normalisation import Statistics
from elites.core.population import Agents, Counts, Traits, replaced, taken
from elites.core.replay import Layout, Replay
from elites.core.sampling import uniform_index
from elites.core.td3 import TD3, Losses
from elites.core.types import INITIAL, Array, Evaluation, Problem, Request, padded_size

ORIGINS = (INITIAL, "agent", "ga")
_INITIAL, _AGENT, _GA = range(3)  # their numbers


class State(NamedTuple):
    """Complete state of a PBT-MAP-Elites run: training can continue from it."""

    archive: Archive
    elite_critics: Array  # [C, 2, Pc] of the agent in each cell, untrained where there was none
    elite_traits: Traits  # [C]
    agents: Agents  # [N + G] the population, then the GA's offspring of this iteration
    fitness: Array  # [N] of the population, -inf where the evaluation failed
    replay: Replay  # [N, ...] one buffer for each agent
    iteration: Array  # [] int32, -1 before anything was told
    evaluations: Array  # [] uint32
    env_steps: Array  # [2] uint32, see `counter`
    rejected: Array  # [] uint32
    statistics: Statistics | None = None  # of observations, for a run that normalises them


@dataclasses.dataclass(frozen=True)
class Spec:
    """Specification of PBT-MAP-Elites on a problem."""

    problem: Problem
    hp: Hyperparameters
    td3: TD3
    """Learner of all agents. Their traits replace some of its numbers."""

    def __post_init__(self):
        averaging.check(self.problem, self.hp)
        Counts.of(self.hp)  # raises if they do not fit
        problem, hp = self.problem, self.hp
        if hp.pbt_replay_size < hp.td3_batch_size:
            raise ValueError(
                f"pbt_replay_size must be at least td3_batch_size, got {hp.pbt_replay_size} and "
                f"{hp.td3_batch_size}"
            )
        if problem.vectors is not None:
            raise ValueError(
                f"pbt_me learns from the steps of episodes, and task '{problem.name}' has none: "
                "use me or dns"
            )

    @property
    def cells(self) -> Cells:
        return Cells.of(self.problem, self.hp)

    @property
    def policy(self) -> MLP:
        """Network shape of the archive's policies, which are the agents' actors."""
        return self.problem.policy(self.hp.policy_hidden, self.hp.activation)

    @property
    def candidates(self) -> int:
        """Number of policies that are evaluated in an iteration: agents and offspring."""
        return self.hp.pbt_population + self.hp.pbt_offspring

    @property
    def episodes(self) -> int:
        """Number of episodes in which the candidates of an iteration are evaluated."""
        return self.hp.evaluations_per_policy * self.candidates

    @property
    def layout(self) -> Layout:
        """Width of each column of a replay buffer, by name."""
        return replays.transition_layout(self.problem.observation_size, self.problem.action_size)


def algorithm(spec: Spec) -> Algorithm[State]:
    """Return the `Algorithm` that a PBT-MAP-Elites specification describes."""
    bind, hp = functools.partial, spec.hp
    noisy_episodes = hp.pbt_population * hp.pbt_episodes
    return Algorithm(
        name="pbt_me", problem=spec.problem, policy=spec.policy, cells=spec.cells.count,
        origins=ORIGINS, offspring={"agent": hp.pbt_population, "ga": hp.pbt_offspring},
        batch=spec.episodes,
        actor_rollouts=0, padded_batch=padded_size(spec.episodes), main_td3=spec.td3,
        replay_layout=spec.layout, hp=hp,
        init=bind(init, spec), first=bind(first, spec), train=bind(train, spec),
        rounds=(
            Round(bind(ask_noisy, spec), bind(tell_noisy, spec), noisy_episodes),
            Round(bind(ask, spec), bind(tell, spec), spec.episodes),
        ),
        evaluate=bind(evaluate, spec.problem, spec.policy, spec.td3),
        actor=lambda state: None,
        repeats=hp.evaluations_per_policy,
    )  # fmt: skip


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with random agents, an empty archive and empty replay buffers."""
    agents = population.draw(spec.td3, spec.hp, jax.random.split(key)[0], spec.candidates)
    n, cells = spec.hp.pbt_population, centroids.shape[0]
    elites = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], (cells, *a.shape[1:])), agents)
    buffer = replays.empty(spec.layout, spec.hp.pbt_replay_size)
    zero, seen = jnp.zeros((), jnp.uint32), spec.problem.observation_size
    return State(
        archive=archives.empty(centroids, spec.policy.size),
        elite_critics=elites.critics, elite_traits=elites.traits, agents=agents,
        fitness=jnp.full(n, -jnp.inf, jnp.float32),
        replay=jax.tree.map(lambda a: jnp.broadcast_to(a[None], (n, *a.shape)), buffer),
        iteration=jnp.full((), -1, jnp.int32), evaluations=zero, env_steps=counter.zero(),
        rejected=zero,
        statistics=normalisation.none_yet(seen) if spec.hp.normalise_observations else None,
    )  # fmt: skip


def first(spec: Spec, state: State, key: Array) -> Request:
    """Return the request that evaluates the random agents of the start."""
    origins = jnp.full(spec.candidates, _INITIAL, jnp.int32)
    return candidates_request(spec, state, origins, jax.random.split(key)[1])


# ------------------------------------------------------------------------------------------- train


class Keys(NamedTuple):
    """Random keys of the parts of an iteration, derived from the iteration's key."""

    exploit: Array
    steps: Array
    offspring: Array
    noisy: Array  # of the rollouts with noise
    evaluation: Array  # of the rollouts without

    @classmethod
    def of(cls, key: Array) -> Keys:
        return cls(*jax.random.split(key, 5))


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Exploit, explore, train all agents, and make the GA's offspring.

    Returns the new state and the losses, which are means over the agents.
    """
    keys = Keys.of(key)
    agents, replay = exploit(spec, state, keys.exploit)
    one = functools.partial(population.train, spec.td3, spec.layout, state.statistics)
    agents, losses = jax.vmap(one)(agents, replay, jax.random.split(keys.steps, len(agents.actors)))
    children = offspring(spec, state, keys.offspring)
    agents = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), agents, children)
    state = state._replace(agents=agents, replay=replay)
    return state, {"agents": jax.tree.map(jnp.mean, losses)}


def exploit(spec: Spec, state: State, key: Array) -> tuple[Agents, Replay]:
    """Replace the worst agents. Returns the population [N] and its replay buffers.

    The worst agents copy one of the best, with its replay buffer. The next worst become random
    elites, and keep their own replay buffer. All of those get new traits.
    """
    best_key, cell_key, trait_key = jax.random.split(key, 3)
    n, none = spec.hp.pbt_population, ~archives.filled(state.archive).any()
    counts = Counts.of(spec.hp)
    order = jnp.argsort(-state.fitness)  # the fittest first
    rows = order[n - counts.copying - counts.drawing :]
    drawing, copying = rows[: counts.drawing], rows[counts.drawing :]
    chosen = order[uniform_index(best_key, copying.shape, jnp.int32(counts.best))]
    source = jnp.arange(n).at[copying].set(chosen)
    agents, replay = taken((taken(state.agents, jnp.arange(n)), state.replay), source)
    cells = archives.sample(state.archive, cell_key, counts.drawing)
    # Without any elite, agents go on as they are.
    agents = replaced(agents, jnp.where(none, n, drawing), elites(state, cells))
    traits = population.draw_traits(spec.hp, trait_key, len(rows))
    return agents._replace(traits=replaced(agents.traits, rows, traits)), replay


def elites(state: State, cells: Array) -> Agents:
    """Return the agents of the elites in `cells` [k]."""
    table = Agents(state.archive.policies, state.elite_critics, state.elite_traits)
    return taken(table, cells)


def offspring(spec: Spec, state: State, key: Array) -> Agents:
    """Return the offspring [G] of the GA, each of two random elites."""
    first_key, second_key, noise_key = jax.random.split(key, 3)
    first, second = (
        elites(state, archives.sample(state.archive, each, spec.hp.pbt_offspring))
        for each in (first_key, second_key)
    )
    return population.vary(spec.td3, spec.hp, state.statistics, first, second, noise_key)


# ------------------------------------------------------------------------------------ ask and tell


def ask_noisy(spec: Spec, state: State, key: Array) -> Request:
    """Return a request for `pbt_episodes` noisy episodes of each agent of the population."""
    n, times = spec.hp.pbt_population, spec.hp.pbt_episodes
    size = spec.problem.descriptor_size
    return Request(
        policies=jnp.tile(state.agents.actors[:n], (times, 1)),
        origins=jnp.full(times * n, _AGENT, jnp.int32),
        targets=jnp.zeros((times * n, size)),
        actor=None,
        actor_targets=jnp.zeros((0, size)),
        key=Keys.of(key).noisy,
        action_noise=jnp.tile(state.agents.traits.exploration[:n], times),
    )


def tell_noisy(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, None]:
    """Return the state with the episodes in the replay buffers, and None in place of metrics."""
    state = counted(state, evaluation, ~evaluation.valid)
    return store(spec, state, request, evaluation, spec.hp.pbt_population), None


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Return the request that evaluates the agents and the offspring of an iteration."""
    origins = jnp.where(jnp.arange(spec.candidates) < spec.hp.pbt_population, _AGENT, _GA)
    return candidates_request(spec, state, origins.astype(jnp.int32), Keys.of(key).evaluation)


def candidates_request(spec: Spec, state: State, origins: Array, key: Array) -> Request:
    """Return a request for all agents of the state, `evaluations_per_policy` times each."""
    size = spec.problem.descriptor_size
    request = Request(
        policies=state.agents.actors,
        origins=origins,
        targets=jnp.zeros((spec.candidates, size)),
        actor=None,
        actor_targets=jnp.zeros((0, size)),
        key=key,
    )
    return averaging.repeated(request, spec.hp.evaluations_per_policy)


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add agents and offspring to the archive, and the agents' episodes to their replay buffers.

    Returns the new state and the iteration's metrics.
    """
    times, average = spec.hp.evaluations_per_policy, spec.hp.average
    results = averaging.of_policies(evaluation, spec.episodes, times, average)
    origins, iteration = request.origins[: spec.candidates], state.iteration + 1
    addition = archives.add(
        state.archive, state.agents.actors, **results._asdict(), origin=origins,
        iteration=iteration, cells=spec.cells,
    )  # fmt: skip
    # A cell gets at most one new elite, so no two rows are written to the same place.
    cell = spec.cells.index(state.archive.centroids, results.descriptors)
    place = jnp.where(addition.added, cell, spec.cells.count)
    critics = replaced(state.elite_critics, place, state.agents.critics)
    traits = replaced(state.elite_traits, place, state.agents.traits)
    n = spec.hp.pbt_population
    state = state._replace(
        archive=addition.archive,
        elite_critics=critics,
        elite_traits=traits,
        fitness=jnp.where(addition.rejected, -jnp.inf, results.fitness)[:n],
        iteration=iteration,
    )
    episodes = averaging.of_policies(evaluation, spec.episodes, 1, average)
    state = counted(state, evaluation, averaging.failed(episodes))
    state = store(spec, state, request, evaluation, spec.candidates)
    offset = spec.problem.offset(spec.hp.qd_offset)
    return state, Metrics.of(state, ORIGINS, origins, addition.added, offset)


def counted(state: State, evaluation: Evaluation, failed: Array) -> State:
    """Return the state with the evaluations, steps and failures of a request counted."""
    return state._replace(
        evaluations=state.evaluations + jnp.uint32(len(evaluation.fitness)),
        env_steps=counter.add(state.env_steps, evaluation.steps.sum()),
        rejected=state.rejected + failed.sum().astype(jnp.uint32),
        statistics=normalisation.updated(state.statistics, evaluation),
    )


def store(spec: Spec, state: State, request: Request, evaluation: Evaluation, stride: int) -> State:
    """Return the state with each agent's transitions added to its replay buffer.

    The rows of the evaluation are `stride` policies, repeatedly. The first N of them are the
    agents. If an agent has more transitions than its buffer can hold, a random part is added.
    """
    n = spec.hp.pbt_population

    def of_agents(part: Array) -> Array:  # [T, rows, ...] -> [N, T * episodes, ...]
        part = part.reshape(part.shape[0], -1, stride, *part.shape[2:])[:, :, :n]
        return jnp.moveaxis(part, 2, 0).reshape(n, -1, *part.shape[3:])

    steps = jax.tree.map(of_agents, evaluation.transitions)._asdict()
    mask = steps["mask"]
    if mask.shape[1] > spec.hp.pbt_replay_size:
        mask = replays.thin(mask, n * spec.hp.pbt_replay_size, request.key)
    columns = {name: steps[name] for name in spec.layout}

    def insert(replay: Replay, columns: dict[str, Array], mask: Array) -> Replay:
        return replays.insert(replay, spec.layout, columns, mask)

    return state._replace(replay=jax.vmap(insert)(state.replay, columns, mask))
