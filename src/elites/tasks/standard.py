"""Standard names: tasks under the names that the literature on quality-diversity uses for them.

A standard name stands for the name of another task, often one of another simulator. `uni` tasks
reward walking forward, and their descriptor is the contact of each foot. `omni` tasks reward
standing, and their descriptor is the final position. The names, the descriptors and their bounds
are those of QDax. The robots of brax are simulated by today's brax, not by the release of 2022 that
published results used, so fitness cannot be compared with them.

Nothing here loads JAX or imports a simulator.
"""

from __future__ import annotations

from elites import names
from elites.tasks.families import FAMILIES

STANDARD: dict[str, str] = {
    "walker2d_uni": "walker_uni",
    "hopper_uni": "brax:hopper,descriptor=feet_contact",
    "halfcheetah_uni": "brax:halfcheetah,descriptor=feet_contact",
    "humanoid_uni": "brax:humanoid,descriptor=feet_contact",
    "humanoid_omni": (
        "brax:humanoid,descriptor=final_position,forward_reward=no,high=30/30,low=-30/-30"
    ),
    "sphere": "vectors:sphere,dimensions=100",
    "rastrigin": "vectors:rastrigin,dimensions=100",
    "arm": "vectors:arm,dimensions=100",
}
"""Names of tasks, keyed by the standard names that stand for them."""

QD_OFFSETS: dict[str, float] = {"hopper_uni": -900.0, "halfcheetah_uni": -9231.0}
"""QD offsets of those that have one: the offsets of QDax for a step, times 1,000 steps."""


def needed(name: str) -> str:
    """Return what must be installed for a standard name, in words. Empty if nothing is missing."""
    if not names.is_simulated(STANDARD[name]):
        return ""
    family = FAMILIES[names.parse(STANDARD[name]).family]
    return "" if family.is_installed else f"not installed: pip install 'elites[{family.extra}]'"
