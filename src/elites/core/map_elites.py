"""The one iteration that every algorithm but MAP-Elites-ES shares (the paper's algorithm 3).

    train       each learner takes its gradient steps on the replay buffer
    vary        each variation selects its parents from the archive and makes its offspring
    evaluate    offspring, and beside them the conditioned actor at descriptors of the archive
    add         offspring compete for their cells
    store       transitions join the replay buffer, with the descriptor reached and the one asked

An algorithm is a composition: its learners by name, its variations with their counts, and the few
choices of `compose`. `algorithms.py` is the table of compositions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import networks, novelty, td3
from elites.core import replay as replays
from elites.core.archive import Archive
from elites.core.networks import MLP
from elites.core.novelty import Memory
from elites.core.problem import (
    Array,
    Evaluation,
    Problem,
    Transitions,
    evaluation_shape,
    normalise,
)
from elites.core.replay import Replay
from elites.core.td3 import TD3, TD3State

INITIAL = "initial"  # origin of the random policies an archive starts with


class State(NamedTuple):
    """Everything a run is: enough to go on from."""

    archive: Archive
    replay: Replay | None
    learners: dict[str, TD3State]
    memory: Memory | None  # state descriptors, where novelty is a reward
    iteration: Array  # [] int32
    evaluations: Array  # [] uint32
    env_steps: Array  # [] uint32
    rejected: Array  # [] uint32


class Metrics(NamedTuple):
    """Of one iteration. Dictionaries are keyed by name: origins, learners."""

    qd_score: Array
    coverage: Array
    max_fitness: Array
    evaluations: Array  # since the start: offspring, as the paper counts its budget
    env_steps: Array  # since the start: every step of every rollout, actor rollouts included
    added: dict[str, Array]  # by the variation that made them
    rejected: Array  # since the start: rollouts that diverged or gave a non-finite result
    critic_loss: dict[str, Array]
    actor_loss: dict[str, Array]


class Offspring(NamedTuple):
    policies: Array  # [n, P]
    targets: Array  # [n, D] what each was asked to reach, in task units


@dataclasses.dataclass(frozen=True)
class Variation:
    """A source of offspring, `make(state, key)`, under the name that its elites carry."""

    origin: str
    count: int
    make: Callable[[State, Array], Offspring]
    judged_by_target: bool = False
    """Store its transitions as asked for their target; else for what they reached."""


@dataclasses.dataclass(frozen=True)
class Learner:
    td3: TD3
    reward: Callable[[State, Array], Array] | None = None
    """(state, replay rows) -> rewards, where a learner has a reward of its own."""


class Phase(NamedTuple):
    """Policies to evaluate, and what to do with the results."""

    ask: Callable[[Any, Array], tuple[Array, Any]]
    """(state, key) -> policies [n, P], and what `tell` needs to remember"""
    tell: Callable[..., tuple[Any, Any]]
    """(state, remembered, fitness [n], descriptors [n, D], valid [n]) -> state, metrics or None"""


class Wanted(NamedTuple):
    """What to evaluate together: policies, and beside them the actor at descriptors."""

    policies: Array  # [n, P]
    actor: Array | None  # [Pa]
    targets: Array  # [m, D] asked of the actor, in task units


class Pause(NamedTuple):
    """A computation that waits for rollouts, or is cut in two for the compiler's sake."""

    state: Any
    memo: Any
    """What else the next part needs."""
    wanted: Wanted | None
    """None where there is nothing to wait for."""
    key: Array


Parts = tuple[Callable[..., Any], ...]
"""A computation in parts, with rollouts between them: each part but the last returns a `Pause`."""


def run_parts(parts: Parts, evaluate: Callable[[Wanted, Array], Any], *arguments: Any) -> Any:
    """Run a computation: its first part on the arguments, the others on (state, memo, results).

    The parts are pure, so the whole is; compiled one by one, all rollouts of a run are done by one
    and the same executable, and to the same bits.
    """
    pause = parts[0](*arguments)
    for part in parts[1:]:
        results = None if pause.wanted is None else evaluate(pause.wanted, pause.key)
        pause = part(pause.state, pause.memo, results)
    return pause


class Outside(NamedTuple):
    """An algorithm whose evaluations happen elsewhere: `first` once, then the `cycle` for ever."""

    blank: Callable[[Array, Array], Any]
    """(key, centroids) -> a state before any evaluation"""
    first: Phase
    cycle: tuple[Phase, ...]


