"""The benchmark of the time until training passes the paper's score, and pages that quote it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elites.study.report import PUBLISHED
from scripts import benchmark

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    return benchmark("passing")


def test_each_seed_counts_until_it_passes_the_score(script):
    metrics = {
        "qd_score": np.array([[1.0, 9.0, 2.0], [5.0, 4.0, 2.0], [7.0, 9.0, 2.0]]),
        "evaluations": np.array([[10] * 3, [20] * 3, [30] * 3]),
        "seconds": np.array([[1.5] * 3, [2.5] * 3, [4.25] * 3]),
    }
    found = script.passing(metrics, 5.0)
    assert found == {"evaluations": [20.0, 10.0, None], "seconds": [2.5, 1.5, None]}
    assert script.seconds_an_iteration(metrics["seconds"][:, 0]) == 1.38
    assert script.seconds_an_iteration(metrics["seconds"][:1, 0]) is None


def test_the_pages_say_what_was_measured():
    lines = (ROOT / "docs/results/progress_me/passing.jsonl").read_text().splitlines()
    (measured,) = map(json.loads, lines)
    assert measured["score"] == PUBLISHED["ant_omni"][0]
    (minutes,) = {f"{seconds / 60:.0f} minutes on two" for seconds in measured["seconds"]}
    assert (measured["cores"], len(measured["seeds"])) == (2, 2)
    for name in ("README.md", "docs/progress.md", "docs/performance.md"):
        assert minutes in " ".join((ROOT / name).read_text("utf-8").split())
    page = " ".join((ROOT / "docs/performance.md").read_text("utf-8").split())
    (evaluations,) = set(measured["evaluations"])
    assert f"after {evaluations:,.0f} evaluations" in page
    assert f"{measured['seconds_an_iteration']:.1f} s an iteration" in page
    assert f"Compiling took {measured['compile_seconds']:.0f} s" in page
