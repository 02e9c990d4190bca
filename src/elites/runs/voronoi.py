"""Voronoi cells of points in a box, as polygons: the cells of an archive, for drawing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def polygons(points: np.ndarray, low: Sequence[float], high: Sequence[float]) -> list[np.ndarray]:
    """The corners [k, 2] of each point's cell within the box, counter-clockwise.

    A cell is the box, cut by the half-plane nearer to its point than to another, for every other
    point that is near enough to matter.
    """
    points = np.asarray(points, np.float64)
    box = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    cells = []
    for i, point in enumerate(points):
        offsets = points - point
        squares = np.einsum("nd,nd->n", offsets, offsets)
        order = np.argsort(squares)
        cell = box
        for j in order:
            if j == i or squares[j] == 0:
                continue
            # Beyond twice the distance to the farthest corner a point cannot cut any more.
            reach = np.max(np.sum((cell - point) ** 2, axis=1)) if len(cell) else 0.0
            if squares[j] > 4 * reach:
                break
            cell = _cut(cell, point + offsets[j] / 2, offsets[j])
        cells.append(cell)
    return cells


def _cut(polygon: np.ndarray, on: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The part of a convex polygon on the side of a line that its normal points away from."""
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