class Reach(NamedTuple):
    """Archive and actor re-evaluated, on demand. Errors are means over the filled cells.

    A rollout that diverges counts as no fitness and is left out of the error.
    """

    fitness: Array  # [C] of each elite, NaN where a cell is empty or its rollout diverged
    descriptors: Array  # [C, D]
    qd_score: Array
    descriptor_error: Array
    actor_fitness: Array  # [C] of the actor asked for each elite's descriptor; NaN without one
    actor_descriptors: Array  # [C, D]
    actor_qd_score: Array
    actor_descriptor_error: Array


class Revisit(NamedTuple):
    """Archive and actor evaluated again, in batches of the shape that training evaluates."""

    batch: int
    ask: Callable[[Archive, Array | None, Array], Wanted]
    """(archive, actor, cells [batch]) -> what to evaluate"""
    lead: Callable[[Array, Array, Array], Evaluation] | None
    """(actor, descriptors [batch, D], key): a conditioned actor that training does not roll out"""
    conditioned: bool
    """Whether there is an actor that can be asked for descriptors."""


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """Two pure functions and what a user may want to know about them."""

    name: str
    problem: Problem
    policy: MLP
    cells: int
    origins: tuple[str, ...]
    """Names by the number that `Archive.origin` holds."""
    offspring: Mapping[str, int]
    """Offspring of an iteration, by origin."""
    initial_evaluations: int
    evaluations_per_iteration: int
    evaluation_shape: int
    """Robots simulated together; re-evaluation at this shape gives the same bits."""
    evaluate: Callable[[Wanted, Array], tuple[Evaluation, Evaluation]]
    """(what to evaluate, key) -> episodes of the policies, and of the actor"""
    starting: Parts
    """`init`, in parts: the first is given a key and the centroids"""
    stepping: Parts
    """`step`, in parts"""
    reach: Revisit
    """How to evaluate an archive again."""
    practise: Callable[..., Pause] | None = None
    """The part of `stepping` that trains learners, if any: thousands of small kernels."""
    learner: TD3 | None = None
    """The learner whose actor is worth keeping."""
    actor: Callable[[Any], Array | None] = lambda state: None
    """The parameters of that actor, of a state."""
    outside: Outside | None = None
    """How to evaluate outside JAX; None for algorithms that learn from transitions."""
    stages: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    """The stages of `step`, for timing them one by one."""

    def centroids(self) -> Array:
        """The middles [C, D] of the archive's cells. Finding them takes seconds, the first time."""
        low, high = self.problem.descriptor_low, self.problem.descriptor_high
        return archives.centroids(low, high, self.cells)

    def init(self, key: Array) -> Any:
        """The state, a pytree of arrays, that a run begins with."""
        return run_parts(self.starting, self.evaluate, key, self.centroids())

    def step(self, state: Any, key: Array) -> tuple[Any, Metrics]:
        """One iteration: the next state, and its metrics."""
        return run_parts(self.stepping, self.evaluate, state, key)


