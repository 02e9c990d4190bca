"""Draw the figures of a run from its files. Needs neither JAX nor the task.

    archive.png       the archive: its cells in task units, coloured by fitness
    projections.png   with three to six dimensions: the best fitness in every two of them
    curves.png        QD-score, coverage and maximum fitness, as median and quartiles over seeds
    origin.png        additions by variation, and the variation that each elite came from
    actor.png         the archive beside the descriptors that the actor reaches when asked for it

Each figure is written as PNG and as PDF. `draw_comparison` draws the curves of several runs
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_rgba_array
from matplotlib.lines import Line2D

from elites.output import warn
from elites.runs import directory as directories
from elites.runs import evaluation, gaps, interpolating, logs, snapshots
from elites.runs.archive_drawing import (
    MOST_PROJECTED,
    draw_archive,
    draw_cells,
    draw_errors,
    draw_projections,
)
from elites.runs.config import seed_index
from elites.runs.directory import RunDirectory, RunError
from elites.runs.drawing import (
    EMPTY,
    band,
    colour,
    colour_bar,
    explain,
    line_style,
    plt,
    scale_of,
    short,
    smoothed,
    styled,
    thousands,
    wrapped,
)
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.runs.interpolation_drawing import interpolation_figure
from elites.words import file_name, listed, plain


def draw_run(run: RunDirectory, seed: int | None = None) -> list[Path]:
    """Draw the figures that a run has data for, and return the paths of the PNG files.

    The figures show the given seed or, by default, the one with the highest QD-score. The path of
    the archive's figure comes first.
    """
    facts = directories.read_facts(run)
    run.figures.mkdir(exist_ok=True)
    drawn = []
    with styled():
        snapshot, index = snapshots.newest(run), 0
        if snapshot is not None:
            seeds = list(run.config().seed_numbers)
            index = (
                snapshots.best_seed(snapshot, facts) if seed is None else seed_index(seeds, seed)
            )
            drawn.append(_save(_archive_figure(facts, snapshot, index, seeds), run, "archive"))
            if 2 < len(facts["descriptor_low"]) <= MOST_PROJECTED:
                figure = _projections_figure(facts, snapshot, index, seeds)
                drawn.append(_save(figure, run, "projections"))
            # An evaluation of another iteration belongs to another archive.
            current = evaluation.has_tables(run, int(snapshot["iteration"]))
            if facts["actor_conditioned"] and current:
                shape = snapshot["centroids"].shape
                cells = evaluation.read_cells(run.evaluation, *shape)
                figure = _actor_figure(facts, snapshot, cells, seeds[index])
                drawn.append(_save(figure, run, "actor"))
        table = logs.metrics(run)
        if len(table.get("iteration", ())):
            drawn.append(_save(_curves_figure({facts["algorithm"]: table}, facts), run, "curves"))
            figure = _origin_figure(facts, table, snapshot, index)
            drawn.append(_save(figure, run, "origin"))
    if not drawn:
        raise RunError(f"{run.path} has nothing to draw yet: no metrics and no snapshot")
    return drawn


def draw_interpolation(run: RunDirectory, iteration: int) -> list[Path]:
    """Draw how the best seed's actor does between elites, and return the paths of the PNG files.

    Returns an empty list if the iteration has no snapshot or was not measured.
    """
    facts, snapshot = directories.read_facts(run), snapshots.at(run, iteration)
    if snapshot is None:
        return []
    index = snapshots.best_seed(snapshot, facts)
    seed = list(run.config().seed_numbers)[index]
    rows = interpolating.requests(run, iteration, seed)
    if rows is None:
        return []
    run.figures.mkdir(exist_ok=True)
    with styled():
        figure = interpolation_figure(facts, snapshot, index, rows)
        explain(figure, facts)
        return [_save(figure, run, "interpolation")]


def draw_comparison(runs: Sequence[RunDirectory], output: Path) -> list[Path]:
    """Draw learning curves of several runs, one figure for each task, and return the PNG paths.

    The files are written to the folder `output`. Metrics depend on settings such as the number of
    cells. If these differ between runs of a task, the legend shows them, and a warning says which
    metrics are not comparable.
    """
    by_task: dict[str, dict[Path, _Drawn]] = {}
    for run in runs:
        facts, table = directories.read_facts(run), logs.metrics(run)
        if not len(table.get("iteration", ())):
            raise RunError(f"{run.path} has no metrics yet")
        drawn = _Drawn(run, facts, table, _properties(run, facts))
        by_task.setdefault(facts["task"], {})[run.path.resolve()] = drawn
    output.mkdir(parents=True, exist_ok=True)
    paths = []
    with styled():
        for task, found in by_task.items():
            entries = list(found.values())
            tables = dict(zip(_labels(task, entries), (e.table for e in entries), strict=True))
            figure = _curves_figure(tables, entries[0].facts)
            paths.append(_save(figure, output, f"curves_{file_name(task)}"))
    return paths


class _Drawn(NamedTuple):
    """A run of a comparison, with its facts (entries of facts.json) and its metrics."""

    run: RunDirectory
    facts: Mapping[str, Any]
    table: Mapping[str, np.ndarray]
    properties: Mapping[str, str]
    """Settings that the metrics depend on, as texts for the legend. See `_properties`."""


# Settings that metrics depend on -> metrics that are not comparable if the setting differs.
_DEPENDENT = {
    "number of cells": ("QD-score", "coverage"),
    "descriptor bounds": ("QD-score", "coverage"),
    "episode length": ("QD-score", "maximum fitness"),
    "size of observations": ("QD-score", "maximum fitness"),
    "size of actions": ("QD-score", "maximum fitness"),
    "QD offset": ("QD-score",),
}


def _properties(run: RunDirectory, facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that a run's metrics depend on, as texts for the legend, keyed by name.

    For example, "number of cells" has the text "1024 cells".
    """
    sides = zip(facts["descriptor_low"], facts["descriptor_high"], strict=True)
    bounds = " x ".join(f"[{low:g}, {high:g}]" for low, high in sides)
    texts = (
        f"{run.config().hp.cell_count} cells",
        f"descriptors in {bounds}",
        f"episodes of {facts['episode_length']} steps",
        f"observations of size {facts['observation_size']}",
        f"actions of size {facts['action_size']}",
        f"QD offset {facts.get('qd_offset', 0.0):g}",
    )
    return dict(zip(_DEPENDENT, texts, strict=True))


