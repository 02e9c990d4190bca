"""The rigid-body engine: springs, contacts and a fixed step, in JAX alone.

Bodies have full position and orientation; joints are stiff springs, contacts act on velocities.
`model` reads a body model, `step` advances it; everything between is pure functions over arrays
laid out `[rows, lanes]`, a lane for each robot.
"""

from elites.physics.bodies import Bodies, unpack
from elites.physics.engine import Sensors, reset, sense, step
from elites.physics.model import Model, ModelError, Shape, build, load

__all__ = [
    "Bodies",
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
