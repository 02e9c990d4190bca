"""Write the report of a study: one self-contained HTML page, and its figures as PDF.

The page has no scripts and loads nothing from other hosts. A study may be unfinished: the page says
so, and compares algorithms at the last evaluation that all of them have reached.

The results may be those of one study, or of several parts of a plan that are joined: studies that
were computed on other machines, and folders of recorded tables.
"""

from __future__ import annotations

import html
import json
import string
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from elites.core.catalogue import ALGORITHMS
from elites.runs import directory as directories
from elites.runs import evaluation
from elites.runs.directory import CONFIG, ENVIRONMENT, RunError
from elites.study import figures, statistics
from elites.study.collect import Source, collect
from elites.study.comparison import Point, comparison_point, has_values
from elites.study.groups import AXES, FINAL_METRICS, NEAR, Group, Results, tasks_of
from elites.study.markup import escaped, figure, table
from elites.study.recorded import Folder
from elites.study.significance import Tests
from elites.study.study import argument
from elites.words import amount, counted, file_name, listed, number, quoted, ranges, spans

PUBLISHED = {
    # The paper's second table, medians over 20 replications after one million evaluations:
    # QD-score of archive and policy, descriptor error of archive and policy.
    "ant_omni": (8.7e5, 8.3e5, 4.04, 6.25),
    "anttrap_omni": (7.2e5, 7.0e5, 3.44, 5.8),
    "hexapod_omni": (6.5e5, 0.96e5, 0.078, 1.39),
    "walker_uni": (9.8e5, 5.2e5, 0.12, 0.27),
}
_PUBLISHED_ROWS = (
    ("QD-score of the archive", "qd_score"),
    ("QD-score of the policy", "actor_qd_score"),
    ("descriptor error of the archive", "descriptor_error"),
    ("descriptor error of the policy", "actor_descriptor_error"),
)


def write(source: Source, *others: Source) -> Path:
    """Write the report page and the figures of a study, and return the path of the page.

    `source` is the study, or a folder of recorded tables. The results of `others` are joined.
    """
    results = collect(source, *others)
    source.report.mkdir(exist_ok=True)
    points = {task: comparison_point(results.tabled(task)) for task in results.tasks}
    tests = Tests(source.plan(), results)
    sections = [_task_section(source, results, task, points[task], tests) for task in results.tasks]
    models = _models(results)  # may find problems, which the head lists
    body = [_head(source, results), _published(results), *sections, models, _runs(results)]
    template = string.Template(files("elites.study").joinpath("page.html").read_text("utf-8"))
    page = template.substitute(
        title=escaped(f"{_name(source)}: study"), body="\n".join(filter(None, body))
    )
    path = source.report / "report.html"
    directories.write_text(path, page)
    return path


def _name(source: Source) -> str:
    """Return the name of the directory of a study or of a folder of recorded tables."""
    return source.path.resolve().name


# ----------------------------------------------------------------------------------------- sections


def _head(source: Source, results: Results) -> str:
    """Return the HTML of the report's head: title, notes on missing results, links to tasks."""
    plan = source.plan()
    seeds = f"{counted(plan.seeds, 'seed')} each ({spans([plan.seed_numbers])})"
    lines = [
        f"<h1>{escaped(_name(source))}</h1>",
        f"<p>{counted(len(plan.tasks), 'task')}, {counted(len(plan.algorithms), 'algorithm')}, "
        f"{seeds}. Lines are medians over seeds. Shaded areas extend from the first to the "
        "third quartile.</p>",
    ]
    if results.unfinished:
        rows = [[group.task, group.label, _progress(group)] for group in results.unfinished]
        lines.append(
            '<div class="note" role="note"><strong>This study is unfinished.</strong> The page '
            "shows the results so far. Metrics of a task are those after the most evaluations "
            "that all algorithms have reached, without those that are not in the plan and were "
            "stopped early. Tests compare two algorithms after the most that both have. "
            f"{_continuation(source)}"
            f"{table([], rows, words=True)}</div>"
        )
    if results.problems:
        items = "".join(f"<li>{escaped(problem)}</li>" for problem in results.problems)
        lines.append(
            f'<div class="note" role="note"><strong>Problems:</strong><ul>{items}</ul></div>'
        )
    titles = [[name, title] for name, title in ALGORITHMS.items() if name in results.labels]
    if titles:
        lines.append(
            f"<details><summary>Algorithms</summary>{table([], titles, words=True)}</details>"
        )
    links = "".join(f'<a href="#{escaped(t)}">{escaped(t)}</a> ' for t in results.tasks)
    lines.append(f'<nav aria-label="tasks">{links}<a href="#runs">runs</a></nav>')
    return "\n".join(lines)


def _continuation(source: Source) -> str:
    """Return the HTML of how to compute what is missing."""
    if isinstance(source, Folder):
        plan = escaped(str(source.path / source.file))
        return f"Compute more with <code>elites study {plan}</code>."
    return f"Continue with <code>elites study {escaped(quoted(argument(source.path)))}</code>."