def _labels(task: str, entries: Sequence[_Drawn]) -> list[str]:
    """Return the labels of the curves in the legend, one for each run of a task.

    Warns if the metrics of the runs are not comparable.
    """
    differing = {
        name: list(dict.fromkeys(entry.properties[name] for entry in entries))
        for name in _DEPENDENT
        if len({entry.properties[name] for entry in entries}) > 1
    }
    if differing:
        metrics = list(dict.fromkeys(m for name in differing for m in _DEPENDENT[name]))
        what = "; ".join(f"{name} ({', '.join(texts)})" for name, texts in differing.items())
        warn(
            f"these runs of {short(task)} differ in {what}. Their {listed(metrics)} do not "
            "compare; the legend says which is which"
        )
    labels = [
        ", ".join(
            [short(entry.facts["algorithm"]), *(entry.properties[name] for name in differing)]
        )
        for entry in entries
    ]
    paths = [(plain(entry.run.path.name), plain(str(entry.run.path))) for entry in entries]
    named = [f"{label} ({name})" for label, (name, _) in zip(labels, paths, strict=True)]
    placed = [f"{label} ({path})" for label, (_, path) in zip(labels, paths, strict=True)]
    return [
        label if labels.count(label) == 1 else name if named.count(name) == 1 else place
        for label, name, place in zip(labels, named, placed, strict=True)
    ]


def _subject(facts: Mapping[str, Any]) -> str:
    """Return the title of a figure of one run: the names of its algorithm and its task."""
    return f"{short(facts['algorithm'])} on {short(facts['task'])}"


def _save(figure, where: RunDirectory | Path, name: str) -> Path:
    """Write a figure as PNG and as PDF, close it, and return the path of the PNG.

    `where` is the folder to write to, or a run, whose folder `figures` is used.
    """
    directory = where.figures if isinstance(where, RunDirectory) else where
    path = directory / f"{name}.png"
    for target in (path, path.with_suffix(".pdf")):
        with directories.replacing(target) as temporary:
            figure.savefig(temporary)
        figure.set_layout_engine("none")  # the second file has the layout of the first
    plt.close(figure)
    return path


# ------------------------------------------------------------------------------------- archives


