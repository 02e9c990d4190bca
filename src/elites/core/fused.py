"""TD3's steps as a few kernels each, for NVIDIA GPUs. What they compute is written in `td3.py`.

A step of TD3 is small: a hundred transitions, networks of seventy thousand parameters. Left to the
compiler it is some fifty kernels, and a GPU spends its time starting them. Here a step is

    target_values, values, and for the actor climb      at the same time
    move_critic, and for the actor move_actor           at the same time

All steps of an iteration are one loop on the device. Products are TF32 with float32 sums, as the
compiler's are on these GPUs. No sum depends on the order in which programs run, and no choice is
made by timing: the same state and batches give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from elites.core import kernels, td3
from elites.core.kernels import BETA1, BETA2, OUTPUTS, ROWS, Judge, Layers, Moved, Net, Sizes
from elites.core.networks import MLP
from elites.core.td3 import TD3, Batch, Losses, TD3State

Array = jax.Array

COMPUTE = {"num_warps": 4, "num_stages": 3}  # measured best for 1, 4 and 20 seeds on an H200
MOVE = {"num_warps": 8, "num_stages": 1}


def supported(learner: TD3) -> bool:
    """Whether the kernels are made for this learner and this GPU.

    Two hidden layers of 64, 128 or 256 units, up to 64 actions, and TF32: NVIDIA's GPUs since 2020.
    """
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    major = capability.partition(".")[0]  # other makers' GPUs have names there
    return major.isdigit() and int(major) >= 8 and all(map(_fits, (learner.actor, learner.critic)))


def _fits(network: MLP) -> bool:
    hidden = network.sizes[1:-1]
    return len(hidden) == 2 and set(hidden) <= {64, 128, 256} and network.sizes[-1] <= max(OUTPUTS)


# ------------------------------------------------------------------------------------------ train


def train(
    learner: TD3, state: TD3State, batches: Batch, noise: Array, interpret: bool = False
) -> tuple[TD3State, Losses]:
    """`td3.train_plain`, to rounding. `interpret` runs the kernels in Python, for tests."""
    observations, actions = batches.observation.shape[-1], batches.action.shape[-1]
    # Data has the critic's columns; the actor's inputs leave the action out.
    actor_net = Net.of(learner.actor, gap=(observations, actions))
    critic_net = Net.of(learner.critic)
    sizes = Sizes(
        actor_net, critic_net, observations, actions, batches.reward.shape[-1], learner.delay,
        learner.actor_rate, learner.critic_rate, learner.target_rate, interpret,
    )  # fmt: skip
    limit = learner.smoothing_clip
    noise = jnp.clip(learner.smoothing_noise * noise, -limit, limit)
    closeness = td3.similarity(batches.descriptor, batches.target, learner.lengthscale)
    data = pack(
        sizes,
        jnp.concatenate([batches.observation, batches.action, batches.target], -1),
        jnp.concatenate([batches.next_observation, noise, batches.target], -1),
        [
            closeness * batches.reward,
            learner.discount * (1.0 - batches.done),
            1.0 - batches.truncation,
        ],
    )
    actor_adam: Any = state.actor_moments
    critic_adam: Any = state.critic_moments
    factors = corrections(critic_adam[0].count, actor_adam[0].count, learner.steps, learner.delay)
    done = steps(
        sizes, data, factors,
        padded(critic_net, state.critics, critic_adam[0], state.target_critics),
        padded(actor_net, state.actor, actor_adam[0], state.target_actor),
        count=learner.steps,
    )  # fmt: skip
    critics = unpadded(critic_net, done.critics, state.critics)
    actor = unpadded(actor_net, done.actor, state.actor)
    turns = learner.steps // learner.delay

    def moments(old: Any, moved: Moved, count: int) -> Any:
        adam = old[0]._replace(count=old[0].count + count, mu=moved.mean, nu=moved.square)
        return (adam, *old[1:])

    state = TD3State(
        actor.weights, actor.target, critics.weights, critics.target,
        moments(actor_adam, actor, turns), moments(critic_adam, critics, learner.steps),
    )  # fmt: skip
    return state, Losses(done.critic_losses.sum() / learner.steps, done.actor_loss[0] / turns)


def pack(sizes: Sizes, now: Array, after: Array, numbers: list[Array]) -> Array:
    """The data of all steps, as one vector that kernels read where they need it.

    The columns of a step are the critic's inputs (observation, action, descriptor), the same of the
    next state with smoothing noise in place of the action, and the transitions' numbers: reward,
    factor of the next value, weight. A column is contiguous, and padded.
    """
    rows = jnp.concatenate([now, after, *(n[..., None] for n in numbers)], axis=-1)
    columns = jnp.swapaxes(rows, -1, -2)
    return jnp.pad(columns, ((0, 0), (0, 0), (0, sizes.stride - sizes.rows))).reshape(-1)


def corrections(critic_count: Array, actor_count: Array, steps: int, delay: int) -> Array:
    """The factors that Adam corrects its two moments by, for critics and actor, of every step."""
    step = jnp.arange(steps)
    counts = jnp.stack([critic_count + step + 1, actor_count + step // delay + 1], axis=1)
    betas = jnp.array([BETA1, BETA2])
    return (1.0 / (1.0 - betas ** counts[..., None].astype(jnp.float32))).reshape(-1)


def padded(net: Net, weights: Array, moments: Any, target: Array) -> Moved:
    """Vectors [P] or [2, P] one after the other, each of an aligned length."""

    def pad(x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        return jnp.pad(rows, ((0, 0), (0, net.padded - rows.shape[-1]))).reshape(-1)

    return Moved(*(pad(x) for x in (weights, moments.mu, moments.nu, target)))


def unpadded(net: Net, moved: Moved, like: Array) -> Moved:
    """The inverse of `padded`, in the shape of `like`."""
    return Moved(
        *(x.reshape(-1, net.padded)[:, : like.shape[-1]].reshape(like.shape) for x in moved)
    )


# ------------------------------------------------------------------------------------------ steps


def _call(sizes: Sizes, part: int, kernel: Callable, grid: tuple[int, ...], inputs: tuple,
          outputs: Any, options: dict[str, int], changed: int = 0):  # fmt: skip
    """Run a kernel on pytrees of arrays. The last `changed` of the inputs are outputs as well."""
    given, structure = jax.tree.flatten(inputs)
    shapes, out_structure = jax.tree.flatten(outputs)
    leaves = len(jax.tree.leaves(inputs[len(inputs) - changed :])) if changed else 0

    def body(*refs):
        arguments = jax.tree.unflatten(structure, refs[: len(given)])
        results = jax.tree.unflatten(out_structure, refs[len(given) :])
        kernel(sizes, part, *arguments, *results)

    body.__name__ = kernel.__name__
    call = pl.pallas_call(
        body,
        grid=grid,
        out_shape=[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in shapes],
        input_output_aliases={len(given) - leaves + i: i for i in range(leaves)},
        compiler_params=triton.CompilerParams(**options),
        interpret=sizes.interpret,
        name=body.__name__,
    )
    return jax.tree.unflatten(out_structure, call(*given))


class Carry(NamedTuple):
    """What a step changes."""

    critic_losses: Array  # [2] added up
    critics: Moved
    actor_loss: Array  # [1]
    actor: Moved


def step(sizes: Sizes, part: int, turn: Array, data: Array, corrections: Array, carry: Carry):
    """Step `part` of turn [1]; the actor moves in the first of each turn."""
    rows, critic, actor_net = sizes.stride, sizes.critic, sizes.actor
    blocks, actor, critics = -(-sizes.rows // ROWS), carry.actor, carry.critics

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct((math.prod(shape),), jnp.float32)

    def layers(net: Net, rows: int) -> Layers:
        one, two = array(rows, net.first), array(rows, net.second)
        return Layers(one, two, one, two, array(rows))

    next_value, *_ = _call(
        sizes, part, kernels.target_values, (blocks, 2), (turn, data, actor.target, critics.target),
        (array(2, rows), array(2, rows, actor_net.first), array(2, rows, critic.first)), COMPUTE,
    )  # fmt: skip
    (kept,) = _call(
        sizes, part, kernels.values, (blocks, 2), (turn, data, critics.weights),
        (layers(critic, 2 * rows),), COMPUTE,
    )  # fmt: skip
    actor_loss = carry.actor_loss
    if part == 0:
        judge = Judge(array(rows, critic.first), array(rows, critic.second))
        led, _, error3 = _call(
            sizes, part, kernels.climb, (blocks,), (turn, data, actor.weights, critics.weights),
            (layers(actor_net, rows), judge, array(rows, actor_net.wide)), COMPUTE,
        )  # fmt: skip
        # The kernels above read the actor and its target as they were.
        actor_loss, actor = _call(
            sizes, part, kernels.move_actor, (actor_net.pieces,),
            (turn, data, corrections, led, error3, actor_loss, actor), (actor_loss, actor),
            MOVE, changed=2,
        )  # fmt: skip
    losses, critics = _call(
        sizes, part, kernels.move_critic, (critic.pieces, 2),
        (turn, data, corrections, next_value, kept, carry.critic_losses, critics),
        (carry.critic_losses, critics), MOVE, changed=2,
    )  # fmt: skip
    return Carry(losses, critics, actor_loss, actor)


def steps(sizes: Sizes, data: Array, corrections: Array, critics: Moved, actor: Moved, *,
          count: int) -> Carry:  # fmt: skip
    """`count` steps: losses added up, critics and actor moved."""

    def turn(i, carry):
        index = i.astype(jnp.int32).reshape(1)
        for part in range(sizes.delay):
            carry = step(sizes, part, index, data, corrections, carry)
        return carry

    start = Carry(jnp.zeros((2,), jnp.float32), critics, jnp.zeros((1,), jnp.float32), actor)
    return jax.lax.fori_loop(0, count // sizes.delay, turn, start)