def compose(
    name: str,
    problem: Problem,
    policy: MLP,
    *,
    cells: int,
    variations: Sequence[Variation],
    learners: Mapping[str, Learner] | None = None,
    replay_size: int = 0,
    actor_rollouts: int = 0,
    descriptor_noise: float = 0.0,
    memory: Callable[[Memory, Transitions], Memory] | None = None,
    memory_size: int = 0,
) -> Algorithm:
    """Build an algorithm from its parts.

    The first of `learners` is the one whose actor is kept, and rolled out if `actor_rollouts` > 0:
    each iteration at that many descriptors, drawn from the archive with noise of `descriptor_noise`
    times the range. `memory` takes in the states of an iteration, for learners that reward novelty.
    """
    learners = dict(learners or {})
    batch = sum(v.count for v in variations)
    origins = (INITIAL, *(v.origin for v in variations))
    if len(set(origins)) != len(origins):
        raise ValueError(f"{name}: two variations have the same origin: {', '.join(origins[1:])}")
    lead = next(iter(learners), None)
    lead_td3 = learners[lead].td3 if lead is not None else None
    if actor_rollouts and lead_td3 is None:
        raise ValueError(f"{name}: actor_rollouts needs a learner")
    layout = _layout(problem, learners, memory is not None) if learners else {}
    # One trajectory serves all targets where neither the actor nor the world would tell them apart.
    one_for_all = bool(
        lead_td3 and not lead_td3.actor_conditioned and problem.deterministic and actor_rollouts
    )
    actor_lanes = 1 if one_for_all else actor_rollouts
    lanes = evaluation_shape(batch + actor_lanes)
    spread = [b - a for a, b in zip(problem.descriptor_low, problem.descriptor_high, strict=True)]

    # -------------------------------------------------------------------------------- evaluate

    def evaluate(wanted: Wanted, key: Array) -> tuple[Evaluation, Evaluation]:
        """`batch` policies and the actor at `actor_rollouts` descriptors, in one rollout."""
        policies, actor, targets = wanted
        padding = lanes - batch - actor_lanes
        rows = jnp.concatenate([policies, jnp.broadcast_to(policies[:1], (padding, policy.size))])
        layers = networks.unflatten(policy, rows)
        asked = normalise(problem, targets)

        def act(observation: Array) -> Array:
            count = batch + padding
            actions = networks.apply_each(policy, layers, observation[:count])
            if not actor_rollouts:
                return actions
            assert lead_td3 is not None
            assert actor is not None
            led = td3.act(lead_td3, actor, observation[count:], asked[:actor_lanes])
            return jnp.concatenate([actions, led])

        evaluation = problem.rollout(act, jax.random.split(key, lanes))
        if not learners:
            evaluation = without_transitions(evaluation)
        offspring = _take(evaluation, jnp.arange(batch))
        # On one shared trajectory every target is the same lane again.
        source = jnp.zeros if one_for_all else jnp.arange
        led_lanes = lanes - actor_lanes + source(actor_rollouts, dtype=jnp.int32)
        return offspring, _take(evaluation, led_lanes)

    def lead_actor(state: State) -> Array | None:
        return state.learners[lead].actor if lead is not None else None

    def env_steps(offspring: Evaluation, led: Evaluation) -> Array:
        led_steps = led.steps[:actor_lanes].sum()
        return (offspring.steps.sum() + led_steps).astype(jnp.uint32)

    # ----------------------------------------------------------------------------------- store

    def store(state: State, offspring: Evaluation, targets: Array, led: Evaluation, asked: Array):
        """Transitions of offspring and actor join the replay buffer; returns the new state."""
        if not learners:
            return state
        both = jax.tree.map(
            lambda a, b: jnp.concatenate([a, b], axis=1), offspring.transitions, led.transitions
        )
        reached = jnp.concatenate([offspring.descriptors, led.descriptors])
        judged_by = jnp.concatenate([targets, asked])
        assert state.replay is not None
        mask = both.mask.reshape(-1)
        columns = _columns(problem, layout, both, reached, judged_by)
        replay = replays.insert(state.replay, layout, columns, mask)
        state = state._replace(replay=replay)
        if memory is not None and state.memory is not None:
            state = state._replace(memory=memory(state.memory, both))
        return state

    def draw_targets(archive: Archive, key: Array) -> Array:
        """Descriptors for the actor [actor_rollouts, D]: those of elites, with noise."""
        cell_key, noise_key = jax.random.split(key)
        drawn = archive.descriptors[archives.sample(archive, cell_key, actor_rollouts)]
        noise = jax.random.normal(noise_key, drawn.shape)
        return drawn + descriptor_noise * jnp.array(spread)[None] * noise

    # ------------------------------------------------------------------------------------ init

    def blank(key: Array, centroids: Array) -> State:
        keys = jax.random.split(key, max(len(learners), 1))
        return State(
            archive=archives.empty(centroids, policy.size),
            replay=replays.empty(layout, replay_size) if learners else None,
            learners={
                learner: td3.init(part.td3, k)
                for (learner, part), k in zip(learners.items(), keys, strict=False)
            },
            memory=novelty.empty(memory_size, problem.descriptor_size) if memory_size else None,
            iteration=jnp.zeros((), jnp.int32),
            evaluations=jnp.zeros((), jnp.uint32),
            env_steps=jnp.zeros((), jnp.uint32),
            rejected=jnp.zeros((), jnp.uint32),
        )

    def random_policies(key: Array) -> Array:
        return jax.vmap(lambda k: networks.init(policy, k))(jax.random.split(key, batch))

    def welcome(state: State, policies: Array, fitness, descriptors, valid) -> State:
        """Archive the random policies that a run starts with."""
        archive, _, rejected = archives.add(
            state.archive, policies, fitness, descriptors, valid,
            jnp.zeros(batch, jnp.int32), state.iteration,
        )  # fmt: skip
        return state._replace(
            archive=archive,
            evaluations=state.evaluations + jnp.uint32(batch),
            rejected=state.rejected + _count(rejected),
        )

    def begin(key: Array, centroids: Array) -> Pause:
        policy_key, blank_key, rollout_key = jax.random.split(key, 3)
        policies, state = random_policies(policy_key), blank(blank_key, centroids)
        keys = jax.random.split(rollout_key, 3)
        nothing = jnp.zeros((actor_rollouts, problem.descriptor_size))
        wanted = Wanted(policies, lead_actor(state), nothing)
        return Pause(state, (policies, keys[1], keys[2]), wanted, keys[0])

    def archive_first(state: State, memo, results):
        """The random policies enter the archive; what they reached is asked of the actor."""
        policies, target_key, rollout_key = memo
        first, led = results
        state = welcome(state, policies, first.fitness, first.descriptors, first.valid)
        asked = draw_targets(state.archive, target_key)
        if not actor_rollouts:
            return store_first(state, (first, asked), (first, led))
        wanted = Wanted(policies, lead_actor(state), asked)
        return Pause(state, (first, asked), wanted, rollout_key)

    def store_first(state: State, memo, results) -> State:
        first, asked = memo
        _, led = results
        state = store(state, first, first.descriptors, led, asked)
        return state._replace(
            env_steps=env_steps(first, led),
            rejected=state.rejected + _count(~led.valid[:actor_lanes]),
        )

    # ----------------------------------------------------------------------- step, stage by stage

    def train(state: State, key: Array) -> tuple[State, dict[str, td3.Losses]]:
        losses, trained = {}, dict(state.learners)
        for (learner, part), k in zip(
            learners.items(), jax.random.split(key, max(len(learners), 1)), strict=False
        ):
            sample_key, noise_key = jax.random.split(k)
            count = part.td3.batch_size // (2 if part.td3.sampled_negatives else 1)
            assert state.replay is not None
            rows = replays.sample(state.replay, sample_key, (part.td3.steps, count))
            batches = _batches(layout, rows)
            if part.reward is not None:
                batches = batches._replace(reward=part.reward(state, rows))
            trained[learner], losses[learner] = td3.train(
                part.td3, state.learners[learner], batches, noise_key
            )
        return state._replace(learners=trained), losses

    def vary(state: State, key: Array) -> Offspring:
        keys = jax.random.split(key, len(variations))
        made = [v.make(state, k) for v, k in zip(variations, keys, strict=True)]
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *made)

    def tell(state: State, offspring: Offspring, fitness, descriptors, valid):
        """Add evaluated offspring: the new state, and additions by origin."""
        counts = [v.count for v in variations]
        origin = jnp.repeat(
            jnp.arange(1, len(counts) + 1), jnp.array(counts), total_repeat_length=batch
        )
        archive, added, rejected = archives.add(
            state.archive, offspring.policies, fitness, descriptors, valid, origin,
            state.iteration + 1,
        )  # fmt: skip
        by_origin = {v.origin: jnp.sum(added & (origin == i + 1)) for i, v in enumerate(variations)}
        state = state._replace(
            archive=archive,
            iteration=state.iteration + 1,
            evaluations=state.evaluations + jnp.uint32(batch),
            rejected=state.rejected + _count(rejected),
        )
        return state, by_origin

    def metrics_of(state: State, added, losses: Mapping[str, td3.Losses]) -> Metrics:
        summary = archives.summary(state.archive)
        return Metrics(
            **summary._asdict(),
            evaluations=state.evaluations,
            env_steps=state.env_steps,
            added=added,
            rejected=state.rejected,
            critic_loss={learner: loss.critic for learner, loss in losses.items()},
            actor_loss={learner: loss.actor for learner, loss in losses.items()},
        )

    def want(state: State, offspring: Offspring, key: Array) -> Wanted:
        # Drawn before the addition, so that offspring and actor share one batch of rollouts.
        return Wanted(offspring.policies, lead_actor(state), draw_targets(state.archive, key))

    def settle(state: State, offspring: Offspring, evaluated: Evaluation, led: Evaluation, asked):
        """The addition stage: offspring into the archive, transitions into the replay buffer."""
        own = jnp.concatenate([jnp.full(v.count, not v.judged_by_target) for v in variations])
        targets = jnp.where(own[:, None], evaluated.descriptors, offspring.targets)
        state = store(state, evaluated, targets, led, asked)
        state = state._replace(
            env_steps=state.env_steps + env_steps(evaluated, led),
            rejected=state.rejected + _count(~led.valid[:actor_lanes]),
        )
        return tell(state, offspring, evaluated.fitness, evaluated.descriptors, evaluated.valid)

    def practise(state: State, key: Array) -> Pause:
        """The iteration's training. A part of its own: it is compiled with other options."""
        train_key, vary_key, target_key, rollout_key = jax.random.split(key, 4)
        state, losses = train(state, train_key)
        return Pause(state, (losses, vary_key, target_key, rollout_key), None, rollout_key)

    def advance(state: State, memo, _) -> Pause:
        """From there to its rollouts."""
        losses, vary_key, target_key, rollout_key = memo
        offspring = vary(state, vary_key)
        wanted = want(state, offspring, target_key)
        return Pause(state, (offspring, wanted.targets, losses), wanted, rollout_key)

    def advance_at_once(state: State, key: Array) -> Pause:
        """Both, where there is nobody to train."""
        return advance(*practise(state, key)[:2], None)

    def complete(state: State, memo, results) -> tuple[State, Metrics]:
        """The iteration after its rollouts."""
        offspring, asked, losses = memo
        evaluated, led = results
        state, added = settle(state, offspring, evaluated, led, asked)
        return state, metrics_of(state, added, losses)

    # --------------------------------------------------------------------------------- on demand

    conditioned = bool(lead_td3 and lead_td3.actor_conditioned)

    def revisit(archive: Archive, actor: Array | None, index: Array) -> Wanted:
        targets = archive.descriptors[index]
        return Wanted(archive.policies[index], actor, targets[jnp.arange(actor_rollouts) % batch])

    def lead_alone(actor: Array, targets: Array, key: Array) -> Evaluation:
        """The conditioned actor at `batch` targets, without offspring beside it."""
        count = evaluation_shape(batch)
        assert lead_td3 is not None
        learner = lead_td3
        asked = normalise(problem, targets[jnp.minimum(jnp.arange(count), batch - 1)])
        evaluation = problem.rollout(
            lambda observation: td3.act(learner, actor, observation, asked),
            jax.random.split(key, count),
        )
        return _take(without_transitions(evaluation), jnp.arange(batch))

    def ask_first(state: State, key: Array):
        policies = random_policies(key)
        return policies, policies

    def tell_first(state: State, policies: Array, fitness, descriptors, valid):
        return welcome(state, policies, fitness, descriptors, valid), None

    def ask(state: State, key: Array):
        offspring = vary(state, key)
        return offspring.policies, offspring

    def tell_outside(state: State, offspring: Offspring, fitness, descriptors, valid):
        state, added = tell(state, offspring, fitness, descriptors, valid)
        return state, metrics_of(state, added, {})

    return Algorithm(
        name=name,
        problem=problem,
        policy=policy,
        cells=cells,
        origins=origins,
        offspring={v.origin: v.count for v in variations},
        initial_evaluations=batch,
        evaluations_per_iteration=batch,
        evaluation_shape=lanes,
        evaluate=evaluate,
        starting=(begin, archive_first, *([store_first] if actor_rollouts else [])),
        stepping=(practise, advance, complete) if learners else (advance_at_once, complete),
        practise=practise if learners else None,
        reach=Revisit(
            batch,
            revisit,
            lead_alone if conditioned and actor_rollouts != batch else None,
            conditioned,
        ),
        learner=lead_td3,
        actor=lead_actor,
        outside=None
        if learners
        else Outside(blank, Phase(ask_first, tell_first), (Phase(ask, tell_outside),)),
        stages={"train": train, "vary": vary, "want": want, "evaluate": evaluate, "add": settle},
    )


