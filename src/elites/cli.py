"""The `elites` command: one thin function for each of its commands.

A command is a typed function whose docstring is its help; tyro turns the signature into options.
To add one, write the function and enter it in `COMMANDS`. What is slow to load (JAX, Matplotlib)
is imported inside the function, so that help and refusals come at once.

Exit codes: 0 done, 1 failed (OSError, RunError), 2 refused (ValueError: bad input), 3 stopped by a
signal and resumable. `main` turns an exception into one line; with ELITES_DEBUG set in the
environment the traceback is shown instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import elites
from elites import tasks as registry
from elites.core import catalogue
from elites.core.catalogue import suggestion
from elites.runs import directory as directories
from elites.runs import session
from elites.runs.config import Config, Device, preset
from elites.runs.words import columns, counted, duration

# -------------------------------------------------------------------------------- the commands


def tasks(
    task: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]", help_behavior_hint="")
    ] = "",
) -> None:
    """List the tasks, or explain one of them.

    Args:
        task: The task to explain; without it, all are listed.
    """
    if task:
        registry.check(task)
    from elites import describe

    if task:
        print(describe.explain_task(registry.make(task)))
    else:
        print(describe.overview([registry.make(name) for name in registry.names()]))


def algorithms(
    algorithm: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]", help_behavior_hint="")
    ] = "",
) -> None:
    """List the algorithms, or explain one of them.

    Args:
        algorithm: The algorithm to explain; without it, all are listed.
    """
    if algorithm:
        catalogue.check(algorithm)
        from elites import describe

        print(describe.explain_algorithm(algorithm))
    else:
        print("\n".join(columns([list(row) for row in catalogue.ALGORITHMS.items()])))


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, in a new run directory."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "paper"
    """Where the values not given come from: paper, demo or smoke."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The run directory; runs/TASK-ALGORITHM if not given."""
    resume: bool = False
    """Go on if that directory holds this very run already, instead of refusing."""

    def __call__(self) -> int:
        return _train(self.config, self.output, self.resume)


