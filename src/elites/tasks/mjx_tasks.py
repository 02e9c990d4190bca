"""Tasks of a MuJoCo model of the user's own: mjx:FILE.xml[,option=value...].

| option      | what it is                               | without it                              |
|-------------|------------------------------------------|-----------------------------------------|
| reward      | function (data, before, action) -> float | velocity along x, in m/s                |
| done        | function (data) -> bool                  | never, or by `healthy`                  |
| healthy     | lowest and highest height of the first   | any height                              |
|             | body, in m                               |                                         |
| observation | function (data) -> vector                | positions and velocities                |
| substeps    | physics steps in a step of the task      | 0.02 s divided by the model's time step |

Functions are given as FILE.py:FUNCTION. `data` is the `mjx.Data` of one robot after the step, and
`before` that of before the step. An episode starts in the model's first keyframe, or in its initial
pose. Actions in [-1, 1] are scaled to the `ctrlrange` of the actuators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites import names, packages
from elites.names import Name
from elites.tasks import descriptors, geoms, simulation
from elites.tasks.descriptors import Robot
from elites.tasks.joints import HINGE, SLIDE, ground_coordinates
from elites.tasks.simulation import World
from elites.tasks.task import Array, Task

CONTROL_STEP = 0.02  # seconds of a step of the task, about
NOISE = 0.01  # of joint positions with random_start=yes, in rad or m
_FASTEST = 10.0  # velocities in an observation are clipped to this


def make(name: Name, options: dict[str, Any]) -> Task:
    """Return the task of a MuJoCo model."""
    title = names.title(str(name))
    model, physics = _load(title, name.environment)
    substeps = options.get("substeps") or max(1, round(CONTROL_STEP / model.opt.timestep))
    dt = substeps * float(model.opt.timestep)
    own = {
        option: descriptors.own_function(title, option, options[option])
        for option in ("reward", "done", "observation")
        if option in options
    }
    version = packages.versions("mujoco-mjx").get("mujoco-mjx", "")
    world = World(
        reset=_reset(model, physics, noise=NOISE if options.get("random_start") else 0.0),
        step=_step(model, physics, substeps),
        observation=own.get("observation", _observation(model)),
        reward=_reward(own.get("reward"), dt),
        done=_done(own.get("done"), options.get("healthy", (-np.inf, np.inf))),
        robot=robot_of(model, (), dt, lambda data: data),
        action_size=model.nu,
        episode_length=1000,
        repeatable=False,
        summary=f"a model of your own, simulated by MJX {version}",
        reward_text=options.get("reward", "velocity of the first body along x, in m/s"),
        termination_text=_termination_text(options),
    )
    return simulation.make(name, world, options)


def _load(task: str, path: str) -> tuple[Any, Any]:
    """Return MuJoCo's model in a file, and the same for MJX.

    Raises a ValueError if the file is no model, if an actuator has no `ctrlrange`, or if MJX cannot
    simulate the model. `task` is the task's name, for messages.
    """
    mujoco, mjx = simulation.load("mujoco"), simulation.load("mujoco.mjx")
    with simulation.quiet():
        try:
            model = mujoco.MjModel.from_xml_path(path)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"task '{task}': MuJoCo cannot read {path}: {reason}") from None
        unlimited = np.flatnonzero(~model.actuator_ctrllimited.astype(bool))
        if not model.nu:
            raise ValueError(f"task '{task}': {path} has no actuators to control")
        if len(unlimited):
            which = model.actuator(int(unlimited[0])).name or f"number {unlimited[0]}"
            raise ValueError(
                f"task '{task}': the actuator '{which}' of {path} has no ctrlrange, to which "
                "actions are scaled. Add ctrlrange to every actuator"
            )
        try:
            return model, mjx.put_model(model, impl="jax")
        except NotImplementedError as error:
            raise ValueError(f"task '{task}': MJX cannot simulate {path}: {error}") from None


def robot_of(model: Any, feet: tuple[str, ...], dt: float, data_of: Callable[[Any], Any]) -> Robot:
    """Return how to read states of MJX. `data_of` returns the `mjx.Data` of a state.

    `feet` are the names of geoms that are feet, and `dt` the seconds of a step.
    """

    def touching(state: Any, geoms: Sequence[int]) -> Array:
        contact = data_of(state)._impl.contact
        near = contact.dist <= 0
        found = [jnp.any(near & (contact.geom == geom).any(-1)) for geom in geoms]
        return jnp.stack(found).astype(jnp.float32)

    return Robot(
        model=model,
        position=lambda state: data_of(state).xpos[1],
        poses=lambda state: geoms.stacked(data_of(state).xpos[1:], data_of(state).xquat[1:]),
        coordinates=lambda state: data_of(state).qpos,
        touching=touching,
        feet=feet,
        dt=dt,
    )


# ---------------------------------------------------------------------------------- the functions


def _reset(model: Any, physics: Any, noise: float) -> Callable[[Array], Any]:
    """Return the function that starts an episode.

    With `noise`, the positions of hinges and sliding joints are drawn around those of the start.
    """
    mjx = simulation.load("mujoco.mjx")
    start = jnp.asarray(model.key_qpos[0] if model.nkey else model.qpos0, jnp.float32)
    moved = [model.jnt_qposadr[i] for i in range(model.njnt) if model.jnt_type[i] in (HINGE, SLIDE)]
    scale = jnp.zeros(model.nq).at[np.array(moved, int)].set(noise)

    def reset(key: Array) -> Any:
        offset = scale * jax.random.uniform(key, (model.nq,), minval=-1.0, maxval=1.0)
        return mjx.forward(physics, mjx.make_data(physics).replace(qpos=start + offset))

    return reset


def _step(model: Any, physics: Any, substeps: int) -> Callable[[Any, Array], Any]:
    """Return the function that takes one step of the task."""
    mjx = simulation.load("mujoco.mjx")
    low, high = jnp.asarray(model.actuator_ctrlrange.T, jnp.float32)

    def step(data: Any, action: Array) -> Any:
        data = data.replace(ctrl=low + (action + 1.0) * 0.5 * (high - low))
        return jax.lax.fori_loop(0, substeps, lambda _, data: mjx.step(physics, data), data)

    return step


def _observation(model: Any) -> Callable[[Any], Array]:
    """Return the default observation: positions but those in the ground plane, and velocities."""
    hidden = set(ground_coordinates(model).values())
    seen = np.array([i for i in range(model.nq) if i not in hidden], int)
    return lambda data: jnp.concatenate([data.qpos[seen], jnp.clip(data.qvel, -_FASTEST, _FASTEST)])


def _reward(own: Callable[..., Any] | None, dt: float) -> Callable[[Any, Array, Any], Array]:
    """Return the reward: the user's function, or the velocity of the first body along x."""
    if own is None:
        return lambda before, action, data: (data.xpos[1, 0] - before.xpos[1, 0]) / dt
    return lambda before, action, data: jnp.asarray(own(data, before, action), jnp.float32)


def _done(own: Callable[[Any], Any] | None, healthy: tuple[float, float]) -> Callable[[Any], Array]:
    """Return whether an episode ends: by the user's function, or if the height is not healthy."""
    low, high = healthy

    def done(data: Any) -> Array:
        height = data.xpos[1, 2]
        ended = (height < low) | (height > high)
        return ended if own is None else ended | jnp.asarray(own(data), bool)

    return done


def _termination_text(options: dict[str, Any]) -> str:
    """Return when an episode ends, as text."""
    parts = []
    if "healthy" in options:
        low, high = options["healthy"]
        parts.append(f"height of the first body outside of {low:g} to {high:g} m")
    if "done" in options:
        parts.append(options["done"])
    return "; ".join([*parts, "at the time limit"]) if parts else "never before the time limit"
