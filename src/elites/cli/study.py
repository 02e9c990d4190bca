"""Commands for many runs: study and report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from elites import packages, trust
from elites.cli.common import STOPPED, program, shown
from elites.output import say, warn, write
from elites.runs import directory as directories
from elites.runs.directory import RunDirectory
from elites.words import amount, counted, listed, plain, quoted

if TYPE_CHECKING:
    from elites.study.packing import Wish
    from elites.study.plan import Plan
    from elites.study.recorded import Folder
    from elites.study.running import Session
    from elites.study.scheduler import Result
    from elites.study.study import Study


def study(
    plan: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PLAN")],
    output: Annotated[Path | None, shown("PATH", "studies/PLAN, or PLAN if it is a study")] = None,
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    measure: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seeds_per_run: Annotated[int | None, shown("INT", "all that fit in memory")] = None,
    side_by_side: Annotated[int | None, shown("INT", "where it saves time")] = None,
    jobs: Annotated[
        int | None, shown("INT", "those side by side on each GPU, or one on each CPU core")
    ] = None,
    engine: Literal["local", "ray"] = "local",
    address: Annotated[
        str | None, shown("HOST:PORT", "RAY_ADDRESS, or a cluster on this machine")
    ] = None,
    cpus: float = 1,
    gpus: float = 0,
    only: Annotated[tuple[str, ...], shown("NAME ...", "the whole plan")] = (),
    stop_after: Annotated[float | None, shown("MINUTES", "when all runs are done")] = None,
) -> int:
    """Run the unfinished runs of a plan: tasks x algorithms x seeds.

    Args:
        plan: Built-in plan (paper, ablations, related, smoke), TOML file, or study to continue.
        output: Directory of the study.
        dry_run: Print how the runs would share this machine and how many hours they would take.
        measure: First measure a few iterations of each kind of run that was not measured yet.
        seeds_per_run: Largest number of seeds of one run of a new study.
        side_by_side: Number of runs that share a GPU, if they fit in its memory.
        jobs: Number of runs to compute at the same time on this machine.
        engine: Compute in processes of this machine (local) or on a Ray cluster (ray).
        address: Address of the Ray cluster.
        cpus: Number of CPUs of the Ray cluster that each run gets.
        gpus: Number of GPUs of the Ray cluster that each run gets.
        only: Part of the plan to run: tasks, algorithms and seeds, such as ant_omni pga_me 0-3.
        stop_after: Minutes after which running runs save and end, and their models are kept.
    """
    _check_counts(jobs=jobs, side_by_side=side_by_side, seeds_per_run=seeds_per_run)
    _check_engine(engine, jobs, side_by_side, dry_run or measure, address, cpus, gpus)
    seconds = _checked_seconds(stop_after, dry_run)
    from elites.study import plan as plans
    from elites.study import study as studies
    from elites.study.packing import Wish

    chosen, path = _chosen(plan, output)
    plans.part(chosen, only)
    studies.refuse_other(path, chosen)  # before the lock, which is a file in the directory
    trust.record(*chosen.tasks, *chosen.algorithms)  # the user's plan names them
    _warn_of_unread(chosen, plan)
    chosen = _resolved(chosen, path, plan)
    part = plans.part(chosen, only)  # of the plan with complete names of tasks
    from elites.study.running import Session

    session = Session(path, chosen, part, seconds)
    again = partial(_command, plan, path, only, **{"stop-after": stop_after})
    if engine == "ray":
        return _on_ray(session, (address, cpus, gpus), seeds_per_run, again)
    wish = Wish(seeds_per_run, side_by_side, jobs)
    return _on_this_machine(session, wish, measure, dry_run, again)


def _resolved(plan: Plan, path: Path, name: str) -> Plan:
    """Return a plan whose tasks have complete names, for a study at a path. Loads JAX.

    Raises a ValueError if its budget is too small for one of its algorithms.
    """
    import jax

    from elites.study import plan as plans
    from elites.study import study as studies

    jax.config.update("jax_platforms", "cpu")  # GPUs are for the runs, not for this process
    resolved = studies.resolved(path, plan, say)
    plans.refuse_small_budget(resolved, name)
    return resolved


def _checked_seconds(minutes: float | None, dry_run: bool) -> float | None:
    """Return the minutes of --stop-after in seconds. Raises a ValueError if they are wrong."""
    if minutes is not None and dry_run:
        raise ValueError("--stop-after has no effect with --dry-run, which starts nothing")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--stop-after must be greater than 0, got {minutes:g}")
    return None if minutes is None else 60 * minutes


def _warn_of_unread(plan: Plan, name: str) -> None:
    """Warn of hyperparameters of a plan that none of its algorithms reads."""
    if unread := plan.unread():
        has, them = ("has", "it") if len(unread) == 1 else ("have", "them")
        warn(f"{name}: {listed(unread)} {has} no effect: no algorithm of the plan reads {them}")


def _chosen(plan: str, output: Path | None) -> tuple[Plan, Path]:
    """Return the plan that the user chose, and the directory of its study.

    The plan of a study may come from someone else, so the files that it names must be trusted
    already.
    """
    from elites.study import plan as plans
    from elites.study import study as studies

    if plan not in plans.BUILT_IN and studies.Study(Path(plan)).exists():
        chosen = studies.existing(Path(plan)).plan()
        remedy = "Read it, then start the study with its TOML file"
        trust.require(plan, *chosen.tasks, *chosen.algorithms, remedy=remedy)
        return chosen, output or Path(plan)
    return plans.read(plan), output or Path("studies") / Path(plan).stem


def _on_ray(
    session: Session,
    resources: tuple[str | None, float, float],
    seeds_per_run: int | None,
    again: Callable[..., str],
) -> int:
    """Compute a session of a study on a Ray cluster, and return the exit code.

    `resources` are the address of the cluster, and the CPUs and GPUs of each run. `again` returns
    the command line that continues the study, given its further options.
    """
    from elites.study import running

    cluster = running.Cluster(*resources)
    result = running.on_ray(session, cluster, seeds_per_run)
    return _report_end(result, session.path, again(engine="ray", **cluster._asdict()))


def _on_this_machine(
    session: Session, wish: Wish, measure: bool, dry_run: bool, again: Callable[..., str]
) -> int:
    """Compute a session of a study on this machine, or only say how, and return the exit code.

    `again` is as for `_on_ray`.
    """
    from elites.study import running

    options = {"jobs": wish.jobs, "side-by-side": wish.side_by_side}
    # The seeds of a run belong to a new study only, so they are not among the options to repeat.
    asked = again(**options, **{"seeds-per-run": wish.seeds_per_run, "stop-after": None})
    local = running.Local(session, wish, measure, f"{asked} --dry-run --measure")
    if dry_run:
        for line in local.described():
            say(line)
        return 0
    return _report_end(local.run(), session.path, again(**options))


def _report_end(result: Result, path: Path, again: str) -> int:
    """Say how the runs of a study ended, and return the exit code.

    `again` is the command line that continues the study.
    """
    from elites.study import study as studies

    done = counted(result.done, "run")
    if result.stopped:
        say(f"stopped with {done} done; everything is saved. Continue with: {again}")
    else:
        say(f"{done} done: {plain(str(path))}. See '{program()} report {quoted(path)}'")
    made = studies.Study(path)
    if models := list(filter(None, map(made.newest_model_of, made.items()))):
        size = amount(sum(model.stat().st_size for model in models))
        say(f"{counted(len(models), 'model')} kept in {plain(str(made.kept))}: {size}")
    for item in result.failed:
        write(f"{plain(f'failed: {item.name}: {item.error}')}\n", sys.stderr)
    if result.stopped:
        return STOPPED
    return 1 if result.failed else 0


def _command(plan: str, path: Path, only: Sequence[str] = (), **options: object) -> str:
    """Return the command line of a study, with the options that the user gave."""
    parts = [program(), "study", quoted(plan), "--output", quoted(path)]
    for name, value in options.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            parts += [f"--{name}", quoted(text)]
    if only:
        parts += ["--only", *map(quoted, only)]
    return " ".join(parts)


def _check_counts(**options: int | None) -> None:
    """Raise a ValueError if an option that counts something is less than 1."""
    for name, value in options.items():
        if value is not None and value < 1:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} must be at least 1, got {value}. See 'elites study --help'")


def _check_engine(
    engine: str,
    jobs: int | None,
    side_by_side: int | None,
    dry_run: bool,
    address: str | None,
    cpus: float,
    gpus: float,
) -> None:
    """Raise a ValueError if an option of `elites study` is wrong or not for this engine."""
    if cpus <= 0:
        raise ValueError(f"--cpus must be greater than 0, got {cpus:g}")
    if gpus < 0:
        raise ValueError(f"--gpus must not be negative, got {gpus:g}")
    if engine == "ray" and jobs is not None:
        raise ValueError("--jobs is for --engine local. On Ray, use --cpus and --gpus")
    if engine == "ray" and (side_by_side is not None or dry_run):
        raise ValueError("--side-by-side, --dry-run and --measure are for --engine local")
    if jobs is not None and side_by_side is not None:
        raise ValueError("give --jobs or --side-by-side, not both")
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

    sources = [_results(path) for path in (study, *join)]
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


def _results(path: Path) -> Study | Folder:
    """Return the study or the folder of recorded tables at a path.

    Raises a ValueError that names the files that were looked for if there is neither.
    """
    from elites.study import recorded
    from elites.study import study as studies

    if (folder := recorded.Folder(path)).exists():
        return folder
    if path.is_dir() and not (studies.Study(path).exists() or RunDirectory(path).exists()):
        raise ValueError(
            f"{path}: neither a study, which has a file {studies.PLAN}, nor a folder of recorded "
            f"tables, which has a file {recorded.PLAN}"
        )
    return studies.existing(path)
