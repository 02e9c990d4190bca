"""TD3, optionally conditioned on a descriptor: twin critics, a delayed actor, target networks.

The critic Q(s, a | d') values acting well *and* ending with descriptor d'. The reward of a
transition whose episode reached d is scaled by the similarity S(d, d') = exp(-|d - d'| / l) (the
paper's equations 4 and 5, algorithm 2):

    y = S(d, d') r + discount (1 - done) min_i Q'_i(s', clip(pi'(s' | d') + noise) | d')

    each step                both critics regress on y for a batch; their targets follow
    first of every `delay`   after the critics, the actor ascends Q_1 as it was before the step, on
                             the same batch; its target follows

Without conditioning the descriptors have width zero: nothing is concatenated, the similarity is 1,
and the same code is plain TD3. Both critics are one array [2, P], each optimiser works on one flat
array, and the actor's delay is a static pattern of the loop.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from elites.core import distances, gpu, networks
from elites.core.networks import MLP

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class TD3:
    """Static configuration of a TD3 learner.

    For `update`, the rates, the discount and the smoothing may also be scalars of JAX: those of one
    agent of a population, see `population.py`.
    """

    actor: MLP
    critic: MLP
    actor_conditioned: bool
    """The actor sees the descriptor."""
    critic_conditioned: bool
    """The critics see the descriptor."""
    actor_rate: float
    critic_rate: float
    discount: float
    target_rate: float
    smoothing_noise: float
    smoothing_clip: float
    delay: int
    steps: int
    batch_size: int
    lengthscale: float
    sampled_negatives: bool = False
    """Use half a batch twice: with the descriptor reached, and with another episode's."""

    def __post_init__(self):
        if self.actor_conditioned and not self.critic_conditioned:
            raise ValueError("an actor that sees the descriptor needs critics that see it")

    @property
    def sampled_rows(self) -> int:
        """Number of transitions to sample from the replay buffer for one minibatch."""
        return self.batch_size // 2 if self.sampled_negatives else self.batch_size


class TD3State(NamedTuple):
    """Parameters and optimiser states of a TD3 learner."""

    actor: Array  # [Pa]
    target_actor: Array  # [Pa]
    critics: Array  # [2, Pc]
    target_critics: Array  # [2, Pc]
    actor_moments: optax.OptState
    critic_moments: optax.OptState


class Batch(NamedTuple):
    """Minibatches of transitions for a TD3 learner. Descriptors are scaled to [-1, 1]."""

    observation: Array  # [..., N, O]
    action: Array  # [..., N, A]
    reward: Array  # [..., N]
    next_observation: Array  # [..., N, O]
    done: Array  # [..., N]
    truncation: Array  # [..., N]
    descriptor: Array  # [..., N, D] d: what the episode reached; D = 0 without conditioning
    target: Array  # [..., N, D] d': the descriptor that the critic is asked about

    @classmethod
    def of_columns(cls, columns: Mapping[str, Array], conditioned: bool) -> Batch:
        """Assemble minibatches from columns that were sampled from the replay buffer.

        Each column is [..., N, width], with N transitions per minibatch. If `conditioned` is False,
        the descriptors of the result have width 0.
        """
        nothing = columns["observation"][..., :0]
        return cls(
            observation=columns["observation"],
            action=columns["action"],
            reward=columns["reward"][..., 0],
            next_observation=columns["next_observation"],
            done=columns["done"][..., 0],
            truncation=columns["truncation"][..., 0],
            descriptor=columns["descriptor"] if conditioned else nothing,
            target=columns["target"] if conditioned else nothing,
        )


class Losses(NamedTuple):
    """Critic and actor losses, averaged over the steps of an iteration."""

    critic: Array | None  # [], None where an actor learns without a critic
    actor: Array  # []


def init(td3: TD3, key: Array) -> TD3State:
    """Return the state of an untrained learner. Target networks start equal to their sources."""
    actor_key, critic_key = jax.random.split(key)
    actor = networks.init(td3.actor, actor_key)
    critics = jax.vmap(lambda k: networks.init(td3.critic, k))(jax.random.split(critic_key))
    return restarted(td3, actor, critics)


