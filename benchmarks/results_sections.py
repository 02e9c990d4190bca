"""Sections of the results page, as Markdown: tables of recorded results, tests and claims."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import results_additions as additions
import results_differences as differences
import results_progress as progress
from elites.files import Fields, RunError, check_record, read_json
from elites.study.groups import NEAR, Columns, Group, Results
from elites.study.markup import p_text
from elites.study.recorded import Recording
from elites.study.significance import REFERENCE, Test, corrected
from elites.study.statistics import Corrected
from elites.words import counted, duration, listed, ranges, spans
from results_claims import claims, losses, relative
from results_data import (
    EARLY,
    FOLDER,
    FULL,
    MISSING,
    PAPER_METRICS,
    RELEASED,
    ROOT,
    STRONGEST,
    TITLES,
    Data,
    against,
    code,
    compared,
    evaluated,
    last,
    levels,
    pair,
    published,
    reached,
    reevaluated,
    seed_columns,
    table,
)


def spread(values: np.ndarray, scale: float = 1.0, digits: str = ".2f") -> str:
    """Return the median and the quartiles of values over seeds, divided by `scale`, as text."""
    known = values[np.isfinite(values)] / scale
    if not len(known):
        return ""
    low, middle, high = (format(x, digits) for x in np.quantile(known, (0.25, 0.5, 0.75)))
    return middle if low == high else f"{middle} ({low} to {high})"


# ------------------------------------------------------------------------------ the paper's table


def paper(data: Data) -> str:
    """Return the paper's table for DCG-MAP-Elites, with ours beside it."""
    names = ("dcg_me", "progress_me")
    rows = []
    for task, title in TITLES.items():
        groups = [data.full.find(task, name) for name in names]
        rows.append(["**" + title + "**", "20 seeds, 1,000,000", *(_extent(g) for g in groups)])
        for text, metric, index, scale in PAPER_METRICS:
            ours = [_value(data, group, metric, scale) for group in groups]
            digits = "#.2g" if scale > 1 else ".3g"
            known = "" if index is None else format(published(task, index) / scale, digits)
            rows.append([text, known, *ours])
    return table(["", "paper", *(f"`{name}`" for name in names)], rows)


def _extent(group: Group | None) -> str:
    """Return the number of seeds and evaluations of a group as text."""
    if group is None or not group.curves:
        return MISSING
    return f"{counted(len(group.seeds), 'seed')}, {reached(group, FULL)}"


def _value(data: Data, group: Group | None, metric: str, scale: float) -> str:
    """Return a metric of a group at its end, as text. Empty if the group has no values."""
    if group is None or not group.curves:
        return ""
    if metric in group.curves:
        digits = {"coverage": ".1f", "max_fitness": ",.0f"}.get(metric, ".2f")
        return spread(group.curves[metric][-1], scale, digits)
    return _reevaluated(data, group, metric, FULL, scale)


def _reevaluated(data: Data, group: Group, metric: str, budget: float, scale: float = 1.0) -> str:
    """Return a metric of the last re-evaluation of a group up to a budget, as text.

    If that was before the end of its curves, the text says after how many evaluations it was.
    """
    digits = ".2f" if scale > 1 else ".3g"
    values = reevaluated(data, group, metric, budget)
    text, spent = spread(values, scale, digits), evaluated(data, group, budget)
    if not text or spent is None or spent >= last(group) * (1 - NEAR):
        return text
    return f"{text}, {counted(len(values), 'seed')} after {spent:,.0f}"


def million(data: Data) -> str:
    """Return a table of QD-scores after a million evaluations, in the paper and here."""
    names = ("dcg_me", "progress_me")
    rows = [["paper, 20 seeds", *(f"{published(task, 0) / 1e5:.1f}" for task in TITLES)]]
    rows += [[f"`{name}`", *(_score(data.full.find(task, name)) for task in TITLES)]
             for name in names]  # fmt: skip
    return table(["median QD-score, 1e5", *TITLES.values()], rows)


def _score(group: Group | None) -> str:
    """Return the median QD-score of a group, its seeds, and its evaluations if below a million."""
    if group is None or not group.curves:
        return MISSING
    text = f"{np.median(group.curves['qd_score'][-1]) / 1e5:.1f}, {len(group.seeds)} seeds"
    end = last(group)
    return text if end >= FULL * (1 - NEAR) else f"{text}, only {end:,} evaluations"


