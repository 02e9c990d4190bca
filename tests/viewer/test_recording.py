"""Test what a recording says about how an episode ended."""

from __future__ import annotations

import numpy as np
import pytest

from elites.tasks import make
from elites.viewer.recording import _ending

STRAIGHT = (1.0, 0.0, 0.0, 0.0)
LEANING, LYING = ((np.cos(a / 2), 0.0, np.sin(a / 2), 0.0) for a in (0.3, 1.2))


@pytest.mark.parametrize(
    ("height", "rotation", "said"),
    [
        (1.2, STRAIGHT, "ended"),
        (1.2, LEANING, "ended"),
        (1.2, LYING, "fell"),
        (0.5, STRAIGHT, "fell"),
        (3.0, STRAIGHT, "ended"),
    ],
)
def test_a_low_or_tipped_trunk_has_fallen(height, rotation, said):
    poses = np.array([[(0, 0, 1.25, *STRAIGHT)], [(2, 0, height, *rotation)]])
    assert _ending(make("walker_uni"), poses) == said


def test_an_episode_without_poses_just_ended():
    assert _ending(make("point_omni"), None) == "ended"