def resume(
    run: Annotated[Path, tyro.conf.Positional],
    evaluations: int | None = None,
    checkpoint_every: int | None = None,
    reach_every: int | None = None,
    device: Device | None = None,
) -> int:
    """Go on with a run, from its last complete checkpoint.

    Args:
        run: The run directory.
        evaluations: A new budget of evaluations, to train longer than planned.
        checkpoint_every: Iterations between two checkpoints from now on.
        reach_every: Iterations between two re-evaluations from now on.
        device: Where to compute from now on; results repeat to the bit on the same device only.
    """
    given = {
        "evaluations": evaluations,
        "checkpoint_every": checkpoint_every,
        "reach_every": reach_every,
        "device": device,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return _report(run, session.resume(run, **changes))


def evaluate(
    run: Annotated[Path, tyro.conf.Positional],
    checkpoint: int | None = None,
    device: Device = "auto",
) -> None:
    """Evaluate archive and actor of a run again: the paper's metrics, and a table of all cells.

    Args:
        run: The run directory.
        checkpoint: The iteration whose checkpoint to evaluate, into tables of its own; the last
            one if not given.
        device: Where to compute; an archive repeats to the bit on the device it was made on.
    """
    directory = directories.existing(run)
    directory.config().check()
    target = directory.evaluation
    if checkpoint is not None:
        target = run / f"evaluation_{checkpoint:09d}"
    from elites.runs import checkpoint as checkpoints
    from elites.runs import evaluation, job, saved

    job.choose_device(device)
    with job.memory_errors_explained():
        results, iteration = saved.load_checkpoint(directory, checkpoint)
        target.mkdir(exist_ok=True)  # not after the work is done
        again = results.reevaluate()
    with directories.held_if_free(run) as is_free:
        # The tables of a run's end are its training's: beside it, others lie apart.
        newest = [int(place.name) for place in checkpoints.complete(directory.checkpoints)[-1:]]
        if not is_free or newest != [iteration]:
            target = run / f"evaluation_{iteration:09d}"
            target.mkdir(exist_ok=True)
        evaluation.write(target, results, again, iteration)
    print(f"{run}, iteration {iteration}, {counted(len(results.seeds), 'seed')}")
    print("\n".join(columns(evaluation.table(target), right=(1, 2, 3))))
    print(f"tables: {target / 'metrics.csv'}, {target / 'cells.csv'}")


def plot(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    output: Path = Path("comparison"),
    seed: int | None = None,
) -> None:
    """Draw the figures of a run, or the learning curves of several in one.

    Args:
        runs: Run directories. The figures of a single one go to its own directory.
        output: Where the figures of several runs go.
        seed: The seed whose archive is drawn; the one with the best QD-score if not given.
    """
    if not runs:
        raise ValueError("name a run directory to draw. See 'elites plot --help'")
    found = [directories.existing(run) for run in runs]
    from elites.runs import figures

    if len(found) == 1:
        drawn = figures.draw_run(found[0], seed)
    else:
        drawn = figures.draw_comparison(found, output)
    for path in drawn:
        print(f"{path}  (and .pdf)")


def export(
    run: Annotated[Path, tyro.conf.Positional],
    output: Annotated[Path, tyro.conf.Positional],
    actor: bool = False,
    cell: int | None = None,
    descriptor: tuple[float, ...] = (),
    seed: int | None = None,
    checkpoint: int | None = None,
) -> None:
    """Write one policy of a run as ONNX or safetensors, and check the file against JAX.

    Args:
        run: The run directory.
        output: The file to write; its ending, .onnx or .safetensors, chooses the format.
        actor: Export the actor; if conditioned, it takes descriptors in task units.
        cell: Export the elite of this cell.
        descriptor: Export the elite nearest to this descriptor, in task units.
        seed: The seed to take it from; the one with the best QD-score if not given.
        checkpoint: The iteration whose checkpoint to read; the last one if not given.
    """
    directory = directories.existing(run)
    needs = {".onnx": ("onnx", "onnxruntime"), ".safetensors": ("safetensors",)}
    if output.suffix not in needs:
        raise ValueError(f"the file must end in .onnx or .safetensors, got '{output}'")
    if sum([actor, cell is not None, bool(descriptor)]) > 1:
        raise ValueError("choose one of --actor, --cell and --descriptor")
    if output.exists():
        raise ValueError(f"{output} exists already. Choose another name")
    for package in needs[output.suffix]:
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"exporting {output.suffix} needs the package {package}: "
                "pip install 'elites[export]'"
            )
    directory.config().check()
    from elites.runs import export as exporting
    from elites.runs import saved

    results, iteration = saved.load_checkpoint(directory, checkpoint)
    policy, information = exporting.choose(results, actor, cell, descriptor, seed)
    error = exporting.export(policy, output, {**information, "iteration": iteration})
    print(f"{output}: {information['what']}; differs from JAX by {error:.1g} on 1,000 observations")


def info(run: Annotated[Path, tyro.conf.Positional]) -> None:
    """Show what a run is and how far it got.

    Args:
        run: The run directory.
    """
    from elites.runs import info as describing

    print(describing.describe(directories.existing(run)))


def pack(
    run: Annotated[Path, tyro.conf.Positional],
    output: Path | None = None,
    training_state: bool = True,
) -> None:
    """Put a run into one zip file, to hand on.

    Args:
        run: The run directory.
        output: The file to write; RUN.zip if not given.
        training_state: Include what resuming needs: replay buffer and optimisers, most of the size.
    """
    from elites.runs import sharing

    target = output or run.with_name(f"{run.name}.zip")
    size = sharing.pack(directories.existing(run), target, training_state)
    print(f"{target}: {size / 1e6:.1f} MB")


def unpack(
    file: Annotated[Path, tyro.conf.Positional],
    output: Path | None = None,
    max_size: float = 1.0,
) -> None:
    """Make a run directory from a zip file written by 'elites pack'.

    Args:
        file: The zip file.
        output: The directory to make; the file's name without .zip if not given.
        max_size: The largest size to unpack to, in GB, for a file that is much smaller itself.
    """
    from elites.runs import sharing

    target = output or file.with_suffix("")
    sharing.unpack(file, target, max_size)
    print(f"{target}: see 'elites info {target}'")