class Reached(NamedTuple):
    """What is left of evaluations when only their results are of interest."""

    fitness: Array  # [n]
    descriptors: Array  # [n, D]
    valid: Array  # [n]


def score_reach(archive: Archive, own: Reached, led: Reached | None) -> Reach:
    """The metrics of an archive whose cells [C] were all evaluated again, and of its actor."""
    full = archives.filled(archive)

    def gather(reached: Reached):
        # Empty cells hold no policy, and a diverged rollout reached nothing.
        result = full & reached.valid
        fitness = jnp.where(result, reached.fitness, jnp.nan)
        return fitness, jnp.where(result[:, None], reached.descriptors, jnp.nan)

    def score(fitness, descriptors):
        distance = jnp.sqrt(jnp.sum(jnp.square(descriptors - archive.descriptors), -1))
        count = jnp.maximum(jnp.isfinite(fitness).sum(), 1)
        return jnp.nansum(fitness), jnp.nansum(distance) / count

    none = jnp.full_like(archive.fitness, jnp.nan), jnp.full_like(archive.descriptors, jnp.nan)
    nan = jnp.float32(jnp.nan), jnp.float32(jnp.nan)
    mine = gather(own)
    if led is None:
        return Reach(*mine, *score(*mine), *none, *nan)
    its = gather(led)
    return Reach(*mine, *score(*mine), *its, *score(*its))


