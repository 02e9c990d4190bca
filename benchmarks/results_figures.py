"""Figures of the results page, drawn from the recorded tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import results_progress
from elites.runs.drawing import band, plt, thousands
from elites.study import figures
from elites.study.groups import Group
from results_data import (
    ROOT,
    STRONGEST,
    TITLES,
    Data,
    compared,
    labels,
    published,
)

DPI = 110
PUBLISHED_LABEL = "paper: DCG-MAP-Elites after 1,000,000"
IMAGES = ROOT / "docs" / "images"


def draw(data: Data) -> list[Path]:
    """Draw all figures again whose contents have changed, and return their paths."""
    changed = []
    for path, figure in _drawn(data):
        contents = _digest(figure)
        if contents != _recorded_digest(path):
            figure.savefig(path, dpi=DPI, metadata={"Software": None, "Description": contents})
            changed.append(path)
    return changed


def stale(data: Data) -> list[Path]:
    """Return the paths of the images that do not show what the tables have."""
    return [path for path, figure in _drawn(data) if _digest(figure) != _recorded_digest(path)]


def _drawn(data: Data) -> Iterator[tuple[Path, Any]]:
    """Draw all figures, one after the other, and yield them with the paths of their images."""
    order = labels(data)
    with figures.styled():
        for task in TITLES:
            groups = [g for g in compared(data, task) if g.curves]
            yield from _closing(f"results_{task}", _curves(groups, order, task))
            yield from _closing(f"results_archives_{task}", figures.archives(groups))
        related = [g for g in data.related.of("ant_omni") if g.planned and g.curves]
        # The baseline has its colour of the comparison. There are too few colours for all others.
        others = [g.label for g in related if g.label not in order]
        known = order[: order.index(STRONGEST) + 1]
        yield from _closing("results_related", _curves(related, [*known, *others], None))
        yield from _closing("results_million", _million(data))
        yield from _closing("progress", results_progress.figure(data))


def _closing(name: str, figure: Any) -> Iterator[tuple[Path, Any]]:
    """Yield a figure with the path of its image, and close it afterwards. None is passed over."""
    if figure is not None:
        yield IMAGES / f"{name}.png", figure
        plt.close(figure)


def _digest(figure: Any) -> str:
    """Return a digest of what a figure shows: lines, areas, colours of cells, and texts.

    It is written into the image, to notice when the tables have changed. What differs between
    machines and versions of packages is left out: digits beyond the fourth, the layout, the order
    of corners, and the shape of cells.
    """
    shown: list[str] = [text.get_text() for each in figure.legends for text in each.get_texts()]
    for panel in figure.axes:
        shown += [panel.get_title(), panel.get_xlabel(), panel.get_ylabel()]
        for line in panel.lines:
            shown += [str(line.get_color()), str(line.get_linestyle()), _rounded(line.get_xydata())]
        for each in panel.collections:
            shown.append(_rounded(each.get_facecolor()))
            if len(each.get_paths()) == 1:  # an area; the cells of an archive have many
                shown += sorted({_rounded(corner) for corner in each.get_paths()[0].vertices})
    return hashlib.sha256("\n".join(shown).encode()).hexdigest()[:16]


def _rounded(values: Any) -> str:
    """Return numbers as text, rounded to four digits."""
    return " ".join(f"{x:.4g}" for x in np.ravel(values))


def _recorded_digest(path: Path) -> str | None:
    """Return the digest that was written into an image.

    Returns None if there is no such image, or if it cannot be read.
    """
    try:
        with Image.open(path) as image:
            image.load()  # the header of a damaged image may be whole
            return image.info.get("Description")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def _curves(groups: Sequence[Group], labels: Sequence[str], task: str | None) -> Any:
    """Return learning curves with quartiles. With a task, the paper's QD-score is drawn too."""
    figure = figures.curves(groups, "evaluations", labels)
    if figure is None:
        return None
    for panel in figure.axes:
        panel.set_xlim(0, 1.01 * max(budget for group in groups for budget in group.budgets))
    if task is not None:
        figure.suptitle(TITLES[task], x=0.01, ha="left")
        line = _draw_published(figure.axes[0], task)
        (legend,) = figure.legends
        handles = [*legend.legend_handles, line]
        legend.remove()
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _draw_published(panel: Any, task: str) -> Any:
    """Draw the paper's QD-score of a task as a dashed line, and return it."""
    value = published(task, 0)
    line = panel.axhline(value, color="#555555", ls=(0, (6, 4)), lw=1, label=PUBLISHED_LABEL)
    panel.set_ylim(0, max(panel.get_ylim()[1], 1.08 * value))
    return line


def _million(data: Data) -> Any:
    """Return the QD-scores of `dcg_me` and `progress_me` up to a million evaluations."""
    figure, panels = plt.subplots(1, 4, figsize=(13, 3.3), layout="constrained", sharex=True)
    looks = {name: figures.look(name, labels(data)) for name in ("dcg_me", "progress_me")}
    handles: list[Any] = []
    for panel, (task, title) in zip(panels, TITLES.items(), strict=True):
        for name, look in looks.items():
            group = data.full.find(task, name)
            if group is not None and group.curves:
                band(panel, group.curves["evaluations"][:, 0], group.curves["qd_score"], *look)
        line = _draw_published(panel, task)
        panel.set(title=title, xlabel="evaluations")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(thousands)
        handles = [line]
    panels[0].set_ylabel("QD-score")
    for name, (colour, style) in looks.items():
        (line,) = panels[0].plot([], [], color=colour, linestyle=style, label=name)
        handles.append(line)
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
