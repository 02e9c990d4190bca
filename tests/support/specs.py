"""The specifications from which the registry builds its algorithms."""

from __future__ import annotations

import pytest

import elites
import sharing
from elites.core import map_elites
from elites.core.hyperparameters import Value
from elites.core.spec import Spec


def spec_of(name: str, task: str | elites.Task = "point_omni", **hyperparameters: Value) -> Spec:
    """Return the specification of an algorithm by name. `map_elites.algorithm` builds it."""
    found: list[Spec] = []
    build = map_elites.algorithm

    def noted(spec: Spec):
        found.append(spec)
        return build(spec)

    with pytest.MonkeyPatch.context() as patch, sharing.paused():
        patch.setattr(map_elites, "algorithm", noted)
        elites.build(task, name, **hyperparameters)
    (spec,) = found
    return spec