# ------------------------------------------------------------------------------------- transitions


def critic_is_conditioned(problem: Problem, learner: TD3) -> bool:
    """Whether a critic sees more than observation and action: a descriptor."""
    return learner.critic.sizes[0] > problem.observation_size + problem.action_size


def _layout(problem: Problem, learners: Mapping[str, Learner], states: bool) -> dict[str, int]:
    """The columns of the replay buffer: descriptors only where a learner looks at them."""
    conditioned = any(critic_is_conditioned(problem, part.td3) for part in learners.values())
    return {
        "observation": problem.observation_size,
        "action": problem.action_size,
        "reward": 1,
        "next_observation": problem.observation_size,
        "done": 1,
        "truncation": 1,
        **({"descriptor": problem.descriptor_size} if conditioned else {}),
        **({"target": problem.descriptor_size} if conditioned else {}),
        **({"state_descriptor": problem.descriptor_size} if states else {}),
    }


def _columns(problem, layout, transitions: Transitions, reached: Array, judged_by: Array):
    """Replay columns [T * n, ...] of an iteration's transitions [T, n, ...]."""
    time, n = transitions.mask.shape

    def spread_over_steps(descriptors: Array) -> Array:
        normal = normalise(problem, descriptors)
        return jnp.broadcast_to(normal[None], (time, n, normal.shape[-1]))

    available = {
        **transitions._asdict(),
        "descriptor": spread_over_steps(reached),
        "target": spread_over_steps(judged_by),
    }
    return {
        column: available[column].reshape(time * n, *available[column].shape[2:])
        for column in layout
    }


