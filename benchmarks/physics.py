"""Environment steps per second of the tasks, beside the ants of another simulator.

    python benchmarks/physics.py
    python benchmarks/physics.py --make-brax-env build/brax     (installs brax, then compares)
    python benchmarks/physics.py --brax-python build/brax/bin/python

A case is a `scan` over `--steps` environment steps of `--batch` robots with random actions, in one
compiled program: physics, observation and reward, no policy. All cases are compiled first; then the
cases take turns, one run each a round, so that a busy moment of the machine does not fall on one
contender alone. The figure is the median over the rounds. Steps per second of CPU time, over all
cores, are printed beside: on a machine shared with other work they vary less.

The rivals are the ants of brax, with its `spring` and `mjx` back ends. They need packages of their
own, so they run in their own Python, in a process that waits while others are timed.

Prints one JSON line per case, then the compile seconds of `rollout_policies` for each task, then
one line with the ratios.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from elites import tasks
from elites.core import networks
from elites.tasks.rollout import rollout_policies

TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")
RIVALS = ("spring", "mjx")

# Runs in the other Python: compiles, prints a line about it, then times one run for each line it
# reads.
RIVAL = """
import importlib.metadata, json, sys, time, warnings
warnings.simplefilter("ignore")
import jax
from brax import envs

backend, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
env = envs.get_environment("ant", backend=backend)
first = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), batch))

def run(state, key):
    def step(state, key):
        action = jax.random.uniform(key, (batch, env.action_size), minval=-1.0, maxval=1.0)
        state = jax.vmap(env.step)(state, action)
        return state, (state.obs.sum(), state.reward.sum())
    return jax.lax.scan(step, state, jax.random.split(key, steps))

start = time.perf_counter()
compiled = jax.jit(run).lower(first, jax.random.key(0)).compile()
packages = ("brax", "mujoco", "mujoco-mjx", "jax")
print("RESULT", json.dumps({
    "compile_seconds": time.perf_counter() - start,
    "step_seconds": float(env.dt),
    "substeps": env._n_frames,
    "versions": {name: importlib.metadata.version(name) for name in packages},
}), flush=True)
for i, _ in enumerate(sys.stdin):
    start, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(first, jax.random.key(i)))
    seconds = time.perf_counter() - start, time.process_time() - cpu
    print("RESULT", json.dumps(seconds), flush=True)
