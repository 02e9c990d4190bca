"""Sizes small enough that an algorithm compiles and runs in seconds: those of the smoke preset."""

from elites.runs.config import preset

SMALL = vars(preset("smoke", "point_omni").hp)