def study(
    plan: Annotated[str, tyro.conf.Positional],
    output: Path | None = None,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
) -> int:
    """Run a plan: tasks x algorithms x seeds; what is done already is never repeated.

    Args:
        plan: A built-in plan (paper, ablations, smoke) or a TOML file.
        output: The directory of the study; studies/PLAN if not given.
        jobs: Runs at a time on this machine; one for each GPU if not given, one without.
        engine: Where to compute: processes of this machine, or a Ray cluster.
        address: Of the Ray cluster; without it, one is started on this machine.
        cpus: What each run asks of the Ray cluster.
        gpus: The same, of GPUs.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}. See 'elites study --help'")
    if cpus <= 0 or gpus < 0:
        raise ValueError(f"--cpus must be above 0 and --gpus not below, got {cpus:g} and {gpus:g}")
    if engine == "ray" and jobs is not None:
        raise ValueError("--jobs is for --engine local; on Ray, --cpus and --gpus decide")
    if engine == "local" and (address is not None or cpus != 1 or gpus != 0):
        raise ValueError("--address, --cpus and --gpus are for --engine ray")
    if engine == "ray" and importlib.util.find_spec("ray") is None:
        raise ValueError("--engine ray needs the package ray: pip install 'elites[ray]'")
    from elites.study import plan as plans

    chosen = plans.read(plan)
    path = output or Path("studies") / Path(plan).stem
    # What this process looks at needs no GPU, and must not hold one.
    import jax

    from elites.study import engines, scheduler
    from elites.study import study as studies
    from elites.study.table import Live

    jax.config.update("jax_platforms", "cpu")
    plans.refuse_small_budget(chosen, plan)
    with directories.locked(path):
        opened = studies.open_study(path, chosen)
        if engine == "ray":
            from elites.study.on_ray import RayEngine

            where = RayEngine(address, cpus, gpus)
        else:
            where = engines.LocalEngine(jobs)
        result = scheduler.work_off(opened, where, Live(opened))
    again = f"{_program()} study {shlex.quote(plan)} --output {shlex.quote(str(path))}"
    if result.stopped:
        print(f"stopped with {result.done} runs done; everything is saved. Go on with: {again}")
        return STOPPED
    print(f"{counted(result.done, 'run')} done: {path}. See '{_program()} report {path}'")
    for item in result.failed:
        print(f"failed: {item.name}: {item.error}", file=sys.stderr)
    return 1 if result.failed else 0


def report(
    study: Annotated[Path, tyro.conf.Positional],
    add: tuple[Path, ...] = (),
) -> None:
    """Write a page about a study: curves, tables, tests; finished or not.

    Args:
        study: The directory of the study.
        add: CSV files with results of other programs to lay beside (columns evaluations, metric,
            value; and task, label, seed where there are several); kept with the study.
    """
    from elites.study import study as studies

    found = studies.existing(study)
    if importlib.util.find_spec("scipy") is None:
        raise ValueError("a report needs the package scipy: pip install 'elites[study]'")
    from elites.study import collect
    from elites.study import report as reporting

    tasks = [registry.short_name(item.task) for item in found.items()]
    for path in add:
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        theirs, text = collect.read_foreign(path, tasks), path.read_text(encoding="utf-8")
        kept = found.imported / path.name
        if kept.exists():
            if kept.read_text(encoding="utf-8") != text:
                raise ValueError(f"{kept} is there already, with other contents. Rename {path}")
            continue
        labels = {group.label for group in collect.collect(found).groups}
        collect.refuse_taken_labels(path, theirs, labels)
        found.imported.mkdir(exist_ok=True)
        directories.write_text(kept, text)
    print(reporting.write(found))


def view(
    run: Annotated[Path, tyro.conf.Positional],
    export: Path | None = None,
    cells: tuple[int, ...] = (),
    rollouts: int | None = None,
    seed: int | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    browser: bool = True,
) -> None:
    """Walk through the archive of a run in the browser: its map, its robots, its curves.

    Args:
        run: The run directory; it may still be training.
        export: Write the page to this file instead, whole and readable without a server.
        cells: With --export, the cells whose recordings go along.
        rollouts: With --export and no --cells, how many recordings; 24 if not given, of cells far
            from each other.
        seed: With --export, only this seed.
        host: The address to serve on. Any but this machine's own asks visitors for a token.
        port: The port to serve on; the first free one from 8765 on if not given.
        browser: Open the browser.
    """
    directory = directories.existing(run)
    if export is None and (cells or seed is not None or rollouts is not None):
        raise ValueError("--cells, --rollouts and --seed are for --export")
    if export is not None and (host != "127.0.0.1" or port is not None):
        raise ValueError("--export serves nothing: leave out --host and --port")
    if rollouts is not None and cells:
        raise ValueError("--cells names the recordings, --rollouts lets them be chosen: give one")
    if rollouts is not None and rollouts < 1:
        raise ValueError(f"--rollouts must be at least 1, got {rollouts}")
    if not host:
        raise ValueError("--host is empty; 0.0.0.0 stands for every address of this machine")
    if export is not None and export.exists():
        raise ValueError(f"{export} exists already. Choose another name")
    if export is not None and not export.parent.is_dir():
        raise ValueError(f"{export.parent}: no such directory to write {export.name} to")
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"--port must lie between 0 and 65535, got {port}")
    for package in ("starlette", "uvicorn") if export is None else ():
        if importlib.util.find_spec(package) is None:
            raise ValueError(f"the page needs the package {package}: pip install 'elites[viewer]'")
    directory.config().check()
    # The GPU, if there is one, is for training.
    import jax

    jax.config.update("jax_platforms", "cpu")
    if export is not None:
        from elites.viewer import export as exporting

        count, size = exporting.export(directory, export, cells, rollouts or 24, seed)
        print(f"{export}: {counted(count, 'recording')}, {size / 1e6:.1f} MB")
        return
    from elites.viewer import server

    server.serve(directory, host, port, browser)


def demo(output: Path = Path("demo")) -> int:
    """Train DCG-MAP-Elites on a walking robot in a few minutes, and draw what came of it.

    Args:
        output: The run directory; a demo that was interrupted goes on.
    """
    code = _train(preset("demo", "walker_uni"), output, resume=True)
    program = _program()
    if code == 0:
        print(f"""