def restarted(td3: TD3, actor: Array, critics: Array) -> TD3State:
    """Return the state of a learner with these networks and without momentum.

    `actor` is [Pa] and `critics` [2, Pc]. The target networks equal them.
    """
    return TD3State(
        actor, actor, critics, critics,
        optax.adam(td3.actor_rate).init(actor), optax.adam(td3.critic_rate).init(critics),
    )  # fmt: skip


def similarity(descriptor: Array, target: Array, lengthscale: float) -> Array:
    """Return the similarities S(d, d') [...] of descriptors [..., D] and targets [..., D].

    They are exp(-distance / lengthscale): 1 for equal descriptors, close to 0 for distant ones.
    """
    return jnp.exp(-distances.euclidean(descriptor, target) / lengthscale)


def act(td3: TD3, actor: Array, observation: Array, target: Array) -> Array:
    """Return the actions [..., A] of an actor at observations [..., O] and targets [..., D].

    `actor` [Pa] are its parameters. An actor that is not conditioned ignores the targets.
    """
    inputs = jnp.concatenate([observation, target], -1) if td3.actor_conditioned else observation
    return networks.apply(td3.actor, networks.unflatten(td3.actor, actor), inputs)


def value(td3: TD3, critic: Array, observation: Array, action: Array, target: Array) -> Array:
    """Return one critic's values Q(s, a | d') [...] of observations, actions and targets.

    The three are [..., O], [..., A] and [..., D]. `critic` [Pc] are the critic's parameters.
    """
    inputs = jnp.concatenate([observation, action, target], -1)
    return networks.apply(td3.critic, networks.unflatten(td3.critic, critic), inputs)[..., 0]


def critic_target(td3: TD3, state: TD3State, batch: Batch, noise: Array) -> Array:
    """Return the values y [N] on which the critics regress, for a batch of N transitions.

    `noise` [N, A] is standard normal. It is scaled and clipped here.
    """
    noise = jnp.clip(td3.smoothing_noise * noise, -td3.smoothing_clip, td3.smoothing_clip)
    action = act(td3, state.target_actor, batch.next_observation, batch.target)
    action = jnp.clip(action + noise, -1.0, 1.0)
    values = jax.vmap(lambda c: value(td3, c, batch.next_observation, action, batch.target))(
        state.target_critics
    )
    reward = similarity(batch.descriptor, batch.target, td3.lengthscale) * batch.reward
    return reward + td3.discount * (1.0 - batch.done) * values.min(0)


def critic_loss(td3: TD3, critics: Array, batch: Batch, y: Array) -> Array:
    """Return a scalar loss: the sum of both critics' mean squared errors.

    `critics` [2, Pc] are their parameters, and `y` [N] the target values. Transitions cut by the
    time limit have no error.
    """
    values = jax.vmap(lambda c: value(td3, c, batch.observation, batch.action, batch.target))(
        critics
    )
    error = (values - y[None]) * (1.0 - batch.truncation)[None]
    return jnp.sum(jnp.mean(jnp.square(error), -1))


def actor_loss(td3: TD3, actor: Array, critic: Array, batch: Batch) -> Array:
    """Return a scalar loss: minus the critic's mean value of the actor's actions."""
    action = act(td3, actor, batch.observation, batch.target)
    return -jnp.mean(value(td3, critic, batch.observation, action, batch.target))


def update_critics(
    td3: TD3, state: TD3State, batch: Batch, noise: Array, factor: Array | None = None
) -> tuple[TD3State, Array]:
    """Take one gradient step of the critics. Returns the new state and the loss.

    `factor` multiplies the learning rate.
    """
    y = critic_target(td3, state, batch, noise)
    loss, gradient = jax.value_and_grad(lambda c: critic_loss(td3, c, batch, y))(state.critics)
    critics, moments = networks.descend(
        state.critics, gradient, state.critic_moments, _scaled(td3.critic_rate, factor)
    )
    targets = _follow(state.target_critics, critics, td3.target_rate)
    return state._replace(critics=critics, target_critics=targets, critic_moments=moments), loss


