"""What logging and checkpointing cost: a run in a directory against a bare loop of the same steps.

    python benchmarks/overhead.py --preset demo --iterations 50 --rounds 2

Both take the same iterations of the same seeds, so they do the same work; rounds alternate, because
machines are noisy. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path

import jax

from elites.runs import config as configs
from elites.runs import job, session
from elites.runs.directory import RunDirectory
from elites.training import iteration_keys, seed_keys


def bare(config: configs.Config) -> float:
    """Seconds of the iterations alone."""
    with tempfile.TemporaryDirectory() as directory:
        prepared = job.prepare(config, RunDirectory(Path(directory)))
        return _bare(prepared, config)


def _bare(prepared: job.Job, config: configs.Config) -> float:
    keys = seed_keys(config.seed_numbers)
    state = prepared.batched.start(iteration_keys(keys, 0))
    prepared.batched.compile(prepared.shapes, keys)
    jax.block_until_ready(state)
    start = time.perf_counter()
    for i in range(1, prepared.total + 1):
        state, _ = prepared.batched.step(state, iteration_keys(keys, i))
    jax.block_until_ready(state)
    return time.perf_counter() - start


def saved(config: configs.Config) -> float:
    """Seconds of the same with logs and checkpoints, as `elites train` makes them."""
    with tempfile.TemporaryDirectory() as directory:
        return session.start(Path(directory) / "run", config).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", default="walker_uni")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--checkpoint-every", type=int, help="the preset's if not given")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    config = configs.preset(arguments.preset, arguments.task)
    config = dataclasses.replace(
        config,
        seeds=arguments.seeds,
        evaluations=(arguments.iterations + 1) * config.hp.batch_size,
        checkpoint_every=arguments.checkpoint_every or config.checkpoint_every,
        reevaluate_every=0,
        figures=False,
    )
    alone, with_files = [], []
    for _ in range(arguments.rounds):
        alone.append(bare(config))
        with_files.append(saved(config))
    ratio = statistics.median(b / a for a, b in zip(alone, with_files, strict=True))
    device = jax.devices()[0]
    result = {
        "device": device.device_kind,
        "task": arguments.task,
        "preset": arguments.preset,
        "seeds": arguments.seeds,
        "iterations": arguments.iterations,
        "checkpoints": -(-arguments.iterations // config.checkpoint_every),
        "bare_s": [round(s, 2) for s in alone],
        "with_files_s": [round(s, 2) for s in with_files],
        "overhead_percent": round(100 * (ratio - 1), 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