# --------------------------------------------------------------------------------- the comparison


def scope(data: Data) -> str:
    """Return a paragraph on how much of the plan of the comparison has been run."""
    groups = [group for task in TITLES for group in compared(data, task) if group.planned]
    begun = [group for group in groups if group.curves]
    done = [
        group for group in begun
        if last(group) >= max(group.budgets) * (1 - NEAR) and len(group.seeds) >= len(group.planned)
    ]  # fmt: skip
    seeds, budget = len(groups[0].planned), max(begun[0].budgets)
    text = (
        f"The plan is [`results/plan.toml`](results/plan.toml): {seeds} seeds and {budget:,} "
        f"evaluations of ten algorithms on four tasks, {len(groups)} pairs. So far, {len(begun)} "
        f"pairs have results, and {len(done)} of them are complete. Seeds of earlier runs count, "
        "whatever their numbers. Below, lines are medians over seeds, and areas reach from the "
        "first to the third quartile. The dashed line is the paper's QD-score of DCG-MAP-Elites "
        "after a million evaluations."
    )
    return textwrap.fill(text, 110, break_on_hyphens=False)


def comparison(data: Data, task: str) -> str:
    """Return a table of all algorithms on one task, up to the plan's budget."""
    header = ["algorithm", "seeds", "evaluations", "QD-score, 1e5", "coverage, %",
              "maximum fitness", "policy: QD-score, 1e5", "policy: error"]  # fmt: skip
    rows = [_comparison_row(data, group) for group in compared(data, task)]
    done = [row for row in rows if row[1] != MISSING]
    absent = [row[0] for row in rows if row[1] == MISSING]
    return f"{table(header, done)}{_absent(absent)}"


def _absent(labels: Sequence[str]) -> str:
    """Return a paragraph that names algorithms without results, or "" if there are none."""
    text = textwrap.fill(f"Not run yet: {', '.join(labels)}.", 110, break_on_hyphens=False)
    return f"\n\n{text}" if labels else ""


def _comparison_row(data: Data, group: Group) -> list[str]:
    """Return the row of an algorithm in the table of a task."""
    label = code(group.label)
    if not group.curves:
        return [label, MISSING]
    scores, coverage, fitness = (
        group.curves[name][-1] for name in ("qd_score", "coverage", "max_fitness")
    )
    budget = max(group.budgets)
    return [
        label,
        seed_numbers(group),
        reached(group, budget),
        spread(scores, 1e5),
        spread(100 * coverage, digits=".1f"),
        spread(fitness, digits=",.0f"),
        _reevaluated(data, group, "actor_qd_score", budget, 1e5),
        _reevaluated(data, group, "actor_descriptor_error", budget),
    ]


def seed_numbers(group: Group) -> str:
    """Return the seeds of a group as text. Those of an earlier source are named separately."""
    texts = []
    for source in dict.fromkeys(group.sources):
        own = [s for s, of in zip(group.seeds, group.sources, strict=True) if of == source]
        texts.append(spans(ranges(own)) + (f" of {source}" if source else ""))
    return listed(texts)


def archives(data: Data) -> str:
    """Return the images of archives, and which algorithms have no recorded table of cells."""
    parts = []
    for task, title in TITLES.items():
        groups = [group for group in compared(data, task) if group.curves]
        if any(group.archive for group in groups):
            parts.append(
                f"![Archives on {title}: cells coloured by fitness, for each algorithm]"
                f"(images/results_archives_{task}.png)"
            )
        if missing := [code(group.label) for group in groups if not group.archive]:
            text = f"No archive was kept on {title} of {listed(missing)}."
            parts.append(textwrap.fill(text, 110, break_on_hyphens=False))
        if task == "anttrap_omni":
            parts.append(differences.behind_the_trap(data))
    return "\n\n".join(parts)


def released(data: Data) -> str:
    """Return a table of our seeds beside one seed of the code that the authors released."""
    rows = []
    for task, name, iteration, score, coverage in RELEASED:
        ours, cells = _at_iteration(data, task, name, iteration)
        rows.append(
            [TITLES[task], f"`{name}`", str(iteration), f"{score:g}", f"{coverage}",
             f"{np.median(ours) / 1e5:.2f} ({ours.min() / 1e5:.2f} to {ours.max() / 1e5:.2f})",
             f"{100 * np.median(cells):.0f} ({100 * cells.min():.0f} to {100 * cells.max():.0f})",
             str(len(ours))]
        )  # fmt: skip
    header = ["task", "algorithm", "iteration", "released: QD-score, 1e5", "coverage, %",
              "elites: QD-score, 1e5", "coverage, %", "seeds"]  # fmt: skip
    return table(header, rows)


