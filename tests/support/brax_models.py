"""MuJoCo models of the robots of brax, without importing brax, which takes seconds."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from elites.tasks import simulation

ROBOTS = (
    "hopper", "walker2d", "half_cheetah", "ant", "humanoid", "humanoidstandup", "swimmer",
    "reacher", "pusher", "inverted_pendulum", "inverted_double_pendulum",
)  # fmt: skip


def load(name: str) -> Any:
    """Return the model of a robot, read from the file that brax reads."""
    mujoco = pytest.importorskip("mujoco", reason="LEFT OUT: needs mujoco, elites[brax]")
    brax = importlib.util.find_spec("brax")
    if brax is None or brax.origin is None:
        pytest.skip("LEFT OUT: needs brax, elites[brax]")
    path = Path(brax.origin).parent / f"envs/assets/{name}.xml"
    with simulation.quiet():
        return mujoco.MjModel.from_xml_path(str(path))


def posed(name: str) -> tuple[Any, Any]:
    """Return the model of a robot, and its data in the initial pose."""
    import mujoco

    model = load(name)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data
