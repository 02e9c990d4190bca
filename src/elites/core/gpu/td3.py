"""TD3 training as a few GPU kernels per step. It computes what `td3.train_plain` computes.

A TD3 step is small: a hundred transitions and networks of seventy thousand parameters. The compiler
turns it into about fifty kernels, and a GPU spends most of its time launching them. Here a step is

    target_values, backpropagate_critics, and on an actor step backpropagate_actor    concurrently
    update_critics, and on an actor step update_actor                                 concurrently

All steps of an iteration are one loop on the device. A delay cycle consists of `delay` critic steps
and one actor step, which belongs to the first of them.

Products are TF32 with float32 sums, as the compiler's products are on these GPUs. No sum depends on
the order in which programs run, and no choice depends on timing. The same state and batches
therefore give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.typing import ArrayLike

from elites.core import td3
from elites.core.gpu import kernels
from elites.core.gpu.kernels import (
    BETA1,
    BETA2,
    BLOCK_ROWS,
    OUTPUT_WIDTHS,
    CriticBuffers,
    KernelConfig,
    LayerBuffers,
    NetworkLayout,
    NetworkState,
)
from elites.core.networks import MLP
from elites.core.td3 import TD3, Batch, Losses, TD3State

Array = jax.Array
AdamState = tuple[optax.ScaleByAdamState, optax.EmptyState]  # of optax.adam

# Compiler options, measured best for 1, 4 and 20 seeds on an H200.
LAYER_OPTIONS = {"num_warps": 4, "num_stages": 3}
UPDATE_OPTIONS = {"num_warps": 8, "num_stages": 1}


def supported(learner: TD3) -> bool:
    """Return whether the kernels support this learner and this GPU.

    The networks need two hidden layers of 64, 128 or 256 units with ReLU, and at most 64 outputs.
    The GPU needs TF32, which NVIDIA GPUs have since compute capability 8 (2020).
    """
    capability = str(getattr(jax.devices()[0], "compute_capability", ""))
    major = capability.partition(".")[0]  # GPUs of other vendors have a name here
    modern = major.isdigit() and int(major) >= 8
    return modern and all(map(_supported_network, (learner.actor, learner.critic)))


def _supported_network(network: MLP) -> bool:
    """Return whether the kernels support a network of this shape."""
    hidden, outputs = network.sizes[1:-1], network.sizes[-1]
    shaped = len(hidden) == 2 and set(hidden) <= {64, 128, 256} and outputs <= max(OUTPUT_WIDTHS)
    return shaped and network.activation == "relu"


# ------------------------------------------------------------------------------------------ train


def train(
    learner: TD3,
    state: TD3State,
    batches: Batch,
    noise: Array,
    factor: Array | None = None,
    interpret: bool = False,
) -> tuple[TD3State, Losses]:
    """Train a learner for an iteration with GPU kernels. Returns the new state and the mean losses.

    `factor` [] multiplies both learning rates.

    The result equals `td3.train_plain` up to rounding. `interpret` runs the kernels in Python, for
    tests without a GPU.
    """
    observation_size, action_size = batches.observation.shape[-1], batches.action.shape[-1]
    # The columns of the data are the critic's inputs. The actor skips those of the action.
    actor_layout = NetworkLayout.of(learner.actor, skipped=(observation_size, action_size))
    critic_layout = NetworkLayout.of(learner.critic)
    config = KernelConfig(
        actor_layout, critic_layout, observation_size, action_size, batches.reward.shape[-1],
        learner.delay, learner.actor_rate, learner.critic_rate, learner.target_rate, interpret,
    )  # fmt: skip
    limit = learner.smoothing_clip
    noise = jnp.clip(learner.smoothing_noise * noise, -limit, limit)
    similarity = td3.similarity(batches.descriptor, batches.target, learner.lengthscale)
    data = pack_batches(
        config,
        jnp.concatenate([batches.observation, batches.action, batches.target], -1),
        jnp.concatenate([batches.next_observation, noise, batches.target], -1),
        [
            similarity * batches.reward,
            learner.discount * (1.0 - batches.done),
            1.0 - batches.truncation,
        ],
    )
    actor_adam = cast(AdamState, state.actor_moments)
    critic_adam = cast(AdamState, state.critic_moments)
    corrections = bias_corrections(
        critic_adam[0].count, actor_adam[0].count, learner.steps, learner.delay
    )
    if factor is not None:
        # A step is the rate times the corrected first moment, over the root of the second.
        scale = jnp.stack([factor, jnp.ones_like(factor)])
        corrections = (corrections.reshape(-1, 2) * scale[None]).reshape(-1)
    result = run_steps(
        config, data, corrections,
        pad_state(critic_layout, state.critics, critic_adam, state.target_critics),
        pad_state(actor_layout, state.actor, actor_adam, state.target_actor),
        count=learner.steps,
    )  # fmt: skip
    critics = unpad_state(critic_layout, result.critics, state.critics)
    actor = unpad_state(actor_layout, result.actor, state.actor)
    cycles = learner.steps // learner.delay
    state = TD3State(
        actor.parameters, actor.target, critics.parameters, critics.target,
        _updated_adam(actor_adam, actor, cycles),
        _updated_adam(critic_adam, critics, learner.steps),
    )  # fmt: skip
    return state, Losses(result.critic_losses.sum() / learner.steps, result.actor_loss[0] / cycles)


def _updated_adam(adam: AdamState, network: NetworkState, steps: int) -> AdamState:
    """Return an Adam state with its count increased by `steps` and the moments of `network`."""
    count = adam[0].count + steps
    moments = adam[0]._replace(count=count, mu=network.first_moment, nu=network.second_moment)
    return (moments, *adam[1:])


def pack_batches(
    config: KernelConfig, inputs: Array, next_inputs: Array, scalars: list[Array]
) -> Array:
    """Return the data of all training steps as one vector that the kernels read.

    For each step, it holds these columns in this order:

    - `inputs` [steps, N, inputs]: observation, action and target descriptor
    - `next_inputs` [steps, N, inputs]: the same for the next state, with noise as the action
    - three `scalars` [steps, N]: reward, discount of the next value, mask of the error

    A column holds one number for each of the N transitions, padded to `config.stride` elements.
    """
    rows = jnp.concatenate([inputs, next_inputs, *(s[..., None] for s in scalars)], axis=-1)
    columns = jnp.swapaxes(rows, -1, -2)
    padding = config.stride - config.batch_size
    return jnp.pad(columns, ((0, 0), (0, 0), (0, padding))).reshape(-1)


def bias_corrections(
    critic_count: ArrayLike, actor_count: ArrayLike, steps: int, delay: int
) -> Array:
    """Return the factors of Adam's bias correction as one vector [4 * steps].

    Each step has four: for the first and second moment of the critics, then of the actor.
    `critic_count` and `actor_count` are the numbers of steps that the optimisers have already
    taken.
    """
    step = jnp.arange(steps)
    counts = jnp.stack([critic_count + step + 1, actor_count + step // delay + 1], axis=1)
    betas = jnp.array([BETA1, BETA2])[None, None]
    return (1.0 / (1.0 - betas ** counts[..., None].astype(jnp.float32))).reshape(-1)


def pad_state(
    net: NetworkLayout, parameters: Array, adam: AdamState, target: Array
) -> NetworkState:
    """Return the parameters, Adam moments and target parameters of networks as padded vectors.

    `parameters` and `target` are [P] for one network or [2, P] for two.
    """

    def pad(x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        return jnp.pad(rows, ((0, 0), (0, net.padded_size - rows.shape[-1]))).reshape(-1)

    moments: Any = adam[0]
    return NetworkState(pad(parameters), pad(moments.mu), pad(moments.nu), pad(target))


def unpad_state(net: NetworkLayout, state: NetworkState, like: Array) -> NetworkState:
    """Return the network state with padding removed and every vector in the shape of `like`.

    It is the inverse of `pad_state`. The shape is [P] for one network or [2, P] for two.
    """
    rows = (x.reshape(-1, net.padded_size) for x in state)
    return NetworkState(*(r[:, : like.shape[-1]].reshape(like.shape) for r in rows))


# ------------------------------------------------------------------------------------------ steps


def _call_kernel(
    config: KernelConfig,
    delay_position: int,
    kernel: Callable,
    grid: tuple[int, ...],
    inputs: tuple,
    outputs: tuple,
    options: dict[str, int],
    aliased: int = 0,
) -> tuple:
    """Run a kernel on pytrees of arrays and return its outputs as a tuple of pytrees.

    `outputs` gives their shapes and types. The last `aliased` inputs are updated in place: they
    share memory with the first outputs.
    """
    arrays, structure = jax.tree.flatten(inputs)
    shapes, out_structure = jax.tree.flatten(outputs)
    leaves = len(jax.tree.leaves(inputs[len(inputs) - aliased :])) if aliased else 0

    def body(*refs):
        arguments = jax.tree.unflatten(structure, refs[: len(arrays)])
        results = jax.tree.unflatten(out_structure, refs[len(arrays) :])
        kernel(config, delay_position, *arguments, *results)

    body.__name__ = kernel.__name__
    call = pl.pallas_call(
        body,
        grid=grid,
        out_shape=[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in shapes],
        input_output_aliases={len(arrays) - leaves + i: i for i in range(leaves)},
        compiler_params=triton.CompilerParams(**options),
        interpret=config.interpret,
        name=body.__name__,
    )
    return jax.tree.unflatten(out_structure, call(*arrays))


class Carry(NamedTuple):
    """State of the loop over training steps: the networks and the summed losses."""

    critic_losses: Array  # [2]: summed over the steps
    critics: NetworkState
    actor_loss: Array  # [1]: summed over the actor's steps
    actor: NetworkState


def run_step(
    config: KernelConfig,
    delay_position: int,
    cycle: Array,
    data: Array,
    corrections: Array,
    carry: Carry,
) -> Carry:
    """Run one training step and return the updated networks and the summed losses.

    `cycle` [1] is the index of the delay cycle, and `delay_position` the step's index within it.
    The step at position 0 also updates the actor.
    """
    rows, critic_layout, actor_layout = config.stride, config.critic, config.actor
    blocks, actor, critics = -(-config.batch_size // BLOCK_ROWS), carry.actor, carry.critics

    def array(*shape: int) -> Any:
        return jax.ShapeDtypeStruct((math.prod(shape),), jnp.float32)

    def buffers(net: NetworkLayout, rows: int) -> LayerBuffers:
        hidden1, hidden2 = array(rows, net.hidden1), array(rows, net.hidden2)
        return LayerBuffers(hidden1, hidden2, hidden1, hidden2, array(rows))

    next_values, *_ = _call_kernel(
        config, delay_position, kernels.target_values, (blocks, 2),
        (cycle, data, actor.target, critics.target),
        (array(2, rows), array(2, rows, actor_layout.hidden1),
         array(2, rows, critic_layout.hidden1)), LAYER_OPTIONS,
    )  # fmt: skip
    (critic_layers,) = _call_kernel(
        config, delay_position, kernels.backpropagate_critics, (blocks, 2),
        (cycle, data, critics.parameters), (buffers(critic_layout, 2 * rows),), LAYER_OPTIONS,
    )  # fmt: skip
    actor_loss = carry.actor_loss
    if delay_position == 0:
        scratch = CriticBuffers(
            array(rows, critic_layout.hidden1), array(rows, critic_layout.hidden2)
        )
        actor_layers, _, delta3 = _call_kernel(
            config, delay_position, kernels.backpropagate_actor, (blocks,),
            (cycle, data, actor.parameters, critics.parameters),
            (buffers(actor_layout, rows), scratch, array(rows, actor_layout.padded_outputs)),
            LAYER_OPTIONS,
        )  # fmt: skip
        # The kernels above read the actor and its target from before this update.
        actor_loss, actor = _call_kernel(
            config, delay_position, kernels.update_actor, (actor_layout.update_programs,),
            (cycle, data, corrections, actor_layers, delta3, actor_loss, actor),
            (actor_loss, actor), UPDATE_OPTIONS, aliased=2,
        )  # fmt: skip
    losses, critics = _call_kernel(
        config, delay_position, kernels.update_critics, (critic_layout.update_programs, 2),
        (cycle, data, corrections, next_values, critic_layers, carry.critic_losses, critics),
        (carry.critic_losses, critics), UPDATE_OPTIONS, aliased=2,
    )  # fmt: skip
    return Carry(losses, critics, actor_loss, actor)


def run_steps(
    config: KernelConfig,
    data: Array,
    corrections: Array,
    critics: NetworkState,
    actor: NetworkState,
    *,
    count: int,
) -> Carry:
    """Run `count` training steps and return the updated networks and the summed losses.

    `data` comes from `pack_batches`, and `corrections` from `bias_corrections`.
    """

    def run_cycle(i: Array, carry: Carry) -> Carry:
        cycle = i.astype(jnp.int32).reshape(1)
        for delay_position in range(config.delay):
            carry = run_step(config, delay_position, cycle, data, corrections, carry)
        return carry

    start = Carry(jnp.zeros((2,), jnp.float32), critics, jnp.zeros((1,), jnp.float32), actor)
    return jax.lax.fori_loop(0, count // config.delay, run_cycle, start)