def _at_iteration(data: Data, task: str, name: str, iteration: int) -> list[np.ndarray]:
    """Return QD-score and coverage [seeds] of all seeds that have a row of an iteration."""
    own = [
        r for r in data.recordings
        if r.task == task and r.label == name and iteration in r.metrics["iteration"][:, 0]
    ]  # fmt: skip
    found = []
    for recording, column in seed_columns(own).values():
        metrics = recording.metrics
        (row,) = np.flatnonzero(metrics["iteration"][:, 0] == iteration)
        found.append([metrics[name][row, column] for name in ("qd_score", "coverage")])
    return list(np.array(found).T)


# ------------------------------------------------------------------------------------------- tests


def tests(data: Data, results: Results, most: float) -> str:
    """Return a table of rank-sum tests of `dcg_me` against all others, by QD-score.

    Comparisons after at most `most` evaluations are left out.
    """
    reference = REFERENCE
    found = corrected(against(results, reference, "qd_score", most), data.intended)
    if not found:
        return "No comparison has more evaluations than those of the table above."
    found.sort(key=lambda entry: list(TITLES).index(entry[0].task))
    header = ["task", f"`{reference}` against", "evaluations", "seeds", "medians, 1e5", "p",
              "Bonferroni", "Holm", f"`{reference}` above"]  # fmt: skip
    rows = [_test_row(one, entry) for one, entry in found]
    return f"{table(header, rows)}\n\n{_families(reference, [entry for _, entry in found])}"


def _test_row(one: Test, entry: Corrected) -> list[str]:
    """Return the row of a comparison in the table of tests."""
    medians = " and ".join(f"{np.median(values) / 1e5:.2f}" for values in (one.first, one.second))
    return [
        TITLES[one.task], code(one.comparison.second), f"{one.evaluations:,.0f}",
        f"{len(one.first)} and {len(one.second)}", medians, p_text(one.comparison.p),
        p_text(entry.bonferroni), p_text(entry.holm), f"{one.comparison.superiority:.2f}",
    ]  # fmt: skip


def _families(reference: str, found: Sequence[Corrected]) -> str:
    """Return a sentence on the comparisons that p-values are corrected for."""
    texts = []
    for kind in dict.fromkeys(entry.kind for entry in found):
        size = next(entry.family for entry in found if entry.kind == kind)
        done = sum(entry.kind == kind for entry in found)
        texts.append(f"{counted(size, 'comparison')} with {kind} ({done} in this table)")
    text = f"P-values are corrected for all comparisons of `{reference}`: {' and '.join(texts)}."
    return textwrap.fill(text, 110)


# ------------------------------------------------------------------------------------- related work


def related(data: Data) -> str:
    """Return a table of the algorithms of the paper's related work on Ant-Omni."""
    groups = [group for group in data.related.of("ant_omni") if group.planned]
    done = [group for group in groups if group.curves]
    early, late = (_related_tests(data, r) for r in (data.related_early, data.related))
    rows = [
        [*_comparison_row(data, g)[:5], early.get(g.label, ""), late.get(g.label, "")] for g in done
    ]
    header = ["algorithm", "seeds", "evaluations", "QD-score, 1e5", "coverage, %",
              f"against `pga_me`, {EARLY:,}", "against `pga_me`, at the end"]  # fmt: skip
    absent = _absent([code(g.label) for g in groups if not g.curves])
    return f"{table(header, rows)}{absent}"


def _related_tests(data: Data, results: Results) -> dict[str, str]:
    """Return tests of the related work against `pga_me` on Ant-Omni as text, keyed by algorithm."""
    groups = [g for g in results.of("ant_omni") if g.planned and g.label != STRONGEST]
    pairs = [pair(results, g.task, STRONGEST, g.label, "qd_score") for g in groups if g.curves]
    return {
        one.comparison.second: f"p = {p_text(entry.holm)}, "
        f"{len(one.second)} and {len(one.first)} seeds"
        for one, entry in corrected([one for one in pairs if one], data.related_intended)
    }


