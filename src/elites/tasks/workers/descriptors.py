"""Behaviour descriptors of a Gymnasium environment's states, in NumPy.

The descriptors by name are those of `elites.tasks.descriptors`, read from the MuJoCo model of an
environment. Any environment can have a descriptor of the user's own: the function of a reference
FILE.py:FUNCTION takes the environment and the observation, and returns the numbers that describe
the state.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites import references
from elites.core.catalogue import suggestion
from elites.tasks.joints import SLIDE, ground_coordinates, own_joints

FEET = (
    ("foot_geom", "foot_left_geom"),  # Walker2d
    ("foot_geom",),  # Hopper
    ("bfoot", "ffoot"),  # HalfCheetah
    ("left_ankle_geom", "right_ankle_geom", "third_ankle_geom", "fourth_ankle_geom"),  # Ant
    ("right_foot", "left_foot"),  # Humanoid
)
"""Names of the geoms that are the feet of the usual robots. The first that a model has are used."""


class Choice(NamedTuple):
    """The descriptor that a task's name asks for."""

    descriptor: str
    """Name of a descriptor, or FILE.py:FUNCTION."""
    feet: tuple[str, ...] = ()
    """Names of the geoms of feet_contact. Empty: those of a known robot."""
    joints: tuple[str, ...] = ()
    """Names of the joints of joint_range. Empty: all of them."""
    over: str = "mean"
    """Descriptor of an episode for a function of the user's own: "mean" or "final"."""


class Descriptor(NamedTuple):
    """Descriptor of the states of one environment, and its axes."""

    value: Callable[[Any], Any]
    """(observation) -> descriptor [D] of the current state. Called once after every step."""
    over: str
    """Descriptor of an episode: "final" for that of its last state, or "mean" over its steps."""
    low: tuple[float | None, ...]
    """Lower bound of each axis, or None if it is not known."""
    high: tuple[float | None, ...]
    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    text: str = ""
    reset: Callable[[], None] = lambda: None
    """Called at the start of an episode, before `value`."""

    def facts(self) -> dict[str, Any]:
        """Return what is known of the descriptor, by name, for JSON."""
        fields = ("over", "low", "high", "names", "units", "text")
        return {field: getattr(self, field) for field in fields}


def make(choice: Choice, own: Callable[..., Any] | None, env: Any) -> Descriptor:
    """Return the descriptor of an environment, or that of the function `own` if it is given.

    `env` has been reset. Raises a ValueError if it has no such descriptor.
    """
    if own is not None:
        return _own(choice, own, env)
    inner = env.unwrapped
    if not (hasattr(inner, "data") and hasattr(getattr(inner, "model", None), "ngeom")):
        raise ValueError(
            "it has no MuJoCo model, so it needs a descriptor of your own: "
            "descriptor=FILE.py:FUNCTION"
        )
    return _BY_NAME[choice.descriptor](choice, inner)


def _own(choice: Choice, function: Callable[..., Any], env: Any) -> Descriptor:
    """Return the descriptor that a function of the user's own computes."""
    name = choice.descriptor

    def value(observation: Any) -> np.ndarray:
        return np.asarray(references.call(name, function, env, observation), np.float64)

    seen, _ = env.reset(seed=0)
    shape = value(seen).shape
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"the descriptor {name} must return a vector, got the shape {shape}")
    unknown = (None,) * shape[0]
    text = f"{references.short_name(name)} of {Path(name.rpartition(':')[0]).name}"
    return Descriptor(value, choice.over, unknown, unknown, text=text)


# ----------------------------------------------------------------------------------------- by name


def _feet_contact(choice: Choice, env: Any) -> Descriptor:
    """Return the share of steps in which each foot touches something."""
    model, data = env.model, env.data
    geoms = [model.geom(i).name for i in range(model.ngeom)]
    feet = choice.feet or next((names for names in FEET if set(names) <= set(geoms)), ())
    places = _chosen("geom", feet, {geom: i for i, geom in enumerate(geoms) if geom}, "feet")

    def value(_: Any) -> np.ndarray:
        near = np.asarray(data.contact.geom)[np.asarray(data.contact.dist) <= 0]
        return np.isin(places, near).astype(np.float64)

    return Descriptor(
        value, "mean", (0.0,) * len(feet), (1.0,) * len(feet),
        tuple(f"contact of {foot}" for foot in feet), ("",) * len(feet),
        "share of steps in which each foot touches something",
    )  # fmt: skip


