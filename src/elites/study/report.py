"""Write the report of a study: one self-contained HTML page, and its figures as PDF.

The page has no scripts and loads nothing from other hosts. A study may be unfinished: the page says
so, and compares algorithms at the last evaluation that all of them have reached.

The tests compare a reference with every other algorithm. The reference is DCG-MAP-Elites, as in the
paper. If the plan does not have it, the reference is the plan's first algorithm.
"""

from __future__ import annotations

import html
import json
import math
import string
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from elites.names import short_name
from elites.runs import directory as directories
from elites.runs.directory import CONFIG, ENVIRONMENT, RunError
from elites.runs.evaluation import ARCHIVE_METRICS
from elites.study import figures, statistics
from elites.study.collect import AXES, FINAL_METRICS, Group, Results, collect, tasks_of
from elites.study.comparison import Point, comparison_point, has_values
from elites.study.plan import Plan
from elites.study.study import Study
from elites.words import counted, file_name, number, plain

REFERENCE = "dcg_me"
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


def write(study: Study) -> Path:
    """Write the report page and the figures of a study, and return the path of the page."""
    results = collect(study)
    study.report.mkdir(exist_ok=True)
    points = {task: comparison_point(results.of(task)) for task in results.tasks}
    tests = _Tests(study.plan(), {task: point for task, point in points.items() if point})
    sections = [_task_section(study, results, task, points[task], tests) for task in results.tasks]
    body = [_head(study, results), _published(results), *sections, _runs(study, results)]
    template = string.Template(files("elites.study").joinpath("page.html").read_text("utf-8"))
    page = template.substitute(
        title=escaped(f"{study.path.name}: study"), body="\n".join(filter(None, body))
    )
    path = study.report / "report.html"
    directories.write_text(path, page)
    return path


# ----------------------------------------------------------------------------------------- sections


def _head(study: Study, results: Results) -> str:
    """Return the HTML of the report's head: title, notes on missing results, links to tasks."""
    plan = study.plan()
    seeds = counted(plan.seeds, "seed")
    lines = [
        f"<h1>{escaped(study.path.name)}</h1>",
        f"<p>{counted(len(plan.tasks), 'task')}, {counted(len(plan.algorithms), 'algorithm')}, "
        f"{seeds} each. Lines are medians over seeds. Shaded areas extend from the first to the "
        "third quartile.</p>",
    ]
    if results.unfinished:
        rows = [
            [group.task, group.label, f"{group.finished} of {group.planned} seeds finished"]
            for group in results.unfinished
        ]
        lines.append(
            '<div class="note" role="note"><strong>This study is unfinished.</strong> The page '
            "shows the results so far. The algorithms of a task are compared at the last "
            "evaluation that all of them have reached. Continue with <code>elites study</code>."
            f"{_table([], rows, words=True)}</div>"
        )
    if results.problems:
        items = "".join(f"<li>{escaped(problem)}</li>" for problem in results.problems)
        lines.append(
            '<div class="note" role="note"><strong>Not in this report:</strong>'
            f"<ul>{items}</ul></div>"
        )
    links = "".join(f'<a href="#{escaped(t)}">{escaped(t)}</a> ' for t in results.tasks)
    lines.append(f'<nav aria-label="tasks">{links}<a href="#runs">runs</a></nav>')
    return "\n".join(lines)


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
    note = (
        "<p>Medians over seeds. Published values are the paper's for DCG-MAP-Elites, over 20 "
        "replications after one million evaluations. Its simulator did not reproduce an evaluation "
        "exactly, so its archives have descriptor errors.</p>"
        if tasks
        else "<p>Medians over seeds. The paper has no values for these tasks.</p>"
    )
    return f"<section><h2>Archive and policy</h2>{note}{_table(header, rows)}</section>"


