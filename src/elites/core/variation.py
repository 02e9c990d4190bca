"""Variations: how parents from the archive become offspring.

    ga                 iso+line mutation of two parents (the paper's GA variation)
    policy_gradient    gradient ascent of a parent on the critic (the paper's algorithm 3)
    greedy             the actor itself (PGA-MAP-Elites)
    injection          the conditioned actor at descriptors of the archive (DCRL-MAP-Elites)

Each variation draws its parents and returns `count` offspring. The arithmetic is in separate
functions on matrices of policies: `iso_line`, `ascend` and `networks.fold`. In a run that
normalises observations, parents are varied as policies of normalised observations, and offspring
are again policies of raw ones (`normalisation.py`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from elites.core import archive as archives
from elites.core import gpu, networks, normalisation
from elites.core import replay as replays
from elites.core.action_gradients import action_gradients
from elites.core.archive import Archive
from elites.core.networks import MLP, Layers
from elites.core.sampling import normal
from elites.core.spec import Offspring, Spec, State

Array = jax.Array


def ga(spec: Spec, state: State, key: Array, count: int) -> Offspring:
    """Return `count` children, each made by `iso_line` from two random elites of the archive.

    If the state has a population, the parents come from it instead.
    """
    first_key, second_key, noise_key = jax.random.split(key, 3)
    source, hp = state.archive if state.population is None else state.population, spec.hp
    first = archives.sample(source, first_key, count)
    second = archives.sample(source, second_key, count)
    one, other = (
        normalisation.to_normalised(spec.policy, source.policies[rows], state.statistics)
        for rows in (first, second)
    )
    children = iso_line(one, other, noise_key, hp.iso_sigma, hp.line_sigma)
    children = normalisation.to_raw(spec.policy, children, state.statistics)
    return Offspring(children, source.descriptors[first])


def iso_line(first: Array, second: Array, key: Array, iso_sigma: float, line_sigma: float) -> Array:
    """Return children [n, P] of the parents `first` [n, P] and `second` [n, P].

    A child is first + iso_sigma N(0, I) + line_sigma N(0, 1) (second - first), where N(0, 1) is one
    random number per child.
    """
    iso_key, line_key = jax.random.split(key)
    iso = normal(iso_key, first.shape)
    line = normal(line_key, (first.shape[0], 1))
    return first + iso_sigma * iso + line_sigma * line * (second - first)


def policy_gradient(
    spec: Spec,
    state: State,
    key: Array,
    count: int,
    *,
    learner: str,
    empty: float = 0.0,
    proximity: float = 0.0,
) -> Offspring:
    """Return `count` random elites after gradient ascent on the critic of a learner.

    A conditioned critic judges each elite at the descriptor that it reached or, with probability
    `empty`, at the centroid of an empty cell. `proximity` keeps children near their parents, see
    `ascend`.
    """
    parent_key, replay_key = jax.random.split(key)
    config = spec.td3_of(learner)
    cells, targets = _draw_targets(state.archive, parent_key, count, empty)
    conditions = spec.problem.normalise(targets) if config.critic_conditioned else targets[:, :0]
    assert state.replay is not None
    shape = (spec.hp.pg_steps, spec.hp.td3_batch_size)
    rows = replays.sample(state.replay, replay_key, shape)
    seen = state.statistics
    observations = normalisation.normalised(seen, replays.columns(spec.layout, rows)["observation"])
    critics = normalisation.to_normalised(config.critic, state.learners[learner].critics, seen)
    parents = normalisation.to_normalised(spec.policy, state.archive.policies[cells], seen)
    children = ascend(
        spec.policy, parents, conditions, config.critic, critics[0], observations,
        spec.hp.policy_learning_rate, proximity,
    )  # fmt: skip
    children = normalisation.to_raw(spec.policy, children, seen)
    return Offspring(children, targets, state.archive.descriptors[cells] if empty else None)


def ascend(
    policy: MLP,
    parents: Array,
    conditions: Array,
    critic_network: MLP,
    critic: Array,
    observations: Array,
    rate: float,
    proximity: float = 0.0,
) -> Array:
    """Return parents [n, P] after Adam steps that increase Q(s, pi(s) | d), each for its own d.

    `conditions` [n, D] are the descriptors d, scaled to [-1, 1]. D is 0 for a critic that is not
    conditioned. There is one step for each minibatch of `observations` [steps, N, O], which all
    parents share.

    If `proximity` is above 0, the gradient of Q with respect to the action is divided by its mean
    absolute value, and a pull towards the parent's action is added: a strength times the difference
    of the actions. The strengths of the children are spaced evenly in the logarithm, from 0.1 to 10
    times `proximity`.
    """
    dtype = gpu.product_dtype()

    def gradient(layers: Layers, observation: Array) -> Layers:
        shared = jnp.broadcast_to(observation, (len(parents), *observation.shape))

        def act(layers: Layers) -> Array:
            return networks.apply(policy, [(k, b[:, None]) for k, b in layers], shared)

        action, pull_back = jax.vjp(act, layers)
        slope = action_gradients(critic_network, critic, observation, action, conditions, dtype)
        if proximity:
            size = jnp.mean(jnp.abs(slope), axis=(1, 2), keepdims=True)
            slope = slope / (size + 1e-12) - strengths * (action - act(origin))
        return pull_back(-slope / observation.shape[0])[0]  # of minus each policy's mean value

    def step(carry: tuple[Layers, optax.OptState], observation: Array):
        layers, moments = carry
        return networks.descend(layers, gradient(layers, observation), moments, rate), None

    # Layers instead of vectors, so that no step has to take the vectors apart.
    origin = layers = networks.unflatten(policy, parents)
    strengths = 0.0
    if proximity:
        strengths = proximity * 10.0 ** jnp.linspace(-1.0, 1.0, len(parents))[:, None, None]
    start = (layers, optax.adam(rate).init(layers))  # no parent inherits another's momentum
    (layers, _), _ = jax.lax.scan(step, start, observations)
    return networks.flatten(layers)


def greedy(spec: Spec, state: State, key: Array, count: int, *, learner: str) -> Offspring:
    """Return the actor of the learner called `learner` as the only offspring. `count` must be 1."""
    del key
    if count != 1:
        raise ValueError(f"the greedy actor is one offspring, not {count}")
    spec.td3_of(learner)  # raises if there is no such learner
    target = jnp.zeros((1, spec.problem.descriptor_size))
    return Offspring(state.learners[learner].actor[None], target)


def injection(
    spec: Spec, state: State, key: Array, count: int, *, learner: str, empty: float = 0.0
) -> Offspring:
    """Return `count` policies made from the conditioned actor at descriptors of the archive.

    A descriptor is folded into the network: it becomes part of the first layer's bias. With
    probability `empty`, it is the centroid of an empty cell instead.
    """
    network = spec.td3_of(learner).actor
    _, targets = _draw_targets(state.archive, key, count, empty)
    actor, conditions = state.learners[learner].actor, spec.problem.normalise(targets)
    return Offspring(networks.fold(network, actor, conditions), targets)


def _draw_targets(archive: Archive, key: Array, count: int, empty: float) -> tuple[Array, Array]:
    """Draw cells [count] from the archive, and return them with a target descriptor for each.

    A target is the descriptor of the cell's elite or, with probability `empty`, the centroid of an
    empty cell. The targets are [count, D].
    """
    if not empty:
        cells = archives.sample(archive, key, count)
        return cells, archive.descriptors[cells]
    key, empty_key = jax.random.split(key)
    cells = archives.sample(archive, key, count)
    return cells, replace_by_empty_cells(archive, archive.descriptors[cells], empty_key, empty)


def replace_by_empty_cells(archive: Archive, targets: Array, key: Array, share: float) -> Array:
    """Return targets [n, D], each replaced with probability `share` by an empty cell's centroid.

    If the archive is full, all targets stay as they are.
    """
    choice_key, cell_key = jax.random.split(key)
    empty = ~archives.filled(archive)
    logits = jnp.where(empty, 0.0, -jnp.inf)
    cells = jax.random.categorical(cell_key, logits, shape=(len(targets),))
    chosen = jax.random.uniform(choice_key, (len(targets), 1)) < share
    return jnp.where(chosen & empty.any(), archive.centroids[cells], targets)
