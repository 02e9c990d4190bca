"""Runs saved before the redesign of the algorithms are read and continued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import elites
from program import arrays, newest, rows, succeed

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(params=["dcg_me", "me_es"])
def run(request, tmp_path) -> Path:
    """A run of a few iterations, two seeds, on the point, as it was packed then."""
    path = tmp_path / request.param
    succeed("unpack", DATA / f"run_of_format_1_{request.param}.zip", "--output", path)
    return path


def test_its_results_are_read(run):
    loaded, stored = elites.load(run), arrays(newest(run))
    np.testing.assert_array_equal(loaded.archives.policies, stored["archive.policies"])
    assert (loaded.actors is not None) == (run.name == "dcg_me")
    again = loaded.reevaluate()
    # Another machine may round differently, but the point moves smoothly.
    assert (again.descriptor_error < 1e-3).all()


def test_it_is_continued(run):
    before = rows(run / "metrics.csv")
    each = 8 if run.name == "dcg_me" else 9
    evaluations = int(float(before[-1]["evaluations"])) + 2 * each
    succeed("resume", run, "--evaluations", evaluations)
    after = rows(run / "metrics.csv")
    assert after[: len(before)] == before
    last = int(before[-1]["iteration"])
    iterations = [int(row["iteration"]) for row in after[len(before) :]]
    assert iterations == [last + 1, last + 1, last + 2, last + 2], "two seeds each"
    assert float(after[-1]["qd_score"]) >= float(before[-1]["qd_score"])
    assert int(after[-1]["evaluations"]) == evaluations