def _archive_figure(facts, snapshot, index: int, seeds: Sequence[int]):
    """Return a figure of the archive in a snapshot, for the seed at position `index`.

    A snapshot is the archive of all seeds at a checkpoint, without policies. `facts` are the
    entries of facts.json.
    """
    fitness = snapshot["fitness"][index]
    scale = scale_of(fitness[np.isfinite(fitness)])
    size = (6.2, 5.2) if len(facts["descriptor_low"]) <= 2 else (9.0, 5.2)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    descriptors = snapshot["descriptors"][index]
    draw_archive(axes, facts, snapshot["centroids"], fitness, descriptors, scale)
    axes.set_title(_title(facts, snapshot, index, seeds))
    colour_bar(figure, axes, scale)
    explain(figure, facts)
    return figure


def _projections_figure(facts, snapshot, index: int, seeds: Sequence[int]):
    """Return a figure of the archive in a snapshot, projected on every two dimensions.

    See `_archive_figure` for the arguments.
    """
    fitness = snapshot["fitness"][index]
    scale = scale_of(fitness[np.isfinite(fitness)])
    figure, panels = draw_projections(facts, fitness, snapshot["descriptors"][index], scale)
    title = f"{_title(facts, snapshot, index, seeds)}\nbest fitness in each pair of dimensions"
    figure.suptitle(title, x=0.01, ha="left")
    colour_bar(figure, panels, scale)
    explain(figure, facts)
    return figure


def _title(facts, snapshot, index: int, seeds: Sequence[int]) -> str:
    """Return the title of a figure of an archive: its run, its cells and its QD-score."""
    fitness = snapshot["fitness"][index]
    which = f", seed {seeds[index]}" if len(seeds) > 1 else ""
    title = f"{_subject(facts)}{which}, iteration {int(snapshot['iteration'])}"
    return (
        f"{wrapped(title, 50)}\n"
        f"{np.isfinite(fitness).sum()} of {len(fitness)} cells, QD-score {_score(facts, fitness)}"
    )


def _actor_figure(facts, snapshot, cells: Mapping[str, np.ndarray], seed: int):
    """Return a figure of the archive beside the descriptors that the actor reaches.

    The actor is given the descriptor of each elite as its target. `cells` are the columns of the
    run's cells.csv.
    """
    chosen = cells["seed"] == seed
    rows = {name: values[chosen] for name, values in cells.items()}
    cell, size = rows["cell"].astype(int), len(facts["descriptor_low"])
    asked = np.stack([rows[f"descriptor_{i}"] for i in range(size)], axis=1)
    reached = np.stack([rows[f"actor_descriptor_{i}"] for i in range(size)], axis=1)
    stored, actor = (_per_cell(snapshot, cell, rows[name]) for name in ("fitness", "actor_fitness"))
    scale = scale_of(np.concatenate([stored[np.isfinite(stored)], actor[np.isfinite(actor)]]))
    places = _per_cell(snapshot, cell, asked)
    panels = [
        (stored, places, f"Archive: {len(cell)} elites\nQD-score {_score(facts, stored)}"),
        (actor, places, f"One actor, by the descriptor asked for\nQD-score {_score(facts, actor)}"),
    ]
    if "actor_cell" in rows:  # earlier versions did not write it
        rebinned = evaluation.rebinned(rows["actor_cell"], rows["actor_fitness"], len(stored))
        covered = 100 * np.isfinite(rebinned).mean()
        title = f"The same rollouts, by the cell reached\nQD-score {_score(facts, rebinned)}"
        panels.append((rebinned, snapshot["centroids"], f"{title}, coverage {covered:.1f} %"))
    figure, axes = plt.subplots(2, 2, figsize=(11, 9.4), layout="constrained")
    for panel, (values, at, title) in zip(axes.flat, panels, strict=False):
        draw_archive(panel, facts, snapshot["centroids"], values, at, scale)
        panel.set_title(title)
    colour_bar(figure, axes[0].tolist(), scale)
    if len(panels) < 3:
        axes[1, 0].set_axis_off()
    draw_errors(axes[1, 1], facts, asked, reached)
    errors = rows["actor_descriptor_error"]
    known = errors[np.isfinite(errors)]
    error = known.mean() if len(known) else np.nan
    axes[1, 1].set_title(f"Descriptors asked for and reached\nmean error {error:.3g}")
    explain(figure, facts)
    return figure


def _score(facts: Mapping[str, Any], fitness: np.ndarray) -> str:
    """Return the QD-score of cells with this fitness [C] as text such as "12,345"."""
    offset = facts.get("qd_offset", 0.0)
    text = f"{snapshots.qd_score(fitness, facts):,.0f}"
    return f"{text} (offset {offset:g})" if offset else text


