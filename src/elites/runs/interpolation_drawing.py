"""Draw how well an actor performs behaviours between elites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.ticker import NullFormatter

from elites.runs.drawing import COLOURS, frame, plt
from elites.tasks.axes import axes_of_facts

_BINS = 12  # of distances


def interpolation_figure(
    facts: Mapping[str, Any],
    snapshot: Mapping[str, np.ndarray],
    index: int,
    rows: Mapping[str, np.ndarray],
):
    """Return a figure of the errors of a seed's actor: over the space, and by distance.

    `index` is the position of the seed in the snapshot. `rows` are its columns of requests.csv.
    The map is left out if descriptors do not have two dimensions.
    """
    size, unit = len(facts["descriptor_low"]), _unit(facts)
    has_map = size == 2
    figure, axes = plt.subplots(
        1, 3 if has_map else 2, figsize=(14.5 if has_map else 9.5, 4.4), layout="constrained"
    )
    if has_map:
        _draw_map(figure, axes[0], facts, snapshot, index, rows)
    for panel, column, title in zip(
        axes[-2:], ("error", "fitness"), ("descriptor error", "fitness"), strict=True
    ):
        _draw_by_distance(panel, rows["distance"], rows[column])
        named = f"{title}{unit}" if column == "error" else title
        panel.set(xlabel=f"distance to the nearest elite{unit}", ylabel=named)
        panel.set_title(f"{title.capitalize()} by distance")
    limit = max(*axes[-2].get_xlim(), 1e-9)
    line = {"color": "#999999", "linewidth": 0.8, "linestyle": "--", "label": "error = distance"}
    equal = np.linspace(limit / 200, limit, 200)
    axes[-2].plot(equal, equal, **line)
    axes[-2].set(xlim=(0, limit), yscale="log")  # most errors are small, and a few are large
    axes[-2].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[-2].yaxis.set_minor_formatter(NullFormatter())
    for panel in axes[-2:]:
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize=8)
    return figure


def _unit(facts: Mapping[str, Any]) -> str:
    """Return the unit of the descriptor in brackets, such as " (m)".

    Returns "" if its axes have no unit or different ones.
    """
    units = {axis.unit for axis in axes_of_facts(facts)}
    (unit,) = units if len(units) == 1 else ("",)
    return f" ({unit})" if unit else ""


def _draw_map(figure, axes, facts, snapshot, index: int, rows) -> None:
    """Draw a map of the actor's error at each requested descriptor, with the elites as dots."""
    parts = round(np.sqrt(len(np.unique(rows["request_0"])) * len(np.unique(rows["request_1"]))))
    low, high = np.array(facts["descriptor_low"]), np.array(facts["descriptor_high"])
    image = np.full((parts, parts), np.nan)
    places = [
        np.clip((rows[f"request_{i}"] - low[i]) / (high[i] - low[i]) * parts, 0, parts - 1)
        for i in range(2)
    ]
    image[places[1].astype(int), places[0].astype(int)] = rows["error"]
    top = float(np.nanpercentile(image, 98)) or 1.0
    edges = [np.linspace(low[i], high[i], parts + 1) for i in range(2)]
    drawn = axes.pcolormesh(
        edges[0], edges[1], image, cmap="viridis_r", norm=Normalize(0, top), rasterized=True
    )
    filled = np.isfinite(snapshot["fitness"][index])
    dots = snapshot["descriptors"][index][filled]
    axes.scatter(dots[:, 0], dots[:, 1], s=1.5, color="black", linewidths=0)
    frame(axes, facts)
    bar = figure.colorbar(
        drawn, ax=axes, label=f"descriptor error{_unit(facts)}", shrink=0.85, extend="max"
    )
    bar.outline.set_visible(False)
    axes.set_title(f"Actor asked for {len(rows['error']):,} descriptors\ndots: {len(dots)} elites")


def _draw_by_distance(axes, distance: np.ndarray, values: np.ndarray) -> None:
    """Draw values over the distance to the nearest elite: dots, medians and quartiles."""
    known = np.isfinite(distance) & np.isfinite(values)
    distance, values = distance[known], values[known]
    axes.scatter(distance, values, s=3, color="#bbbbbb", linewidths=0, rasterized=True)
    if not len(distance):
        return
    edges = np.linspace(0, distance.max() * (1 + 1e-9) + 1e-12, _BINS + 1)
    groups = np.digitize(distance, edges) - 1
    middles, quartiles = [], []
    for group in range(_BINS):
        chosen = values[groups == group]
        if len(chosen) >= 5:
            middles.append((edges[group] + edges[group + 1]) / 2)
            quartiles.append(np.percentile(chosen, [25, 50, 75]))
    if middles:
        low, middle, high = np.array(quartiles).T
        axes.fill_between(
            middles, low, high, color=COLOURS[0], alpha=0.25, linewidth=0, label="quartiles"
        )
        axes.plot(
            middles, middle, "o-", color=COLOURS[0], markersize=3.5, linewidth=1.4, label="median"
        )
