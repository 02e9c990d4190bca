"""Read body models: check a JSON file and build the tables of `elites.physics.tables`.

A model file lists `bodies` (mass, inertia, frozen axes, colliders), `joints` (revolute, between a
parent and a child body), `actuators` (a torque on a joint), the pairs that collide
(`collide_include`) and the constants of the integrator. Angles are in degrees. A missing number is
0. `docs/body-models.md` describes every field.

- `fields`: single fields, with checks
- `bodies`, `colliders`, `joints`: entries of the file as records
- `contacts`: the points and pairs that can touch
- `pose`: the initial pose
- `model`: `load` and `build`, which combine the above
"""

from elites.physics.reading.fields import ModelError
from elites.physics.reading.model import build, load

__all__ = ["ModelError", "build", "load"]
