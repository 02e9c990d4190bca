"""Policies in NumPy, for processes that do not load JAX: simulators' workers, exported files.

    layers = unflatten(sizes, parameters)                        # once for each policy
    action = forward(layers, observation, activation="relu")     # at every step

It computes what `networks.apply` computes, up to rounding. A policy of the archive takes raw
observations, also where a run normalises them (`normalisation.py`): nothing else is needed to act.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from elites.core.hyperparameters import Activation

Layers = list[tuple[np.ndarray, np.ndarray]]  # kernel [..., inputs, outputs], bias [..., outputs]


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return GELU in the approximation with a hyperbolic tangent, which JAX and others use."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def _silu(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(0.5) * x))  # x sigmoid(x), no overflow


ACTIVATIONS: dict[Activation, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": _elu,
    "gelu": _gelu,
    "silu": _silu,
}
"""Hidden activations by name. `networks.ACTIVATIONS` has the same in JAX."""


def unflatten(sizes: Sequence[int], parameters: np.ndarray) -> Layers:
    """Return a (kernel, bias) pair for each layer of networks given as vectors [..., P].

    `sizes` are those of `MLP`: inputs, hidden layers, outputs. The pairs are views of the vectors,
    and have their leading axes.
    """
    expected = sum((i + 1) * o for i, o in itertools.pairwise(sizes))
    if parameters.shape[-1:] != (expected,):
        raise ValueError(
            f"a {'-'.join(map(str, sizes))} network has {expected} parameters, got shape "
            f"{parameters.shape}"
        )
    layers, start = [], 0
    for inputs, outputs in itertools.pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        kernel = parameters[..., start:middle]
        kernel = kernel.reshape(*kernel.shape[:-1], inputs, outputs)
        layers.append((kernel, parameters[..., middle:end]))
        start = end
    return layers


def forward(layers: Layers, observation: np.ndarray, activation: Activation) -> np.ndarray:
    """Return the actions [..., A] of a policy at observations [..., O]: tanh of its last layer.

    `activation` is the policy's hidden activation, `MLP.activation`.
    """
    x, activate = observation, ACTIVATIONS[activation]
    for kernel, bias in layers[:-1]:
        x = activate(x @ kernel + bias)
    kernel, bias = layers[-1]
    return np.tanh(x @ kernel + bias)
