"""One small finished run that the tests of this directory look at, and copies they may damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from program import succeed


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Nine iterations of MAP-Elites on the point, two seeds; checkpoints of 8 and 9. Read only."""
    path = tmp_path_factory.mktemp("runs") / "finished"
    succeed("train", "point_omni", "me", "--preset", "smoke", "--seeds", 2, "--output", path)
    return path


@pytest.fixture(scope="session")
def conditioned(tmp_path_factory) -> Path:
    """The same with DCG-MAP-Elites, which has an actor. Read only."""
    path = tmp_path_factory.mktemp("runs") / "conditioned"
    succeed("train", "point_omni", "dcg_me", "--preset", "smoke", "--seeds", 2, "--output", path)
    return path


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
