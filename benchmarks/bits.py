"""Record hashes of training states, and compare another version of the code with them.

    python benchmarks/bits.py --record before.json
    python benchmarks/bits.py --compare before.json

Trains every algorithm for three iterations at smoke sizes, two seeds, and hashes every array of the
state after the start and after each iteration. The robots train DCG-MAP-Elites. `--tasks` chooses
some of the tasks. With `--quick` most compiler optimisations are off, as in the tests. Results
depend on the machine, the version of JAX and the device: record and compare on one machine. Cases
that were not recorded are passed over. Exits with 1 if any array differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import elites
from elites import training
from elites.core.algorithm import SearchState
from elites.core.algorithms import ALGORITHMS
from elites.runs.config import preset

SIZES: dict[str, Any] = vars(preset("smoke", "point_omni").hp) | {
    "es_samples": 64,
    "es_generations": 2,
}
ROBOTS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni", "arm_reach")
EXACT = ("cma_mega", "cma_maega")  # which need exact gradients
CASES = [
    *(
        (task, name)
        for task in ("point_omni", "noisy_point_omni")
        for name in ALGORITHMS
        if name not in EXACT
    ),
    *((robot, "dcg_me") for robot in ROBOTS),
    *(("sphere", name) for name in ("me", "cma_mae", *EXACT)),
]
SEEDS, ITERATIONS = (3, 4), 3

Hashes = list[dict[str, str]]  # after the start and after each iteration: array -> hash


def hashes(state: SearchState) -> dict[str, str]:
    """Return a hash for each array of a state, by its name."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): hashlib.sha256(
            np.asarray(leaf).tobytes()
        ).hexdigest()[:12]
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }


def train(task: str, name: str) -> Hashes:
    """Train a few iterations and return the hashes after each."""
    batched = training.Batched(elites.build(task, name, **SIZES), len(SEEDS))
    keys = training.seed_keys(SEEDS)
    state = batched.start(training.iteration_keys(keys, 0))
    history = [hashes(state)]
    for i in range(1, ITERATIONS + 1):
        state, _ = batched.step(state, training.iteration_keys(keys, i))
        history.append(hashes(state))
    return history


def differences(before: Hashes, after: Hashes) -> list[str]:
    """Name the arrays that differ at the first point where any does."""
    for i, (a, b) in enumerate(zip(before, after, strict=True)):
        if a != b:
            names = sorted(name for name in a | b if a.get(name) != b.get(name))
            return [f"iteration {i}: {', '.join(names)}"]
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--record", type=Path, metavar="FILE")
    group.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="turn most optimisations off")
    tasks = list(dict.fromkeys(task for task, _ in CASES))
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks)
    options = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", options.quick)
    recorded = json.loads(options.compare.read_text()) if options.compare else {}
    found: dict[str, Hashes] = {}
    different = 0
    for task, name in (case for case in CASES if case[0] in options.tasks):
        case = f"{task}/{name}"
        if options.compare and case not in recorded:
            print(json.dumps({"benchmark": "bits", "case": case, "recorded": False}), flush=True)
            continue
        found[case] = train(task, name)
        differing = differences(recorded[case], found[case]) if options.compare else []
        different += bool(differing)
        result = {"benchmark": "bits", "case": case}
        if options.compare:
            result |= {"same": not differing, "differing": differing}
        print(json.dumps(result), flush=True)
    if options.record:
        options.record.write_text(json.dumps(found, indent=1))
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
