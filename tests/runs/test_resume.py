"""2N iterations in one go and N + resume + N: the same bits, for every algorithm."""

from __future__ import annotations

import subprocess
import sys

import pytest
from program import bits, environment, newest, rows

from elites.core import catalogue

SCRIPT = """
import sys
from elites.cli import main
path, name = sys.argv[1:]
options = ["point_omni", name, "--preset", "smoke", "--seeds", "2", "--checkpoint-every", "100",
           "--no-figures"]
def budget(n):
    a, b = (1, 9) if name == "me_es" else (32, 32)
    return ["--evaluations", str(a + n * b)]
assert main(["train", *options, *budget(6), "--output", path + "/straight"]) == 0
assert main(["train", *options, *budget(3), "--output", path + "/halves"]) == 0
assert main(["resume", path + "/halves", *budget(6)]) == 0
"""


@pytest.mark.parametrize("name", catalogue.ALGORITHMS)
def test_halves_equal_the_whole(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), name],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    assert newest(straight).name == newest(halves).name == "000000006"
    assert bits(newest(straight)) == bits(newest(halves))
    assert rows(straight / "metrics.csv") == rows(halves / "metrics.csv")
    assert rows(straight / "evaluation" / "cells.csv") == rows(halves / "evaluation" / "cells.csv")
    # that the halves are halves: the state did move on
    assert bits(newest(halves)) != bits(halves / "checkpoints" / "000000003")