pictures   {output / "figures" / "archive.png"}   what lives in the archive
           {output / "figures" / "reach.png"}     one policy, asked for each of these behaviours
           {output / "figures" / "curves.png"}    how it came to this
next       {program} view {output}    walk through it in the browser
           {program} info {output}
           {program} resume {output} --evaluations 20000
           {program} export {output} walker.onnx --descriptor 0.8 0.2
           {program} train ant_omni --preset paper    on a GPU: the paper's own experiment""")
    return code


COMMANDS: dict[str, Callable[..., Any]] = {
    "train": Train,
    "resume": resume,
    "evaluate": evaluate,
    "plot": plot,
    "export": export,
    "view": view,
    "info": info,
    "pack": pack,
    "unpack": unpack,
    "study": study,
    "report": report,
    "tasks": tasks,
    "algorithms": algorithms,
    "demo": demo,
}

STOPPED = 3  # exit code of a run that a signal stopped and that can be resumed


def _train(config: Config, output: Path | None, resume: bool) -> int:
    config.check()
    name = registry.short_name(config.task)
    path = output or Path("runs") / f"{name}-{config.algorithm}"
    return _report(path, session.start(path, config, go_on=resume))


def _report(path: Path, outcome: session.Outcome) -> int:
    """Print how training ended and return the exit code."""
    again = f"{_program()} resume {shlex.quote(str(path))}"
    if outcome.interrupted:
        print(
            f"stopped after iteration {outcome.iteration} of {outcome.total}; everything is saved. "
            f"Go on with: {again}"
        )
        return STOPPED
    if outcome.already:
        print(
            f"{path} was finished already, after {outcome.iteration} iterations. Train longer "
            f"with: {again} --evaluations N"
        )
        return 0
    from elites.runs import evaluation

    directory = directories.RunDirectory(path)
    print(f"finished after {outcome.iteration} iterations and {duration(outcome.seconds)}: {path}")
    print("\n".join(columns(evaluation.table(directory.evaluation), right=(1, 2, 3))))
    return 0


def _program() -> str:
    """How the user calls the command, which need not be on the PATH."""
    if shutil.which("elites"):
        return "elites"
    return sys.argv[0] if sys.argv[0].endswith("elites") else "python -m elites"


# ---------------------------------------------------------------------------------- running them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: the exit code."""
    try:
        return _parse(sys.argv[1:] if arguments is None else arguments)() or 0
    except BrokenPipeError:
        # The reader, a pager or `head`, has seen enough; the interpreter must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        print("elites: interrupted", file=sys.stderr)
        return 128 + 2
    except (ValueError, OSError, directories.RunError) as error:
        if os.environ.get("ELITES_DEBUG"):
            raise
        print("elites:", _one_line(error), file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).splitlines())


