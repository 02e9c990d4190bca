"""The iteration that every algorithm but MAP-Elites-ES shares (the paper's algorithm 3).

    train       each learner takes its gradient steps on minibatches of the replay buffer
    ask         each variation makes its offspring; the actor gets descriptors to be rolled out at
    evaluate    offspring and actor run their episodes together (`evaluation.py`)
    tell        offspring compete for their cells; transitions enter the replay buffer

An algorithm is a `Spec`: its variations with their counts, its learners, and the hyperparameters.
`algorithms.py` is the table of them, `Algorithm.step` in `types.py` the loop over these stages.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from elites.core import archive as archives
from elites.core import evaluation as evaluations
from elites.core import networks, novelty, td3
from elites.core import replay as replays
from elites.core.archive import Archive
from elites.core.hyperparameters import Hyperparameters
from elites.core.networks import MLP
from elites.core.novelty import Memory
from elites.core.replay import Layout, Replay
from elites.core.td3 import TD3, Losses, TD3State
from elites.core.types import (
    INITIAL,
    Algorithm,
    Array,
    Evaluation,
    Metrics,
    Problem,
    Request,
    Round,
    padded_size,
)


class State(NamedTuple):
    """Complete state of a run: training can continue from it."""

    archive: Archive
    replay: Replay | None
    learners: dict[str, TD3State]
    memory: Memory | None  # state descriptors, for a learner that is rewarded for novelty
    iteration: Array  # [] int32, -1 before anything was told
    evaluations: Array  # [] uint32
    env_steps: Array  # [] uint32
    rejected: Array  # [] uint32


class Offspring(NamedTuple):
    """Policies made by a variation."""

    policies: Array  # [n, P]
    targets: Array  # [n, D] the descriptor that each is meant to reach, in task units


@dataclasses.dataclass(frozen=True)
class Variation:
    """A source of offspring. Elites carry its name as their origin; metrics count by it."""

    origin: str
    count: int
    make: Callable[[Spec, State, Array, int], Offspring]
    """(spec, state, key, count) -> that many offspring, see `variation.py`"""
    stores_target: bool = False
    """Store its transitions as attempts at their targets instead of at what they reached."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """An actor-critic and what it is rewarded for."""

    name: str
    td3: TD3
    rewards_novelty: bool = False
    """Replace the task's reward by the novelty of the state, as in QD-PG."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """Everything that tells one algorithm of this family from another."""

    name: str
    problem: Problem
    hp: Hyperparameters
    variations: tuple[Variation, ...]
    learners: tuple[Learner, ...] = ()
    """The first is the main one: its actor is kept with the run, and rolled out."""
    actor_rollouts: int = 0
    """Descriptors of the archive at which each iteration rolls the main actor out."""

    def __post_init__(self):
        origins = [INITIAL, *(variation.origin for variation in self.variations)]
        learners = [learner.name for learner in self.learners]
        for what, names in (("origin", origins), ("learner", learners)):
            if len(set(names)) < len(names):
                raise ValueError(f"{self.name}: the same {what} twice in {', '.join(names)}")
        if self.actor_rollouts and not self.learners:
            raise ValueError(f"{self.name}: actor_rollouts needs a learner")

    @property
    def policy(self) -> MLP:
        return self.problem.policy(self.hp.policy_hidden)

    @property
    def batch(self) -> int:
        return sum(variation.count for variation in self.variations)

    @property
    def main_td3(self) -> TD3 | None:
        return self.learners[0].td3 if self.learners else None

    @property
    def rewards_novelty(self) -> bool:
        return any(learner.rewards_novelty for learner in self.learners)

    def td3(self, learner: str) -> TD3:
        """Return the configuration of a learner by its name."""
        found = {part.name: part.td3 for part in self.learners}
        if learner not in found:
            raise ValueError(f"{self.name} has no learner '{learner}'; known: {', '.join(found)}")
        return found[learner]

    @property
    def layout(self) -> Layout:
        """Columns of the replay buffer, with descriptors only if a critic is conditioned."""
        problem = self.problem
        layout = {
            "observation": problem.observation_size, "action": problem.action_size, "reward": 1,
            "next_observation": problem.observation_size, "done": 1, "truncation": 1,
        }  # fmt: skip
        if any(learner.td3.critic_conditioned for learner in self.learners):
            layout |= {"descriptor": problem.descriptor_size, "target": problem.descriptor_size}
        if self.rewards_novelty:
            layout |= {"state_descriptor": problem.descriptor_size}
        return layout