def _chosen(kind: str, names: tuple[str, ...], known: dict[str, int], option: str) -> list[int]:
    """Return the numbers of geoms or joints by their names. Raises a ValueError for unknown ones.

    `option` is the option of a task's name that chooses them.
    """
    there = f"{kind.capitalize()}s: {', '.join(known) or 'none with a name'}"
    if not names:
        raise ValueError(
            f"its {option} are not known: add {option}=NAME/NAME, or choose another descriptor=. "
            f"{there}"
        )
    if missing := [name for name in names if name not in known]:
        raise ValueError(
            f"there is no {kind} '{missing[0]}' for {option}=."
            f"{suggestion(missing[0], known)} {there}"
        )
    return [known[name] for name in names]


def _final_position(choice: Choice, env: Any) -> Descriptor:
    """Return the position of the main body in the ground plane at the end."""
    axes, data, unknown = _ground_axes(env.model), env.data, (None,) * len(_ground_axes(env.model))
    return Descriptor(
        lambda _: data.xpos[1][axes], "final", unknown, unknown,
        tuple(f"final {'xy'[axis]}" for axis in axes), ("m",) * len(axes),
        "position of the main body in the ground plane at the end",
    )  # fmt: skip


def _mean_height(choice: Choice, env: Any) -> Descriptor:
    """Return the mean height of the main body."""
    data = env.data
    return Descriptor(
        lambda _: data.xpos[1][2:], "mean", (None,), (None,), ("mean height",), ("m",),
        "mean height of the main body",
    )  # fmt: skip


def _mean_velocity(choice: Choice, env: Any) -> Descriptor:
    """Return the mean velocity of the main body in the ground plane."""
    axes, data, dt = _ground_axes(env.model), env.data, float(env.dt)
    before: list[np.ndarray] = []  # the last position

    def value(_: Any) -> np.ndarray:
        now = np.array(data.xpos[1][axes])
        moved = now - before[0] if before else np.zeros(len(axes))
        before[:] = [now]
        return moved / dt

    unknown = (None,) * len(axes)
    return Descriptor(
        value, "mean", unknown, unknown, tuple(f"mean velocity {'xy'[axis]}" for axis in axes),
        ("m/s",) * len(axes), "mean velocity of the main body in the ground plane", before.clear,
    )  # fmt: skip


def _ground_axes(model: Any) -> list[int]:
    """Return the axes along which the main body, the first one, can move: x, y or both."""
    found = list(ground_coordinates(model))
    if not found:
        raise ValueError(
            "its first body cannot move in the ground plane: choose another descriptor="
        )
    return found


def _joint_range(choice: Choice, env: Any) -> Descriptor:
    """Return how far each joint moved: its highest minus its lowest position in the episode."""
    model, data = env.model, env.data
    known = own_joints(model)
    names = choice.joints or tuple(known)
    joints = _chosen("joint", names, known, "joints")
    places = [int(model.jnt_qposadr[i]) for i in joints]
    limits = [float(np.ptp(model.jnt_range[i])) if model.jnt_limited[i] else 0.0 for i in joints]
    ends: list[np.ndarray] = []  # lowest and highest positions so far

    def value(_: Any) -> np.ndarray:
        now = np.array(data.qpos[places])
        ends[:] = [np.minimum(ends[0], now), np.maximum(ends[1], now)] if ends else [now, now]
        return ends[1] - ends[0]

    return Descriptor(
        value, "final", (0.0,) * len(joints),
        tuple(round(limit, 6) or None for limit in limits),
        tuple(f"range of {name}" for name in names),
        tuple("m" if model.jnt_type[i] == SLIDE else "rad" for i in joints),
        "highest minus lowest position of each joint in the episode", ends.clear,
    )  # fmt: skip


_BY_NAME: dict[str, Callable[[Choice, Any], Descriptor]] = {
    "feet_contact": _feet_contact,
    "final_position": _final_position,
    "mean_height": _mean_height,
    "mean_velocity": _mean_velocity,
    "joint_range": _joint_range,
}
