"""Sizes small enough that an algorithm compiles and runs in seconds.

They are those of the smoke preset with one hidden layer instead of two, which compiles sooner.
"""

from elites.runs.config import preset

ONE_LAYER = dict.fromkeys(("policy_hidden", "actor_hidden", "critic_hidden"), (8,))
SMALL = vars(preset("smoke", "point_omni").hp) | ONE_LAYER
