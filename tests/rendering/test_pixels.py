"""Test the pixels of many rectangles, and the distances of their points from segments."""

from __future__ import annotations

import numpy as np

from elites.rendering import pixels

SIZE = (20, 10)


def test_rectangles_have_their_pixels_row_by_row():
    low = np.array([(2.5, 3.2), (-4.0, 8.0), (30.0, 2.0), (6.0, 1.0)])
    high = np.array([(3.5, 3.9), (0.5, 30.0), (40.0, 5.0), (6.0, 1.0)])
    found = pixels.within(low, high, SIZE)
    expected = [
        [(x, y) for y in (3, 4) for x in (2, 3, 4)],
        [(x, y) for y in (8, 9) for x in (0, 1)],  # cut off by two edges
        [],  # outside
        [(x, y) for y in (1, 2) for x in (6, 7)],
    ]
    assert found.counts.tolist() == [len(part) for part in expected]
    places = list(zip(found.columns.tolist(), found.rows.tolist(), strict=True))
    assert places == [place for part in expected for place in part]


def test_nothing_lies_above_the_first_row():
    found = pixels.within(np.array([(0.0, 0.0), (0.0, 2.0)]), np.array([(0.0, 5.0)] * 2), SIZE, 4)
    assert set(found.rows.tolist()) == {4, 5, 6}


def test_each_part_gets_its_own_values():
    found = pixels.within(np.array([(0.0, 0.0), (5.0, 5.0)]), np.array([(1.0, 0.0)] * 2), SIZE)
    both = pixels.within(np.array([(0.0, 0.0), (5.0, 5.0)]), np.array([(1.0, 0), (6.0, 6)]), SIZE)
    assert found.counts.tolist() == [6, 0]  # the second has its corners swapped
    (values,) = both.spread(np.array([1.5, 2.5]))
    picture = np.zeros(SIZE[::-1])
    for (rows, columns), (own,) in both.parts(values):
        picture[rows, columns] += own
    expected = np.zeros(SIZE[::-1])
    expected[0:2, 0:3], expected[5:8, 5:8] = 1.5, 2.5
    np.testing.assert_array_equal(picture, expected)


def test_distances_from_segments_are_those_of_each_point_alone():
    draw = np.random.default_rng(0)
    ends = draw.uniform(0, 10, (5, 2, 2))
    ends[3, 1] = ends[3, 0]  # a point
    found = pixels.within(ends.min(1) - 2, ends.max(1) + 2, SIZE)
    x, y = draw.uniform(-5, 15, (2, len(found.rows))).astype(np.float32)
    along, dx, dy = pixels.to_segments(found, ends, x, y)
    shares = np.linspace(0, 1, 2001)[:, None]
    owner = np.repeat(np.arange(5), found.counts)
    for i in range(0, len(owner), 7):
        a, b = ends[owner[i]]
        ways = np.array([x[i], y[i]]) - (a + shares * (b - a))
        nearest = np.linalg.norm(ways, axis=1).min()
        assert abs(np.hypot(dx[i], dy[i]) - nearest) < 0.01
        np.testing.assert_allclose([x[i] - dx[i], y[i] - dy[i]], a + along[i] * (b - a), atol=1e-4)
