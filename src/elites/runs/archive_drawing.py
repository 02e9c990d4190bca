"""Draw archives for the figures of runs and studies.

one dimension      bars, as high as the fitness
two dimensions     the cells: rectangles of a grid, or Voronoi cells
more dimensions    a line for each elite through one vertical axis per dimension, and the best
fitness in the projections on every two dimensions
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize, to_rgba_array

from elites.runs.drawing import COLOURS, EMPTY, colour, frame, plt, short
from elites.runs.voronoi import grid_places, polygons
from elites.tasks.axes import axes_of_facts

MOST_PROJECTED = 6  # dimensions: 15 panels
_MOST_LINES = 1500  # more would hide each other
_MANY = 3000  # shapes that are drawn as an image in a PDF, which is then smaller and shown faster


def draw_archive(axes, facts, centroids, values, descriptors, scale: Normalize) -> None:
    """Draw the cells of an archive on matplotlib axes, coloured by fitness.

    `facts` are the entries of the run's `facts.json`. `values` [C] are the fitness values of the
    cells, which are not finite for empty cells. `descriptors` [C, D] are the descriptors of the
    elites. See above for what is drawn.
    """
    size = len(facts["descriptor_low"])
    if size == 2:
        draw_cells(axes, facts, centroids, colours_of(values, scale))
    elif size == 1:
        _draw_bars(axes, facts, centroids[:, 0], values, colours_of(values, scale))
    else:
        _draw_lines(axes, facts, values, descriptors, scale)


def colours_of(values: np.ndarray, scale: Normalize) -> np.ndarray:
    """Return the colours [C, 4] of cells with these values [C]: grey if a value is not finite."""
    full = np.isfinite(values)
    colours = np.repeat(to_rgba_array(EMPTY), len(values), axis=0)
    colours[full] = plt.get_cmap("viridis")(scale(values[full]))
    return colours


def draw_cells(axes, facts, centroids: np.ndarray, colours: np.ndarray) -> None:
    """Draw the cells of a two-dimensional archive in the given colours [C, 4]."""
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    places = grid_places(centroids, low, high)
    if places is None:
        axes.add_collection(
            PolyCollection(
                polygons(centroids, low, high),
                facecolors=colours,
                edgecolors="white",
                linewidths=0.25,
                rasterized=len(centroids) > _MANY,
            )
        )
    else:
        columns, rows = places.max(0) + 1
        image = np.empty((rows, columns, 4))
        image[places[:, 1], places[:, 0]] = colours
        x, y = np.linspace(low[0], high[0], columns + 1), np.linspace(low[1], high[1], rows + 1)
        edges = {"edgecolors": "white", "linewidth": 0.25} if len(centroids) <= _MANY else {}
        axes.pcolormesh(x, y, image, rasterized=not edges, **edges)
    frame(axes, facts)


def _draw_bars(axes, facts, middles: np.ndarray, values: np.ndarray, colours: np.ndarray) -> None:
    """Draw the cells of a one-dimensional archive as bars. Empty cells are grey over all heights.

    `middles` [C] are the centroids, and `colours` [C, 4] the colours of the cells.
    """
    (low,), (high,) = facts["descriptor_low"], facts["descriptor_high"]
    order, full = np.argsort(middles), np.isfinite(values)
    middle = middles[order]
    edges = np.concatenate([[low], (middle[1:] + middle[:-1]) / 2, [high]])
    known = np.append(values[full], 0.0)
    bottom, top = float(known.min()), float(known.max())
    top = top if top > bottom else bottom + 1.0
    heights = np.where(full, values, top)[order]
    base = np.where(full, 0.0, bottom)[order]
    corners = [edges[:-1], base, edges[1:], base, edges[1:], heights, edges[:-1], heights]
    bars = np.stack(corners, 1).reshape(-1, 4, 2)
    axes.add_collection(PolyCollection(list(bars), facecolors=colours[order], linewidths=0))
    margin = 0.05 * (top - bottom)
    axes.set(xlim=(low, high), ylim=(bottom - margin * (bottom < 0), top + margin * (top > 0)))
    axes.set(xlabel=short(axes_of_facts(facts)[0].label), ylabel="fitness")


def _draw_lines(axes, facts, values: np.ndarray, descriptors: np.ndarray, scale: Normalize) -> None:
    """Draw each elite as a line through one vertical axis for each dimension, the best on top.

    Of very many elites, some are drawn, which are spread evenly over the ranks of their fitness.
    """
    full = np.flatnonzero(np.isfinite(values))
    order = full[np.argsort(values[full])]
    if len(order) > _MOST_LINES:
        axes.set_xlabel(f"{_MOST_LINES} of {len(order)} elites, evenly by rank of fitness")
        order = order[np.linspace(0, len(order) - 1, _MOST_LINES).astype(int)]
    heights = _unit(facts, descriptors[order])
    places = np.arange(heights.shape[1])
    points = np.stack([np.broadcast_to(places, heights.shape), heights], axis=-1)
    axes.add_collection(
        LineCollection(
            list(points),
            colors=colours_of(values, scale)[order],
            linewidths=0.7,
            alpha=float(np.clip(300 / max(len(order), 1), 0.15, 0.8)),
            rasterized=len(order) > _MANY // 3,
        )
    )
    axes.vlines(places, 0, 1, color="black", linewidth=0.8)
    labels = [short(axis.label) for axis in axes_of_facts(facts)]
    axes.set_xticks(places, labels, rotation=0 if len(labels) < 5 else 30)
    axes.set(xlim=(-0.3, len(places) - 0.7), ylim=(-0.06, 1.06), yticks=[])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    bounds = zip(places, facts["descriptor_low"], facts["descriptor_high"], strict=True)
    for place, low, high in bounds:
        axes.text(place, -0.02, f"{low:g}", ha="center", va="top", fontsize=8)
        axes.text(place, 1.02, f"{high:g}", ha="center", va="bottom", fontsize=8)


def _unit(facts, descriptors: np.ndarray) -> np.ndarray:
    """Return descriptors [n, D] scaled from task units to [0, 1]."""
    low, high = np.array(facts["descriptor_low"]), np.array(facts["descriptor_high"])
    return (descriptors - low) / (high - low)


# ------------------------------------------------------------------------------- many dimensions


def draw_projections(
    facts: Mapping[str, Any], values: np.ndarray, descriptors: np.ndarray, scale: Normalize
) -> tuple[Any, Any]:
    """Return a figure with the projections of an archive on every two dimensions, and its panels.

    The colour of a bin is the highest fitness of the elites whose descriptors lie in it. See
    `draw_archive` for the arguments.
    """
    full = np.isfinite(values)
    size = descriptors.shape[1]
    units = _unit(facts, descriptors[full])
    bins = int(np.clip(np.sqrt(full.sum()), 8, 40))
    width = 2.3 * (size - 1)
    figure, panels = plt.subplots(
        size - 1, size - 1, figsize=(width + 1.2, width + 0.6), layout="constrained", squeeze=False
    )
    for panel in panels.flat:
        panel.set_axis_off()
    for column, other in itertools.combinations(range(size), 2):
        panel = panels[other - 1, column]
        panel.set_axis_on()
        best = _best_in_bins(units[:, [column, other]], values[full], bins)
        sides = [_side(facts, axis, bins) for axis in (column, other)]
        colours = colours_of(best.reshape(-1), scale).reshape(bins, bins, 4)
        panel.pcolormesh(*sides, colours.swapaxes(0, 1), rasterized=True)
        panel.set_box_aspect(1)
        panel.locator_params(nbins=4)
        panel.tick_params(labelbottom=other == size - 1, labelleft=column == 0, labelsize=8)
        _label(panel, facts, column if other == size - 1 else None, other if column == 0 else None)
    return figure, panels


def _side(facts: Mapping[str, Any], axis: int, bins: int) -> np.ndarray:
    """Return the borders [bins + 1] of the bins of a dimension, in task units."""
    return np.linspace(facts["descriptor_low"][axis], facts["descriptor_high"][axis], bins + 1)


def _best_in_bins(units: np.ndarray, values: np.ndarray, bins: int) -> np.ndarray:
    """Return the highest of the values [n] in each bin [bins, bins] of positions [n, 2] in [0, 1].

    Bins without a value are NaN.
    """
    best = np.full((bins, bins), np.nan)
    place = np.clip((units * bins).astype(int), 0, bins - 1)
    np.fmax.at(best, (place[:, 0], place[:, 1]), values)
    return best


def _label(panel, facts: Mapping[str, Any], below: int | None, beside: int | None) -> None:
    """Write the names of dimensions below and beside a panel. None stands for no name."""
    names = [short(axis.label) for axis in axes_of_facts(facts)]
    if below is not None:
        panel.set_xlabel(names[below], fontsize=9)
    if beside is not None:
        panel.set_ylabel(names[beside], fontsize=9)


# ----------------------------------------------------------------------- asked for and reached


def draw_errors(axes, facts, asked: np.ndarray, reached: np.ndarray) -> None:
    """Draw the descriptors [n, D] that an actor was asked for, and those that it reached.

    In two dimensions, a line connects them. Otherwise every dimension has a colour, and the reached
    values are drawn above those asked for.
    """
    if asked.shape[1] == 2:
        axes.plot(*_segments(asked, reached), color="#999999", linewidth=0.6, zorder=1)
        axes.scatter(asked[:, 0], asked[:, 1], s=9, color=COLOURS[0], label="asked", zorder=2)
        axes.scatter(
            reached[:, 0], reached[:, 1], s=9, color=COLOURS[1], marker="x", linewidths=0.8,
            label="reached", zorder=3,
        )  # fmt: skip
        frame(axes, facts)
    elif asked.shape[1] == 1:
        axes.scatter(asked[:, 0], reached[:, 0], s=9, color=COLOURS[0], label="reached")
        axes.set(xlabel="asked", ylabel="reached")
    else:
        _draw_each_error(axes, facts, _unit(facts, asked), _unit(facts, reached))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), borderaxespad=0)


def _draw_each_error(axes, facts, asked: np.ndarray, reached: np.ndarray) -> None:
    """Draw reached against asked values of each dimension, both scaled to [0, 1]."""
    names: Sequence[str] = [short(axis.name) for axis in axes_of_facts(facts)]
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8)
    for i, name in enumerate(names):
        axes.scatter(asked[:, i], reached[:, i], s=6, color=colour(i), label=name)
    axes.set(xlabel="asked, from lowest to highest", ylabel="reached", xlim=(0, 1), ylim=(0, 1))
    axes.set_box_aspect(1)


def _segments(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays x and y [3 n] that draw a line from each start [n, D] to its end [n, D].

    NaN separates the lines, so that one call of `plot` draws them all. Only the first two
    dimensions are used.
    """
    gap = np.full(len(starts), np.nan)
    x = np.stack([starts[:, 0], ends[:, 0], gap], axis=1).reshape(-1)
    y = np.stack([starts[:, 1], ends[:, 1], gap], axis=1).reshape(-1)
    return x, y
