"""Networks whose parameters are one flat vector.

A policy is a vector, so an archive of policies is a matrix and a mutation is arithmetic. The vector
holds, layer by layer, the kernel [inputs, outputs] row by row and then the bias. Networks are
multi-layer perceptrons with one activation between all layers, by default ReLU. Kernels start
LeCun-uniform, biases at zero.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Literal, TypeVar

import jax
import jax.numpy as jnp
import optax

from elites.core.hyperparameters import Activation

Array = jax.Array
Layers = list[tuple[Array, Array]]  # kernel [..., inputs, outputs] and bias [..., outputs]
Parameters = TypeVar("Parameters", Array, Layers)

ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


@dataclasses.dataclass(frozen=True)
class MLP:
    """Shape of a fully connected network."""

    sizes: tuple[int, ...]
    """Inputs, hidden layers, outputs."""
    output: Literal["tanh", "linear"] = "tanh"
    activation: Activation = "relu"
    """Activation between the layers."""

    def __post_init__(self):
        # A network without inputs is a plain vector: its bias.
        if len(self.sizes) < 2 or min(self.sizes[1:]) < 1 or self.sizes[0] < 0:
            raise ValueError(f"a network needs at least two positive sizes, got {self.sizes}")
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"activation must be one of {known}, got {self.activation!r}")

    @property
    def size(self) -> int:
        """Number of parameters P of the network."""
        return sum((i + 1) * o for i, o in itertools.pairwise(self.sizes))


def policy(
    observation_size: int,
    action_size: int,
    hidden: tuple[int, ...] = (128, 128),
    activation: Activation = "relu",
) -> MLP:
    """Return the shape of a policy network, from observations to actions in [-1, 1]."""
    return MLP((observation_size, *hidden, action_size), activation=activation)


def init(network: MLP, key: Array) -> Array:
    """Return random initial parameters [P] of a network."""
    parts = []
    pairs = list(itertools.pairwise(network.sizes))
    for (inputs, outputs), layer_key in zip(pairs, jax.random.split(key, len(pairs)), strict=True):
        limit = (3.0 / max(inputs, 1)) ** 0.5
        parts.append(
            jax.random.uniform(layer_key, (inputs * outputs,), minval=-limit, maxval=limit)
        )
        parts.append(jnp.zeros(outputs))
    return jnp.concatenate(parts)


def unflatten(network: MLP, parameters: Array) -> Layers:
    """Return a (kernel, bias) pair for each layer of networks given as vectors [..., P].

    The leading axes of the vectors become leading axes of every kernel and bias.
    """
    if parameters.shape[-1] != network.size:
        raise ValueError(
            f"a {'-'.join(map(str, network.sizes))} network has {network.size} parameters, got "
            f"{parameters.shape[-1]}"
        )
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(network.sizes):
        kernel = parameters[..., start : start + inputs * outputs]
        start += inputs * outputs
        bias = parameters[..., start : start + outputs]
        start += outputs
        layers.append((kernel.reshape(*kernel.shape[:-1], inputs, outputs), bias))
    return layers


def apply(network: MLP, layers: Layers, x: Array) -> Array:
    """Return the outputs [..., outputs] of a network at inputs [..., inputs].

    The layers may have leading axes. The kernels must then match the inputs as in `jnp.matmul`, and
    the biases must broadcast to the outputs.
    """
    return _forward(network, layers, x, lambda x, kernel: x @ kernel)


def apply_each(network: MLP, layers: Layers, x: Array) -> Array:
    """Return the outputs [n, outputs] of n networks, network i at row i of the inputs [n, inputs].

    Every kernel and bias in `layers` has the leading axis n.
    """
    return _forward(network, layers, x, lambda x, kernel: jnp.einsum("ni,nio->no", x, kernel))


def _forward(
    network: MLP, layers: Layers, x: Array, product: Callable[[Array, Array], Array]
) -> Array:
    def dense(x: Array, kernel: Array, bias: Array) -> Array:
        return product(x, kernel) + jnp.expand_dims(bias, range(x.ndim - bias.ndim))

    activate = ACTIVATIONS[network.activation]
    for kernel, bias in layers[:-1]:
        x = activate(dense(x, kernel, bias))
    x = dense(x, *layers[-1])
    return jnp.tanh(x) if network.output == "tanh" else x


def descend(
    parameters: Parameters, gradient: Parameters, moments: optax.OptState, rate: float | Array
) -> tuple[Parameters, optax.OptState]:
    """Take one Adam step down the gradient. Returns the new parameters and the new Adam moments.

    The parameters are a flat vector or a list of layers.
    """
    update, moments = optax.adam(rate).update(gradient, moments)
    return optax.apply_updates(parameters, update), moments  # pyright: ignore[reportReturnType]


def flatten(layers: Layers) -> Array:
    """Return networks as vectors [..., P] from the kernels and biases of their layers.

    It is the inverse of `unflatten`.
    """
    parts = []
    for kernel, bias in layers:
        *leading, inputs, outputs = kernel.shape
        parts += [kernel.reshape(*leading, inputs * outputs), bias]
    return jnp.concatenate(parts, axis=-1)


def folded(network: MLP, condition_size: int) -> MLP:
    """Return the shape of the policies that `fold` makes from a conditioned network."""
    return dataclasses.replace(
        network, sizes=(network.sizes[0] - condition_size, *network.sizes[1:])
    )


def fold(network: MLP, parameters: Array, condition: Array) -> Array:
    """Return n unconditioned policies [n, P'] from a conditioned policy [P] and conditions [n, D].

    Policy i acts on an observation as the conditioned policy does given condition i. The
    condition's contribution to the first layer becomes part of the bias, so P' is smaller than P.
    """
    (kernel, bias), *rest = unflatten(network, parameters)
    inputs = kernel.shape[0] - condition.shape[-1]
    first = jnp.broadcast_to(kernel[:inputs], (len(condition), inputs, kernel.shape[1]))
    bias = bias[None] + condition @ kernel[inputs:]
    rest = [
        (
            jnp.broadcast_to(k, (len(condition), *k.shape)),
            jnp.broadcast_to(b, (len(condition), *b.shape)),
        )
        for k, b in rest
    ]
    return flatten([(first, bias), *rest])
