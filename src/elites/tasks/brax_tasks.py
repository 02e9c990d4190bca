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
import numpy as np

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
    model = getattr(getattr(env, "sys", None), "mj_model", None)
    if model is None:
        return None

    def touching(state: Any, geoms: Sequence[int]) -> Array:
        # Only the mjx back end keeps contacts in its state. The others compute them in substeps.
        physics = state.pipeline_state
        if physics.contact is not None:
            near = [_is_near(physics.contact, geom, margin) for geom in geoms]
        elif all(_touches_planes_only(model, geom) for geom in geoms):
            near = [_height(model, geom, physics.x) <= margin for geom in geoms]
        else:
            contact = simulation.load("brax.contact").get(env.sys, physics.x)
            near = [_is_near(contact, geom, margin) for geom in geoms]
        return jnp.stack(near).astype(jnp.float32)

    return Robot(
        model=model,
        position=lambda state: state.pipeline_state.x.pos[0],
        poses=lambda state: geoms.stacked(state.pipeline_state.x.pos, state.pipeline_state.x.rot),
        coordinates=lambda state: state.pipeline_state.q,
        touching=touching,
        feet=FEET.get(environment, ()),
        dt=float(env.dt),
    )


# --------------------------------------------------------------------------------------- contacts

_PLANE, _SPHERE, _CAPSULE = 0, 2, 3  # types of geoms in a MuJoCo model


def _is_near(contact: Any, geom: int, margin: float) -> Array:
    """Return whether a geom is part of one of brax's contacts that is closer than `margin`.

    `contact` is None if no geoms of the model can touch.
    """
    if contact is None:
        return jnp.array(False)
    return jnp.any((contact.dist <= margin) & (contact.geom == geom).any(-1))


def _touches_planes_only(model: Any, geom: int) -> bool:
    """Return whether a geom is a sphere or a capsule that can touch planes of the world only.

    Its contacts are then found in a fraction of the time that brax takes.
    """
    partners = _partners(model, geom)
    fixed = all(model.geom_type[g] == _PLANE and model.geom_bodyid[g] == 0 for g in partners)
    round_ = model.geom_type[geom] in (_SPHERE, _CAPSULE)
    return bool(partners and fixed and round_ and model.geom_bodyid[geom] and not model.npair)


def _partners(model: Any, geom: int) -> list[int]:
    """Return the geoms of other bodies that a geom can touch."""
    kind, affinity = model.geom_contype, model.geom_conaffinity
    return [
        g
        for g in range(model.ngeom)
        if model.geom_bodyid[g] != model.geom_bodyid[geom]
        and (kind[geom] & affinity[g] or kind[g] & affinity[geom])
    ]


def _height(model: Any, geom: int, x: Any) -> Array:
    """Return the distance of a sphere or a capsule from the nearest of the planes below it.

    `x` has the positions and rotations of the bodies. The planes are those of `_partners`.
    """
    radius, half = model.geom_size[geom][:2]
    centre, along = model.geom_pos[geom], _upwards(model.geom_quat[geom])
    ends = [centre - half * along, centre + half * along]
    ends = ends if model.geom_type[geom] == _CAPSULE else [centre]
    rotate = simulation.load("brax.math").rotate
    link = int(model.geom_bodyid[geom]) - 1
    found = []
    for plane in _partners(model, geom):
        normal = jnp.asarray(_upwards(model.geom_quat[plane]), jnp.float32)
        origin = jnp.asarray(model.geom_pos[plane], jnp.float32)
        for end in ends:
            place = x.pos[link] + rotate(jnp.asarray(end, jnp.float32), x.rot[link])
            found.append(jnp.dot(place - origin, normal) - jnp.float32(radius))
    return jnp.min(jnp.stack(found))


def _upwards(quaternion: np.ndarray) -> np.ndarray:
    """Return the z axis of a geom: a plane's normal, or a capsule's direction."""
    w, x, y, z = quaternion
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
