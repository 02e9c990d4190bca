"""TD3 by its kernels against the plain code, on a GPU: seconds, and distance from exact products.

    python benchmarks/fused.py --seeds 1 4 20

One JSON line per number of seeds: seconds of an iteration's training both ways, on random data of
the sizes of Ant-Omni; how far both are from the plain code with float32 products after twenty
steps, as a share of the way the critics moved; and whether five runs of the kernels gave the same
bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import elites
from elites import training
from elites.core import fused, td3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    algorithm = elites.build("ant_omni", "dcg_me")
    learner = algorithm.learner
    assert learner is not None
    if jax.default_backend() != "gpu" or not fused.supported(learner):
        raise SystemExit("benchmarks/fused.py: needs an NVIDIA GPU of compute capability 8 or more")
    for seeds in options.seeds:
        compiler = training.Batched(algorithm, seeds)
        batches = data(learner, seeds)
        result = {"benchmark": "fused", "seeds": seeds, "device": jax.devices()[0].device_kind}
        ways = {"plain": td3.train_plain, "kernels": fused.train}
        for name, train in ways.items():
            run = compiler.over_seeds(functools.partial(train, learner), side_by_side=True)
            result[f"{name}_s"] = round(clock(functools.partial(run, *batches), options.repeat), 4)
        print(json.dumps(result | accuracy(compiler, learner, batches)), flush=True)


def data(learner: td3.TD3, seeds: int):
    """A state and batches of all steps, for each seed."""
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


def clock(run, repeat: int) -> float:
    """Median seconds after one run that does not count."""
    seconds = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def accuracy(compiler: training.Batched, learner: td3.TD3, batches) -> dict[str, float | bool]:
    state, batch, noise = batches
    learner = dataclasses.replace(learner, steps=20)
    arguments = (state, *jax.tree.map(lambda a: a[:, :20], (batch, noise)))

    def moved(train) -> np.ndarray:
        run = compiler.over_seeds(functools.partial(train, learner), side_by_side=True)
        return np.asarray(run(*arguments)[0].critics, np.float64) - np.asarray(state.critics)

    with jax.default_matmul_precision("highest"):
        exact = moved(td3.train_plain)
    kernels = [moved(fused.train) for _ in range(5)]
    way = float(np.linalg.norm(exact))
    return {
        "plain_error": round(float(np.linalg.norm(moved(td3.train_plain) - exact)) / way, 4),
        "kernels_error": round(float(np.linalg.norm(kernels[0] - exact)) / way, 4),
        "same_bits": all(bool((k == kernels[0]).all()) for k in kernels),
    }


if __name__ == "__main__":
    main()
