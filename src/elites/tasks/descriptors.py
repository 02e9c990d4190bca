"""Descriptors by name for robots of other simulators: feet_contact, mean_height and others.

| name           | axes                                                  | episode | bounds    |
|----------------|-------------------------------------------------------|---------|-----------|
| feet_contact   | share of steps in which each foot touches something   | mean    | 0 to 1    |
| final_position | x and y of the main body, in m                        | last    | estimated |
| mean_height    | z of the main body, in m                              | mean    | estimated |
| mean_velocity  | velocity of the main body along x and y, in m/s       | mean    | estimated |
| joint_range    | highest minus lowest position of each joint, rad or m | last    | see below |

A robot that cannot move along y, such as a hopper in a plane, has no axis for y. The range of a
joint with limits lies between 0 and the distance of its limits. Otherwise it is estimated.

`FILE.py:FUNCTION` names a function of the user's own: it takes the simulator's state of one robot
and returns the descriptor of that state. See `docs/simulators.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites import references
from elites.tasks.bounds import UNKNOWN
from elites.tasks.joints import SLIDE, ground_coordinates, own_joints
from elites.tasks.task import Array


class Robot(NamedTuple):
    """What descriptors and scenes need to know about a robot.

    A state is the simulator's, of one robot.
    """

    model: Any  # MuJoCo's model: names and limits of geoms and joints
    position: Callable[[Any], Array]  # (state) -> [3] position of the main body, in m
    poses: Callable[[Any], Array]  # (state) -> [nbody - 1, 7] poses of the bodies, see `geoms`
    coordinates: Callable[[Any], Array]  # (state) -> [nq] joint positions, in the model's order
    touching: Callable[[Any, Sequence[int]], Array]  # (state, geoms) -> [geoms] 1.0 or 0.0
    feet: tuple[str, ...]  # names of the geoms that are feet; empty if they are not known
    dt: float  # seconds of a step


_Start = Callable[[Any], Any]
_Measure = Callable[[Any, Any, Any], tuple[Any, Array]]


class Descriptor(NamedTuple):
    """A descriptor: how it is measured in every state, and its axes.

    `memory` is a pytree of arrays that belongs to an episode, such as the lowest and highest joint
    positions so far. Most descriptors need none: ().
    """

    start: _Start  # (state after reset) -> memory
    measure: _Measure  # (memory, state before, state) -> memory, descriptor of the state [D]
    over: Literal["final", "mean"]
    low: tuple[float, ...]
    high: tuple[float, ...]
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    text: str = ""


def make(task: str, robot: Robot | None, options: dict[str, Any], example: Any) -> Descriptor:
    """Return the descriptor that the options of a task name, by default feet_contact.

    `example` is a state of the simulator, or its shapes. `task` is the task's name, for messages.
    Raises a ValueError if the robot does not have what the descriptor needs. `robot` is None for a
    simulator without a MuJoCo model, which only has descriptors of the user's own.
    """
    chosen = options.get("descriptor", "feet_contact")
    if references.is_reference(chosen):
        return _own(task, chosen, options.get("over", "mean"), example)
    if "over" in options:
        raise ValueError(f"task '{task}': over= is for a descriptor of your own, FILE.py:FUNCTION")
    if robot is None:
        raise ValueError(
            f"task '{task}': its environment has no robot with joints and geoms, so it needs a "
            "descriptor of your own: descriptor=FILE.py:FUNCTION"
        )
    return _BY_NAME[chosen](task, robot, options)


def _memoryless(measure: Callable[[Any, Any], Array]) -> tuple[_Start, _Measure]:
    """Return the functions of a `Descriptor` that only looks at two states, before and after."""
    return lambda state: (), lambda memory, before, state: (memory, measure(before, state))


# --------------------------------------------------------------------------------------- by name


def _feet_contact(task: str, robot: Robot, options: dict[str, Any]) -> Descriptor:
    """Return the share of steps in which each foot touches something."""
    feet = options.get("feet", robot.feet)
    known = [robot.model.geom(i).name for i in range(robot.model.ngeom)]
    there = ", ".join(filter(None, known)) or "none with a name"
    if not feet:
        raise ValueError(
            f"task '{task}': feet_contact needs to know which geoms are feet: add feet=GEOM/GEOM, "
            f"or choose another descriptor=. Geoms: {there}"
        )
    if missing := [foot for foot in feet if foot not in known]:
        raise ValueError(f"task '{task}': there is no geom '{missing[0]}'. Geoms: {there}")
    geoms = [known.index(foot) for foot in feet]
    return Descriptor(
        *_memoryless(lambda before, state: robot.touching(state, geoms)),
        over="mean",
        low=(0.0,) * len(feet),
        high=(1.0,) * len(feet),
        names=tuple(f"contact of {foot}" for foot in feet),
        text="share of steps in which each foot touches something",
    )


def _final_position(task: str, robot: Robot, options: dict[str, Any]) -> Descriptor:
    """Return the position of the main body in the ground plane at the end."""
    axes = _ground_axes(task, robot)
    return Descriptor(
        *_memoryless(lambda before, state: robot.position(state)[axes]),
        over="final",
        low=(-UNKNOWN,) * len(axes),
        high=(UNKNOWN,) * len(axes),
        names=tuple(f"final {'xy'[axis]}" for axis in axes),
        units=("m",) * len(axes),
        text="position of the main body in the ground plane at the end",
    )


def _mean_height(task: str, robot: Robot, options: dict[str, Any]) -> Descriptor:
    """Return the mean height of the main body."""
    return Descriptor(
        *_memoryless(lambda before, state: robot.position(state)[2:]),
        over="mean",
        low=(-UNKNOWN,),
        high=(UNKNOWN,),
        names=("mean height",),
        units=("m",),
        text="mean height of the main body",
    )


def _mean_velocity(task: str, robot: Robot, options: dict[str, Any]) -> Descriptor:
    """Return the mean velocity of the main body in the ground plane."""
    axes = _ground_axes(task, robot)

    def measure(before: Any, state: Any) -> Array:
        return (robot.position(state) - robot.position(before))[axes] / robot.dt

    return Descriptor(
        *_memoryless(measure),
        over="mean",
        low=(-UNKNOWN,) * len(axes),
        high=(UNKNOWN,) * len(axes),
        names=tuple(f"mean velocity {'xy'[axis]}" for axis in axes),
        units=("m/s",) * len(axes),
        text="mean velocity of the main body in the ground plane",
    )


def _joint_range(task: str, robot: Robot, options: dict[str, Any]) -> Descriptor:
    """Return how far each joint moved: its highest minus its lowest position in the episode."""
    model = robot.model
    known = own_joints(model)
    chosen = options.get("joints", tuple(known))
    there = ", ".join(known) or "none"
    if missing := [joint for joint in chosen if joint not in known]:
        raise ValueError(f"task '{task}': there is no joint '{missing[0]}'. Joints: {there}")
    if not chosen:
        raise ValueError(f"task '{task}': the robot has no joints for joint_range")
    joints = [known[joint] for joint in chosen]
    places = np.array([model.jnt_qposadr[i] for i in joints])
    limits = [float(np.ptp(model.jnt_range[i])) if model.jnt_limited[i] else 0 for i in joints]

    def start(state: Any) -> tuple[Array, Array]:
        now = robot.coordinates(state)[places]
        return now, now

    def measure(memory: tuple[Array, Array], before: Any, state: Any):
        now = robot.coordinates(state)[places]
        memory = jnp.minimum(memory[0], now), jnp.maximum(memory[1], now)
        return memory, memory[1] - memory[0]

    return Descriptor(
        start,
        measure,
        over="final",
        low=(0.0,) * len(joints),
        high=tuple(round(limit, 6) or UNKNOWN for limit in limits),
        names=tuple(f"range of {joint}" for joint in chosen),
        units=tuple("m" if model.jnt_type[i] == SLIDE else "rad" for i in joints),
        text="highest minus lowest position of each joint in the episode",
    )


_BY_NAME: dict[str, Callable[[str, Robot, dict[str, Any]], Descriptor]] = {
    "feet_contact": _feet_contact,
    "final_position": _final_position,
    "mean_height": _mean_height,
    "mean_velocity": _mean_velocity,
    "joint_range": _joint_range,
}


def _ground_axes(task: str, robot: Robot) -> np.ndarray:
    """Return the axes of `ground_coordinates`, or raise a ValueError if there are none."""
    found = ground_coordinates(robot.model)
    if not found:
        raise ValueError(
            f"task '{task}': the robot's first body cannot move in the ground plane. Choose "
            "another descriptor="
        )
    return np.array(list(found))


# ------------------------------------------------------------------------------ of the user's own


def _own(task: str, reference: str, over: Literal["final", "mean"], example: Any) -> Descriptor:
    """Return a descriptor that calls the user's function FILE.py:FUNCTION in every state."""
    compute = own_function(task, "descriptor", reference)

    def measure(before: Any, state: Any) -> Array:
        return jnp.asarray(compute(state), jnp.float32)

    try:
        shape = jax.eval_shape(lambda state: measure(state, state), example).shape
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"task '{task}': the descriptor {reference} raised {references.described(error)}"
        ) from error
    if len(shape) != 1 or not shape[0]:
        raise ValueError(
            f"task '{task}': the descriptor {reference} must return a vector, got the shape {shape}"
        )
    return Descriptor(
        *_memoryless(measure),
        over=over,
        low=(-UNKNOWN,) * shape[0],
        high=(UNKNOWN,) * shape[0],
        text=f"{references.short_name(reference)} of {Path(reference.rpartition(':')[0]).name}",
    )


def own_function(task: str, option: str, reference: str) -> Callable[..., Any]:
    """Return the function that a reference FILE.py:FUNCTION in an option of a task names.

    Raises a ValueError if the file does not define it.
    """
    return references.load_function(reference, f"task '{task}': {option} must be a function")