def _task_section(
    study: Study, results: Results, task: str, point: Point | None, tests: _Tests
) -> str:
    """Return the HTML of the section on one task: curves, tables, tests and figures.

    Writes the figures as PDF into the study's report folder. If `point`, the point at which the
    algorithms are compared, is None, the section has no tables and no tests.
    """
    groups = results.of(task)
    name = escaped(task)
    parts = [f'<section id="{name}"><h2>{name}</h2>', _curves(study, task, groups)]
    parts += [_offset_note(groups), _imported_note(study, groups)]
    if point is not None:
        parts += [_final_table(point), tests.section(task, point)]
    with figures.styled():
        for kind, title, figure in (
            ("archives", "Archives", figures.archives(groups)),
            ("additions", "Additions by variation", figures.additions(groups)),
        ):
            if figure is not None:
                svg = figures.save(figure, study.report / f"{kind}_{file_name(task)}.pdf")
                parts.append(f"<h3>{title}</h3>{_figure(svg, f'{title} on {task}')}")
    return "\n".join([*parts, "</section>"])


def _offset_note(groups: Sequence[Group]) -> str:
    """Return the HTML of a note on the QD offset of a task's runs, or "" if it is 0."""
    offsets = {group.facts.get("qd_offset", 0.0) for group in groups if not group.imported}
    if offsets <= {0.0}:
        return ""
    texts = " or ".join(f"{offset:g}" for offset in sorted(offsets))
    return f"<p>QD-scores are sums of fitness minus {texts}, the QD offset.</p>"


def _imported_note(study: Study, groups: Sequence[Group]) -> str:
    """Return the HTML of a note on when imported results are comparable with the study's own.

    `groups` are the results of each algorithm on one task. Returns an empty string if none of them
    is imported.
    """
    imported = [group.label for group in groups if group.imported]
    items = [item for group in groups for item in group.runs]
    if not imported or not items:
        return ""
    cells = study.config(items[0]).hp.cell_count
    return (
        f"<p>{escaped(', '.join(imported))}: results of other programs. Their QD-score and "
        "coverage are comparable only if their archives have the same number of cells and the same "
        f"descriptor bounds. The archives of this study have {cells} cells.</p>"
    )


def _curves(study: Study, task: str, groups: Sequence[Group]) -> str:
    """Return the HTML of the learning curves on one task, with a tab for each horizontal axis.

    Writes the figures as PDF into the study's report folder.
    """
    name, shown = file_name(task), []
    with figures.styled():
        for axis, title in AXES:
            figure = figures.curves(groups, axis)
            if figure is not None:
                svg = figures.save(figure, study.report / f"curves_{name}_{axis}.pdf")
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
            f'<div class="p{i}">{_figure(svg, f"Learning curves on {task} over {title}")}</div>'
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
    return f"<h3>Metrics {escaped(point.text)}</h3>{_table(header, rows, words=True)}"


