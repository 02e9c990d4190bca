"""Speed and memory of evaluations in worker processes.

    python benchmarks/gymnasium_workers.py
    python benchmarks/gymnasium_workers.py --workers 1 8 --rounds 10

Prints one JSON line for each comparison: evaluations a second for two numbers of workers, measured
in turns, and then memory and processes over many evaluations of a cheap environment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import jax
import numpy as np

from elites import tasks
from elites.core import networks
from elites.core.types import Outside
from elites.tasks.task import Task
from elites.tasks.workers import pool

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "pendulum_descriptor.py"
CHEAP = (
    f"gymnasium:Pendulum-v1,descriptor={EXAMPLE}:height_and_speed,episode_length=10,low=-1/0,"
    "high=1/8"
)


def policies(task: Task, count: int) -> list[tuple[networks.MLP, np.ndarray]]:
    """Return random policies with the networks of the paper."""
    network = networks.policy(task.observation_size, task.action_size)
    keys = jax.random.split(jax.random.key(0), count)
    drawn = jax.vmap(lambda key: networks.init(network, key))(keys)
    return [(network, row) for row in np.asarray(drawn)]


def outside(task: Task) -> Outside:
    assert task.outside is not None
    return task.outside


def compare(name: str, workers: list[int], evaluations: int, rounds: int) -> dict[str, object]:
    """Return evaluations a second for each number of workers, measured in turns."""
    task = tasks.make(name)
    rows, speeds = policies(task, evaluations), {count: [] for count in workers}
    steps, own, theirs = 0, [], {count: [] for count in workers}
    for _ in range(rounds):
        for count in workers:
            os.environ[pool.VARIABLE] = str(count)
            outside(task).run(rows[: 4 * count], np.zeros(4 * count), record=True)  # starts them
            before = cpu_seconds()
            begun, used = time.perf_counter(), time.process_time()
            found = outside(task).run(rows, np.zeros(evaluations), record=True)
            own.append((time.process_time() - used) / evaluations)
            speeds[count].append(evaluations / (time.perf_counter() - begun))
            theirs[count].append((cpu_seconds() - before) / evaluations)
            steps = int(found.steps.sum())
    medians = {count: statistics.median(values) for count, values in speeds.items()}
    first, *others = workers
    return {
        "task": name,
        "evaluations": evaluations,
        "steps": steps,
        "rounds": rounds,
        "evaluations_per_second": {str(count): round(value, 1) for count, value in medians.items()},
        "ratio": {str(count): round(medians[count] / medians[first], 2) for count in others},
        "workers_cpu_ms_per_evaluation": {
            str(count): round(1000 * statistics.median(values), 2)
            for count, values in theirs.items()
        },
        "parent_cpu_ms_per_evaluation": round(1000 * statistics.median(own), 3),
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }


def endure(name: str, evaluations: int, batch: int) -> dict[str, object]:
    """Return the parent's memory and its children over many evaluations."""
    task = tasks.make(name)
    rows = policies(task, batch)
    memory, processes, done = [], set(), 0
    while done < evaluations:
        outside(task).run(rows, np.zeros(batch), record=True)
        done += batch
        memory.append(resident())
        processes |= children()
    alive = children()
    pool.close()
    return {
        "task": tasks.short_name(name),
        "evaluations": done,
        "memory_mb_after_first_batch": memory[0],
        "memory_mb_at_half": memory[len(memory) // 2],
        "memory_mb_at_end": memory[-1],
        "processes_at_end": len(alive),
        "processes_ever": len(processes),
        "processes_after_close": len(children()),
    }


def resident() -> float:
    """Return the resident memory of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return float("nan")


def children() -> set[int]:
    """Return the process numbers of this process's children."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(number) for number in found}


def cpu_seconds() -> float:
    """Return the CPU time that this process's children have used."""
    ticks = 0
    for child in children():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", default="gymnasium:Hopper-v5,episode_length=200")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--evaluations", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--endurance", type=int, default=10_000, help="evaluations, 0 for none")
    arguments = parser.parse_args()
    found = compare(arguments.task, arguments.workers, arguments.evaluations, arguments.rounds)
    print(json.dumps(found), flush=True)
    if arguments.endurance:
        print(json.dumps(endure(CHEAP, arguments.endurance, batch=250)), flush=True)


if __name__ == "__main__":
    main()
