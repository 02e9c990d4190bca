"""The kernels of TD3 on NVIDIA GPUs, in Pallas; `fused.py` runs them and says what for.

    target_values    of the next states, by each target critic
    values           of each critic, and the errors of its layers for a unit error of the value
    climb            what the actor does, what the first critic says of it, errors of its layers
    move_critic      gradient, Adam and slow target: a program for each tile of a weight matrix
    move_actor       the same

A critic's output is one number, so what reaches its layers is the error of that number times
something that does not depend on it. `values` computes the something while `target_values` is still
at work, and `move_critic` multiplies by the temporal-difference errors.

Everything is read and written by flat index. A network's parameters are one vector, as in
`networks.py`, padded to an aligned length. Data and layers are stored column by column, a column
being one input or unit of all transitions of a batch: that is the order in which `move_*` multiply
them. Networks have two hidden layers; the sizes of a kernel's pieces are powers of two.
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

ROWS = 16  # transitions of a program that computes layers
CHUNK = 32  # rows of weights that it reads at a time
TILE = 64  # sides of the piece of a weight matrix that a program moves
BATCH = 128  # transitions that it takes at a time
OUTPUTS = (16, 32, 64)  # of a network, padded to one of these: 16 is the least of a matrix unit
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's, as optax has them


@dataclasses.dataclass(frozen=True)
class Net:
    """Where the weights of a network with two hidden layers are in its vector."""

    inputs: int
    first: int
    second: int
    outputs: int
    gap: tuple[int, int] = (0, 0)
    """(start, width): its inputs from `start` on are `width` columns further on in the data."""

    @classmethod
    def of(cls, network: MLP, gap: tuple[int, int] = (0, 0)) -> Net:
        return cls(*network.sizes, gap=gap)

    @property
    def bias1(self) -> int:
        return self.inputs * self.first

    @property
    def kernel2(self) -> int:
        return self.bias1 + self.first

    @property
    def bias2(self) -> int:
        return self.kernel2 + self.first * self.second

    @property
    def kernel3(self) -> int:
        return self.bias2 + self.second

    @property
    def bias3(self) -> int:
        return self.kernel3 + self.second * self.outputs

    @property
    def wide(self) -> int:
        """Its outputs, padded."""
        return next(size for size in OUTPUTS if size >= self.outputs)

    @property
    def padded(self) -> int:
        """Length of the vector, such that every one in a row of them is aligned."""
        return -(-(self.bias3 + self.outputs) // 64) * 64

    @property
    def tiles(self) -> tuple[int, int]:
        """Of the first and of the second kernel."""
        across = self.first // TILE
        return -(-self.inputs // TILE) * across, across * (self.second // TILE)

    @property
    def pieces(self) -> int:
        """Programs that move it."""
        return sum(self.tiles) + self.first // TILE + 2 * (self.second // TILE)


class Sizes(NamedTuple):
    """What the kernels are compiled for."""

    actor: Net
    critic: Net
    observation: int
    action: int
    rows: int
    """Transitions of a batch."""
    delay: int
    """Critic steps for one of the actor."""
    actor_rate: float
    critic_rate: float
    target_rate: float
    interpret: bool = False
    """Run the kernels step by step in Python, to test them where there is no GPU."""

    @property
    def stride(self) -> int:
        """From one column of transitions to the next."""
        return -(-self.rows // ROWS) * ROWS

    @property
    def columns(self) -> int:
        """Of the data, see `pack`."""
        return 2 * self.critic.inputs + 3


class Moved(NamedTuple):
    """What a step changes: parameters, Adam's moments, slow targets. Flat and padded."""

    weights: Array
    mean: Array
    square: Array
    target: Array


class Layers(NamedTuple):
    """Activations of the hidden layers, the errors that reach them, and the outputs."""

    first: Array  # [first * stride]: unit by unit, the rows of a batch
    second: Array
    error1: Array
    error2: Array
    output: Array  # [stride], a value of the critic


class Judge(NamedTuple):
    """Layers of the critic that the actor climbs."""

    first: Array
    error2: Array


def _load(ref, index, mask=None):
    return triton.load(ref.at[index], mask=mask, other=None if mask is None else 0.0)


def _dot(a, b, over: tuple[int, int] = (1, 0)):
    """Product over one axis of each: (1, 0) is a @ b, (0, 0) is a.T @ b, (1, 1) is a @ b.T."""
    numbers = (((over[0],), (over[1],)), ((), ()))
    return jax.lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32)