class _Tests:
    """Rank-sum tests of the reference algorithm against every other algorithm, over all tasks."""

    def __init__(self, plan: Plan, points: dict[str, Point]):
        first = short_name(plan.algorithms[0])
        self.reference = REFERENCE if REFERENCE in plan.algorithms else first
        self._families = {
            metric: statistics.compare_with(
                self.reference,
                {task: point.values.get(metric, {}) for task, point in points.items()},
            )
            for metric, _ in ARCHIVE_METRICS
        }

    def section(self, task: str, point: Point) -> str:
        """Return the HTML of the tests on one task.

        Returns an empty string if the task has only one algorithm.
        """
        parts = [
            self._metric(task, title, self._families[metric], point.values.get(metric, {}))
            for metric, title in ARCHIVE_METRICS
        ]
        if not any(parts):
            return ""
        name = escaped(self.reference)
        why = "" if self.reference == REFERENCE else ", the first algorithm of the plan,"
        return (
            f"<h3>Rank-sum tests {escaped(point.text)}</h3><p>Two-sided p-values of Wilcoxon's "
            f"rank-sum test: {name}{why} against each other algorithm. Bonferroni and Holm correct "
            f"for all comparisons of {name} by the same metric, over all tasks. “{name} above” is "
            f"the probability that a seed of {name} has a higher value than one of the other "
            f"algorithm. Ties count half.</p>{''.join(parts)}"
        )

    def _metric(
        self,
        task: str,
        title: str,
        family: dict[str, list[statistics.Corrected]],
        values: dict[str, np.ndarray],
    ) -> str:
        """Return the HTML of the tests of one metric on one task.

        `family` has the corrected comparisons, keyed by task, and `values` the metric [seeds],
        keyed by algorithm. Returns an empty string if there are no comparisons.
        """
        found, others = family[task], statistics.compare_others(self.reference, values)
        if not found and not others:
            return ""
        parts = [f"<h4>{escaped(title)}</h4>"]
        if found:
            header = [f"{self.reference} against", "p", "Bonferroni", "Holm", "smallest p possible",
                      f"{self.reference} above", "p is"]  # fmt: skip
            rows = [
                [c.second, _p(c.p), _p(t.bonferroni), _p(t.holm), _p(c.smallest),
                 f"{c.superiority:.2f}", "exact" if c.exact else "approximate"]
                for t in found
                for c in [t.comparison]
            ]  # fmt: skip
            parts += [self._family_note(family), _table(header, rows), _too_few(found)]
        if others:
            header = ["first", "second", "p", "smallest p possible", "first above second", "p is"]
            rows = [
                [c.first, c.second, _p(c.p), _p(c.smallest), f"{c.superiority:.2f}",
                 "exact" if c.exact else "approximate"]
                for c in others
            ]  # fmt: skip
            parts.append(
                f"<details><summary>Other pairs, not corrected</summary>"
                f"{_table(header, rows, words=True)}</details>"
            )
        return "".join(parts)

    def _family_note(self, family: dict[str, list[statistics.Corrected]]) -> str:
        """Return the HTML of a note on how many comparisons the p-values are corrected for."""
        found = [entry for entries in family.values() for entry in entries]
        tasks = {entry.task for entry in found}
        return (
            f"<p>Corrected for {counted(found[0].family, 'comparison')}: "
            f"{escaped(self.reference)} against the others on {counted(len(tasks), 'task')}."
            "</p>"
        )


def _too_few(found: Sequence[statistics.Corrected]) -> str:
    """Return the HTML of a warning if no test can be significant with so few seeds.

    `found` are the corrected comparisons of one metric on one task. Returns an empty string if a
    test can be significant.
    """
    least = max(entry.comparison.smallest for entry in found)
    corrected = min(least * found[0].family, 1.0)
    if corrected <= 0.05:
        return ""
    return (
        "<p><strong>Too few seeds to tell:</strong> the smallest possible p-value is "
        f"{_p(least)}, or {_p(corrected)} after correction.</p>"
    )


def _runs(study: Study, results: Results) -> str:
    """Return the HTML of the section with the state, configuration and environment of each run."""
    parts = ['<section id="runs"><h2>Runs</h2>']
    for group in results.groups:
        for item in group.runs:
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
        if group.imported:
            parts.append(
                f"<p>{escaped(group.label)} on {escaped(group.task)}: imported, "
                f"{counted(len(group.seeds), 'seed')}</p>"
            )
    return "\n".join([*parts, "</section>"])


# -------------------------------------------------------------------------------------------- parts


def escaped(text: str) -> str:
    """Return a text as one line of HTML, with special characters escaped."""
    return html.escape(plain(text))


def _figure(svg: str, what: str) -> str:
    """Return the HTML of a figure, given as SVG, with a description for screen readers."""
    return f'<figure role="img" aria-label="{escaped(what)}">{svg}</figure>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    """Return the HTML of a table. The first cell of each row is the row's heading.

    With `words`, the second column is aligned as text.
    """
    top = "".join(f"<th scope='col'>{escaped(cell)}</th>" for cell in header)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{escaped(cell)}</td>" for cell in rest)
        lines.append(f"<tr><th scope='row'>{escaped(first)}</th>{cells}</tr>")
    head = f"<thead><tr>{top}</tr></thead>" if header else ""
    kind = " class='words'" if words else ""
    return f"<div class='wide'><table{kind}>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def _p(value: float) -> str:
    """Return a p-value as text: four decimals, an exponent below 0.0001, or a dash for NaN."""
    if math.isnan(value):
        return "–"
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"
