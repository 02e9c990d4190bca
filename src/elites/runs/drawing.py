"""Style, axes and curves of the figures of runs and studies. See `archive_drawing` for archives."""

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
from matplotlib.colors import Normalize

from elites.tasks.axes import axes_of_facts
from elites.words import plain, shortened

# The palette of Okabe and Ito, which colour-blind people can tell apart.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C510A",
    "#882255", "#999933", "#44AA99", "#777777",
)  # fmt: skip
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


def frame(axes, facts) -> None:
    """Set the limits and labels of axes that show descriptors of two dimensions.

    `facts` are the entries of the run's `facts.json`.
    """
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_box_aspect(1)
    first, second = axes_of_facts(facts)[:2]
    axes.set(xlabel=short(first.label), ylabel=short(second.label))
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


# ------------------------------------------------------------------------------------------ curves


def colour(i: int) -> str:
    """Return the colour of curve number i, counted from 0. Colours repeat after the twelfth."""
    return COLOURS[i % len(COLOURS)]


def line_style(i: int) -> Any:
    """Return the matplotlib line style of curve number i, counted from 0.

    Curves with the same colour have different line styles.
    """
    return STYLES[i % len(STYLES)]


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
