"""Commands for many runs: study and report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from elites import packages, trust
from elites.cli.common import STOPPED, program, shown
from elites.output import say, write
from elites.runs import directory as directories
from elites.runs import lock
from elites.words import counted, plain, quoted

if TYPE_CHECKING:
    from elites.study.scheduler import Result


def study(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    output: Annotated[Path | None, shown("PATH", "studies/PLAN")] = None,
    jobs: Annotated[int | None, shown("INT", "one for each GPU, or one")] = None,
    engine: Literal["local", "ray"] = "local",
    address: Annotated[
        str | None, shown("HOST:PORT", "RAY_ADDRESS, or a cluster on this machine")
    ] = None,
    cpus: float = 1,
    gpus: float = 0,
    only: Annotated[tuple[str, ...], shown("NAME ...", "the whole plan")] = (),
) -> int:
    """Run the unfinished runs of a plan: tasks x algorithms x seeds.

    Args:
        plan: Built-in plan (paper, ablations, related, smoke) or TOML file.
        output: Directory of the study.
        jobs: Number of runs to compute at the same time on this machine.
        engine: Compute in processes of this machine (local) or on a Ray cluster (ray).
        address: Address of the Ray cluster.
        cpus: Number of CPUs of the Ray cluster that each run gets.
        gpus: Number of GPUs of the Ray cluster that each run gets.
        only: Part of the plan to run: tasks, algorithms and seeds, such as ant_omni pga_me 0-3.
    """
    _check_engine(jobs, engine, address, cpus, gpus)
    from elites.study import plan as plans
    from elites.study import study as studies

    chosen = plans.read(plan)
    plans.part(chosen, only)
    path = output or Path("studies") / Path(plan).stem
    studies.refuse_other(path, chosen)  # before the lock, which is a file in the directory
    trust.record(*chosen.tasks, *chosen.algorithms)  # the user's plan names them
    import jax

    from elites.study import engines, scheduler
    from elites.study.table import Live

    jax.config.update("jax_platforms", "cpu")  # GPUs are for the runs, not for this process
    chosen = studies.resolved(path, chosen, say)
    plans.refuse_small_budget(chosen, plan)
    with lock.locked(path):
        opened = studies.open_study(path, chosen)
        part = plans.part(chosen, only)  # of the plan with complete names of tasks
        studies.split_for(opened, part)
        live = Live(opened)
        if engine == "ray":
            from elites.study.on_ray import RayEngine

            where = RayEngine(address, cpus, gpus)
            live.say(where.text)
        else:
            where = engines.LocalEngine(jobs)
        result = scheduler.run_unfinished(opened, where, live, part=part)
    on_ray = {"engine": engine, "address": address, "cpus": cpus, "gpus": gpus}
    again = _again(plan, path, only, **(on_ray if engine == "ray" else {"jobs": jobs}))
    return _report_end(result, path, again)


def _report_end(result: Result, path: Path, again: str) -> int:
    """Say how the runs of a study ended, and return the exit code.

    `again` is the command line that continues the study.
    """
    if result.stopped:
        say(
            f"stopped with {counted(result.done, 'run')} done; everything is saved. "
            f"Continue with: {again}"
        )
        return STOPPED
    done = counted(result.done, "run")
    say(f"{done} done: {plain(str(path))}. See '{program()} report {quoted(path)}'")
    for item in result.failed:
        write(f"{plain(f'failed: {item.name}: {item.error}')}\n", sys.stderr)
    return 1 if result.failed else 0


def _again(plan: str, path: Path, only: Sequence[str] = (), **options: object) -> str:
    """Return the command line that continues a study, with the options that the user gave."""
    parts = [program(), "study", quoted(plan), "--output", quoted(path)]
    for name, value in options.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts += [f"--{name}", quoted(text)]
    if only:
        parts += ["--only", *map(quoted, only)]
    return " ".join(parts)


def _check_engine(
    jobs: int | None, engine: str, address: str | None, cpus: float, gpus: float
) -> None:
    """Raise a ValueError if an option of `elites study` is wrong or not for this engine."""
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}. See 'elites study --help'")
    if cpus <= 0:
        raise ValueError(f"--cpus must be greater than 0, got {cpus:g}")
    if gpus < 0:
        raise ValueError(f"--gpus must not be negative, got {gpus:g}")
    if engine == "ray" and jobs is not None:
        raise ValueError("--jobs is for --engine local. On Ray, use --cpus and --gpus")
    if engine == "local" and (address is not None or cpus != 1 or gpus != 0):
        raise ValueError("--address, --cpus and --gpus are for --engine ray")
    if engine == "ray":
        packages.require("ray", extra="ray", purpose="--engine ray")


def report(
    study: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")],
    add: Annotated[tuple[Path, ...], shown("FILE ...", "none")] = (),
    join: Annotated[tuple[Path, ...], shown("PATH ...", "none")] = (),
) -> None:
    """Write the report of a study, finished or not: curves, tables and statistical tests.

    Args:
        study: Directory of the study, or a folder of recorded tables with a plan.toml.
        add: CSV files of other programs: columns evaluations, metric, value[, task, label, seed].
        join: Other parts of the same plan: studies, or folders of recorded tables.
    """
    from elites.study import study as studies
    from elites.study.recorded import Folder

    sources = [Folder(path) if Folder(path).exists() else studies.existing(path)
               for path in (study, *join)]  # fmt: skip
    if isinstance(sources[0], Folder):
        directories.refuse_links(study, r"report(/(?s:.*))?", "folder")
    packages.require("scipy", extra="study", purpose="a report")
    from elites.study import collect
    from elites.study import report as reporting

    if add and isinstance(sources[0], Folder):
        raise ValueError(f"--add needs a study, and {study} is a folder of recorded tables")
    for path in add:
        collect.add_imported(studies.existing(study), path)
    print(reporting.write(*sources))
