"""Figures of a study: learning curves, final archives side by side, additions by variation.

Each algorithm has a colour and a line style. The colours are Okabe and Ito's, which colour-blind
people can tell apart. The line styles keep figures readable in black and white.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from elites.runs import directory as directories
from elites.runs import drawing
from elites.runs.archive_drawing import draw_archive
from elites.runs.drawing import (
    COLOURS,
    EMPTY,
    band,
    colour,
    colour_bar,
    line_style,
    plt,
    scale_of,
    short,
    smoothed,
    thousands,
)
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study.groups import AXES, Group


def look(label: str, labels: Sequence[str]) -> tuple[str, Any]:
    """Return colour and line style of an algorithm, given all labels of a report.

    An algorithm has the same look on every task. With other settings, as in "dcrl_me, discount
    0.9", it has the same colour and another line style.
    """
    name = _name(label)
    i = list(dict.fromkeys(map(_name, labels))).index(name)
    settings = [each for each in dict.fromkeys(labels) if _name(each) == name]
    return colour(i), line_style(i + settings.index(label))


def _name(label: str) -> str:
    """Return the name of an algorithm without the settings that its label may have."""
    return label.partition(",")[0]


def curves(groups: Sequence[Group], axis: str, labels: Sequence[str] = ()) -> Any:
    """Return a figure of learning curves with a panel for each metric of the archive.

    A group holds the results of one algorithm on one task. `axis` is the horizontal axis, one of
    `AXES`. `labels` are those of all groups of the report, by default those of `groups`. Returns
    None if no group has values of that axis.
    """
    labels = labels or [group.label for group in groups]
    drawn = [group for group in groups if axis in group.curves]
    if not drawn:
        return None
    figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.6), layout="constrained")
    for panel, (metric, title) in zip(panels, ARCHIVE_METRICS, strict=True):
        for group in drawn:
            if metric not in group.curves:
                continue
            values = group.curves[metric] * (100 if metric == "coverage" else 1)
            x = np.median(group.curves[axis], axis=1)
            band(panel, x, values, *look(group.label, labels))
        panel.set(xlabel=dict(AXES)[axis], ylabel=title)
        low, high = panel.get_ylim()
        panel.set_ylim(min(0.0, low), high + 0.04 * abs(high))
        panel.xaxis.set_major_formatter(thousands)
        panel.yaxis.set_major_formatter(thousands)
    handles = []
    for group in drawn:
        colour, style = look(group.label, labels)
        handles.append(Line2D([], [], color=colour, linestyle=style, label=short(group.label)))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
    return figure


def archives(groups: Sequence[Group]) -> Any:
    """Return a figure of the best archive of each group, coloured by fitness on a common scale.

    A group holds the results of one algorithm on one task. The title of its panel has the coverage
    and, if it is known, the number of evaluations. Returns None if no group has an archive.
    """
    drawn = [group for group in groups if group.archive is not None]
    if not drawn:
        return None
    columns = min(len(drawn), 4)
    rows = -(-len(drawn) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(3.4 * columns + 0.6, 3.5 * rows),
        layout="constrained",
        squeeze=False,
    )
    fitness = [group.archive["fitness"][0] for group in drawn if group.archive]
    scale = scale_of(np.concatenate([f[np.isfinite(f)] for f in fitness]))
    for panel, group in zip(grid.flat, drawn, strict=False):
        archive = group.archive
        assert archive is not None
        values = archive["fitness"][0]
        draw_archive(
            panel, group.facts, archive["centroids"], values, archive["descriptors"][0], scale
        )
        full = np.isfinite(values)
        spent = group.archive_evaluations
        after = "" if spent is None else f" after {spent:,.0f}"
        panel.set_title(
            f"{short(group.label)}, seed {group.archive_seed}\n"
            f"{100 * full.mean():.1f} % of cells{after}",
            fontsize=10,
        )
    for panel in grid.flat[len(drawn) :]:
        panel.set_axis_off()
    colour_bar(figure, list(grid.flat), scale)
    return figure


def additions(groups: Sequence[Group]) -> Any:
    """Return a figure of how many elites each variation adds per iteration, a panel per group.

    A group holds the results of one algorithm on one task. Lines are means over seeds. Returns None
    if no group has such metrics.
    """
    drawn = [g for g in groups if any(name.startswith("added.") for name in g.curves)]
    if not drawn:
        return None
    columns = min(len(drawn), 4)
    rows = -(-len(drawn) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.7 * rows), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    origins = list(
        dict.fromkeys(name for g in drawn for name in g.curves if name.startswith("added."))
    )
    for panel, group in zip(grid.flat, drawn, strict=False):
        for name in [name for name in group.curves if name.startswith("added.")]:
            i = origins.index(name)  # a variation has the same style in every panel
            x, added = smoothed(
                group.curves["iteration"][:, 0], group.curves["evaluations"][:, 0],
                group.curves[name].mean(axis=1),
            )  # fmt: skip
            panel.plot(
                x, added, color=colour(i), linestyle=line_style(i),
                label=short(name.removeprefix("added.")),
            )  # fmt: skip
        panel.set_title(short(group.label), fontsize=10)
        panel.set_xlabel("evaluations")
        panel.xaxis.set_major_formatter(thousands)
        panel.legend(fontsize=8)
    grid[0, 0].set_ylim(bottom=0)  # of all panels, which share the axis
    for panel in grid.flat[len(drawn) :]:
        panel.set_axis_off()
    for row in grid:
        row[0].set_ylabel("added per iteration")
    return figure


# Colours that the page replaces in a dark window, and the variables of its style sheet for them.
_THEMED = {
    "#ffffff": "paper",
    "#000000": "ink",
    EMPTY.lower(): "empty",
    COLOURS[0].lower(): "blue",
    COLOURS[7].lower(): "brown",
    COLOURS[8].lower(): "wine",
}


def save(figure: Any, path: Path) -> str:
    """Write a figure to `path` as PDF, close it, and return it as SVG text for the report page.

    White, black and dark colours of the SVG are variables of the page, which is dark in a dark
    window.
    """
    with drawing.styled():
        with directories.replacing(path) as temporary:
            figure.savefig(temporary, metadata={"CreationDate": None})
        figure.set_layout_engine("none")  # the page has the layout of the PDF
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    return re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _themed, svg)


def _themed(match: re.Match[str]) -> str:
    """Return a style of an SVG, with a variable of the page if the page replaces its colour."""
    name, colour = match.groups()
    return f"{name}: var(--{_THEMED[colour]}, {colour})" if colour in _THEMED else match.group()


def styled():
    """Return a context manager. Figures drawn inside its `with` block have the style of reports."""
    return drawing.styled(**{"svg.hashsalt": "elites", "svg.fonttype": "path"})