def _progress(group: Group) -> str:
    """Return how far the runs of a group are, as text.

    The results may be of other seeds than the planned ones. They are named if there are any.
    """
    planned = len(group.planned)
    text = f"{planned - len(group.missing)} of {planned} planned seeds finished"
    if not planned:
        text = "not in the plan"
    if not group.curves:
        return f"{text}, no results yet"
    seeds = set(group.seeds)  # seeds of several sources may have the same number
    shown = f"{'seed' if len(seeds) == 1 else 'seeds'} {spans(ranges(seeds))}"
    spent = group.curves["evaluations"][-1, 0]
    return f"{text}, results of {shown} after {spent:,.0f} evaluations"


def _published(results: Results) -> str:
    """Return the HTML of a table that compares the study's metrics with the paper's.

    The values are medians over the seeds of each algorithm, for archives and for distilled
    policies. Returns an empty string if no algorithm has metrics of a distilled policy.
    """
    tasks = [task for task in results.tasks if task in PUBLISHED]
    conditioned = [
        g for g in results.groups if has_values(g.final.get("actor_qd_score", np.zeros(0)))
    ]
    if not conditioned:
        return ""
    header = ["", *tasks_of(conditioned)]
    rows = []
    for i, (title, metric) in enumerate(_PUBLISHED_ROWS):
        for label in dict.fromkeys(group.label for group in conditioned):
            cells = []
            for task in header[1:]:
                found = [g for g in conditioned if g.task == task and g.label == label]
                values = found[0].final.get(metric, np.zeros(0)) if found else np.zeros(0)
                cells.append(number(float(np.nanmedian(values))) if has_values(values) else "")
            rows.append([f"{title}, {label}", *cells])
        if tasks:
            published = [
                number(PUBLISHED[task][i]) if task in PUBLISHED else "" for task in header[1:]
            ]
            rows.append([f"{title}, published", *published])
    budgets = sorted({f"{budget:,}" for group in conditioned for budget in group.budgets})
    note = (
        f"<p>Medians over seeds that are finished, after {escaped(listed(budgets))} evaluations. "
        "Published values are the paper's for DCG-MAP-Elites, over 20 replications after one "
        "million evaluations. Its simulator did not reproduce an evaluation exactly, so its "
        "archives have descriptor errors.</p>"
        if tasks
        else "<p>Medians over seeds. The paper has no values for these tasks.</p>"
    )
    return f"<section><h2>Archive and policy</h2>{note}{table(header, rows)}</section>"


def _task_section(
    source: Source, results: Results, task: str, point: Point | None, tests: Tests
) -> str:
    """Return the HTML of the section on one task: curves, tables, tests and figures.

    Writes the figures as PDF into the source's report folder. If `point`, the point at which the
    algorithms are compared, is None, the section has no tables and no tests.
    """
    groups = results.of(task)
    name = escaped(task)
    parts = [f'<section id="{name}"><h2>{name}</h2>', _curves(source, results, task)]
    parts += [_offset_note(groups), _imported_note(groups)]
    if point is not None:
        parts += [_final_table(point), tests.section(task)]
    with figures.styled():
        for kind, title, drawn in (
            ("archives", "Archives", figures.archives(groups)),
            ("additions", "Additions by variation", figures.additions(groups)),
        ):
            if drawn is not None:
                svg = figures.save(drawn, source.report / f"{kind}_{file_name(task)}.pdf")
                note = _archives_note(groups) if kind == "archives" else ""
                parts.append(f"<h3>{title}</h3>{note}{figure(svg, f'{title} on {task}')}")
    return "\n".join([*parts, "</section>"])


def _offset_note(groups: Sequence[Group]) -> str:
    """Return the HTML of a note on the QD offset of a task's runs, or "" if it is 0."""
    offsets = {group.facts.get("qd_offset", 0.0) for group in groups if not group.imported}
    if offsets <= {0.0}:
        return ""
    texts = " or ".join(f"{offset:g}" for offset in sorted(offsets))
    return f"<p>QD-scores are sums of fitness minus {texts}, the QD offset.</p>"


def _archives_note(groups: Sequence[Group]) -> str:
    """Return the HTML of what the figure of archives shows, and which runs exceed the budget.

    `groups` are the results of each algorithm on one task. A folder of recorded tables has the
    archive of the end of a run only, while its curves and metrics end at the budget of the plan.
    """
    text = (
        "The archive of the seed with the highest QD-score of each algorithm, with its share of "
        "filled cells and the evaluations of its run."
    )
    longer = [
        group.label
        for group in groups
        if (group.archive_evaluations or 0) > max(group.budgets, default=0) * (1 + NEAR)
    ]
    if longer:
        text += (
            f" Runs of {listed(longer)} were trained beyond the budget. Their archives have more "
            "evaluations than the curves and metrics above."
        )
    return f"<p>{escaped(text)}</p>"


