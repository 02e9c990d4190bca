"""Pixels that the parts of a picture cover, for all parts at once.

A part is drawn into the rectangle of pixels around it. The pixels of all rectangles form one list,
part after part and row after row, so that a few calls of NumPy compute them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Pixels(NamedTuple):
    """Pixels of n rectangles in a picture, one rectangle after the other."""

    low: np.ndarray  # [n, 2] column and row of the first pixel of each rectangle
    high: np.ndarray  # [n, 2] column and row after its last one
    counts: np.ndarray  # [n] number of its pixels
    columns: np.ndarray  # [k]
    rows: np.ndarray  # [k]

    def spread(self, *values: np.ndarray) -> np.ndarray:
        """Return values [n] of the parts for each of their pixels, as rows of an array [..., k]."""
        return np.repeat(np.array(values, np.float32), self.counts, axis=1)

    def parts(self, *values: np.ndarray) -> Iterator[tuple[tuple[slice, slice], list[np.ndarray]]]:
        """Yield the rows and columns of each rectangle, and its share of values [k] as [h, w]."""
        ends = np.cumsum(self.counts).tolist()
        corners = np.concatenate([self.low, self.high], 1).tolist()
        for (left, top, right, bottom), start, end in zip(corners, [0, *ends], ends, strict=False):
            shape = (bottom - top, right - left)
            place = (slice(top, bottom), slice(left, right))
            yield place, [value[start:end].reshape(shape) for value in values]


def within(low: np.ndarray, high: np.ndarray, size: tuple[int, int], top: int = 0) -> Pixels:
    """Return the pixels of rectangles between corners [n, 2], with a pixel around them.

    `size` is the width and height of the picture. Pixels outside of it, or above the row `top`, are
    left out.
    """
    low = np.clip(low, (0, top), size).astype(np.int64)
    high = np.maximum(np.clip(high + 2, (0, top), size).astype(np.int64), low)
    widths, heights = (high - low).T
    # First the rows of all rectangles, then the pixels of all rows.
    row_widths, left = np.repeat([widths, low[:, 0]], heights, axis=1)
    rows = np.arange(len(left)) + np.repeat(low[:, 1] - np.cumsum(heights) + heights, heights)
    offsets = left - np.cumsum(row_widths) + row_widths
    rows, offsets = np.repeat([rows, offsets], row_widths, axis=1)
    return Pixels(low, high, widths * heights, np.arange(len(rows)) + offsets, rows)


def to_segments(
    pixels: Pixels, ends: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how points lie beside the segments [n, 2, 2] of the parts that they belong to.

    Pixel i shows the point (x[i], y[i]). The results [k] are the share of the segment that is
    nearest to the point, and the way from there to the point along x and along y.
    """
    ax, ay = ends[:, 0].T
    ux, uy = (ends[:, 1] - ends[:, 0]).T
    squared = np.maximum(ux * ux + uy * uy, 1e-12)
    ax, ay, ux, uy, sx, sy = pixels.spread(ax, ay, ux, uy, ux / squared, uy / squared)
    dx, dy = x - ax, y - ay
    along = np.clip(dx * sx + dy * sy, 0, 1)
    dx -= along * ux
    dy -= along * uy
    return along, dx, dy
