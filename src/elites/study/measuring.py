"""Measure how long an iteration of the runs of a study takes on this device.

    python -m elites.study.measuring

Each case is measured in such a process of its own, because the process of a study does not use the
GPU. It reads the case from standard input and prints the result, both as JSON.
"""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from elites import trust
from elites.runs.config import Config
from elites.runs.directory import RunError
from elites.study import devices, seconds
from elites.study.engines import import_options
from elites.study.loads import Load
from elites.study.packing import Pair
from elites.study.plan import Plan
from elites.study.seconds import Clock, Measurement
from elites.study.study import Item
from elites.words import one_line, plain

ITERATIONS = 5
"""Number of iterations that are timed, after one that is not counted. The median counts."""
_LONGEST = 3600.0  # seconds for a case, with compiling


def unmeasured(items: Iterable[Item], loads: Mapping[Pair, Load], clock: Clock) -> list[Item]:
    """Return one run of each kind whose time alone on the device was not measured."""
    kinds: dict[tuple[str, str, int], Item] = {}
    for item in items:
        known = clock.alone(loads[item.task, item.algorithm].work, item.seeds)
        if known is None or not known.measured:
            kinds.setdefault((item.task, item.algorithm, item.seeds), item)
    return list(kinds.values())


def measure(
    items: Sequence[Item],
    plan: Plan,
    loads: Mapping[Pair, Load],
    device: str,
    cores: Sequence[int],
    say: Callable[[str], object],
) -> None:
    """Measure an iteration of each of these runs on this device, and store it in the cache.

    `cores` are those that a run gets on a CPU. Calls `say` with a line about each run. A run that
    cannot be measured is reported so and left out.
    """
    for number, item in enumerate(items, start=1):
        place = f"{number} of {len(items)}: {item.name}"
        try:
            taken = _in_process(plan.config(item.task, item.algorithm, item.seed_numbers), cores)
        except RunError as error:
            say(f"{place} cannot be measured: {one_line(error)}")
            continue
        source = f"elites study --measure, {datetime.date.today().isoformat()}"
        work = loads[item.task, item.algorithm].work
        found = Measurement(
            device, work.task, work.algorithm, item.seeds, taken, source, variant=work.variant
        )
        where = seconds.store([found])
        say(f"{place}: {taken:.4g} s an iteration{f', stored in {where}' if where else ''}")


def _in_process(config: Config, cores: Sequence[int]) -> float:
    """Return the seconds of an iteration of a run, measured by another process.

    The process computes on these cores, if any are given. Raises a RunError if it fails.
    """
    trusted = trust.trusted_digests(config.task, config.algorithm)
    case = {"config": config.to_json(), "trusted": trusted, "cores": list(cores)}
    command = [sys.executable, *import_options(), "-m", "elites.study.measuring"]
    try:
        done = subprocess.run(
            command, input=json.dumps(case), capture_output=True, text=True, timeout=_LONGEST,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError(one_line(error)) from None
    try:
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])
    except (ValueError, IndexError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RunError(plain(lines[-1], 300)) from None


def main() -> int:
    """Measure the case on standard input and print the result."""
    case = json.loads(sys.stdin.read())
    devices.restrict(0, case["cores"])  # before JAX starts its threads
    trust.approve(case["trusted"])
    config = Config.from_json(case["config"], "the case")
    print(json.dumps({"seconds": time_iterations(config, ITERATIONS)}))
    return 0


def time_iterations(config: Config, iterations: int) -> float:
    """Return the median seconds of some iterations of a run that is not saved."""
    import jax

    from elites import tasks, training
    from elites.training.devices import provide

    provide(config.seeds)
    algorithm = training.build(tasks.make(config.task), config.algorithm, hp=config.hp)
    batched = training.Batched(algorithm, config.seeds)
    keys = training.seed_keys(config.seed_numbers)
    state, taken = jax.block_until_ready(batched.start(keys)), []
    for iteration in range(iterations + 1):
        start = time.perf_counter()
        state, _ = batched.step(state, training.iteration_keys(keys, iteration + 1))
        jax.block_until_ready(state)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:])


if __name__ == "__main__":
    sys.exit(main())
