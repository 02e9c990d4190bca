"""Seconds of each stage of an iteration, and the memory of a seed. One JSON line per case.

    python benchmarks/iteration.py --task ant_omni --algorithm dcg_me --seeds 1 4 20
    python benchmarks/iteration.py --set critic_steps=100 --set batch_size=64 --seeds 1

Stages are compiled and timed one by one (`train`, `vary`, `evaluate`, `add`), then the whole
iteration as training runs it. The median of `--repeat` runs after one that is not counted; arrays
are brought to rest before the clock is read.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", default="ant_omni")
    parser.add_argument("--algorithm", default="dcg_me")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--memory-only", action="store_true", help="print sizes, run nothing")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a hyperparameter"
    )
    options = parser.parse_args()
    values = dict(entry.split("=", 1) for entry in options.set)
    values = {name: ast.literal_eval(value) for name, value in values.items()}
    algorithm = elites.build(options.task, options.algorithm, **values)
    for seeds in options.seeds:
        case = {
            "benchmark": "iteration",
            "task": options.task,
            "algorithm": options.algorithm,
            "seeds": seeds,
            **values,
            "device": jax.devices()[0].device_kind,
            "jax": jax.__version__,
            "megabytes_a_seed": memory(algorithm),
        }
        if not options.memory_only:
            case |= times(algorithm, seeds, options.repeat)
        print(json.dumps(case), flush=True)


def memory(algorithm) -> dict[str, float]:
    """Megabytes of the arrays that one seed keeps, by part; nothing is allocated."""
    state = jax.eval_shape(algorithm.init, jax.random.key(0))
    parts = {
        name: sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(part)) / 1e6
        for name, part in state._asdict().items()
    }
    return {"total": round(sum(parts.values()), 1)} | {
        name: round(size, 1) for name, size in parts.items() if size > 0.05
    }


def times(algorithm, seeds: int, repeat: int) -> dict[str, Any]:
    batched = training.Batched(algorithm, seeds)
    keys = training.iteration_keys(training.seed_keys(range(seeds)), 0)
    start = time.perf_counter()
    state = jax.block_until_ready(batched.init(keys))
    result: dict[str, Any] = {"init_and_compile_s": round(time.perf_counter() - start, 2)}

    seconds: dict[str, float] = {}
    if algorithm.stages:
        stages = {
            name: batched.over_seeds(stage, side_by_side=name == "train")
            for name, stage in algorithm.stages.items()
        }
        if algorithm.learner is not None:
            seconds["train"], _ = clock(lambda: stages["train"](state, keys), repeat)
        seconds["vary"], offspring = clock(lambda: stages["vary"](state, keys), repeat)
        wanted = stages["want"](state, offspring, keys)
        roll = lambda: stages["evaluate"](wanted, keys)  # noqa: E731
        seconds["evaluate"], evaluated = clock(roll, repeat)
        settle = lambda: stages["add"](state, offspring, *evaluated, wanted.targets)  # noqa: E731
        seconds["add"], _ = clock(settle, repeat)

    start = time.perf_counter()
    batched.compile(state, keys)
    result["step_compile_s"] = round(time.perf_counter() - start, 2)
    runs = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(batched.step(state, keys))
        runs.append(time.perf_counter() - start)
    seconds["iteration"] = statistics.median(runs[1:])
    result["seconds"] = {name: round(value, 4) for name, value in seconds.items()}
    return result


def clock(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Median seconds, and the last result."""
    result, runs = jax.block_until_ready(run()), []
    for _ in range(repeat):
        start = time.perf_counter()
        result = jax.block_until_ready(run())
        runs.append(time.perf_counter() - start)
    return statistics.median(runs), result


if __name__ == "__main__":
    main()