def algorithm(spec: Spec) -> Algorithm[State]:
    """Build the algorithm of a specification."""
    counts = {variation.origin: variation.count for variation in spec.variations}
    bind, problem, main = functools.partial, spec.problem, spec.main_td3
    rows = spec.batch + evaluations.actor_rows(problem, main, spec.actor_rollouts)
    return Algorithm(
        name=spec.name, problem=problem, policy=spec.policy, cells=spec.hp.cells,
        origins=(INITIAL, *counts), offspring=counts, batch=spec.batch,
        actor_rollouts=spec.actor_rollouts, padded_batch=padded_size(rows), learner=main,
        replay_layout=spec.layout if spec.learners else None,
        init=bind(init, spec), first=bind(first, spec), train=bind(train, spec),
        rounds=(Round(bind(ask, spec), bind(tell, spec), spec.batch),),
        evaluate=bind(evaluations.evaluate, problem, spec.policy, main), actor=bind(actor, spec),
    )  # fmt: skip


def actor(spec: Spec, state: State) -> Array | None:
    """Return the parameters of the main learner's actor."""
    return state.learners[spec.learners[0].name].actor if spec.learners else None


def init(spec: Spec, key: Array, centroids: Array) -> State:
    """Return a state with untrained learners, an empty archive and an empty replay buffer."""
    _, learner_key, _ = jax.random.split(key, 3)
    keys = jax.random.split(learner_key, len(spec.learners) or 1)
    zero, size = jnp.zeros((), jnp.uint32), spec.problem.descriptor_size
    return State(
        archive=archives.empty(centroids, spec.policy.size),
        replay=replays.empty(spec.layout, spec.hp.replay_size) if spec.learners else None,
        learners={part.name: td3.init(part.td3, keys[i]) for i, part in enumerate(spec.learners)},
        memory=novelty.empty(spec.hp.novelty_memory, size) if spec.rewards_novelty else None,
        iteration=jnp.full((), -1, jnp.int32), evaluations=zero, env_steps=zero, rejected=zero,
    )  # fmt: skip


def first(spec: Spec, state: State, key: Array) -> Request:
    """Ask for random policies, and for the actor at descriptors of the archive, if it has any."""
    policy_key, _, other_key = jax.random.split(key, 3)
    rollout_key, target_key, _ = jax.random.split(other_key, 3)
    random_policy = functools.partial(networks.init, spec.policy)
    return Request(
        policies=jax.vmap(random_policy)(jax.random.split(policy_key, spec.batch)),
        origins=jnp.zeros(spec.batch, jnp.int32),
        targets=jnp.zeros((spec.batch, spec.problem.descriptor_size)),
        actor=actor(spec, state),
        actor_targets=draw_targets(spec, state.archive, target_key),
        key=rollout_key,
    )


# --------------------------------------------------------------------------------------- iteration


class Keys(NamedTuple):
    """Keys derived from that of an iteration. Each stage takes its own."""

    train: Array
    variations: Array
    targets: Array
    rollouts: Array