def _relu(x):
    return jnp.maximum(x, 0.0)


def _over(count: int, body: Callable, start, chunk: int | None = None):
    """Fold `body(k, carry)` over `count` indices k, `chunk` at a time."""
    chunk = CHUNK if chunk is None else chunk

    def piece(i, carry):
        return body(i * chunk + jnp.arange(chunk), carry)

    if count <= chunk:
        return piece(0, start)
    return jax.lax.fori_loop(0, pl.cdiv(count, chunk), piece, start)


# ------------------------------------------------------------------------------------------ layers


class _Rows(NamedTuple):
    """A program's transitions."""

    data: Any
    start: Any
    """Where the step's data, or its columns of the next state, begin."""
    index: Any  # [ROWS]
    known: Any  # [ROWS] false for padding
    stride: int

    def columns(self, column, mask):
        at = self.start + column[None, :] * self.stride + self.index[:, None]
        return _load(self.data, at, self.known[:, None] & mask[None, :])


def _sum_of_products(count: int, left: Callable, right: Callable, shape: tuple[int, int]):
    """left(k) @ right(k), summed over the pieces k of `count` indices."""
    return _over(
        count, lambda k, total: total + _dot(left(k), right(k)), jnp.zeros(shape, jnp.float32)
    )


def _first_layer(net: Net, weights, base, rows: _Rows, without: tuple[int, int] = (0, 0)):
    """Sums of the first layer [ROWS, first]; the inputs `without` count as zero."""
    out = jnp.arange(net.first)

    def inputs(k):
        seen = (k < net.inputs) & ((k < without[0]) | (k >= without[1]))
        return rows.columns(k + jnp.where(k >= net.gap[0], net.gap[1], 0), seen)

    def kernel(k):
        at = base + k[:, None] * net.first + out[None, :]
        return _load(weights, at, (k < net.inputs)[:, None])

    total = _sum_of_products(net.inputs, inputs, kernel, (ROWS, net.first))
    return total + _load(weights, base + net.bias1 + out)[None, :]


def _second_layer(net: Net, weights, base, first: Callable):
    """Activations [ROWS, second], of those of the first layer."""
    out = jnp.arange(net.second)

    def kernel(k):
        return _load(weights, base + net.kernel2 + k[:, None] * net.second + out[None, :])

    total = _sum_of_products(net.first, first, kernel, (ROWS, net.second))
    return _relu(total + _load(weights, base + net.bias2 + out)[None, :])


def _back_to_first(net: Net, weights, base, error2: Callable):
    """Errors [ROWS, first] of the first layer, before its nonlinearity is looked at."""
    out = jnp.arange(net.first)

    def kernel(k):
        return _load(weights, base + net.kernel2 + out[None, :] * net.second + k[:, None])

    return _sum_of_products(net.second, error2, kernel, (ROWS, net.first))


def _third_kernel(net: Net, weights, base):
    """Kernel [second, wide] of the outputs, zero beyond them."""
    o, k = jnp.arange(net.wide), jnp.arange(net.second)
    at = base + net.kernel3 + k[:, None] * net.outputs + o[None, :]
    return _load(weights, at, (o < net.outputs)[None, :])


def _outputs(net: Net, weights, base, second):
    """[ROWS, wide], before any nonlinearity."""
    o = jnp.arange(net.wide)
    bias = _load(weights, base + net.bias3 + o, o < net.outputs)
    return _dot(second, _third_kernel(net, weights, base)) + bias[None, :]


def _value(net: Net, weights, base, second):
    """A critic's values [ROWS], and their gradient [ROWS, second]."""
    last = _load(weights, base + net.kernel3 + jnp.arange(net.second))
    bias = _load(weights, base + net.bias3 + jnp.zeros((ROWS,), jnp.int32))
    value = jnp.sum(second * last[None, :], axis=1) + bias
    return value, jnp.where(second > 0.0, last[None, :], 0.0)


def _action_kernel(sizes: Sizes, weights, base):
    """The rows [wide, first] of a critic's first kernel that belong to the action."""
    o, out = jnp.arange(sizes.actor.wide), jnp.arange(sizes.critic.first)
    at = base + (sizes.observation + o)[:, None] * sizes.critic.first + out[None, :]
    return _load(weights, at, (o < sizes.action)[:, None])


