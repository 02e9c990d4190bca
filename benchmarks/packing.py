"""Measure how much runs side by side on a GPU or a CPU gain. Prints one JSON line a case.

    python benchmarks/packing.py                                    # 1, 2 and 4 runs of 4 seeds
    python benchmarks/packing.py --algorithm me --seeds 20
    python benchmarks/packing.py --algorithm me --seeds 1 --together 1 2      # a CPU of two cores
    python benchmarks/packing.py --task point_omni --algorithm me --preset smoke --window 1

Each run is a process of its own. On a GPU it has its share of the memory, under NVIDIA's
Multi-Process Service where that is installed. On a CPU it has its share of the cores. All of them
compile, and then iterate at the same time for `--window` seconds. `seconds` is the mean time of an
iteration of a run. `throughput` is the number of iterations of all runs in a second, relative to
the first case.

The default takes about two minutes on an NVIDIA H200. A line has the fields of an entry of
`src/elites/study/measured.json`, and some more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from elites.runs.config import preset
from elites.study import devices, mps
from elites.study.engines import MEMORY_SHARES
from elites.study.packing import memory_fraction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--task", default="ant_omni")
    parser.add_argument("--algorithm", default="dcg_me")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--together", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--window", type=float, default=10.0, help="seconds of each case")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return iterate(options)
    machine, first = devices.find(), None
    with service(machine) as shared, tempfile.TemporaryDirectory() as cache:
        for count in options.together:
            taken = measure(count, {**(shared or {}), "JAX_COMPILATION_CACHE_DIR": cache}, machine)
            rate = count / statistics.mean(taken)
            first = first or rate
            case = {
                "device": machine.name,
                "task": options.task,
                "algorithm": options.algorithm,
                "seeds": options.seeds,
                "together": count,
                "seconds": round(statistics.mean(taken), 4),
                "each": [round(seconds, 4) for seconds in taken],
                "throughput": round(rate / first, 3),
                "mps": shared is not None,
            }
            print(json.dumps(case), flush=True)


@contextlib.contextmanager
def service(machine: devices.Machine) -> Iterator[Mapping[str, str] | None]:
    """Provide the Multi-Process Service. Yields its environment, or None without a service."""
    if not machine.mps:
        yield None
        return
    with mps.serving(lambda line: print(line, file=sys.stderr)) as environment:
        yield environment


def measure(count: int, more: Mapping[str, str], machine: devices.Machine) -> list[float]:
    """Return the seconds of an iteration of each of `count` runs side by side."""
    environment = {**os.environ, **more}
    if machine.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = machine.gpus[0]
        for name in MEMORY_SHARES:
            environment.pop(name, None)
        environment[MEMORY_SHARES[0]] = f"{memory_fraction(count):.3f}"
    command = [sys.executable, __file__, *sys.argv[1:], "--child"]
    children = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for i, child in enumerate(children):
        if machine.cores:
            os.sched_setaffinity(child.pid, machine.cores[i::count] or machine.cores)
    streams = [(child.stdin, child.stdout) for child in children]
    for _, answers in streams:  # all have compiled
        assert answers is not None
        answers.readline()
    for orders, _ in streams:
        assert orders is not None
        orders.write("go\n")
        orders.flush()
    return [float(child.communicate()[0]) for child in children]


def iterate(options: argparse.Namespace) -> None:
    """Compile a run, wait for a line on standard input, iterate, and print the mean seconds."""
    import jax

    from elites import tasks, training

    hp = preset(options.preset, options.task).hp
    algorithm = training.build(tasks.make(options.task), options.algorithm, hp=hp)
    batched = training.Batched(algorithm, options.seeds)
    keys = training.seed_keys(range(options.seeds))
    state = batched.start(keys)
    state, _ = jax.block_until_ready(batched.step(state, keys))
    print("ready", flush=True)
    sys.stdin.readline()
    start, iterations = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < options.window or not iterations:
        state, _ = jax.block_until_ready(batched.step(state, keys))
        iterations += 1
    print(elapsed / iterations)


if __name__ == "__main__":
    main()