def train(spec: Spec, state: State, key: Array) -> tuple[State, dict[str, Losses]]:
    """Run the learners' gradient steps. Compiled separately, with concurrent kernels enabled."""
    learners, losses = {}, {}
    keys = jax.random.split(Keys(*jax.random.split(key, 4)).train, len(spec.learners) or 1)
    for i, learner in enumerate(spec.learners):
        assert state.replay is not None
        sample_key, noise_key = jax.random.split(keys[i])
        shape = (learner.td3.steps, learner.td3.sampled_rows)
        rows = replays.columns(spec.layout, replays.sample(state.replay, sample_key, shape))
        if learner.rewards_novelty:
            assert state.memory is not None
            points, neighbours = rows["state_descriptor"], spec.hp.novelty_neighbours
            rows["reward"] = novelty.rewards(state.memory, points, neighbours)[..., None]
        learners[learner.name], losses[learner.name] = td3.train(
            learner.td3, state.learners[learner.name], td3.Batch.of_columns(rows), noise_key
        )
    return state._replace(learners=learners), losses


def ask(spec: Spec, state: State, key: Array) -> Request:
    """Make the offspring of all variations and choose what the actor is rolled out at."""
    keys = Keys(*jax.random.split(key, 4))
    each = jax.random.split(keys.variations, len(spec.variations))
    made = [v.make(spec, state, each[i], v.count) for i, v in enumerate(spec.variations)]
    origins = [jnp.full(v.count, i, jnp.int32) for i, v in enumerate(spec.variations, start=1)]
    return Request(
        policies=jnp.concatenate([offspring.policies for offspring in made]),
        origins=jnp.concatenate(origins),
        targets=jnp.concatenate([offspring.targets for offspring in made]),
        actor=actor(spec, state),
        # Drawn before the addition, so that offspring and actor share one batch of rollouts.
        actor_targets=draw_targets(spec, state.archive, keys.targets),
        key=keys.rollouts,
    )


def draw_targets(spec: Spec, archive: Archive, key: Array) -> Array:
    """Draw descriptors [actor_rollouts, D] for the actor: those of elites, with noise."""
    cell_key, noise_key = jax.random.split(key)
    drawn = archive.descriptors[archives.sample(archive, cell_key, spec.actor_rollouts)]
    noise = jax.random.normal(noise_key, drawn.shape)
    return drawn + spec.hp.descriptor_noise * jnp.array(spec.problem.ranges)[None] * noise


def tell(
    spec: Spec, state: State, request: Request, evaluation: Evaluation
) -> tuple[State, Metrics]:
    """Add the offspring to the archive and all transitions to the replay buffer."""
    n, iteration = len(request.policies), state.iteration + 1
    archive, added, rejected = archives.add(
        state.archive, request.policies, evaluation.fitness[:n], evaluation.descriptors[:n],
        evaluation.valid[:n], request.origins, iteration,
    )  # fmt: skip
    failed = jnp.concatenate([rejected, ~evaluation.valid[n:]])  # actor rollouts count too
    state = state._replace(
        archive=archive,
        iteration=iteration,
        evaluations=state.evaluations + jnp.uint32(n),
        env_steps=state.env_steps + evaluation.steps.sum().astype(jnp.uint32),
        rejected=state.rejected + failed.sum().astype(jnp.uint32),
    )
    if spec.learners:
        state = store(spec, state, request, evaluation)
    origins = [variation.origin for variation in spec.variations]
    return state, Metrics.of(state, origins, request.origins, added)


def store(spec: Spec, state: State, request: Request, evaluation: Evaluation) -> State:
    """Add transitions to the replay buffer, each with the descriptor reached and the target."""
    n, m = len(request.policies), len(request.actor_targets)
    if m and evaluations.shares_trajectory(spec.problem, spec.main_td3):
        # The one trajectory is stored once for every target.
        rows = jnp.concatenate([jnp.arange(n), jnp.full(m, n)])
        evaluation = evaluations.take(evaluation, rows)
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
    columns = {name: available[name].reshape(mask.size, -1) for name in spec.layout}
    assert state.replay is not None
    state = state._replace(replay=replays.insert(state.replay, spec.layout, columns, mask))
    if state.memory is not None:
        points, threshold = columns["state_descriptor"], spec.hp.novelty_threshold
        memory = novelty.insert_distant(state.memory, points, mask, threshold)
        state = state._replace(memory=memory)
    return state
