"""Pallas kernels of TD3 for NVIDIA GPUs. `gpu/td3.py` calls them.

    target_values          values of the next states by each target critic
    backpropagate_critics  values of each critic and their derivatives in its hidden layers
    backpropagate_actor    derivatives of the actor's loss, through the first critic
    update_critics         gradients, Adam and target update, one program for each tile of weights
    update_actor           the same for the actor

A delta is the derivative with respect to the pre-activations of a layer. A critic has one output,
so its deltas are its temporal-difference error times the derivative of its value. That derivative
does not depend on the error. `backpropagate_critics` therefore computes it while `target_values`
is still running, and `update_critics` multiplies it by the errors.

Kernels read and write arrays by flat index. The parameters of a network are one vector, as in
`networks.py`, padded to an aligned length. Batches and layers are stored column by column: a column
holds one input, or one unit of a layer, of all transitions of a batch. The update kernels multiply
them in this order. Networks have two hidden layers, and all block sizes are powers of two.

In this file a kernel is a GPU kernel, and the matrix of a layer is called its weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from elites.core.networks import MLP

Array = jax.Array
Ref = Any  # reference to an array in GPU memory, as Pallas passes it to a kernel

BLOCK_ROWS = 16  # transitions of one program that computes layers
CHUNK = 32  # inputs of a layer that such a program multiplies at a time
TILE = 64  # height and width of the tile of weights that one program updates
ROW_CHUNK = 128  # transitions that such a program reads at a time
OUTPUT_WIDTHS = (16, 32, 64)  # padded numbers of outputs; a matrix unit needs at least 16
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's constants, the defaults of optax


@dataclasses.dataclass(frozen=True)
class NetworkLayout:
    """Positions of weights and biases in the parameter vector of a network.

    The network has two hidden layers.
    """

    inputs: int
    hidden1: int
    hidden2: int
    outputs: int
    skipped: tuple[int, int] = (0, 0)
    """(start, count) of the columns of the critic's inputs that this network does not read."""

    @classmethod
    def of(cls, network: MLP, skipped: tuple[int, int] = (0, 0)) -> NetworkLayout:
        """Return the layout of a network with two hidden layers.

        `skipped` is the (start, count) of the columns of the critic's inputs that it does not read.
        """
        return cls(*network.sizes, skipped=skipped)

    @property
    def bias1(self) -> int:
        """Position of the first layer's bias. The first layer's weights begin at position 0."""
        return self.inputs * self.hidden1

    @property
    def weights2(self) -> int:
        """Position of the weights of the second layer."""
        return self.bias1 + self.hidden1

    @property
    def bias2(self) -> int:
        """Position of the bias of the second layer."""
        return self.weights2 + self.hidden1 * self.hidden2

    @property
    def weights3(self) -> int:
        """Position of the weights of the output layer."""
        return self.bias2 + self.hidden2

    @property
    def bias3(self) -> int:
        """Position of the bias of the output layer."""
        return self.weights3 + self.hidden2 * self.outputs

    @property
    def padded_outputs(self) -> int:
        """Number of outputs, rounded up to 16, 32 or 64 for the GPU's matrix units."""
        return next(width for width in OUTPUT_WIDTHS if width >= self.outputs)

    @property
    def padded_size(self) -> int:
        """Number of parameters of the network, rounded up to a multiple of 64.

        Networks stored one after the other with this spacing are all aligned in memory.
        """
        return -(-(self.bias3 + self.outputs) // 64) * 64

    @property
    def tiles(self) -> tuple[int, int]:
        """Number of tiles of the first layer's weights, and of the second layer's weights."""
        across = self.hidden1 // TILE
        return -(-self.inputs // TILE) * across, across * (self.hidden2 // TILE)

    @property
    def update_programs(self) -> int:
        """Number of GPU programs that update the network, see `_NetworkUpdate.update`."""
        return sum(self.tiles) + self.hidden1 // TILE + 2 * (self.hidden2 // TILE)


class KernelConfig(NamedTuple):
    """Sizes and learning rates that the kernels are compiled for."""

    actor: NetworkLayout
    critic: NetworkLayout
    observation_size: int
    action_size: int
    batch_size: int
    delay: int
    """Number of critic steps for each actor step."""
    actor_rate: float
    critic_rate: float
    target_rate: float
    interpret: bool = False
    """Run the kernels in Python, to test them without a GPU."""

    @property
    def stride(self) -> int:
        """Length of a column of packed transitions: the batch size, rounded up to whole blocks."""
        return -(-self.batch_size // BLOCK_ROWS) * BLOCK_ROWS

    @property
    def columns(self) -> int:
        """Number of columns that `gpu.td3.pack_batches` packs for one training step."""
        return 2 * self.critic.inputs + 3


class NetworkState(NamedTuple):
    """Parameters, Adam moments and target parameters of the actor or of both critics.

    Each field is one padded vector. For the critics, it holds the first critic and then the second.
    """

    parameters: Array
    first_moment: Array
    second_moment: Array
    target: Array


class LayerBuffers(NamedTuple):
    """Activations and deltas of the hidden layers, and the critic's value of each transition."""

    hidden1: Array  # [hidden1 * stride]: column by column
    hidden2: Array  # [hidden2 * stride]
    delta1: Array  # [hidden1 * stride]
    delta2: Array  # [hidden2 * stride]
    value: Array  # [stride]: the critic's value


class CriticBuffers(NamedTuple):
    """Scratch memory for the first critic, through which the actor's loss is differentiated."""

    hidden1: Array
    delta2: Array


def _load(ref: Ref, index, mask=None):
    """Return the elements of `ref` at `index`. Elements where `mask` is False are 0.

    `ref` is a reference to an array in GPU memory.
    """
    return triton.load(ref.at[index], mask=mask, other=None if mask is None else 0.0)


def _dot(a, b, axes: tuple[int, int] = (1, 0)):
    """Return the product of two matrices, summed over axis axes[0] of `a` and axes[1] of `b`.

    The axes (1, 0) give a @ b, and (1, 1) give a @ b.T.
    """
    numbers = (((axes[0],), (axes[1],)), ((), ()))
    return jax.lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32)


def _relu(x):
    return jnp.maximum(x, 0.0)


def _fold_chunks(count: int, body: Callable, start, chunk: int = CHUNK):
    """Run carry = body(k, carry) over chunks k of `count` indices, and return the last carry.

    Each k is an array of `chunk` consecutive indices. The last one may go beyond `count`. The first
    carry is `start`.
    """

    def fold_chunk(i, carry):
        return body(i * chunk + jnp.arange(chunk), carry)

    if count <= chunk:
        return fold_chunk(0, start)
    return jax.lax.fori_loop(0, pl.cdiv(count, chunk), fold_chunk, start)


# ------------------------------------------------------------------------------------------ layers


class _InputBlock(NamedTuple):
    """Network inputs of the BLOCK_ROWS transitions that one GPU program processes."""

    data: Ref
    start: Any
    """Position of the first column in the data: of the states, or of the next states."""
    rows: Any  # [BLOCK_ROWS]
    valid: Any  # [BLOCK_ROWS]: false for padding
    stride: int

    def read(self, columns, mask):
        """Return the inputs with the indices `columns` [n] as an array [BLOCK_ROWS, n].

        Columns where `mask` [n] is False and rows of padding are 0.
        """
        at = self.start + columns[None, :] * self.stride + self.rows[:, None]
        return _load(self.data, at, self.valid[:, None] & mask[None, :])


def _chunked_product(count: int, left: Callable, right: Callable, shape: tuple[int, int]):
    """Return the sum, an array of this shape, of left(k) @ right(k) over chunks k of indices.

    The chunks cover the indices below `count`, see `_fold_chunks`.
    """
    return _fold_chunks(
        count, lambda k, total: total + _dot(left(k), right(k)), jnp.zeros(shape, jnp.float32)
    )


def _pre_activations1(
    net: NetworkLayout, parameters, offset, block: _InputBlock, zeroed: tuple[int, int] = (0, 0)
):
    """Return the pre-activations of the first layer [BLOCK_ROWS, hidden1].

    The network's parameters begin at position `offset` of `parameters`. The inputs
    zeroed[0]:zeroed[1] are taken as zero.
    """
    units = jnp.arange(net.hidden1)

    def inputs(k):
        mask = (k < net.inputs) & ((k < zeroed[0]) | (k >= zeroed[1]))
        return block.read(k + jnp.where(k >= net.skipped[0], net.skipped[1], 0), mask)

    def weights(k):
        at = offset + k[:, None] * net.hidden1 + units[None, :]
        return _load(parameters, at, (k < net.inputs)[:, None])

    total = _chunked_product(net.inputs, inputs, weights, (BLOCK_ROWS, net.hidden1))
    return total + _load(parameters, offset + net.bias1 + units)[None, :]


def _activations2(net: NetworkLayout, parameters, offset, read_hidden1: Callable):
    """Return the activations of the second layer [BLOCK_ROWS, hidden2].

    `read_hidden1(k)` returns the activations [BLOCK_ROWS, n] of the units k [n] of the first layer.
    """
    units = jnp.arange(net.hidden2)

    def weights(k):
        at = offset + net.weights2 + k[:, None] * net.hidden2 + units[None, :]
        return _load(parameters, at)

    total = _chunked_product(net.hidden1, read_hidden1, weights, (BLOCK_ROWS, net.hidden2))
    return _relu(total + _load(parameters, offset + net.bias2 + units)[None, :])


def _activation_gradients1(net: NetworkLayout, parameters, offset, read_delta2: Callable):
    """Return the derivatives with respect to the activations of the first layer.

    The result is [BLOCK_ROWS, hidden1]. The caller sets it to 0 for inactive units, which turns it
    into deltas. `read_delta2(k)` returns the deltas [BLOCK_ROWS, n] of the units k [n] of the
    second layer.
    """
    units = jnp.arange(net.hidden1)

    def weights(k):
        at = offset + net.weights2 + units[None, :] * net.hidden2 + k[:, None]
        return _load(parameters, at)

    return _chunked_product(net.hidden2, read_delta2, weights, (BLOCK_ROWS, net.hidden1))


def _output_weights(net: NetworkLayout, parameters, offset):
    """Return the weights of the output layer [hidden2, padded_outputs]. Padding is 0."""
    outputs, units = jnp.arange(net.padded_outputs), jnp.arange(net.hidden2)
    at = offset + net.weights3 + units[:, None] * net.outputs + outputs[None, :]
    return _load(parameters, at, (outputs < net.outputs)[None, :])


def _outputs(net: NetworkLayout, parameters, offset, hidden2):
    """Return the outputs [BLOCK_ROWS, padded_outputs] of a network, before tanh.

    `hidden2` [BLOCK_ROWS, hidden2] are the activations of its second layer.
    """
    outputs = jnp.arange(net.padded_outputs)
    bias = _load(parameters, offset + net.bias3 + outputs, outputs < net.outputs)
    return _dot(hidden2, _output_weights(net, parameters, offset)) + bias[None, :]


def _value_and_delta2(net: NetworkLayout, parameters, offset, hidden2):
    """Return a critic's values [BLOCK_ROWS] and their derivatives [BLOCK_ROWS, hidden2].

    The derivatives are with respect to the pre-activations of the second layer. `hidden2` are the
    activations of that layer.
    """
    weights = _load(parameters, offset + net.weights3 + jnp.arange(net.hidden2))
    bias = _load(parameters, offset + net.bias3 + jnp.zeros((BLOCK_ROWS,), jnp.int32))
    value = jnp.sum(hidden2 * weights[None, :], axis=1) + bias
    return value, jnp.where(hidden2 > 0.0, weights[None, :], 0.0)


def _action_weights(config: KernelConfig, critics, offset):
    """Return the rows of a critic's first-layer weights that multiply the action.

    The result is [padded outputs of the actor, hidden1]. Rows of padding are 0.
    """
    actions, units = jnp.arange(config.actor.padded_outputs), jnp.arange(config.critic.hidden1)
    at = offset + (config.observation_size + actions)[:, None] * config.critic.hidden1
    return _load(critics, at + units[None, :], (actions < config.action_size)[:, None])


class _LayerProgram:
    """GPU program that computes network layers for BLOCK_ROWS transitions."""

    def __init__(self, config: KernelConfig, delay_position: int, cycle: Ref, data: Ref):
        step = cycle[0] * config.delay + delay_position
        self.config = config
        self.rows = rows = pl.program_id(0) * BLOCK_ROWS + jnp.arange(BLOCK_ROWS)
        start = step * (config.columns * config.stride)
        self.inputs = _InputBlock(data, start, rows, rows < config.batch_size, config.stride)
        self.next_inputs = self.inputs._replace(start=start + config.critic.inputs * config.stride)

    def critic_hidden1(self, critics, offset, block: _InputBlock, action):
        """Return the activations of a critic's first layer [BLOCK_ROWS, hidden1] for `action`.

        The other inputs come from `block`, whose recorded action is ignored.
        """
        start = self.config.observation_size
        recorded = (start, start + self.config.action_size)
        total = _pre_activations1(self.config.critic, critics, offset, block, recorded)
        return _relu(total + _dot(action, _action_weights(self.config, critics, offset)))

    def store(self, ref: Ref, network: Any, layer) -> Callable:
        """Write a layer [BLOCK_ROWS, width] to GPU memory and return a function that reads it.

        The function takes unit indices [n] and returns [BLOCK_ROWS, n]. Call `barrier` before the
        first read. `network` is the index of the network among those that `ref` holds.
        """
        width, stride = layer.shape[1], self.config.stride

        def at(k):
            return (network * width + k)[None, :] * stride + self.rows[:, None]

        ref[at(jnp.arange(width))] = layer
        return lambda k: _load(ref, at(k))

    def barrier(self) -> None:
        """Wait until each thread of the program can read what the others have written."""
        if not self.config.interpret:  # the interpreter has a single thread
            triton.debug_barrier()


def target_values(config: KernelConfig, delay_position: int, cycle: Ref, data: Ref, target_actor,
                  target_critics, next_values, actor_hidden1, critic_hidden1):  # fmt: skip
    """Write one target critic's values of the next states to `next_values`.

    `actor_hidden1` and `critic_hidden1` are scratch memory.
    """
    program = _LayerProgram(config, delay_position, cycle, data)
    net, critic = config.actor, pl.program_id(1)
    actions = jnp.arange(net.padded_outputs)
    offset, inputs = critic * config.critic.padded_size, program.next_inputs
    layer = _relu(_pre_activations1(net, target_actor, 0, inputs))
    read_hidden1 = program.store(actor_hidden1, critic, layer)
    program.barrier()
    noise = inputs.read(config.observation_size + actions, actions < config.action_size)
    hidden2 = _activations2(net, target_actor, 0, read_hidden1)
    action = jnp.tanh(_outputs(net, target_actor, 0, hidden2)) + noise
    action = jnp.maximum(jnp.minimum(action, 1.0), -1.0)
    layer = program.critic_hidden1(target_critics, offset, inputs, action)
    read_hidden1 = program.store(critic_hidden1, critic, layer)
    program.barrier()
    hidden2 = _activations2(config.critic, target_critics, offset, read_hidden1)
    value, _ = _value_and_delta2(config.critic, target_critics, offset, hidden2)
    next_values[critic * config.stride + program.rows] = value


def backpropagate_critics(config: KernelConfig, delay_position: int, cycle: Ref, data: Ref,
                          critics, layers: LayerBuffers):  # fmt: skip
    """Write the hidden layers of one critic, their deltas and the critic's values to `layers`.

    The deltas are derivatives of the value. They do not yet include the temporal-difference error.
    """
    program = _LayerProgram(config, delay_position, cycle, data)
    net, critic = config.critic, pl.program_id(1)
    offset = critic * net.padded_size
    layer = _relu(_pre_activations1(net, critics, offset, program.inputs))
    read_hidden1 = program.store(layers.hidden1, critic, layer)
    program.barrier()
    layer = _activations2(net, critics, offset, read_hidden1)
    value, delta = _value_and_delta2(net, critics, offset, layer)
    layers.value[critic * config.stride + program.rows] = value
    program.store(layers.hidden2, critic, layer)
    read_delta2 = program.store(layers.delta2, critic, delta)
    program.barrier()
    gradient = _activation_gradients1(net, critics, offset, read_delta2)
    active = read_hidden1(jnp.arange(net.hidden1)) > 0.0  # read again, because registers are scarce
    program.store(layers.delta1, critic, jnp.where(active, gradient, 0.0))


def backpropagate_actor(config: KernelConfig, delay_position: int, cycle: Ref, data: Ref, actor,
                        critics, layers: LayerBuffers, scratch: CriticBuffers,
                        delta3):  # fmt: skip
    """Write the actor's hidden layers and deltas to `layers`, and its output deltas to `delta3`.

    `layers.value` becomes the first critic's value of the actor's actions. `scratch` is scratch
    memory.
    """
    program = _LayerProgram(config, delay_position, cycle, data)
    net, critic = config.actor, config.critic
    inputs, rows = program.inputs, program.rows
    read_hidden1 = program.store(layers.hidden1, 0, _relu(_pre_activations1(net, actor, 0, inputs)))
    program.barrier()
    layer = _activations2(net, actor, 0, read_hidden1)
    read_hidden2 = program.store(layers.hidden2, 0, layer)
    action = jnp.tanh(_outputs(net, actor, 0, layer))

    layer = program.critic_hidden1(critics, 0, inputs, action)
    read_critic_hidden1 = program.store(scratch.hidden1, 0, layer)
    program.barrier()
    layer = _activations2(critic, critics, 0, read_critic_hidden1)
    value, delta = _value_and_delta2(critic, critics, 0, layer)
    layers.value[rows] = jnp.where(inputs.valid, value, 0.0)
    read_delta2 = program.store(scratch.delta2, 0, delta)
    program.barrier()
    gradient = _activation_gradients1(critic, critics, 0, read_delta2)
    gradient = jnp.where(read_critic_hidden1(jnp.arange(critic.hidden1)) > 0.0, gradient, 0.0)
    action_gradient = _dot(gradient, _action_weights(config, critics, 0), (1, 1))

    # The loss is minus the mean value over the batch, without the rows of padding.
    delta = (-1.0 / config.batch_size) * action_gradient * (1.0 - action * action)
    delta = jnp.where(inputs.valid[:, None], delta, 0.0)
    program.store(delta3, 0, delta)
    gradient = _dot(delta, _output_weights(net, actor, 0), (1, 1))
    delta = jnp.where(read_hidden2(jnp.arange(net.hidden2)) > 0.0, gradient, 0.0)
    read_delta2 = program.store(layers.delta2, 0, delta)
    program.barrier()
    gradient = _activation_gradients1(net, actor, 0, read_delta2)
    active = read_hidden1(jnp.arange(net.hidden1)) > 0.0
    program.store(layers.delta1, 0, jnp.where(active, gradient, 0.0))


# ----------------------------------------------------------------------------------------- updates


class _Adam(NamedTuple):
    """Adam step and target-network update of a network's parameters.

    `before` and `after` refer to the same memory: one is for reading, the other for writing.
    """

    before: NetworkState
    after: Any  # a NetworkState of references that can be written
    bias_corrections: tuple[Any, Any]
    rate: float
    target_rate: float

    def __call__(self, at, mask, gradient: Callable) -> None:
        """Update the parameters, moments and target parameters at the positions `at` in place.

        `gradient()` returns the gradient of these parameters. Positions where `mask` is False are
        left unchanged.
        """
        g = gradient()  # before the state is read, because registers are scarce
        old = NetworkState(*(_load(ref, at, mask) for ref in self.before))
        mean = BETA1 * old.first_moment + (1.0 - BETA1) * g
        square = BETA2 * old.second_moment + (1.0 - BETA2) * g * g
        root = jnp.sqrt(square * self.bias_corrections[1])
        update = (self.rate * self.bias_corrections[0]) * mean / (root + EPSILON)
        parameters = old.parameters - update
        target = (1.0 - self.target_rate) * old.target + self.target_rate * parameters
        new = NetworkState(parameters, mean, square, target)
        for ref, value in zip(self.after, new, strict=True):
            triton.store(ref.at[at], value, mask=mask)


class _NetworkUpdate(NamedTuple):
    """Update of one network by the gradient that its layers and deltas give."""

    config: KernelConfig
    net: NetworkLayout
    network: Any
    """Index of the network among those in `layers`."""
    read_inputs: Callable
    """`read_inputs(k, rows)` returns the network's inputs k [n] as an array [n, rows]."""
    layers: LayerBuffers
    delta3: Callable
    """`delta3(rows)` returns the deltas [padded_outputs, rows] of the network's outputs."""
    delta_scale: Callable
    """`delta_scale(rows)` returns the factors [rows] that multiply the deltas in `layers`."""
    adam: _Adam

    def sum_over_rows(self, function: Callable, shape: tuple[int, ...]):
        """Return the sum, an array of this shape, of function(rows) over chunks of the batch.

        Each `rows` is an array of ROW_CHUNK row indices. The last one may go beyond the batch.
        """
        total = jnp.zeros(shape, jnp.float32)
        batch_size = self.config.batch_size
        return _fold_chunks(batch_size, lambda rows, t: t + function(rows), total, ROW_CHUNK)

    def weight_gradient(self, inputs: Callable, deltas: Callable, shape: tuple[int, int]):
        """Return a function without arguments that returns the gradient of a tile of weights.

        The gradient has this shape. `inputs(rows)` and `deltas(rows)` return the layer's inputs and
        deltas, [shape[0], rows] and [shape[1], rows].
        """

        def product(rows):
            return _dot(inputs(rows), deltas(rows), (1, 1))

        return lambda: self.sum_over_rows(product, shape)

    def bias_gradient(self, deltas: Callable, size: int):
        """Return a function without arguments that returns the gradient [size] of a part of a bias.

        `deltas(rows)` returns the deltas [size, rows] of its units.
        """
        return lambda: self.sum_over_rows(lambda rows: jnp.sum(deltas(rows), axis=1), (size,))

    def activation_reader(self, ref: Ref, width: int, units):
        """Return a function from row indices to activations [n, rows] of the units `units` [n].

        `ref` holds the activations of a layer of `width` units. Rows of padding are 0.
        """

        def read(rows):
            at = (self.network * width + units)[:, None] * self.config.stride + rows[None, :]
            return _load(ref, at, (rows < self.config.batch_size)[None, :])

        return read

    def delta_reader(self, ref: Ref, width: int, units):
        """Return a function from row indices to scaled deltas [n, rows] of the units `units` [n].

        `ref` holds the unscaled deltas of a layer of `width` units.
        """
        read = self.activation_reader(ref, width, units)
        return lambda rows: read(rows) * self.delta_scale(rows)[None, :]

    def update(self, program) -> None:
        """Update the part of the network that GPU program number `program` is responsible for.

        The programs are numbered in this order: the tiles of the first layer's weights, those of
        the second layer's weights, the parts of both biases, and the parts of the output layer.
        """
        net, offset = self.net, self.network * self.net.padded_size
        across1, across2 = net.hidden1 // TILE, net.hidden2 // TILE
        counts = (*net.tiles, across1, across2, across2)
        starts = [sum(counts[:i]) for i in range(6)]

        def in_group(group: int):
            return (program >= starts[group]) & (program < starts[group + 1])

        def tile(group: int, across: int):
            """Return the row and column indices [TILE] of the program's tile within its group."""
            index = program - starts[group]
            t = jnp.arange(TILE)
            return (index // across) * TILE + t, (index % across) * TILE + t

        @pl.when(in_group(0))
        def _weights1():
            r, c = tile(0, across1)
            deltas = self.delta_reader(self.layers.delta1, net.hidden1, c)
            gradient = self.weight_gradient(
                lambda rows: self.read_inputs(r, rows), deltas, (TILE, TILE)
            )
            at = offset + r[:, None] * net.hidden1 + c[None, :]
            self.adam(at, (r < net.inputs)[:, None], gradient)

        @pl.when(in_group(1))
        def _weights2():
            r, c = tile(1, across2)
            inputs = self.activation_reader(self.layers.hidden1, net.hidden1, r)
            deltas = self.delta_reader(self.layers.delta2, net.hidden2, c)
            at = offset + net.weights2 + r[:, None] * net.hidden2 + c[None, :]
            self.adam(at, None, self.weight_gradient(inputs, deltas, (TILE, TILE)))

        @pl.when(in_group(2))
        def _bias1():
            _, c = tile(2, across1)
            deltas = self.delta_reader(self.layers.delta1, net.hidden1, c)
            self.adam(offset + net.bias1 + c, None, self.bias_gradient(deltas, TILE))

        @pl.when(in_group(3))
        def _bias2():
            _, c = tile(3, across2)
            deltas = self.delta_reader(self.layers.delta2, net.hidden2, c)
            self.adam(offset + net.bias2 + c, None, self.bias_gradient(deltas, TILE))

        @pl.when(in_group(4))
        def _output_layer():
            _, c = tile(4, across2)
            outputs = jnp.arange(net.padded_outputs)
            inputs = self.activation_reader(self.layers.hidden2, net.hidden2, c)
            at = offset + net.weights3 + c[:, None] * net.outputs + outputs[None, :]
            gradient = self.weight_gradient(inputs, self.delta3, (TILE, net.padded_outputs))
            self.adam(at, (outputs < net.outputs)[None, :], gradient)

            @pl.when(program == starts[4])
            def _bias3():
                gradient = self.bias_gradient(self.delta3, net.padded_outputs)
                self.adam(offset + net.bias3 + outputs, outputs < net.outputs, gradient)


class _UpdateProgram:
    """GPU program that updates a part of a network."""

    def __init__(self, config: KernelConfig, delay_position: int, cycle: Ref, data: Ref,
                 corrections: Ref):  # fmt: skip
        self.config, self.data, self.corrections = config, data, corrections
        self.step = cycle[0] * config.delay + delay_position
        self.start = self.step * (config.columns * config.stride)

    def inputs(self, net: NetworkLayout) -> Callable:
        """Return a function that reads a network's inputs from the packed transitions.

        It takes the indices k [n] of the inputs and the indices `rows` of the transitions, and
        returns an array [n, rows].
        """

        def read(k, rows):
            column = k + jnp.where(k >= net.skipped[0], net.skipped[1], 0)
            at = self.start + column[:, None] * self.config.stride + rows[None, :]
            mask = (rows < self.config.batch_size)[None, :] & (k < net.inputs)[:, None]
            return _load(self.data, at, mask)

        return read

    def adam(self, before: NetworkState, after: NetworkState, optimiser: int, rate: float) -> _Adam:
        """Return the Adam update for the current training step.

        `optimiser` is 0 for the critics and 1 for the actor, and `rate` is its learning rate.
        """
        at = 4 * self.step + 2 * optimiser
        pair = self.corrections[at], self.corrections[at + 1]
        return _Adam(before, after, pair, rate, self.config.target_rate)

    def mean(self, function: Callable):
        """Return the mean of function(rows) over the batch, a scalar.

        `function` maps an array of row indices to one number for each row, and to 0 beyond the
        batch.
        """
        zero = jnp.zeros((ROW_CHUNK,), jnp.float32)
        batch_size = self.config.batch_size
        total = _fold_chunks(batch_size, lambda rows, t: t + function(rows), zero, ROW_CHUNK)
        return jnp.sum(total) / batch_size


def update_critics(config: KernelConfig, delay_position: int, cycle: Ref, data: Ref,
                   corrections: Ref, next_values, layers: LayerBuffers, losses,
                   before: NetworkState, losses_after, after: NetworkState):  # fmt: skip
    """Take an Adam step, in place, with the critic parameters that this GPU program handles.

    Program 0 of each critic also adds the critic's mean squared error to the summed losses.
    """
    program = _UpdateProgram(config, delay_position, cycle, data, corrections)
    net, index, critic = config.critic, pl.program_id(0), pl.program_id(1)

    def td_error(rows):
        """Return the temporal-difference errors [rows] of the transitions with these row indices.

        The error is 0 for truncated transitions and for padding.
        """
        valid = rows < config.batch_size
        at = program.start + 2 * net.inputs * config.stride + rows
        reward, discount, mask = (_load(data, at + i * config.stride, valid) for i in range(3))
        bootstrap = [_load(next_values, i * config.stride + rows, valid) for i in range(2)]
        value = _load(layers.value, critic * config.stride + rows, valid)
        return mask * (value - reward - discount * jnp.minimum(*bootstrap))

    def delta_scale(rows):  # the mask is 0 or 1 and therefore equals its square
        return (2.0 / config.batch_size) * td_error(rows)

    outputs = jnp.arange(net.padded_outputs)
    _NetworkUpdate(
        config, net, critic, program.inputs(net), layers,
        lambda rows: jnp.where(outputs[:, None] == 0, delta_scale(rows)[None, :], 0.0), delta_scale,
        program.adam(before, after, 0, config.critic_rate),
    ).update(index)  # fmt: skip

    @pl.when(index == 0)
    def _loss():
        losses_after[critic] = losses[critic] + program.mean(
            lambda rows: jnp.square(td_error(rows))
        )


def update_actor(config: KernelConfig, delay_position: int, cycle: Ref, data: Ref,
                 corrections: Ref, layers: LayerBuffers, delta3, loss,
                 before: NetworkState, loss_after, after: NetworkState):  # fmt: skip
    """Update the part of the actor that belongs to one GPU program, in place.

    Program 0 also adds the actor's loss to the summed loss.
    """
    program = _UpdateProgram(config, delay_position, cycle, data, corrections)
    net, index = config.actor, pl.program_id(0)

    def valid(rows):
        return rows < config.batch_size

    outputs = jnp.arange(net.padded_outputs)
    _NetworkUpdate(
        config, net, 0, program.inputs(net), layers,
        lambda rows: _load(
            delta3, outputs[:, None] * config.stride + rows[None, :], valid(rows)[None, :]
        ),
        lambda rows: jnp.ones(rows.shape, jnp.float32),
        program.adam(before, after, 1, config.actor_rate),
    ).update(index)  # fmt: skip

    @pl.when(index == 0)
    def _loss():
        value = program.mean(lambda rows: _load(layers.value, rows, valid(rows)))
        loss_after[0] = loss[0] - value