def _batches(layout: Mapping[str, int], rows: Array) -> td3.Batch:
    """Batches [steps, N, ...] for a learner from replay rows [steps, N, width]."""

    def vector(name: str) -> Array:
        if name not in layout:
            return jnp.zeros((*rows.shape[:-1], 0))
        values = replays.column(layout, rows, name)
        return values[..., None] if layout[name] == 1 else values

    def number(name: str) -> Array:
        return replays.column(layout, rows, name)

    return td3.Batch(
        observation=vector("observation"),
        action=vector("action"),
        reward=number("reward"),
        next_observation=vector("next_observation"),
        done=number("done"),
        truncation=number("truncation"),
        descriptor=vector("descriptor"),
        target=vector("target"),
    )


def _count(flags: Array) -> Array:
    return flags.sum().astype(jnp.uint32)


def without_transitions(evaluation: Evaluation) -> Evaluation:
    """Results alone: the steps, which nobody will look at, need not be recorded."""
    nothing = jax.tree.map(lambda a: a[:0], evaluation.transitions)
    return evaluation._replace(transitions=nothing)


def _take(evaluation: Evaluation, lanes: Array) -> Evaluation:
    transitions = jax.tree.map(lambda a: a[:, lanes], evaluation.transitions)
    rest = {f: getattr(evaluation, f)[lanes] for f in ("fitness", "descriptors", "valid", "steps")}
    return Evaluation(**rest, transitions=transitions)
