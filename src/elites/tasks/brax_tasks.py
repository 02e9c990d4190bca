"""Tasks of brax: brax:NAME[,backend=spring|positional|generalized|mjx][,forward_reward=no].

Only the spring back end, the default, repeats an episode to the last bit in any row of a batch. The
environment is used without brax's wrappers, because episodes and time limits are ours. With
forward_reward=no, the reward for speed is taken away. What is left rewards standing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from elites import names, packages
from elites.core.catalogue import suggestion
from elites.names import Name
from elites.tasks import geoms, simulation
from elites.tasks.descriptors import Robot
from elites.tasks.simulation import World
from elites.tasks.task import Array, Task

FEET: dict[str, tuple[str, ...]] = {
    "hopper": ("foot_geom",),
    "walker2d": ("foot_geom", "foot_left_geom"),
    "halfcheetah": ("bfoot", "ffoot"),
    "ant": ("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom"),
    "humanoid": ("right_foot", "left_foot"),
    "humanoidstandup": ("right_foot", "left_foot"),
}
"""Geoms that are feet, by environment. Bodies may have no name, as the feet of the ant."""

FORWARD = ("reward_forward", "forward_reward", "reward_run")
"""Metrics of brax's environments that are the reward for forward speed."""

_MARGIN = {"positional": 0.005}  # m of distance that count as contact; elsewhere 0


def make(name: Name, options: dict[str, Any]) -> Task:
    """Return a task of brax."""
    backend = options.get("backend", "spring")
    env = _environment(name, backend)
    speed = None if options.get("forward_reward", True) else _speed_metric(name, env)
    world = World(
        reset=env.reset,
        # env.step changes the dictionaries of the state that it is given.
        step=lambda state, action: env.step(
            state.replace(metrics=dict(state.metrics), info=dict(state.info)), action
        ),
        observation=lambda state: state.obs,
        reward=lambda before, action, state: (
            state.reward - (state.metrics[speed] if speed else 0.0)
        ),
        done=lambda state: state.done > 0.5,
        robot=_robot(name.environment, env, _MARGIN.get(backend, 0.0)),
        action_size=env.action_size,
        episode_length=1000,
        repeatable=backend == "spring",
        summary=f"{name.environment} of brax {packages.versions('brax').get('brax', '')}, "
        f"{backend} back end",
        reward_text="as brax defines it" + (", without that for forward speed" if speed else ""),
        termination_text="as brax defines it, or at the time limit",
    )
    return simulation.make(name, world, options)


def _environment(name: Name, backend: str) -> Any:
    """Return an environment of brax. Raises a ValueError if brax has none of that name."""
    title = names.title(str(name))
    envs = simulation.load("brax.envs")
    with simulation.quiet():
        known = sorted(envs._envs)
        if name.environment not in known:
            raise ValueError(
                f"task '{title}': brax has no environment '{name.environment}'."
                f"{suggestion(name.environment, known)} Known: {', '.join(known)}"
            )
        try:
            return envs.get_environment(name.environment, backend=backend)
        except Exception as error:  # not every environment has every back end
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ValueError(
                f"task '{title}': brax cannot make it with backend={backend}: {reason}"
            ) from error


def _speed_metric(name: Name, env: Any) -> str:
    """Return the metric of an environment that is its reward for forward speed.

    Raises a ValueError if it has none.
    """
    with simulation.in_simulator():
        metrics = jax.eval_shape(env.reset, jax.random.key(0)).metrics
    found = next((metric for metric in FORWARD if metric in metrics), None)
    if found is None:
        raise ValueError(
            f"task '{names.title(str(name))}': {name.environment} of brax has no reward for "
            "forward speed. Leave out forward_reward=no"
        )
    return found


def _robot(environment: str, env: Any, margin: float) -> Robot | None:
    """Return how to read the states of an environment, or None if it has no robot.

    Contacts closer than `margin`, in m, count.
    """
    contacts = simulation.load("brax.contact")
    model = getattr(getattr(env, "sys", None), "mj_model", None)
    if model is None:
        return None

    def touching(state: Any, geoms: Sequence[int]) -> Array:
        # Only the mjx back end keeps contacts in its state. The others compute them in substeps.
        physics = state.pipeline_state
        contact = physics.contact
        if contact is None:
            contact = contacts.get(env.sys, physics.x)
        if contact is None:
            return jnp.zeros(len(geoms))
        near = contact.dist <= margin
        found = [jnp.any(near & (contact.geom == geom).any(-1)) for geom in geoms]
        return jnp.stack(found).astype(jnp.float32)

    return Robot(
        model=model,
        position=lambda state: state.pipeline_state.x.pos[0],
        poses=lambda state: geoms.stacked(state.pipeline_state.x.pos, state.pipeline_state.x.rot),
        coordinates=lambda state: state.pipeline_state.q,
        touching=touching,
        feet=FEET.get(environment, ()),
        dt=float(env.dt),
    )
