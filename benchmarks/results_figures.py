"""Figures of the results page, drawn from the recorded tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_progress
from elites.runs.drawing import band, plt, thousands
from elites.study import figures
from elites.study.groups import Group
from results_data import TITLES, Data, compared, published

DPI = 110
PUBLISHED_LABEL = "paper: DCG-MAP-Elites after 1,000,000"


def draw(data: Data, folder: Path) -> list[Path]:
    """Draw all figures into a folder and return their paths."""
    drawn: dict[str, Any] = {}
    labels = [g.label for task in TITLES for g in compared(data, task) if g.curves]
    labels = list(dict.fromkeys(labels))
    with figures.styled():
        for task in TITLES:
            groups = [g for g in compared(data, task) if g.curves]
            drawn[f"results_{task}"] = _curves(groups, labels, task)
            drawn[f"results_archives_{task}"] = figures.archives(groups)
        related = [g for g in data.related.of("ant_omni") if g.planned and g.curves]
        drawn["results_related"] = _curves(related, [g.label for g in related], None)
        drawn["results_million"] = _million(data)
        drawn["progress"] = results_progress.figure(data)
        return [_save(figure, folder / f"{name}.png") for name, figure in drawn.items() if figure]


def _save(figure: Any, path: Path) -> Path:
    """Write a figure as PNG, close it, and return its path."""
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)
    return path


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
    looks = {"dcg_me": ("#0072B2", "-"), "progress_me": ("#009E73", "--")}
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
