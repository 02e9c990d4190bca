"""Draw archives and curves, for the figures of runs and of studies."""

from __future__ import annotations

import contextlib
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize

from elites.runs.voronoi import polygons
from elites.tasks.axes import axes_of_facts
from elites.words import plain, shortened

# The palette of Okabe and Ito, which colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
EMPTY = "#E8E8E8"
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # embeds fonts, so that text can be selected
    "text.parse_math": False,  # a "$" in the name of a task is not mathematics
}


@contextlib.contextmanager
def styled(**more: Any) -> Iterator[None]:
    """Draw figures in the style of elites inside the `with` block.

    `more` are further matplotlib settings. A character that the font lacks is drawn as a box,
    without a warning.
    """
    settings: Any = {**STYLE, **more}
    with plt.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def short(text: str) -> str:
    """Return a text of a task or an algorithm as one line that is short enough for a figure."""
    return plain(text, 60)


def wrapped(text: str, width: int) -> str:
    """Return a title in lines of at most `width` characters, broken after spaces and commas."""
    lines = [""]
    for part in re.split(r"(?<=[ ,])", text):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


# ---------------------------------------------------------------------------------------- archives


def draw_archive(axes, facts, centroids, values, descriptors, scale: Normalize) -> None:
    """Draw the cells of an archive on matplotlib axes, coloured by fitness.

    `facts` are the entries of the run's `facts.json`. `values` [C] are the fitness values of the
    cells, which are not finite for empty cells. `descriptors` [C, D] are the descriptors of the
    elites.

    One-dimensional descriptors are drawn as bars, two-dimensional ones as Voronoi cells. With more
    dimensions, each elite is a point at the first two numbers of its descriptor.
    """
    full = np.isfinite(values)
    colours = plt.get_cmap("viridis")
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    if len(low) == 2:
        cells = polygons(centroids, low, high)
        shade = [colours(scale(v)) if ok else EMPTY for v, ok in zip(values, full, strict=True)]
        axes.add_collection(
            PolyCollection(cells, facecolors=shade, edgecolors="white", linewidths=0.25)
        )
        frame(axes, facts)
    elif len(low) == 1:
        order = np.argsort(centroids[:, 0])
        middle = centroids[order, 0]
        edges = np.concatenate([[low[0]], (middle[1:] + middle[:-1]) / 2, [high[0]]])
        heights = np.where(full, values, 0.0)[order]
        axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=colours(scale(heights)))
        axes.set(xlim=(low[0], high[0]), xlabel=short(axes_of_facts(facts)[0].label))
        axes.set_ylabel("fitness")
    else:
        axes.scatter(
            descriptors[full, 0],
            descriptors[full, 1],
            c=values[full],
            cmap=colours,
            norm=scale,
            s=9,
        )
        frame(axes, facts, note=f" (the first two of {len(low)} dimensions)")


def frame(axes, facts, note: str = "") -> None:
    """Set the limits and labels of axes that show descriptors. `note` is added to the x label.

    `facts` are the entries of the run's `facts.json`.
    """
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_box_aspect(1)
    first, second = axes_of_facts(facts)[:2]
    axes.set(xlabel=f"{short(first.label)}{note}", ylabel=short(second.label))
    axes.locator_params(nbins=5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)


def explain(figure, facts) -> None:
    """Write the task's explanation of its descriptor below a figure, if `facts` contains one."""
    if facts["descriptor"]:
        text = shortened(f"descriptor: {facts['descriptor']}", 240)
        figure.supxlabel(textwrap.fill(text, 120), x=0.02, ha="left", fontsize=9)


def scale_of(values: np.ndarray) -> Normalize:
    """Return the matplotlib colour scale from the smallest to the largest of `values`.

    If there are no values, the scale goes from 0 to 1.
    """
    if not len(values):
        return Normalize(0.0, 1.0)
    low, high = float(np.min(values)), float(np.max(values))
    return Normalize(low, high if high > low else low + 1.0)


def colour_bar(figure, axes, scale: Normalize) -> None:
    """Draw a colour bar for fitness beside matplotlib axes."""
    bar = figure.colorbar(
        plt.cm.ScalarMappable(scale, "viridis"), ax=axes, label="fitness", shrink=0.85, pad=0.02
    )
    bar.outline.set_visible(False)


def segments(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays x and y [3 n] that draw a line from each start [n, D] to its end [n, D].

    NaN separates the lines, so that one call of `plot` draws them all. Only the first two
    dimensions are used.
    """
    gap = np.full(len(starts), np.nan)
    x = np.stack([starts[:, 0], ends[:, 0], gap], axis=1).reshape(-1)
    y = np.stack([starts[:, 1], ends[:, 1], gap], axis=1).reshape(-1)
    return x, y


# ------------------------------------------------------------------------------------------ curves


def line_style(i: int) -> Any:
    """Return the matplotlib line style of curve number i, counted from 0.

    Colours repeat from the ninth curve on, but with another line style.
    """
    return STYLES[(i + i // 8) % 8]


def smoothed(
    iterations: np.ndarray, evaluations: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Average values [n] over about forty windows of iterations and return two arrays [windows].

    The first array has the number of evaluations at the end of each window, the second the mean
    value in the window. An incomplete last window is left out.
    """
    last = int(iterations[-1])
    width = max(last // 40, 1)
    window = (iterations.astype(int) - 1) // width
    present = np.unique(window[window < last // width])
    ends = [evaluations[window == w][-1] for w in present]
    return np.array(ends), np.array([values[window == w].mean() for w in present])


def band(axes, x: np.ndarray, values: np.ndarray, colour: str, style: Any) -> None:
    """Draw the median of values [n, seeds] over seeds as a line, and the quartiles as a band."""
    low, middle, high = np.percentile(values, [25, 50, 75], axis=1)
    axes.plot(x, middle, color=colour, linestyle=style, linewidth=1.6)
    if values.shape[1] > 1:
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def thousands(value: float, _position: int) -> str:
    """Return the label of an axis tick at `value`, such as "20k" or "1.5M"."""
    if abs(value) >= 1e4:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k"
    return f"{value:g}"
