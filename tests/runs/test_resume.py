"""2N iterations in one go and N + resume + N: the same bits, for every kind of state."""

from __future__ import annotations

import pytest

from program import ONE_LAYER, SMOKE, bits, newest, rows, succeed


# The states of the others have the fields of one of these; for dcg_me see test_faults.py.
@pytest.mark.parametrize("name", ["me", "me_es", "qd_pg", "progress_me", "cma_mae", "pbt_me"])
def test_halves_equal_the_whole(name, tmp_path):
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    task = "vectors:sphere,dimensions=10" if name == "cma_mae" else "point_omni"
    options = (task, name, *SMOKE, *ONE_LAYER, "--seeds", 2, "--checkpoint-every", 100)
    first, each = {"me_es": (1, 9), "pbt_me": (9, 19)}.get(name, (32, 32))
    whole, half = (("--evaluations", first + n * each) for n in (6, 3))
    succeed("train", *options, *whole, "--output", straight)
    succeed("train", *options, *half, "--output", halves)
    succeed("resume", halves, *whole)
    assert newest(straight).name == newest(halves).name == "000000006"
    assert bits(newest(straight)) == bits(newest(halves))
    assert rows(straight / "metrics.csv") == rows(halves / "metrics.csv")
    assert rows(straight / "evaluation" / "cells.csv") == rows(halves / "evaluation" / "cells.csv")
    # that the halves are halves: the state did move on
    assert bits(newest(halves)) != bits(halves / "checkpoints" / "000000003")
