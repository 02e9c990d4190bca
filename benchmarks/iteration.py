"""Time each stage of an iteration and measure the memory of a seed. Prints one JSON line a case.

    python benchmarks/iteration.py --task ant_omni --algorithm dcg_me --seeds 1 4 20
    python benchmarks/iteration.py --set critic_steps=100 --set batch_size=64 --seeds 1

The stages (`train`, `ask`, `evaluate`, `tell`) are timed one by one, waiting for each, then the
whole iteration as training runs it. Each figure is the median of `--repeat` runs after one that is
not counted. `peak_megabytes` is what the compiler says that the largest stage holds. On a CPU, each
seed has a device of its own, as in training. `--devices 1` computes the seeds as one batch.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

import elites
from elites import training
from elites.core.algorithm import Algorithm
from elites.training import devices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", default="ant_omni")
    parser.add_argument("--algorithm", default="dcg_me")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--devices", type=int, metavar="N", help="spread the seeds over N devices")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory-only", action="store_true", help="print sizes, run nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a hyperparameter"
    )
    options = parser.parse_args()
    values = dict(entry.split("=", 1) for entry in options.set)
    values = {name: ast.literal_eval(value) for name, value in values.items()}
    devices.provide(options.devices or max(options.seeds))
    algorithm = elites.build(options.task, options.algorithm, preset=options.preset, **values)
    for seeds in options.seeds:
        case = {
            "benchmark": "iteration",
            "task": options.task,
            "algorithm": options.algorithm,
            "preset": options.preset,
            "seeds": seeds,
            **values,
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "megabytes_a_seed": memory(algorithm),
        }
        if not options.memory_only:
            case |= times(algorithm, seeds, options.devices, options.repeat)
        print(json.dumps(case), flush=True)


def memory(algorithm: Algorithm) -> dict[str, float]:
    """Return the megabytes of the arrays that one seed keeps, by part. Allocates nothing."""
    state = training.Batched(algorithm, 1).shapes(training.seed_keys([0]))
    parts = {
        name: sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(part)) / 1e6
        for name, part in state._asdict().items()
    }
    return {"total": round(sum(parts.values()), 1)} | {
        name: round(size, 1) for name, size in parts.items() if size > 0.05
    }


def times(algorithm: Algorithm, seeds: int, wanted: int | None, repeat: int) -> dict[str, Any]:
    """Return the seconds to compile, of each stage and of a whole iteration.

    The seeds are spread over the `wanted` number of devices, if there are so many.
    """
    batched = training.Batched(algorithm, seeds, devices=wanted)
    keys = training.iteration_keys(training.seed_keys(range(seeds)), 0)
    start = time.perf_counter()
    state = jax.block_until_ready(batched.start(keys))
    result: dict[str, Any] = {"devices": batched.devices}
    result["start_and_compile_s"] = round(time.perf_counter() - start, 2)
    start = time.perf_counter()
    needed = batched.compile(state, keys)
    result["step_compile_s"] = round(time.perf_counter() - start, 2)
    result["peak_megabytes"] = round(needed / 1e6, 1)

    seconds: dict[str, list[float]] = {}

    def timed(name: str, stage: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        output = jax.block_until_ready(stage(*arguments))
        seconds.setdefault(name, []).append(time.perf_counter() - start)
        return output

    # `train` and `tell` donate the state, so it is passed on from stage to stage.
    several = len(batched.compiled.rounds) > 1
    for _ in range(repeat + 1):
        state, _ = timed("train", batched.compiled.train, state, keys)
        for i, (ask, tell, _) in enumerate(batched.compiled.rounds, start=1):
            round_ = f"_{i}" if several else ""
            request = timed(f"ask{round_}", ask, state, keys)
            evaluation = timed(f"evaluate{round_}", batched.compiled.evaluate, request)
            state, _ = timed(f"tell{round_}", tell, state, request, evaluation)
            del request, evaluation
    for _ in range(repeat + 1):
        state, _ = timed("iteration", batched.step, state, keys)
    result["seconds"] = {
        name: round(statistics.median(runs[1:]), 4) for name, runs in seconds.items()
    }
    return result


if __name__ == "__main__":
    main()