"""

Time = Callable[[int], tuple[float, float]]  # seconds of run number i, by the clock and of CPU


def main() -> None:
    parser = argparse.ArgumentParser(description="Environment steps per second, as JSON lines.")
    parser.add_argument("--batch", type=_positive, default=256, help="robots side by side")
    parser.add_argument("--steps", type=_positive, default=100, help="environment steps in a run")
    parser.add_argument("--repeat", type=_positive, default=7, help="rounds; the median counts")
    parser.add_argument("--task", choices=TASKS, action="append", help="repeat for several")
    rival = parser.add_mutually_exclusive_group()
    rival.add_argument("--brax-python", type=Path, help="a Python that has brax and mujoco-mjx")
    rival.add_argument("--make-brax-env", type=Path, metavar="DIR", help="make that Python first")
    parser.add_argument("--rival", choices=RIVALS, action="append", help="repeat for several")
    options = parser.parse_args()
    brax_python = options.brax_python
    if options.make_brax_env is not None:
        brax_python = _make_brax_environment(options.make_brax_env)

    cases: list[tuple[dict[str, Any], Time]] = []
    for name in options.task or TASKS:
        _say(f"compiling {name}")
        cases.append(_ours(name, options.batch, options.steps))
    if brax_python is not None:
        for backend in options.rival or RIVALS:
            _say(f"compiling brax {backend} in its own Python (may take a minute)")
            cases.append(_rival(brax_python, backend, options.batch, options.steps))

    seconds: list[list[tuple[float, float]]] = [[] for _ in cases]
    for i in range(1 + options.repeat):
        _say(f"round {i} of {options.repeat}" if i else "warming up")
        for (_, run), times in zip(cases, seconds, strict=True):
            times.append(run(i))

    speed = {}
    for (case, _), times in zip(cases, seconds, strict=True):
        work = options.batch * options.steps
        speeds = [work / clock for clock, _ in times[1:]]
        speed[case["case"]] = statistics.median(speeds)
        case["steps_per_second"] = round(statistics.median(speeds))
        case["range"] = [round(min(speeds)), round(max(speeds))]
        case["steps_per_cpu_second"] = round(work / statistics.median(cpu for _, cpu in times[1:]))
        print(json.dumps({**case, "batch": options.batch, "steps": options.steps}), flush=True)
    for name in options.task or TASKS:
        print(json.dumps(_compile_rollout(name, options.batch)), flush=True)
    ours = {name: value for name, value in speed.items() if name in TASKS}
    theirs = {name: value for name, value in speed.items() if name not in TASKS}
    ratios = {
        f"{a} / {b}": round(speed[a] / speed[b], 1) for a in ours if "ant" in a for b in theirs
    }
    print(json.dumps({"case": "ratios", **ratios, "machine": _machine()}))


def _ours(name: str, batch: int, steps: int) -> tuple[dict[str, Any], Time]:
    task = tasks.make(name)
    reset, step = jax.vmap(task.reset), jax.vmap(task.step)
    first = jax.jit(reset)(jax.random.split(jax.random.key(0), batch))

    def run(state, key):
        def body(state, key):
            action = jax.random.uniform(key, (batch, task.action_size), minval=-1.0, maxval=1.0)
            state = step(state, action)
            return state, (jnp.sum(state.observation), jnp.sum(state.reward))

        return jax.lax.scan(body, state, jax.random.split(key, steps))

    start = time.perf_counter()
    compiled = jax.jit(run).lower(first, jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - start

    def timed(i: int) -> tuple[float, float]:
        start, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(compiled(first, jax.random.key(i)))
        return time.perf_counter() - start, time.process_time() - cpu

    case: dict[str, Any] = {"case": name, "compile_seconds": round(compile_seconds, 2)}
    if task.body_model is not None:
        case |= {"step_seconds": task.body_model.dt, "substeps": task.body_model.substeps}
    return case | {"versions": {"jax": jax.__version__}}, timed


def _rival(python: Path, backend: str, batch: int, steps: int) -> tuple[dict[str, Any], Time]:
    command = [str(python), "-c", RIVAL, backend, str(batch), str(steps)]
    # Its own packages only: a PYTHONPATH that serves us must not reach it.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )

    def answer() -> Any:
        assert process.stdout is not None
        said = []  # brax and mujoco print lines of their own
        for line in process.stdout:
            if line.startswith("RESULT"):
                return json.loads(line.removeprefix("RESULT"))
            said.append(line)
        sys.exit(f"{''.join(said)}brax {backend} ended with code {process.wait()}")

    def timed(i: int) -> tuple[float, float]:
        assert process.stdin is not None
        process.stdin.write(f"{i}\n")
        process.stdin.flush()
        return answer()

    facts = answer()
    facts["compile_seconds"] = round(facts["compile_seconds"], 2)
    facts["step_seconds"] = round(facts["step_seconds"], 6)
    return {"case": f"brax {backend} ant", **facts}, timed


def _compile_rollout(name: str, batch: int) -> dict[str, Any]:
    task = tasks.make(name)
    network = networks.policy(task.observation_size, task.action_size)
    policies = jnp.zeros((batch, network.size))
    keys = jax.random.split(jax.random.key(0), batch)
    jax.clear_caches()
    start, cpu = time.perf_counter(), time.process_time()
    jax.jit(lambda p, k: rollout_policies(task, network, p, k)).lower(policies, keys).compile()
    return {
        "case": f"rollout_policies {name}",
        "compile_seconds": round(time.perf_counter() - start, 2),
        "compile_cpu_seconds": round(time.process_time() - cpu, 2),
    }


def _make_brax_environment(directory: Path) -> Path:
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    # The JAX we run with ourselves, so that the two differ in the simulator alone.
    packages = ["brax==0.14.2", "mujoco-mjx", f"jax=={importlib.metadata.version('jax')}"]
    _say(f"installing {' '.join(packages)} into {directory}")
    subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
    return python


def _machine() -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else platform.machine(),
        "platform": device.platform,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
