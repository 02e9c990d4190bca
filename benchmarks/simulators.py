"""CPU time of our rollouts of a brax task, beside brax's own wrappers with a scan.

    python benchmarks/simulators.py
    python benchmarks/simulators.py --environment walker2d --batch 256 --steps 100

All cases run the same policies from the same state for `--steps` steps of `--batch` robots, and
return the same transitions. They are compiled first. Then they take turns, one run each a round,
and the figure is the median over the rounds. CPU time over all cores is compared, because it hardly
depends on other work on the machine.

    brax       brax.envs.training.wrap and jax.lax.scan
    position   our rollout, with the descriptor final_position
    contact    our rollout, with the descriptor feet_contact

Prints one JSON line. `over_brax` is the CPU time as a multiple of brax's.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from typing import Any

import jax

from elites import packages, tasks
from elites.core import networks
from elites.tasks import simulation
from elites.tasks.rollout import rollout_policies


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--environment", default="hopper")
    parser.add_argument("--backend", default="spring")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()

    name = f"brax:{given.environment},backend={given.backend},episode_length={given.steps}"
    contact = tasks.make(name)
    bounds = "low=-9/-9,high=9/9" if given.environment in ("ant", "humanoid") else "low=-9,high=9"
    position = tasks.make(f"{name},descriptor=final_position,{bounds}")
    network = networks.policy(contact.observation_size, contact.action_size, hidden=(64, 64))
    keys = jax.random.split(jax.random.key(0), given.batch)
    policies = jax.vmap(lambda key: networks.init(network, key))(keys)

    cases = {
        "brax": lambda policies, keys: _of_brax(given, network, policies, keys),
        "position": lambda policies, keys: rollout_policies(position, network, policies, keys),
        "contact": lambda policies, keys: rollout_policies(contact, network, policies, keys),
    }
    compiled, compiling = {}, {}
    for case, function in cases.items():
        begun = time.process_time()
        compiled[case] = jax.jit(function).lower(policies, keys).compile()
        compiling[case] = round(time.process_time() - begun, 1)
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(given.rounds):
        for case, function in compiled.items():
            begun = time.process_time()
            jax.block_until_ready(function(policies, keys))
            seconds[case].append(time.process_time() - begun)
    medians = {case: statistics.median(found) for case, found in seconds.items()}
    print(
        json.dumps(
            {
                **vars(given),
                "cpu_seconds": {case: round(value, 4) for case, value in medians.items()},
                "over_brax": {case: round(v / medians["brax"], 3) for case, v in medians.items()},
                "compile_cpu_seconds": compiling,
                **packages.versions("brax", "jax"),
                "machine": platform.machine(),
                "device": jax.devices()[0].device_kind,
            }
        )
    )


def _of_brax(given: argparse.Namespace, network: networks.MLP, policies: Any, keys: Any) -> Any:
    """Run the policies in brax's own wrapped environment and return the transitions."""
    envs = simulation.load("brax.envs")
    env = envs.get_environment(given.environment, backend=given.backend)
    wrapped = envs.training.wrap(env, episode_length=given.steps)
    layers = networks.unflatten(network, policies)

    def step(state: Any, _: None) -> tuple[Any, Any]:
        action = networks.apply_each(network, layers, state.obs)
        after = wrapped.step(state, action)
        truncation = after.info["truncation"]
        return after, (state.obs, action, after.reward, 1 - after.done, after.obs, truncation)

    first = wrapped.reset(jax.vmap(lambda key: jax.random.PRNGKey(0))(keys))
    return jax.lax.scan(step, first, None, given.steps)[1]


if __name__ == "__main__":
    main()
