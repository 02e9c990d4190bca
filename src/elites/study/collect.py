"""Collect the results of a study: curves and final metrics of every algorithm on every task.

Runs may be unfinished, seeds may be spread over several runs, and files may be growing. Files that
cannot be read are left out and listed as problems.

The parts of a plan may have been computed on several machines. `collect` joins the runs of several
studies, and recorded tables, see `elites.study.recorded`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elites import files
from elites.names import short_name
from elites.runs import directory as directories
from elites.runs import evaluation, gaps, logs, snapshots
from elites.runs.directory import METRICS, RunDirectory, RunError
from elites.study import imported, recorded
from elites.study.groups import Group, Results, SeedResults
from elites.study.plan import Plan
from elites.study.recorded import Folder, Recording
from elites.study.study import Item, Study, refuse_other_settings
from elites.words import counted

Source = Study | Folder


@dataclasses.dataclass
class _Collection:
    """Groups and parts that have been read so far, keyed by task and label, and problems."""

    groups: dict[tuple[str, str], Group] = dataclasses.field(default_factory=dict)
    parts: dict[tuple[str, str], list[SeedResults]] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    def group(self, task: str, label: str) -> Group:
        """Return the group of a task and a label. Creates it if it does not exist."""
        self.parts.setdefault((task, label), [])
        return self.groups.setdefault((task, label), Group(task, label))


def collect(source: Source, *others: Source) -> Results:
    """Collect the results of a study, or of a folder of tables, joined with those of others.

    Returns them with messages about files that are missing or damaged. The plan is that of the
    first source. Raises a ValueError if another source was computed with other settings.
    """
    plan, found = source.plan(), _Collection()
    for task, algorithm in plan.pairs():
        found.group(short_name(task), short_name(algorithm)).planned = plan.seed_numbers
    for each in (source, *others):
        # Recorded tables are read up to the plan's budget, whatever their own was.
        refuse_other_settings(plan, each.plan(), each.path, isinstance(each, Folder))
        if isinstance(each, Study):
            for item in each.items():
                _add_item(found, each, item)
        else:
            _add_recordings(found, each, plan)
    for key, group in found.groups.items():
        parts = found.parts[key]
        group.join(parts)
        if any(len(part.curves) for part in parts) and not group.curves:
            found.problems.append(
                f"curves of {group.label} on {group.task}: its runs have no evaluations in common"
            )
    groups = list(found.groups.values())
    for each in (source, *others):
        if isinstance(each, Study):
            groups += _imported_groups(each, groups, found.problems)
    return Results(groups, found.problems)


def _add_item(found: _Collection, study: Study, item: Item) -> None:
    """Add the results of one run of a study to what was found."""
    task, label = short_name(item.task), short_name(item.algorithm)
    group = found.group(task, label)
    group.runs.append((study, item))
    part = None
    try:
        part = _read_run(group, study, item, found.problems)
        if part is not None:
            found.parts[task, label].append(part)
            _keep_best_archive(group, study.run(item), item, part)
    except (RunError, OSError, KeyError, ValueError) as error:
        found.problems.append(f"{item.name}: {error}")
    if study.state(item) == "failed":
        shown = "its results so far are shown" if part else "it has no results"
        found.problems.append(f"{item.name} failed, {shown}: {item.error}")


def _read_run(group: Group, study: Study, item: Item, problems: list[str]) -> SeedResults | None:
    """Read the results of one run from its files, or return None if it has not begun.

    Sets facts and budgets of its group. Appends messages about missing iterations
    to `problems`.
    """
    run = study.run(item)
    table = logs.metrics(directories.existing(run.path)) if run.exists() else {}
    begun, done = len(table.get("iteration", ())) > 0, study.is_trained(item)
    if not begun and not done:
        return None
    group.facts = directories.read_facts(run)
    group.budgets.add(run.config().evaluations)
    iterations = table["iteration"][:, 0] if begun else np.zeros(0)
    if missing := gaps.within(iterations, group.facts["iterations"] if done else 0):
        problems.append(f"{item.name}: {gaps.in_words(missing)}, which {METRICS} lacks")
    try:
        final = _final(run, item, group.facts["iterations"]) if done else None
    except (RunError, OSError, KeyError, ValueError) as error:
        problems.append(f"{item.name}: {error}")
        final = None
    return SeedResults(list(item.seed_numbers), table if begun else {}, final)


def _final(run: RunDirectory, item: Item, last: int) -> dict[str, np.ndarray]:
    """Read the final metrics [seeds] of a finished run, keyed by name.

    `last` is the run's last iteration. Raises an error if the table is damaged or of another one.
    """
    final = evaluation.read_metrics(run.evaluation)
    if len(final["seed"]) != item.seeds:
        raise RunError(
            f"{run.evaluation / 'metrics.csv'}: damaged: it has {len(final['seed'])} rows, but "
            f"the run has {counted(item.seeds, 'seed')}"
        )
    if (final.get("iteration", np.zeros(1)) != last).any():
        raise ValueError(
            f"{run.evaluation} is not of iteration {last}, the run's last. Evaluate it again "
            f"with 'elites evaluate {run.path}'"
        )
    return final


def _keep_best_archive(group: Group, run: RunDirectory, item: Item, part: SeedResults) -> None:
    """Store the best archive of a run in its group, if it is better than the stored one.

    The best archive is the one with the highest QD-score among the seeds of the run's newest
    snapshot. `part` are the results of the run.
    """
    snapshot = snapshots.newest(run)
    if snapshot is None:
        return
    best = snapshots.best_seed(snapshot, group.facts)
    mine = {name: snapshot[name][best : best + 1] for name in ("fitness", "descriptors")}
    mine["centroids"] = snapshot["centroids"]

    def score(archive: dict[str, np.ndarray]) -> float:
        """Return the QD-score of an archive."""
        return float(snapshots.qd_score(archive["fitness"][0], group.facts))

    if group.archive is None or score(mine) > score(group.archive):
        group.archive, group.archive_seed = mine, item.seed_numbers[best]
        group.archive_evaluations = _evaluations_at(part, int(snapshot["iteration"]))


def _evaluations_at(part: SeedResults, iteration: int) -> float | None:
    """Return the evaluations of a run at an iteration, or None if its metrics lack that one."""
    if not len(part.curves):
        return None
    (rows,) = np.nonzero(part.curves["iteration"][:, 0] == iteration)
    return float(part.curves["evaluations"][rows[0], 0]) if len(rows) else None


def _add_recordings(found: _Collection, folder: Folder, plan: Plan) -> None:
    """Add the recorded tables of a folder to what was found, up to the plan's budget.

    An algorithm with other settings than the plan's has a group of its own. Tables of tasks that
    the plan does not have are left out.
    """
    by_group: dict[tuple[str, str], list[Recording]] = {}
    tasks = {short_name(task): task for task in plan.tasks}
    for recording in folder.read(found.problems):
        if recording.task in tasks:
            by_group.setdefault((recording.task, recording.label), []).append(recording)
    hp = plan.config(plan.tasks[0], plan.algorithms[0], plan.seed_numbers).hp
    for (task, label), recordings in by_group.items():
        budget = plan.budget(task)
        group = found.group(task, label)
        group.budgets.add(budget)
        group.tables += [recording.path for recording in recordings]
        found.parts[task, label] += recorded.parts_for(recordings, budget)
        for recording in recordings:
            try:
                _keep_recorded_archive(group, recorded.archive(recording, tasks[task], hp))
            except (RunError, OSError, ValueError) as error:
                found.problems.append(str(error))


def _keep_recorded_archive(group: Group, found: recorded.Archive | None) -> None:
    """Store a recorded archive in its group, if its QD-score is higher than that of the stored one.

    `found` is None if there is no recorded archive.
    """
    if found is None:
        return
    facts, stored = found.facts | group.facts, group.archive
    scores = [snapshots.qd_score(a["fitness"][0], facts) for a in (found.arrays, stored) if a]
    if stored is None or scores[0] > scores[1]:
        group.archive, group.archive_seed = found.arrays, found.seed
        group.archive_evaluations = found.evaluations
    group.facts = facts


# ------------------------------------------------------------------------------ other programs


def _imported_groups(study: Study, groups: Sequence[Group], problems: list[str]) -> list[Group]:
    """Return the groups of results of other programs that were imported into a study.

    `groups` are the study's own. Messages about files with mistakes are appended to `problems`.
    """
    found: list[Group] = []
    labels = {group.label for group in groups}
    for path in sorted(study.imported.glob("*.csv")) if study.imported.is_dir() else ():
        try:
            theirs = imported.read(path, [group.task for group in groups if not group.imported])
            imported.refuse_taken_labels(path, theirs, labels)
            labels |= {group.label for group in theirs}
            found += theirs
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return found


def add_imported(study: Study, path: Path) -> None:
    """Check a CSV file with results of another program, and copy it into a study.

    The copy is in the study's folder `imported`. Its name always ends in `.csv`, because `collect`
    reads such files. `imported.read` explains the format. Adding the same file again changes
    nothing. Raises a ValueError if the file has a mistake, or if one of its labels is already in
    use.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    groups = imported.read(path, [short_name(item.task) for item in study.items()])
    text = files.read_text(path, error=ValueError, follow=True)
    copy = study.imported / f"{path.stem}.csv"
    if copy.exists():
        if files.read_text(copy) != text:
            raise ValueError(f"{copy} exists already, with other contents. Rename {path}")
        return
    taken = {group.label for group in collect(study).groups}
    imported.refuse_taken_labels(path, groups, taken)
    study.imported.mkdir(exist_ok=True)
    directories.write_text(copy, text)
