"""Cells: a grid by arithmetic, centroids from a file, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import elites
from elites.core import archive as archives
from elites.core.cells import MOST_VORONOI, Cells, read_centroids
from elites.core.hyperparameters import Hyperparameters

LOW, HIGH = (-2.0, 0.0, 10.0), (2.0, 1.0, 40.0)


def test_a_grid_finds_the_cell_whose_borders_hold_the_descriptor():
    cells = Cells(LOW, HIGH, 4 * 3 * 5, grid=(4, 3, 5))
    points = np.random.default_rng(0).uniform(LOW, HIGH, (3000, 3))
    found = np.asarray(cells.index(cells.centroids(), jnp.asarray(points, jnp.float32)))
    edges = [
        np.linspace(low, high, n + 1) for low, high, n in zip(LOW, HIGH, cells.grid, strict=True)
    ]
    pairs = list(zip(edges, points.T, strict=True))
    places = [np.searchsorted(edge, column) - 1 for edge, column in pairs]
    expected = np.ravel_multi_index(places, cells.grid)
    near = np.min([np.abs(edge[:, None] - column).min(0) for edge, column in pairs], axis=0)
    clear = near > 1e-5  # nearer to a border, 32 bits decide
    assert clear.mean() > 0.95
    np.testing.assert_array_equal(found[clear], expected[clear])


@pytest.mark.parametrize("grid", [(7,), (4, 3), (2, 3, 4), (3, 2, 2, 2)])
def test_the_centroids_of_a_grid_lie_in_the_middle_of_their_own_cells(grid):
    low, high = tuple(range(len(grid))), tuple(10.0 + i for i in range(len(grid)))
    cells = Cells(low, high, int(np.prod(grid)), grid=grid)
    centroids = cells.centroids()
    np.testing.assert_array_equal(cells.index(centroids, centroids), np.arange(cells.count))
    np.testing.assert_allclose(centroids.mean(0), np.add(low, high) / 2, rtol=1e-6)


def test_places_outside_of_a_grid_belong_to_its_border():
    cells = Cells((0.0, 0.0), (1.0, 1.0), 6, grid=(2, 3))
    outside = jnp.array([[-5.0, 0.5], [9.0, 9.0], [1e30, -1e30], [1.0, 1.0]])
    np.testing.assert_array_equal(cells.index(cells.centroids(), outside), [1, 5, 3, 5])


def test_an_archive_with_many_cells_draws_uniformly():
    """Beyond a size, cells are drawn by binary search, which must draw the same cells."""
    filled = np.random.default_rng(0).random(5000) < 0.01
    archive = archives.empty(jnp.zeros((5000, 2)), 1)
    archive = archive._replace(fitness=jnp.where(filled, 0.0, -jnp.inf))
    drawn = np.asarray(archives.sample(archive, jax.random.key(0), 20_000))
    assert set(drawn) == set(np.flatnonzero(filled))
    counts = np.bincount(drawn)[np.flatnonzero(filled)] / 20_000
    assert abs(counts * filled.sum() - 1).max() < 0.25


def test_a_grid_takes_the_place_of_cells():
    hp = Hyperparameters(grid=(10, 20))
    assert hp.cell_count == 200
    assert Hyperparameters(grid=(10, 20), cells=64).cell_count == 200
    assert elites.build("point_omni", "me", preset="smoke", grid=(6, 5)).cells == 30
    assert elites.build("sphere", "me").cells == 10_000
    assert elites.build("sphere", "me", cells=64).division.grid == ()  # not the preset's


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grid": (10,)}, r"grid needs one number for each of the 2 descriptor axes"),
        ({"count": MOST_VORONOI + 1}, r"use a grid, such as grid=\(141, 141\)"),
    ],
)
def test_cells_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Cells((0.0, 0.0), (1.0, 1.0), **{"count": 10, **values})


def test_centroids_come_from_a_file(tmp_path):
    points = np.float32(list(itertools.product((0.1, 0.5, 0.8), (0.2, 0.7))))
    for path in (tmp_path / "cells.npy", tmp_path / "cells.csv"):
        np.save(path, points) if path.suffix == ".npy" else np.savetxt(path, points, delimiter=",")
        cells = Cells((0.0, 0.0), (1.0, 1.0), 6, file=str(path))
        np.testing.assert_allclose(cells.centroids(), points, rtol=1e-6)
    with pytest.raises(ValueError, match="has 6 centroids, but cells is 7: choose cells=6"):
        Cells((0.0, 0.0), (1.0, 1.0), 7, file=str(path)).centroids()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.1,0.2,0.3\n", "need 2 columns"),
        ("0.1,word\n", "cannot be read as a table of numbers"),
        ("0.1,0.2\n0.1,1.5\n", r"in row 2 lies outside of the descriptor's bounds"),
        ("0.1,0.2\n0.1,0.2\n", "some centroids are equal"),
        ("0.1,nan\n", "in row 1 lies outside"),
    ],
)
def test_a_file_that_holds_no_centroids_is_refused(tmp_path, text, message):
    path = tmp_path / "cells.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_centroids(str(path), (0.0, 0.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="cannot be read as a table of numbers"):
        read_centroids(str(tmp_path / "missing.csv"), (0.0, 0.0), (1.0, 1.0))
