"""Compare the TD3 kernels with the plain code on a GPU: time, and error of the products.

    python benchmarks/kernels.py --seeds 1 4 20

Prints one JSON line for each number of seeds. The data is random, with the sizes of Ant-Omni.

    plain_s, kernels_s          seconds that the training of one iteration takes
    plain_error, kernels_error  distance of the critics from those of exact float32 products after
                                twenty steps, relative to the distance they have changed
    same_bits                   whether five runs of the kernels give the same bits
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import elites
from elites import training
from elites.core import td3
from elites.core.gpu import td3 as gpu_td3

Data = tuple[td3.TD3State, td3.Batch, jax.Array]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    algorithm = elites.build("ant_omni", "dcg_me")
    learner = algorithm.main_td3
    assert learner is not None
    if jax.default_backend() != "gpu" or not gpu_td3.supported(learner):
        raise SystemExit(
            "benchmarks/kernels.py: needs an NVIDIA GPU of compute capability 8 or more"
        )
    for seeds in options.seeds:
        batched = training.Batched(algorithm, seeds)
        data = random_data(learner, seeds)
        result = {"benchmark": "kernels", "seeds": seeds, "device": jax.devices()[0].device_kind}
        for name, train in {"plain": td3.train_plain, "kernels": gpu_td3.train}.items():
            run = batched.over_seeds(functools.partial(train, learner), concurrent=True)
            seconds = median_seconds(functools.partial(run, *data), options.repeat)
            result[f"{name}_s"] = round(seconds, 4)
        print(json.dumps(result | accuracy(batched, learner, data)), flush=True)


def random_data(learner: td3.TD3, seeds: int) -> Data:
    """Return a state, the batches of all steps and the smoothing noise, for each seed."""
    keys = iter(jax.random.split(jax.random.key(0), 12))
    actions, rows = learner.actor.sizes[-1], learner.batch_size
    descriptors = 2
    observations = learner.actor.sizes[0] - descriptors

    def normal(*size: int) -> jax.Array:
        return jax.random.normal(next(keys), (seeds, learner.steps, rows, *size))

    batch = td3.Batch(
        normal(observations), jnp.tanh(normal(actions)), normal(), normal(observations),
        jnp.float32(normal() > 1.5), jnp.float32(normal() > 1.5),
        jnp.tanh(normal(descriptors)), jnp.tanh(normal(descriptors)),
    )  # fmt: skip
    state = jax.vmap(lambda k: td3.init(learner, k))(jax.random.split(next(keys), seeds))
    return state, batch, normal(actions)


def median_seconds(run: Callable, repeat: int) -> float:
    """Return the median time of `repeat` runs. One run before them compiles and is not counted."""
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def accuracy(batched: training.Batched, learner: td3.TD3, data: Data) -> dict[str, float | bool]:
    """Compare the critics after twenty steps with those of exact float32 products."""
    state, batch, noise = data
    learner = dataclasses.replace(learner, steps=20)
    arguments = (state, *jax.tree.map(lambda a: a[:, :20], (batch, noise)))

    def critic_change(train: Callable) -> np.ndarray:
        run = batched.over_seeds(functools.partial(train, learner), concurrent=True)
        return np.asarray(run(*arguments)[0].critics, np.float64) - np.asarray(state.critics)

    with jax.default_matmul_precision("highest"):
        exact = critic_change(td3.train_plain)
    plain = critic_change(td3.train_plain)
    kernels = [critic_change(gpu_td3.train) for _ in range(5)]
    scale = float(np.linalg.norm(exact))
    return {
        "plain_error": round(float(np.linalg.norm(plain - exact)) / scale, 4),
        "kernels_error": round(float(np.linalg.norm(kernels[0] - exact)) / scale, 4),
        "same_bits": all(bool((k == kernels[0]).all()) for k in kernels),
    }


if __name__ == "__main__":
    main()