def _per_cell(snapshot, cell: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Spread values [n, ...] of n cells over an array [C, ...] of all cells, and return it.

    `cell` [n] are the numbers of these cells. The other cells are NaN.
    """
    spread = np.full((snapshot["centroids"].shape[0], *values.shape[1:]), np.nan)
    spread[cell] = values
    return spread


# --------------------------------------------------------------------------------------- curves


def _curves_figure(tables: Mapping[str, Mapping[str, np.ndarray]], facts):
    """Return a figure of learning curves.

    `tables` maps the label of each curve to the columns of a table of metrics.
    """
    figure, panels = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for axes, (name, title) in zip(panels, ARCHIVE_METRICS, strict=True):
        for i, table in enumerate(tables.values()):
            values = table[name] * (100 if name == "coverage" else 1)
            band(axes, table["evaluations"][:, 0], values, colour(i), line_style(i))
        axes.set(xlabel="evaluations", ylabel=title)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.xaxis.set_major_formatter(thousands)
        axes.yaxis.set_major_formatter(thousands)
    counts = {table["qd_score"].shape[1] for table in tables.values()}
    seeds = " or ".join(map(str, sorted(counts)))
    how = "" if counts == {1} else f", median and quartiles of {seeds} seeds"
    figure.suptitle(f"{short(facts['task'])}{how}", x=0.01, ha="left")
    handles = [
        Line2D([], [], color=colour(i), linestyle=line_style(i), label=_with_gap(label, table))
        for i, (label, table) in enumerate(tables.items())
    ]
    panels[0].legend(handles=handles, loc="best")
    return figure


def _with_gap(label: str, table: Mapping[str, np.ndarray]) -> str:
    """Return a curve's label. If the table of metrics lacks iterations, the label names them."""
    missing = gaps.within(table["iteration"][:, 0])
    return f"{label} (without {gaps.in_words(missing)})" if missing else label


def _origin_figure(facts, table: Mapping[str, np.ndarray], snapshot, index: int):
    """Return a figure of the variations, such as mutation, that the elites originate from.

    The left panel shows how many elites each variation added over time. The right panel shows the
    variation of each elite in the snapshot, for the seed at position `index`.
    """
    origins = [name.removeprefix("added.") for name in table if name.startswith("added.")]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.6), width_ratios=(1.3, 1), layout="constrained"
    )
    iterations, spent = table["iteration"][:, 0], table["evaluations"][:, 0]
    palette = _palette(facts)
    for i, origin in enumerate(origins):
        x, added = smoothed(iterations, spent, table[f"added.{origin}"].mean(axis=1))
        left.plot(
            x,
            added,
            color=palette.get(origin, colour(i)),
            linestyle=line_style(i),
            label=short(origin),
            linewidth=1.6,
        )
    left.set(xlabel="evaluations", ylabel="added per iteration")
    left.set_title(wrapped(f"{_subject(facts)}: additions by variation", 60))
    left.xaxis.set_major_formatter(thousands)
    left.set_ylim(bottom=0)
    if origins:  # a distillation has none
        left.legend()
    _draw_origins(right, facts, snapshot, index)
    explain(figure, facts)
    return figure


def _palette(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the colour of each origin, in the order of their numbers. The first is grey."""
    _, *variations = names = list(facts["origins"])
    colours = ["#9A9A9A", *(colour(i) for i in range(len(variations)))]
    return dict(zip(names, colours, strict=True))


def _draw_origins(axes, facts, snapshot, index: int) -> None:
    """Draw the cells of a two-dimensional archive, coloured by the variation of their elites.

    Draws nothing if there is no snapshot, or if the descriptor does not have two dimensions.
    """
    if snapshot is None or len(facts["descriptor_low"]) != 2:
        axes.set_axis_off()
        return
    origin, palette = snapshot["origin"][index], _palette(facts)
    shades = dict(enumerate(palette.values()))
    shade = to_rgba_array([shades.get(int(o), EMPTY) for o in origin])
    draw_cells(axes, facts, snapshot["centroids"], shade)
    handles = [
        Line2D([], [], marker="s", linestyle="", color=colour, label=short(name))
        for i, (name, colour) in enumerate(palette.items())
        if (origin == i).any()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_title("variation that made each elite")