def _imported_note(groups: Sequence[Group]) -> str:
    """Return the HTML of a note on when imported results are comparable with the study's own.

    `groups` are the results of each algorithm on one task. Returns an empty string if none of them
    is imported.
    """
    imported = [group.label for group in groups if group.imported]
    runs = [run for group in groups for run in group.runs]
    if not imported or not runs:
        return ""
    study, item = runs[0]
    cells = study.config(item).hp.cell_count
    return (
        f"<p>{escaped(', '.join(imported))}: results of other programs. Their QD-score and "
        "coverage are comparable only if their archives have the same number of cells and the same "
        f"descriptor bounds. The archives of this study have {cells} cells.</p>"
    )


def _curves(source: Source, results: Results, task: str) -> str:
    """Return the HTML of the learning curves on one task, with a tab for each horizontal axis.

    Writes the figures as PDF into the source's report folder.
    """
    name, shown = file_name(task), []
    with figures.styled():
        for axis, title in AXES:
            drawn = figures.curves(results.of(task), axis, results.labels)
            if drawn is not None:
                svg = figures.save(drawn, source.report / f"curves_{name}_{axis}.pdf")
                shown.append((axis, title, svg))
    if not shown:
        return "<p>No metrics yet.</p>"
    inputs, labels, panels = [], [], []
    for i, (axis, title, svg) in enumerate(shown):
        key = f"{name}-{axis}"
        checked = " checked" if i == 0 else ""
        inputs.append(f'<input type="radio" name="axis-{name}" id="{key}" class="t{i}"{checked}>')
        labels.append(f'<label for="{key}">over {title}</label>')
        panels.append(
            f'<div class="p{i}">{figure(svg, f"Learning curves on {task} over {title}")}</div>'
        )
    return (
        f'<div class="tabs">{"".join(inputs)}<div class="labels">{"".join(labels)}</div>'
        f"{''.join(panels)}</div>"
    )


def _final_table(point: Point) -> str:
    """Return the HTML of a table with all metrics of all algorithms at a comparison point."""
    header = [
        "algorithm",
        "metric",
        "median",
        "quartiles",
        "interquartile mean",
        "95 % interval",
        "seeds",
    ]
    rows = []
    for metric, title in FINAL_METRICS:
        factor = 100.0 if metric.endswith("coverage") else 1.0
        for label, values in point.values.get(metric, {}).items():
            s = statistics.summary(factor * values)
            rows.append(
                [
                    label, title, number(s.median), f"{number(s.lower)} to {number(s.upper)}",
                    number(s.interquartile_mean),
                    f"{number(s.interval[0])} to {number(s.interval[1])}", str(s.seeds),
                ]
            )  # fmt: skip
    return f"<h3>Metrics {escaped(point.text)}</h3>{table(header, rows, words=True)}"


def _models(results: Results) -> str:
    """Return the HTML of a table of the models that were kept of runs, or "" if there are none."""
    rows = []
    for study, item in (run for group in results.groups for run in group.runs):
        if (model := study.newest_model_of(item)) is not None:
            try:
                error = evaluation.error_in_new_process(study.run(item))
            except (OSError, RunError) as problem:
                results.problems.append(f"{item.name}: {problem}")
                error = None
            rows.append(
                [model.name, amount(model.stat().st_size), "" if error is None else number(error)]
            )
    if not rows:
        return ""
    header = ["file", "size", "largest descriptor error of its run's archives in a new process"]
    note = (
        "<p>Each model has the actor and some elites of the seed with the highest QD-score of a "
        "run. The name of an unfinished run's model contains its iteration. The files are in the "
        "folder <code>kept</code> of the study. Look at one with <code>elites view --pretrained "
        "FILE</code>.</p>"
    )
    return f"<section><h2>Models</h2>{note}{table(header, rows)}</section>"


def _runs(results: Results) -> str:
    """Return the HTML of the section with the state, configuration and environment of each run."""
    parts = ['<section id="runs"><h2>Runs</h2>']
    for group in results.groups:
        for study, item in group.runs:
            run = study.run(item)
            texts = []
            for name in (CONFIG, ENVIRONMENT):
                try:
                    text = json.dumps(directories.read_json(run / name), indent=1)
                except (OSError, RunError) as error:
                    text = str(error)
                texts.append(f"<h4>{name}</h4><pre>{html.escape(text)}</pre>")
            parts.append(
                f"<details><summary>{escaped(item.name)}: {study.state(item)}</summary>"
                f"{''.join(texts)}</details>"
            )
        if group.tables:
            shown = ", ".join(path.name for path in group.tables)
            parts.append(
                f"<p>{escaped(group.label)} on {escaped(group.task)}: recorded tables "
                f"{escaped(shown)}</p>"
            )
        if group.imported:
            parts.append(
                f"<p>{escaped(group.label)} on {escaped(group.task)}: imported, "
                f"{counted(len(group.seeds), 'seed')}</p>"
            )
    return "\n".join([*parts, "</section>"])
