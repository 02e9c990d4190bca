"""Run a policy written by `elites export RUN policy.safetensors`, with NumPy alone.

python run_exported.py policy.safetensors [DESCRIPTOR ...]
"""

import sys
import time

import numpy as np
from safetensors import safe_open

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(0.7978846 * (x + 0.044715 * x**3))),
    "silu": lambda x: 0.5 * x * (1 + np.tanh(0.5 * x)),
}


def forward(layers, activation, x):
    """Return the action of a network, a list of (kernel, bias), at its inputs x."""
    for kernel, bias in layers[:-1]:
        x = ACTIVATIONS[activation](x @ kernel + bias)
    kernel, bias = layers[-1]
    return np.tanh(x @ kernel + bias)


def load(path):
    """Return the layers and the activation of an exported policy."""
    with safe_open(path, "numpy") as file:
        read = [[file.get_tensor(f"layers.{i}.{part}") for part in ("kernel", "bias")]
                for i in range(len(file.keys()) // 2)]  # fmt: skip
        return read, file.metadata()["activation"]


if __name__ == "__main__":
    layers, activation = load(sys.argv[1])
    descriptor = np.array(sys.argv[2:], np.float32)  # in task units, if the policy takes one
    observation = np.zeros(len(layers[0][0]) - len(descriptor), np.float32)
    begun = time.perf_counter()
    for _ in range(1000):
        action = forward(layers, activation, np.concatenate([observation, descriptor]))
    print(action.tolist())
    print(f"{1000 * (time.perf_counter() - begun):.1f} microseconds for one action")
