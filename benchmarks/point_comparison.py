"""What conditioning buys, on a task small enough for a CPU: five seeds of each algorithm.

    python benchmarks/point_comparison.py

`point_omni` pays for staying put and asks for every place, like the omnidirectional robots of the
paper. Two claims are put to the test: the conditioned actor of DCG-MAP-Elites goes where it is
asked to (error as a share of the range of the descriptor), and better than without actor rollouts
(ablations 1 and 2); and its archive is better than that of PGA-MAP-Elites. One JSON line for each
algorithm, then one with the comparisons: the one-sided rank-sum p-value of each.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from scipy import stats

import elites

SETTINGS = {
    "cells": 128,
    "batch_size": 64,
    "policy_hidden": (32, 32),
    "actor_hidden": (64, 64),
    "critic_hidden": (64, 64),
    "critic_steps": 600,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "pg_steps": 30,
    "replay_size": 30_000,
    "lengthscale": 0.3,
}
ALGORITHMS = ["dcg_me", "dcg_me_no_actor_evaluation", "dcg_me_sampled_negatives", "pga_me"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    evaluations = SETTINGS["batch_size"] * (options.iterations + 1)
    task_range = 2.0  # point_omni's descriptors lie in [-1, 1]
    results = {}
    for name in ALGORITHMS:
        start = time.perf_counter()
        run = elites.train(
            "point_omni", name, seeds=options.seeds, evaluations=evaluations, **SETTINGS
        )
        reach = run.reevaluate()
        results[name] = {
            "qd_score": run.metrics["qd_score"][-1],
            "qd_score_half_way": run.metrics["qd_score"][options.iterations // 2 - 1],
            "coverage": run.metrics["coverage"][-1],
            "archive_error": np.asarray(reach.descriptor_error) / task_range,
            "actor_error": np.asarray(reach.actor_descriptor_error) / task_range,
            "actor_qd_score": np.asarray(reach.actor_qd_score),
        }
        line = {key: [round(float(v), 4) for v in values] for key, values in results[name].items()}
        seconds = round(time.perf_counter() - start)
        print(json.dumps({"algorithm": name, "seconds": seconds, **line}), flush=True)

    def smaller(metric: str, a: str, b: str) -> float:
        p = stats.mannwhitneyu(results[a][metric], results[b][metric], alternative="less").pvalue
        return round(float(p), 4)

    verdict = {
        "mean actor error, share of the range": round(
            float(results["dcg_me"]["actor_error"].mean()), 4
        ),
        **{
            f"p: actor error of dcg_me below {other}": smaller("actor_error", "dcg_me", other)
            for other in ALGORITHMS[1:3]
        },
        "p: QD-score of pga_me below dcg_me": smaller("qd_score", "pga_me", "dcg_me"),
        "p: half way": smaller("qd_score_half_way", "pga_me", "dcg_me"),
        "smallest p these seeds can reach": round(
            float(stats.mannwhitneyu(range(options.seeds), range(50, 50 + options.seeds),
                                     alternative="less").pvalue), 4),
    }  # fmt: skip
    print(json.dumps(verdict))


if __name__ == "__main__":
    main()