class _Layers:
    """What the programs that compute layers have in common: rows, and how layers are kept."""

    def __init__(self, sizes: Sizes, part: int, turn, data):
        step = turn[0] * sizes.delay + part
        self.sizes = sizes
        self.index = index = pl.program_id(0) * ROWS + jnp.arange(ROWS)
        start = step * (sizes.columns * sizes.stride)
        self.now = _Rows(data, start, index, index < sizes.rows, sizes.stride)
        self.after = self.now._replace(start=start + sizes.critic.inputs * sizes.stride)

    def value_first(self, weights, base, rows: _Rows, acted):
        """A critic's first layer, where the action is another than the recorded one."""
        action = (self.sizes.observation, self.sizes.observation + self.sizes.action)
        total = _first_layer(self.sizes.critic, weights, base, rows, action)
        return _relu(total + _dot(acted, _action_kernel(self.sizes, weights, base)))

    def keep(self, ref, which, value):
        """Write the rows of a layer, of network `which`; how to read them, once `settled`."""
        width, stride = value.shape[1], self.sizes.stride

        def at(k):
            return (which * width + k)[None, :] * stride + self.index[:, None]

        ref[at(jnp.arange(width))] = value
        return lambda k: _load(ref, at(k))

    def settled(self) -> None:
        """What threads of the program wrote can be read by all of them."""
        if not self.sizes.interpret:  # there is one thread, there
            triton.debug_barrier()


def target_values(sizes: Sizes, part: int, turn, data, actor, critics, next_value, led, judged):
    """Values of the next states, of one target critic."""
    program, net, twin = _Layers(sizes, part, turn, data), sizes.actor, pl.program_id(1)
    o = jnp.arange(net.wide)
    base, after = twin * sizes.critic.padded, program.after
    layer = _relu(_first_layer(net, actor, 0, after))
    first = program.keep(led, twin, layer)
    program.settled()
    noise = after.columns(sizes.observation + o, o < sizes.action)
    acted = jnp.tanh(_outputs(net, actor, 0, _second_layer(net, actor, 0, first))) + noise
    acted = jnp.maximum(jnp.minimum(acted, 1.0), -1.0)
    layer = program.value_first(critics, base, after, acted)
    first = program.keep(judged, twin, layer)
    program.settled()
    second = _second_layer(sizes.critic, critics, base, first)
    value, _ = _value(sizes.critic, critics, base, second)
    next_value[twin * sizes.stride + program.index] = value


def values(sizes: Sizes, part: int, turn, data, critics, kept: Layers):
    """Values of one critic, and the errors of its layers for a unit error of the value."""
    program, net, twin = _Layers(sizes, part, turn, data), sizes.critic, pl.program_id(1)
    base = twin * net.padded
    first = program.keep(kept.first, twin, _relu(_first_layer(net, critics, base, program.now)))
    program.settled()
    second = _second_layer(net, critics, base, first)
    kept.output[twin * sizes.stride + program.index], error = _value(net, critics, base, second)
    program.keep(kept.second, twin, second)
    error2 = program.keep(kept.error2, twin, error)
    program.settled()
    back = _back_to_first(net, critics, base, error2)
    seen = first(jnp.arange(net.first)) > 0.0  # read again: registers are scarce
    program.keep(kept.error1, twin, jnp.where(seen, back, 0.0))


def climb(sizes: Sizes, part: int, turn, data, actor, critics, kept: Layers, judge: Judge, error3):
    """What the actor does, what the first critic says of it, and the errors of its layers."""
    program, net, critic = _Layers(sizes, part, turn, data), sizes.actor, sizes.critic
    now, index = program.now, program.index
    first = program.keep(kept.first, 0, _relu(_first_layer(net, actor, 0, now)))
    program.settled()
    layer = _second_layer(net, actor, 0, first)
    second = program.keep(kept.second, 0, layer)
    acted = jnp.tanh(_outputs(net, actor, 0, layer))

    layer = program.value_first(critics, 0, now, acted)
    judged = program.keep(judge.first, 0, layer)
    program.settled()
    value, error = _value(critic, critics, 0, _second_layer(critic, critics, 0, judged))
    kept.output[index] = jnp.where(now.known, value, 0.0)
    error2 = program.keep(judge.error2, 0, error)
    program.settled()
    back = _back_to_first(critic, critics, 0, error2)
    back = jnp.where(judged(jnp.arange(critic.first)) > 0.0, back, 0.0)
    slope = _dot(back, _action_kernel(sizes, critics, 0), (1, 1))

    # The loss is minus the mean value; rows of padding have no part in it.
    error = (-1.0 / sizes.rows) * slope * (1.0 - acted * acted)
    error = jnp.where(now.known[:, None], error, 0.0)
    program.keep(error3, 0, error)
    error = _dot(error, _third_kernel(net, actor, 0), (1, 1))
    error = jnp.where(second(jnp.arange(net.second)) > 0.0, error, 0.0)
    error2 = program.keep(kept.error2, 0, error)
    program.settled()
    back = _back_to_first(net, actor, 0, error2)
    seen = first(jnp.arange(net.first)) > 0.0
    program.keep(kept.error1, 0, jnp.where(seen, back, 0.0))


