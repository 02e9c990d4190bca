"""Run a policy written by `elites export RUN actor.safetensors --actor`, with NumPy alone."""

import sys

import numpy as np
from safetensors.numpy import load_file

tensors = load_file(sys.argv[1])
count = len(tensors) // 2
observation, descriptor = np.zeros(len(tensors["layers.0.kernel"]) - 2), [0.5, -0.5]
x = np.concatenate([observation, descriptor])  # the descriptor in task units
for i in range(count):
    x = x @ tensors[f"layers.{i}.kernel"] + tensors[f"layers.{i}.bias"]
    x = np.tanh(x) if i == count - 1 else np.maximum(x, 0)
print(x.tolist())
