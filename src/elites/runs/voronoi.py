"""Compute the Voronoi cells of points in a box as polygons, to draw the cells of an archive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def polygons(points: np.ndarray, low: Sequence[float], high: Sequence[float]) -> list[np.ndarray]:
    """Return the Voronoi cell of each point [n, 2] in a box, as a polygon with corners [k, 2].

    `low` and `high` are opposite corners of the box. The corners of a cell are in counter-clockwise
    order, and in the units of the points. As in the archive, distances are relative to the sides of
    the box. A cell is computed as the intersection of the box with half-planes, one for every other
    point: the side of the bisector that is closer to the cell's own point. The cells of a grid are
    rectangles, which takes no time.
    """
    side = np.subtract(high, low, dtype=np.float64)
    places = grid_places(points, low, high)
    if places is not None:
        return list(low + side * _rectangles(places))
    points = (np.asarray(points, np.float64) - low) / side
    return [low + side * cell for cell in _unit_cells(points)]


def grid_places(
    points: np.ndarray, low: Sequence[float], high: Sequence[float]
) -> np.ndarray | None:
    """Return the column and the row [n, 2] of each point, if the points are the middles of a grid.

    A grid divides the box into equal rectangles, with one of the points [n, 2] in the middle of
    each. Returns None if the points do not form one.
    """
    units = (np.asarray(points, np.float64) - low) / np.subtract(high, low, dtype=np.float64)
    if not len(units) or units.min() <= 0:
        return None
    parts = np.rint(0.5 / units.min(0))  # the first middle is half a part from the border
    places = np.floor(units * parts)
    if parts.prod() != len(units) or np.abs(units * parts - places - 0.5).max() > 0.05:
        return None
    number = places[:, 0] * parts[1] + places[:, 1]
    if places.max() >= parts.max() or len(np.unique(number)) < len(number):
        return None
    return places.astype(int)


def _rectangles(places: np.ndarray) -> np.ndarray:
    """Return the corners [n, 4, 2] of the rectangles of a grid in the unit square, see `polygons`.

    `places` [n, 2] are their columns and rows.
    """
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    return (places[:, None] + corners[None]) / (places.max(0) + 1)


def _unit_cells(points: np.ndarray) -> list[np.ndarray]:
    """Return the Voronoi cell of each point [n, 2] in the unit square, as corners [k, 2]."""
    box = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    cells = []
    for i, point in enumerate(points):
        offsets = points - point
        squares = np.einsum("nd,nd->n", offsets, offsets)
        order = np.argsort(squares)
        cell = box
        for j in order:
            if j == i or squares[j] == 0:
                continue
            # A point farther than twice the distance to the farthest corner cannot cut the cell.
            reach = np.max(np.sum((cell - point) ** 2, axis=1)) if len(cell) else 0.0
            if squares[j] > 4 * reach:
                break
            cell = _cut(cell, point + offsets[j] / 2, offsets[j])
        cells.append(cell)
    return cells


def _cut(polygon: np.ndarray, on: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Cut a convex polygon along a line and return the corners [k, 2] of the remaining part.

    `on` is a point of the line. `normal` points to the side that is cut off.
    """
    side = (polygon - on) @ normal
    if (side <= 0).all():
        return polygon
    corners = []
    for k in range(len(polygon)):
        here, there = side[k - 1], side[k]
        if here * there < 0:
            share = here / (here - there)
            corners.append(polygon[k - 1] + share * (polygon[k] - polygon[k - 1]))
        if there <= 0:
            corners.append(polygon[k])
    return np.array(corners).reshape(-1, 2)