def _parse(arguments: Sequence[str]) -> Callable[[], int | None]:
    """The call that the command line asks for. Only the chosen command is looked at."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        return functools.partial(print, _help())
    if name == "--version":
        return functools.partial(print, "elites", elites.__version__)
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        known = ["--help", "--version"] if kind == "option" else list(COMMANDS)
        raise ValueError(
            f"unknown {kind} '{name}'.{suggestion(name, known)} Known {kind}s: {', '.join(known)}"
        )
    if COMMANDS[name] is Train:
        return _parse_options(name, Train, rest, default=_train_defaults(rest))
    return _parse_options(name, _postponed(COMMANDS[name]), rest)


def _postponed(command: Callable[..., int | None]) -> Callable[..., Callable[[], int | None]]:
    """tyro would call the command while it parses, and take its errors for its own."""

    @functools.wraps(command)
    def call(*args, **kwargs):
        return functools.partial(command, *args, **kwargs)

    return call


def _train_defaults(arguments: Sequence[str]) -> Train:
    """What `train` takes for values that are not given: those of the preset that is asked for."""
    chosen = Train.preset
    for i, argument in enumerate(arguments):
        if argument == "--preset":
            chosen = arguments[i + 1] if i + 1 < len(arguments) else chosen
        elif argument.startswith("--preset="):
            chosen = argument.partition("=")[2]
    config = preset(chosen, task=tyro.MISSING)
    return Train(config, preset=chosen)


def _parse_options(name: str, command: Any, arguments: Sequence[str], default: Any = None):
    # A default of None would mean that nothing need be given.
    given = {} if default is None else {"default": default}
    parse = functools.partial(
        tyro.cli, command, prog=f"elites {name}", return_unknown_args=True, **given
    )
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            call, unknown = parse(args=arguments)
    except SystemExit as stop:
        if not stop.code:
            raise  # help was asked for, and has been printed
        raise ValueError(_with_option(_unbox(complaint.getvalue()), name)) from None
    except ValueError as error:  # a value that its record refuses
        raise ValueError(_with_option(f"{error}.", name)) from None
    if not unknown:
        return call
    if not unknown[0].startswith("-"):
        raise ValueError(f"unexpected argument '{unknown[0]}'. See 'elites {name} --help'")
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        parse(args=["--help"])
    options = re.findall(r"--[a-z][\w.-]*", page.getvalue())
    flag, _, value = unknown[0].partition("=")
    if name == "train" and flag == "--seed":
        number = value or (unknown[1] if unknown[1:] and unknown[1].isdigit() else "N")
        raise ValueError(
            f"unknown option '--seed'. '--first-seed {number}' trains the seed of that number; "
            "'--seeds' is how many seeds to train. See 'elites train --help'"
        )
    raise ValueError(
        f"unknown option '{flag}'.{suggestion(flag, options)} See 'elites {name} --help'"
    )


def _with_option(text: str, command: str) -> str:
    """A complaint with the field it begins with spelt as an option, and where to read more."""
    text = re.sub(
        r"^(?:Error parsing config(?P<hp>\.hp)?: )?(?P<field>[a-z]\w*) must",
        lambda m: f"--{'hp.' if m['hp'] else ''}{m['field'].replace('_', '-')} must",
        text,
    )
    # What Python says of a text that is no number, alone or after other types were tried.
    kind = re.search(r"invalid literal for int|could not convert string to float", text)
    option = re.match(r"Error parsing (--\S+): ", text)
    given = re.search(r"'([^']*)'[^']*$", text)
    if kind and option and given:
        wanted = "a whole number" if "int" in kind[0] else "a number"
        text = f"{option[1]} must be {wanted}, got '{given[1]}'."
    elif option and (several := re.search(r"Could not find valid parse for .*\[(.*)\]", text)):
        text = f"{option[1]} cannot be made of {several[1].replace(',', '')}."
    return f"{text} See 'elites {command} --help'"


def _unbox(message: str) -> str:
    """The first section of one of tyro's framed messages, as one sentence."""
    inside = [line.strip(" │") for line in message.splitlines() if line.startswith("│")]
    section = itertools.takewhile(lambda line: not line.startswith("─"), inside)
    text = " ".join(section) or "the options could not be understood"
    return text if text.endswith(".") else f"{text}."


def _help() -> str:
    lines = [
        "usage: elites COMMAND [OPTIONS]",
        "",
        "Quality-diversity reinforcement learning.",
        "",
        "commands:",
        *columns([[f"  {name}", _first_line(command)] for name, command in COMMANDS.items()]),
        "",
        "options:",
        "  -h, --help  show this message; after a command, its options",
        "  --version   show the version",
    ]
    return "\n".join(lines)


def _first_line(command: Callable[..., Any]) -> str:
    return (command.__doc__ or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
