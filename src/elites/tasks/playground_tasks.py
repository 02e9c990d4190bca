"""Tasks of MuJoCo Playground: playground:NAME.

Its implementation `jax` is used. The other one, Warp, keeps parts of its state without a batch
axis, so that an episode that has ended cannot keep its last state.
"""

from __future__ import annotations

from typing import Any

import jax

from elites import names, packages
from elites.core.catalogue import suggestion
from elites.names import Name
from elites.tasks import simulation
from elites.tasks.mjx_tasks import robot_of
from elites.tasks.simulation import World
from elites.tasks.task import Array, Task

FEET: dict[str, tuple[str, ...]] = {
    "Hopper": ("foot",),
    "Cheetah": ("bfoot", "ffoot"),
    "Walker": ("right_foot", "left_foot"),
}
"""Geoms that are feet, by the beginning of an environment's name."""


def make(name: Name, options: dict[str, Any]) -> Task:
    """Return a task of MuJoCo Playground."""
    env, episode_length = _environment(name)
    feet = next((found for robot, found in FEET.items() if name.environment.startswith(robot)), ())
    version = packages.versions("playground").get("playground", "")
    world = World(
        reset=env.reset,
        # A copy of the dictionaries, because env.step changes those that it is given.
        step=lambda state, action: env.step(jax.tree.map(lambda leaf: leaf, state), action),
        observation=_observation,
        reward=lambda before, action, state: state.reward,
        done=lambda state: state.done > 0.5,
        robot=robot_of(env.mj_model, feet, float(env.dt), lambda state: state.data),
        action_size=env.action_size,
        episode_length=episode_length,
        repeatable=False,
        summary=f"{name.environment} of MuJoCo Playground {version}",
        reward_text="as Playground defines it",
        termination_text="as Playground defines it, or at the time limit",
    )
    return simulation.make(name, world, options)


def _observation(state: Any) -> Array:
    """Return the observation of a state. Of several, it is the one called "state"."""
    return state.obs["state"] if isinstance(state.obs, dict) else state.obs


def _environment(name: Name) -> tuple[Any, int]:
    """Return an environment of Playground and the length of its episodes.

    Raises a ValueError if there is none of that name, or if its files are missing.
    """
    title, environment = names.title(str(name)), name.environment
    registry = simulation.load("mujoco_playground").registry
    with simulation.quiet():
        if environment not in registry.ALL_ENVS:
            raise ValueError(
                f"task '{title}': Playground has no environment '{environment}'."
                f"{suggestion(environment, registry.ALL_ENVS)} Known: "
                f"{', '.join(registry.ALL_ENVS)}"
            )
        config = registry.get_default_config(environment)
        overrides: dict[str, Any] = {"impl": "jax"} if "impl" in config else {}
        try:
            env = registry.load(environment, config_overrides=overrides)
        except Exception as error:  # such as a robot of the menagerie that cannot be downloaded
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ValueError(
                f"task '{title}': Playground cannot load it: {reason}. Robots outside of its "
                "control suite need the MuJoCo Menagerie, which Playground downloads on first use"
            ) from error
    return env, int(config.episode_length)