# ---------------------------------------------------------------------------------------- the files


def files(data: Data) -> str:
    """Return a table of the files behind the page: seeds, evaluations, time and versions."""
    rows = [
        [f"[`{r.path.relative_to(FOLDER)}`](results/{r.path.relative_to(FOLDER)})",
         str(len(r.seeds)), f"{r.last:,.0f}", _error(r, r.own_reevaluations) or "not checked",
         _error(r, r.new_process) or "no file", duration(_seconds(r)), _versions(r)]
        for r in data.recordings
    ]  # fmt: skip
    header = ["table", "seeds", "evaluations", "archive error", "in a new process", "time",
              "versions"]  # fmt: skip
    on_cpu = sum(_seconds(r) for r in data.recordings if _device(r) == "cpu")
    on_gpu = sum(_seconds(r) for r in data.recordings) - on_cpu
    text = f"The times add up to {duration(on_gpu)} on a GPU"
    if on_cpu:
        text += f" and {duration(on_cpu)} on one or two CPU cores"
    return f"{table(header, rows)}\n\n{text}."


def _seconds(recording: Recording) -> float:
    """Return the time that a recorded run took, in seconds.

    Seeds of one batch have the same time. Otherwise they were runs of their own, one after another.
    """
    seconds = recording.metrics["seconds"][-1]
    return float(seconds.max() if np.ptp(seconds) == 0 else seconds.sum())


def _error(recording: Recording, found: Columns) -> str:
    """Return the largest descriptor error over seeds of the last re-evaluation in a table.

    If that was before the end of the run, the text says after how many evaluations it was. It is
    empty if the table is.
    """
    if not len(found.get("descriptor_error", ())):
        return ""
    evaluations, text = found["evaluations"][-1, 0], f"{found['descriptor_error'][-1].max():.3g}"
    return text if evaluations == recording.last else f"{text} after {evaluations:,.0f}"


def _last_session(recording: Recording) -> dict[str, Any]:
    """Return versions, source and device of a recorded run, from the file beside its table.

    Returns an empty dictionary if there is no such file. Raises a RunError if it is damaged.
    """
    path = recording.path.with_suffix(".environment.json")
    if not path.exists():
        return {}
    sessions = read_json(path, follow=True)
    if not isinstance(sessions, list) or not sessions:
        raise RunError(f"{path}: damaged: not a list of sessions. Restore the file or remove it")
    text = (str, type(None))
    fields: Fields = {"elites": str, "jax": str, "device": str, "commit": text, "source": text}
    return check_record(sessions[-1], f"{path}, last session", {}, optional=fields)


def _device(recording: Recording) -> str:
    """Return the device of a recorded run, such as "NVIDIA H200" or "cpu", or "" if unknown."""
    return str(_last_session(recording).get("device", ""))


def _versions(recording: Recording) -> str:
    """Return the versions and the device of a recorded run as text."""
    session = _last_session(recording)
    names = [f"{name} {session[name]}" for name in ("elites", "jax") if name in session]
    if source := session.get("source"):
        names.insert(1, f"source {source[:7]}")
    elif commit := session.get("commit"):
        names.insert(1, f"commit {commit[:7]}")
    return ", ".join([*names, *filter(None, [_device(recording)])])


def page(data: Data) -> dict[Path, dict[str, str]]:
    """Return all sections that are written, by file and by name."""
    docs = ROOT / "docs"
    tasks = {f"comparison {task}": comparison(data, task) for task in TITLES}
    on_page = {
        "million": million(data),
        "paper": paper(data),
        "scope": scope(data),
        **tasks,
        **{f"tests {i}": tests(data, *level) for i, level in enumerate(levels(data), start=1)},
        "archives": archives(data),
        "claims": claims(data),
        "relative": relative(data),
        "losses": losses(data),
        "differences": differences.differences(data),
        "greedy": additions.greedy(data),
        "additions": additions.additions(data),
        "related": related(data),
        "released": released(data),
        "files": files(data),
    }
    return {
        docs / "results.md": on_page,
        docs / "pbt-and-dns.md": {"related": on_page["related"]},
        docs / "cma.md": {"related": on_page["related"]},
        docs / "progress.md": {
            "progress tests": progress.tests(data),
            "progress passing": progress.passing(data),
            "progress million": progress.million(data),
        },
        ROOT / "README.md": {"million": million(data)},
    }
