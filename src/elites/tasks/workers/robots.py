"""The MuJoCo robot of an environment, for the page that draws it. Training does not use it.

A worker saves the model in MuJoCo's binary format, from which the parent makes the scene. The poses
of its bodies are written after every step of a recorded episode.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from elites.tasks import geoms


class RobotFacts(NamedTuple):
    """What a parent has to know of a robot before it can be recorded."""

    bodies: int
    """Number of bodies that move."""
    model_size: int
    """Number of bytes of the model."""
    dt: float
    """Time between two states of an episode in seconds."""


class Robot:
    """The robot of an environment that has a MuJoCo model."""

    def __init__(self, env: Any):
        self._env = env  # it may replace its model, so the model is not kept

    def facts(self) -> RobotFacts:
        """Return the sizes of the robot."""
        model = self._env.model
        return RobotFacts(len(geoms.moving(model)), _mujoco().mj_sizeModel(model), _dt(self._env))

    def poses(self) -> np.ndarray:
        """Return the poses [B, 7] of the bodies that move, see `geoms.poses_of`."""
        return geoms.poses_of(self._env.model, self._env.data)

    def save(self, memory: np.ndarray) -> None:
        """Write the model to an array of `model_size` bytes."""
        _mujoco().mj_saveModel(self._env.model, None, memory)


def find(env: Any) -> Robot | None:
    """Return the robot of an environment, or None if it has no MuJoCo model.

    Models of other packages than `mujoco` have no binary format that it can read.
    """
    mujoco, inner = sys.modules.get("mujoco"), env.unwrapped
    if mujoco is None or not isinstance(getattr(inner, "model", None), mujoco.MjModel):
        return None
    return Robot(inner) if isinstance(getattr(inner, "data", None), mujoco.MjData) else None


def load(saved: bytes) -> Any:
    """Return the `mujoco.MjModel` that `Robot.save` has written. It runs in the parent."""
    return _mujoco().MjModel.from_binary_path("robot.mjb", {"robot.mjb": saved})


def _mujoco() -> Any:
    return importlib.import_module("mujoco")


def _dt(env: Any) -> float:
    """Return the seconds of a step. Without a usable `env.dt`, they are those of a physics step."""
    given = getattr(env, "dt", None)
    if isinstance(given, int | float) and math.isfinite(given) and given > 0:
        return float(given)
    return float(env.model.opt.timestep)