# ------------------------------------------------------------------------------------------- moves


class _Adam(NamedTuple):
    """One step of Adam on pieces of a vector, and its slow target behind it."""

    before: Moved
    after: Any  # Moved, of references
    corrections: tuple[Any, Any]
    rate: float
    target_rate: float

    def __call__(self, at, mask, gradient: Callable):
        slope = gradient()
        old = Moved(*(_load(ref, at, mask) for ref in self.before))
        mean = BETA1 * old.mean + (1.0 - BETA1) * slope
        square = BETA2 * old.square + (1.0 - BETA2) * slope * slope
        root = jnp.sqrt(square * self.corrections[1])
        weights = old.weights - (self.rate * self.corrections[0]) * mean / (root + EPSILON)
        target = (1.0 - self.target_rate) * old.target + self.target_rate * weights
        for ref, value in zip(self.after, (weights, mean, square, target), strict=True):
            triton.store(ref.at[at], value, mask=mask)


class _Gradient(NamedTuple):
    """The moves of one network by its gradient.

    `inputs(k, rows)` reads what the network saw, `error3(rows)` the errors of its outputs, and
    `scale(rows)` are factors of the rows' errors. It is network `which` of those kept.
    """

    sizes: Sizes
    net: Net
    which: Any
    inputs: Callable
    kept: Layers
    error3: Callable
    scale: Callable
    descend: _Adam

    def over_rows(self, of: Callable, shape: tuple[int, ...]):
        total = jnp.zeros(shape, jnp.float32)
        return _over(self.sizes.rows, lambda rows, t: t + of(rows), total, BATCH)

    def kernel(self, left: Callable, right: Callable, shape: tuple[int, int]):
        """The gradient of a kernel: what the layer saw times its errors, over all rows."""
        return lambda: self.over_rows(lambda rows: _dot(left(rows), right(rows), (1, 1)), shape)

    def bias(self, right: Callable, size: int):
        return lambda: self.over_rows(lambda rows: jnp.sum(right(rows), axis=1), (size,))

    def read(self, ref, width: int, units):
        """Units [n, rows] of a layer, 0 beyond the batch."""

        def rows_of(rows):
            at = (self.which * width + units)[:, None] * self.sizes.stride + rows[None, :]
            return _load(ref, at, (rows < self.sizes.rows)[None, :])

        return rows_of

    def scaled(self, ref, width: int, units):
        return lambda rows: self.read(ref, width, units)(rows) * self.scale(rows)[None, :]

    def move(self, piece) -> None:
        """One of `net.pieces`: a tile of a kernel, a piece of a bias or of the last layer."""
        net, base = self.net, self.which * self.net.padded
        across1, across2 = net.first // TILE, net.second // TILE
        counts = (*net.tiles, across1, across2, across2)
        starts = [sum(counts[:i]) for i in range(6)]

        def here(i: int):
            return (piece >= starts[i]) & (piece < starts[i + 1])

        def units(i: int, across: int):
            own = piece - starts[i]
            t = jnp.arange(TILE)
            return (own // across) * TILE + t, (own % across) * TILE + t

        @pl.when(here(0))
        def _first_kernel():
            r, c = units(0, across1)
            error = self.scaled(self.kept.error1, net.first, c)
            slope = self.kernel(lambda rows: self.inputs(r, rows), error, (TILE, TILE))
            at = base + r[:, None] * net.first + c[None, :]
            self.descend(at, (r < net.inputs)[:, None], slope)

        @pl.when(here(1))
        def _second_kernel():
            r, c = units(1, across2)
            seen = self.read(self.kept.first, net.first, r)
            error = self.scaled(self.kept.error2, net.second, c)
            at = base + net.kernel2 + r[:, None] * net.second + c[None, :]
            self.descend(at, None, self.kernel(seen, error, (TILE, TILE)))

        @pl.when(here(2))
        def _first_bias():
            _, c = units(2, across1)
            error = self.scaled(self.kept.error1, net.first, c)
            self.descend(base + net.bias1 + c, None, self.bias(error, TILE))

        @pl.when(here(3))
        def _second_bias():
            _, c = units(3, across2)
            error = self.scaled(self.kept.error2, net.second, c)
            self.descend(base + net.bias2 + c, None, self.bias(error, TILE))

        @pl.when(here(4))
        def _last_layer():
            _, c = units(4, across2)
            o = jnp.arange(net.wide)
            seen = self.read(self.kept.second, net.second, c)
            at = base + net.kernel3 + c[:, None] * net.outputs + o[None, :]
            slope = self.kernel(seen, self.error3, (TILE, net.wide))
            self.descend(at, (o < net.outputs)[None, :], slope)

            @pl.when(piece == starts[4])
            def _():
                bias = self.bias(self.error3, net.wide)
                self.descend(base + net.bias3 + o, o < net.outputs, bias)


class _Mover:
    """What the programs that move networks have in common."""

    def __init__(self, sizes: Sizes, part: int, turn, data, corrections):
        self.sizes, self.data, self.corrections = sizes, data, corrections
        self.step = turn[0] * sizes.delay + part
        self.start = self.step * (sizes.columns * sizes.stride)

    def inputs(self, net: Net):
        def read(k, rows):
            column = k + jnp.where(k >= net.gap[0], net.gap[1], 0)
            at = self.start + column[:, None] * self.sizes.stride + rows[None, :]
            known = (rows < self.sizes.rows)[None, :] & (k < net.inputs)[:, None]
            return _load(self.data, at, known)

        return read

    def adam(self, before: Moved, after: Moved, column: int, rate: float) -> _Adam:
        at = 4 * self.step + 2 * column
        pair = self.corrections[at], self.corrections[at + 1]
        return _Adam(before, after, pair, rate, self.sizes.target_rate)

    def mean(self, of: Callable):
        zero = jnp.zeros((BATCH,), jnp.float32)
        total = _over(self.sizes.rows, lambda rows, t: t + of(rows), zero, BATCH)
        return jnp.sum(total) / self.sizes.rows


def move_critic(sizes: Sizes, part: int, turn, data, corrections, next_value, kept: Layers,
                 losses, before: Moved, losses_after, after: Moved):  # fmt: skip
    program, net = _Mover(sizes, part, turn, data, corrections), sizes.critic
    piece, twin = pl.program_id(0), pl.program_id(1)

    def difference(rows):
        """The temporal-difference errors, 0 where a row does not count."""
        known = rows < sizes.rows
        at = program.start + 2 * net.inputs * sizes.stride + rows
        reward, bootstrap, weight = (_load(data, at + i * sizes.stride, known) for i in range(3))
        nexts = [_load(next_value, i * sizes.stride + rows, known) for i in range(2)]
        value = _load(kept.output, twin * sizes.stride + rows, known)
        return weight * (value - reward - bootstrap * jnp.minimum(*nexts))

    def scale(rows):  # a row's weight is 0 or 1, and so its own square
        return (2.0 / sizes.rows) * difference(rows)

    o = jnp.arange(net.wide)
    _Gradient(
        sizes, net, twin, program.inputs(net), kept,
        lambda rows: jnp.where(o[:, None] == 0, scale(rows)[None, :], 0.0), scale,
        program.adam(before, after, 0, sizes.critic_rate),
    ).move(piece)  # fmt: skip

    @pl.when(piece == 0)
    def _():
        losses_after[twin] = losses[twin] + program.mean(lambda rows: jnp.square(difference(rows)))


def move_actor(sizes: Sizes, part: int, turn, data, corrections, kept: Layers, error3,
                loss, before: Moved, loss_after, after: Moved):  # fmt: skip
    program, net = _Mover(sizes, part, turn, data, corrections), sizes.actor
    piece = pl.program_id(0)

    def known(rows):
        return rows < sizes.rows

    o = jnp.arange(net.wide)
    _Gradient(
        sizes, net, 0, program.inputs(net), kept,
        lambda rows: _load(
            error3, o[:, None] * sizes.stride + rows[None, :], known(rows)[None, :]
        ),
        lambda rows: jnp.ones(rows.shape, jnp.float32),
        program.adam(before, after, 1, sizes.actor_rate),
    ).move(piece)  # fmt: skip

    @pl.when(piece == 0)
    def _():
        value = program.mean(lambda rows: _load(kept.output, rows, known(rows)))
        loss_after[0] = loss[0] - value