def update_actor(
    td3: TD3, state: TD3State, batch: Batch, critics: Array, factor: Array | None = None
) -> tuple[TD3State, Array]:
    """Take one gradient step of the actor. Returns the new state and the loss.

    `factor` multiplies the learning rate.
    """
    loss, gradient = jax.value_and_grad(lambda a: actor_loss(td3, a, critics[0], batch))(
        state.actor
    )
    rate = _scaled(td3.actor_rate, factor)
    actor, moments = networks.descend(state.actor, gradient, state.actor_moments, rate)
    target = _follow(state.target_actor, actor, td3.target_rate)
    return state._replace(actor=actor, target_actor=target, actor_moments=moments), loss


def update(
    td3: TD3, state: TD3State, batches: Batch, noise: Array, factor: Array | None = None
) -> tuple[TD3State, Losses]:
    """Take `delay` critic steps, on batches [delay, N, ...], and one actor step.

    `factor` multiplies the learning rates. Returns the new state and the mean losses.
    """
    critic_losses, loss = [], jnp.float32(0.0)
    for i in range(td3.delay):
        batch = jax.tree.map(lambda a, i=i: a[i], batches)
        critics = state.critics
        state, critic_step_loss = update_critics(td3, state, batch, noise[i], factor)
        critic_losses.append(critic_step_loss)
        if i == 0:  # the actor ascends the critic as it was before this step
            state, loss = update_actor(td3, state, batch, critics, factor)
    return state, Losses(jnp.mean(jnp.stack(critic_losses)), loss)


def train(
    td3: TD3, state: TD3State, batches: Batch, key: Array, factor: Array | None = None
) -> tuple[TD3State, Losses]:
    """Train on batches [steps, N, ...], one step each. Returns the new state and mean losses.

    `factor` [] multiplies both learning rates. None is 1.
    """
    if td3.sampled_negatives:
        batches = with_negatives(batches)
    noise = jax.random.normal(key, batches.action.shape)
    plain = functools.partial(train_plain, td3)
    kernels = gpu.td3_training(td3)
    if kernels is None:
        return plain(state, batches, noise, factor)
    arguments = (state, batches, noise) if factor is None else (state, batches, noise, factor)
    return jax.lax.platform_dependent(*arguments, cuda=kernels, default=plain)


def train_plain(
    td3: TD3, state: TD3State, batches: Batch, noise: Array, factor: Array | None = None
) -> tuple[TD3State, Losses]:
    """Take the steps of `train` on any device. Returns the new state and the mean losses.

    `gpu.td3.train` computes the same result with GPU kernels.
    """
    turns = td3.steps // td3.delay
    split = jax.tree.map(lambda a: a.reshape(turns, td3.delay, *a.shape[1:]), (batches, noise))
    state, losses = jax.lax.scan(lambda s, x: update(td3, s, *x, factor=factor), state, split)
    return state, jax.tree.map(jnp.mean, losses)


def with_negatives(batches: Batch) -> Batch:
    """Return batches [steps, 2 N, ...] with each transition of `batches` [steps, N, ...] twice.

    The target of the first copy is the descriptor that its episode reached. The target of the
    second copy is the descriptor of another row.
    """
    twice = jax.tree.map(lambda a: jnp.concatenate([a, a], axis=1), batches)
    reached = batches.descriptor
    return twice._replace(target=jnp.concatenate([reached, reached[:, ::-1]], axis=1))


def _scaled(rate: float, factor: Array | None) -> float | Array:
    """Return a learning rate times a factor, if there is one."""
    return rate if factor is None else rate * factor


def _follow(target: Array, source: Array, rate: float) -> Array:
    """Return (1 - rate) * target + rate * source, the new parameters of a target network."""
    return (1.0 - rate) * target + rate * source
