"""Check the runs whose tables are to be recorded, group them, and name their tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elites import names
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import logs
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.environment import read_sessions
from elites.study import plan as plans
from elites.study import recorded
from elites.words import quoted
from results_rows import last_iteration, metrics_of, rows_of

LONGEST = 180  # bytes of the name of a table, without its end
EVALUATED = re.compile(r"evaluation_(\d{9})")  # folders of `elites evaluate --checkpoint`
Group = Sequence[RunDirectory]  # runs that are recorded together


def addable(path: Path, unknown_source: bool = False, new_process: bool = False) -> RunDirectory:
    """Return the run directory at a path. Raises a ValueError if it cannot be added.

    The source of elites must be known, with which each session of the run was computed, unless
    `unknown_source` is true. With `new_process`, the run must have tables of `elites evaluate`.
    """
    run = directories.existing(path)
    config = run.config()
    for name in (config.task, config.algorithm):
        if names.paths(name):
            raise ValueError(f"{path}: '{name}' is not a task or an algorithm of elites")
    if config.start_from:
        raise ValueError(
            f"{path}: it started from the archive {config.start_from}, so it is no run of the "
            "plan. Add runs that started without an archive"
        )
    if list(config.seed_numbers) != list(consecutive(config)):
        raise ValueError(
            f"{path}: its seeds are {', '.join(map(str, config.seed_numbers))}, and a table has "
            "consecutive seeds. Train the seeds in runs of their own, and add those"
        )
    metrics_of(run / directories.METRICS)
    logs.metrics(run)  # raises an error if the page could not read the table
    sessions = read_sessions(run)
    known = sessions and all(entry.get("commit") or entry.get("source") for entry in sessions)
    if not known and not unknown_source:
        raise ValueError(
            f"{path}: {directories.ENVIRONMENT} has neither a commit nor a source of elites, so "
            "nobody can repeat the run. Add it nevertheless with --unknown-source"
        )
    if new_process:
        if directories.kept_cells(run) is not None:
            raise ValueError(
                f"{path}: it has kept only some of its elites, so a new process cannot evaluate "
                "the whole archive. Evaluate the complete run, and add that"
            )
        evaluated(run)
    return run


def evaluated(run: RunDirectory) -> Path:
    """Return the newest folder of a run with tables of `elites evaluate` for a given iteration.

    Training writes tables to `evaluation/` at its end, so these do not show that a new process
    evaluated the run. Only `elites evaluate` writes a folder with an iteration in its name. Raises
    a ValueError if there is none.
    """
    found = [p for p in sorted(run.path.glob("evaluation_*/metrics.csv"))
             if EVALUATED.fullmatch(p.parent.name)]  # fmt: skip
    if not found:
        kept = [int(place.name) for place in checkpoints.complete(run.checkpoints)]
        last = max(kept, default=0) or last_iteration(metrics_of(run / directories.METRICS))
        raise ValueError(
            f"{run.path}: no process evaluated it after training. "
            f"Run: elites evaluate {quoted(run.path)} --checkpoint {last}"
        )
    folder = found[-1].parent
    iterations = {int(row["iteration"]) for row in rows_of(found[-1], "seed", "iteration")}
    if iterations != {iteration_of(folder)}:
        raise ValueError(
            f"{found[-1]}: damaged: its rows are not of iteration {iteration_of(folder)}. Remove "
            f"the folder, and run: elites evaluate {quoted(run.path)}"
            f" --checkpoint {iteration_of(folder)}"
        )
    return folder


def iteration_of(folder: Path) -> int:
    """Return the iteration in the name of a folder of `elites evaluate --checkpoint`."""
    return int(folder.name.removeprefix("evaluation_"))


def joined(runs: Group) -> list[list[RunDirectory]]:
    """Return runs in groups that are recorded together, each in the order of its seeds.

    The runs of a group differ only in their seeds, which follow each other without a gap. Raises a
    ValueError if they have a seed in common or ended at different iterations.
    """
    groups: list[list[RunDirectory]] = []
    for run in sorted(runs, key=lambda run: run.config().first_seed):
        for group in groups:
            last, config = group[-1].config(), run.config()
            if shared(last) != shared(config):
                continue
            if config.first_seed < last.first_seed + last.seeds:
                raise ValueError(
                    f"{run.path}: has seed {config.first_seed}, and so has {group[-1].path}"
                )
            if config.first_seed == last.first_seed + last.seeds:
                group.append(run)
                break
        else:
            groups.append([run])
    for group in groups:
        ends = [last_iteration(metrics_of(run / directories.METRICS)) for run in group]
        if len(set(ends)) > 1:
            raise ValueError(
                f"{group[0].path}: ended at iteration {ends[0]}, and the runs with the seeds after "
                f"it at {', '.join(map(str, ends[1:]))}. Add runs of different lengths separately"
            )
    return groups


def joined_config(runs: Group) -> Config:
    """Return the configuration of a group of runs, with the seeds of all of them."""
    seeds = sum(run.config().seeds for run in runs)
    return dataclasses.replace(runs[0].config(), seeds=seeds, seed_list=())


def consecutive(config: Config) -> range:
    """Return as many consecutive seeds as a run has, from its first one on."""
    return range(config.first_seed, config.first_seed + config.seeds)


def shared(config: Config) -> Config:
    """Return a configuration without its seeds, to compare it with that of another run."""
    return dataclasses.replace(config, seeds=1, first_seed=0, seed_list=())


def place(runs: Group, plan: plans.Plan) -> Path:
    """Return the path of the recorded metrics of a group of runs, relative to the plan's folder.

    Raises a ValueError if the name is too long for a file.
    """
    config = joined_config(runs)
    differing = settings(config, plan)
    name = recorded.stem(config.algorithm, consecutive(config), differing, tag(config, plan))
    if len(name.encode()) > LONGEST:
        raise ValueError(
            f"{runs[0].path}: it differs from the plan in {len(differing)} hyperparameters, which "
            "are too many for the name of a file. Add runs with the preset of the plan"
        )
    return Path(names.short_name(config.task), f"{name}.csv")


def settings(config: Config, plan: plans.Plan) -> list[str]:
    """Return the hyperparameters of a run that differ from the plan's, such as discount_0.9."""
    usual = vars(plan.config(config.task, config.algorithm, plan.seed_numbers).hp)
    differing = {name: v for name, v in vars(config.hp).items() if v != usual[name]}
    return [f"{name}_{setting_text(value)}" for name, value in differing.items()]


def setting_text(value: Any) -> str:
    """Return the value of a hyperparameter for the name of a table. Numbers keep their sign."""
    if isinstance(value, list | tuple):
        return "-".join(map(setting_text, value))
    if isinstance(value, str):
        return re.sub(r"[^\w.+-]+", "-", without_folders(value)).strip("-")
    return str(value)


def tag(config: Config, plan: plans.Plan) -> str:
    """Return the budget of a run for the name of its tables: "1M", or "" if it is the plan's."""
    budget = config.evaluations
    if budget == plan.budget(config.task):
        return ""
    return f"{budget // 1_000_000}M" if budget % 1_000_000 == 0 else f"{round(budget / 1000)}k"


def without_folders(value: Any) -> Any:
    """Return a value of a configuration in which absolute paths are reduced to their last name."""
    if isinstance(value, dict):
        return {name: without_folders(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
