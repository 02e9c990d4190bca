"""The centroids are those of a centroidal Voronoi tessellation, the same in every process."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial import cKDTree

from elites.core import centroids


@pytest.mark.parametrize(
    ("low", "high", "cells"),
    [
        ((-30.0, -30.0), (30.0, 30.0), 64),
        ((0.0,), (1.0,), 32),
        ((-1.0, 0.0, 2.0), (1.0, 5.0, 3.0), 50),
    ],
)
def test_centroids_are_those_of_a_centroidal_tessellation(low, high, cells):
    found = np.asarray(centroids.box_centroids(low, high, cells), np.float64)
    low, high = np.array(low), np.array(high)
    assert found.shape == (cells, len(low))
    assert ((found > low) & (found < high)).all()

    # On fresh samples in the unit box, cells have similar shares and their means are the centroids.
    unit = (found - low) / (high - low)
    points = np.random.default_rng(0).random((200_000, len(low)))
    nearest = cKDTree(unit).query(points)[1]
    share = np.bincount(nearest, minlength=cells) / len(points) * cells
    assert share.min() > 0.5
    assert share.max() < 1.6
    means = np.stack([points[nearest == cell].mean(0) for cell in range(cells)])
    side = cells ** (-1 / len(low))
    # Centres drawn at random would be 0.2 sides off on average; these are 0.04 at most.
    assert np.linalg.norm(means - unit, axis=1).max() < 0.06 * side


def test_centroids_scale_with_the_bounds():
    unit = np.asarray(centroids.box_centroids((0.0, 0.0), (1.0, 1.0), 64))
    low, high = np.float32([-3.0, 10.0]), np.float32([5.0, 10.5])
    scaled = centroids.box_centroids(tuple(low.tolist()), tuple(high.tolist()), 64)
    np.testing.assert_allclose(scaled, low + unit * (high - low), rtol=1e-6)


def test_centroids_are_the_same_in_every_call_and_process():
    here = np.asarray(centroids.box_centroids((-1.0, -1.0), (1.0, 1.0), 64))
    again = np.asarray(centroids.box_centroids((-1.0, -1.0), (1.0, 1.0), 64))
    np.testing.assert_array_equal(here, again)
    program = (
        "import jax, numpy as np; jax.random.normal(jax.random.key(7), (3,))\n"
        "from elites.core import centroids\n"
        "print(np.asarray(centroids.box_centroids((-1.0, -1.0), (1.0, 1.0), 64)).tobytes().hex())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == here.tobytes().hex()


def test_a_tree_finds_the_row_that_comparing_all_finds():
    """Also for points between two rows, on a row, and where many rows are equally near."""
    random = np.random.default_rng(2)
    grid = np.stack(np.meshgrid(np.arange(20), np.arange(20)), -1).reshape(-1, 2) / 32
    rows = np.concatenate([grid, grid[:30], random.random((50, 2))]).astype(np.float32)
    points = np.concatenate([grid, grid + 1 / 64, random.random((500, 2))]).astype(np.float32)
    expected = centroids._nearest_of_all(rows, points)
    np.testing.assert_array_equal(centroids._nearest(rows, points), expected)
    assert len(rows) >= centroids._FEW, "fewer rows need no tree"
