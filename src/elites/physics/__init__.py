"""Rigid-body engine in JAX: joints as springs, contacts as impulses, a fixed time step.

Every body has a full position and orientation. `load` reads a body model and `step` advances it by
one time step. In between are pure functions over arrays `[rows, n]`: one row per body, joint or
contact point, one column per robot of the batch.
"""

from elites.physics.bodies import Bodies, unpack
from elites.physics.engine import Sensors, reset, sense, step
from elites.physics.reading import ModelError, build, load
from elites.physics.tables import Mesh, Model, Shape

__all__ = [
    "Bodies",
    "Mesh",
    "Model",
    "ModelError",
    "Sensors",
    "Shape",
    "build",
    "load",
    "reset",
    "sense",
    "step",
    "unpack",
]
