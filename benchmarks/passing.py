"""Measure how long training takes until it passes the paper's QD-score of a million evaluations.

    python benchmarks/passing.py --task ant_omni --seeds 2

The result of this command is in `docs/results/progress_me/passing.jsonl`.

Trains until every seed has passed the score and prints one JSON line: for each seed the evaluations
and seconds until then. Seconds count from the first iteration, so they are without the time to
compile, which has a field of its own. `--cores 1` uses one core of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping

import jax
import numpy as np

import elites
from elites.study.report import PUBLISHED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", default="ant_omni", choices=PUBLISHED)
    parser.add_argument("--algorithm", default="progress_me")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--evaluations", type=int, default=256_000, help="give up after these")
    parser.add_argument("--cores", type=int, metavar="N", help="use N cores of the CPU")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    score = PUBLISHED[options.task][0]

    def stop(iteration: int, metrics: Mapping[str, np.ndarray]) -> None:
        """End training when every seed has passed the score."""
        if (metrics["qd_score"] >= score).all():
            raise elites.StopTraining

    seeds = range(options.first_seed, options.first_seed + options.seeds)
    begun = time.perf_counter()
    run = elites.train(
        options.task, options.algorithm, seeds=seeds, evaluations=options.evaluations, callback=stop
    )
    taken = time.perf_counter() - begun
    metrics = {name: np.asarray(values) for name, values in run.metrics.items()}
    print(
        json.dumps(
            {
                "benchmark": "passing",
                "task": options.task,
                "algorithm": options.algorithm,
                "score": score,
                "seeds": list(seeds),
                **passing(metrics, score),
                "iterations": len(metrics["seconds"]),
                "seconds_an_iteration": seconds_an_iteration(metrics["seconds"][:, 0]),
                "compile_seconds": round(taken - float(metrics["seconds"][-1, 0]), 1),
                "device": jax.devices()[0].device_kind,
                "cores": len(os.sched_getaffinity(0)),
                "jax": jax.__version__,
            }
        )
    )


def seconds_an_iteration(seconds: np.ndarray) -> float | None:
    """Return the mean time between iterations that ended after so many seconds.

    Returns None if there is only one.
    """
    return round(float(np.diff(seconds).mean()), 2) if len(seconds) > 1 else None


def passing(metrics: Mapping[str, np.ndarray], score: float) -> dict[str, list[float | None]]:
    """Return the evaluations and the seconds after which each seed has passed a QD-score.

    They are None for a seed that has not. `metrics` are arrays [iterations, seeds].
    """
    passed = metrics["qd_score"] >= score
    ends = [int(np.argmax(p)) if p.any() else None for p in passed.T]

    def at(name: str) -> list[float | None]:
        """Return a metric of each seed at the iteration in which it passed."""
        return [
            None if end is None else round(float(metrics[name][end, i]), 1)
            for i, end in enumerate(ends)
        ]

    return {"evaluations": at("evaluations"), "seconds": at("seconds")}


if __name__ == "__main__":
    main()
