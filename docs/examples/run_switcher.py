"""Run a switcher of `elites export RUN switcher.safetensors --switcher`, with NumPy alone.

Start it with the file's name and the descriptor to reach, in task units.
"""

import sys
import time

import numpy as np
from run_exported import forward
from safetensors import safe_open


class Switcher:
    """Elites and the distilled policy, with what each is known to reach."""

    def __init__(self, path):
        with safe_open(path, "numpy") as file:
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            self.facts = file.metadata()

    def choose(self, descriptor):
        """Return the policy that comes nearest to a descriptor, and its known error."""
        tensors = self.tensors
        errors = np.linalg.norm((tensors["reached"] - descriptor) * tensors["weights"], axis=1)
        row = errors.argmin()
        elite = tensors["elite"][row]
        if elite >= 0:
            layers = [[part[elite] for part in layer] for layer in self.layers("elites")]
            return lambda x: forward(layers, self.facts["activation"], x), errors[row]
        layers, request = self.layers("actor"), tensors["request"][row]
        activation = self.facts["actor_activation"]
        return lambda x: forward(layers, activation, np.append(x, request)), errors[row]

    def layers(self, name):
        """Return the layers of the elites or of the actor, as pairs (kernel, bias)."""
        count = sum(key.startswith(name + ".") for key in self.tensors) // 2
        return [[self.tensors[f"{name}.{i}.{part}"] for part in ("kernel", "bias")]
                for i in range(count)]  # fmt: skip


if __name__ == "__main__":
    switcher = Switcher(sys.argv[1])
    descriptor, size = np.array(sys.argv[2:], np.float32), switcher.tensors["reached"].shape[1]
    if len(descriptor) != size:
        sys.exit(f"give the file and a descriptor of {size} numbers, got {len(descriptor)}")
    policy, error = switcher.choose(descriptor)
    observation = np.zeros(switcher.tensors["elites.0.kernel"].shape[1], np.float32)
    begun = time.perf_counter()
    for _ in range(1000):
        action = policy(observation)
    print(action.tolist())
    print(f"known error {error:.4g}")
    print(f"{1000 * (time.perf_counter() - begun):.1f} microseconds for one action")
