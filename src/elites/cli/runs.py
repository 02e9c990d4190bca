"""Commands that read a run: evaluate, calibrate, plot and info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from elites.cli.common import RunPath, shown, trusted_config
from elites.runs import directory as directories
from elites.runs.config import Device
from elites.runs.directory import RunDirectory
from elites.words import columns, counted

_POINTS, _MOST_POINTS = 2500, 1_000_000  # requests of `evaluate --interpolate`


def evaluate(
    run: RunPath,
    checkpoint: Annotated[int | None, shown("ITERATION", "the last one")] = None,
    interpolate: bool = False,
    points: Annotated[int | None, shown("INT", str(_POINTS))] = None,
    device: Device = "auto",
    trust_task: bool = False,
) -> None:
    """Re-evaluate archive and actor of a run: the paper's metrics and a table of all cells.

    Args:
        run: Run directory, or --pretrained MODEL.
        checkpoint: Iteration to evaluate. Its tables are written to a separate directory.
        interpolate: Ask the actor for descriptors all over the space instead, and compare what it
            reaches by the distance to the nearest elite.
        points: With --interpolate, number of descriptors to ask for.
        device: Device to compute on. On the training device, an archive is reproduced to the bit,
            unless its simulator does not repeat episodes.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    directory = directories.existing(run)
    if points is not None and not interpolate:
        raise ValueError("--points is for --interpolate: give both, or neither")
    points = _POINTS if points is None else points
    if not 1 <= points <= _MOST_POINTS:
        raise ValueError(f"--points must be between 1 and {_MOST_POINTS:,}, got {points}")
    config = trusted_config(directory, trust_task)
    from elites.runs import evaluation, job

    job.choose_device(device)
    if interpolate:
        return _interpolate(directory, checkpoint, points)
    folder = evaluation.reevaluate(directory, checkpoint)
    iteration = evaluation.iteration_of(folder)
    print(f"{run}, iteration {iteration}, {counted(config.seeds, 'seed')}")
    print("\n".join(columns(evaluation.table(folder), right=(1, 2, 3))))
    if note := evaluation.note(directory):
        print(note)
    print(f"tables: {folder / 'metrics.csv'}, {folder / 'cells.csv'}")
    if (kept := directories.kept_cells(directory)) is not None:
        print(_about_kept(directory, len(kept), iteration))


def _about_kept(directory: RunDirectory, count: int, iteration: int | None) -> str:
    """Return the note below the results of a reduced run, which has kept `count` elites.

    It names the table of the whole archive, if there is one. `iteration` is that of the results.
    """
    from elites.runs import evaluation

    text = f"These are figures of the {counted(count, 'elite')} that this run has kept"
    whole = evaluation.iteration_of(directory.evaluation)
    if whole is None:
        return text
    when = "from training" if whole == iteration else f"from iteration {whole}"
    return f"{text}. Those of the whole archive, {when}: {directory.evaluation / 'metrics.csv'}"


def _interpolate(directory: RunDirectory, checkpoint: int | None, points: int) -> None:
    """Measure the actor of a run between its elites, and print the results."""
    from elites.runs import figures, interpolating

    found, iteration = interpolating.interpolate(directory, checkpoint, points)
    asked = counted(len(found.requests), "request")
    print(f"{directory.path}, iteration {iteration}, {asked} to each actor")
    print("\n".join(columns(interpolating.table(found), right=(1, 2, 3, 4))))
    print(
        f"One spacing of cells is {found.spacing:.3g}. Errors are medians, and a request is hit if "
        "its error is below one spacing"
    )
    folder = directory.interpolation
    print(f"tables: {folder / 'requests.csv'}, {folder / 'metrics.csv'}")
    for path in figures.draw_interpolation(directory, iteration):
        print(f"figure: {path}  (and .pdf)")


def calibrate(
    run: RunPath,
    rounds: int = 16,
    device: Device = "auto",
    trust_task: bool = False,
) -> None:
    """Search, for each cell, for the request at which the actor of a run reaches the cell.

    The requests are written to the run, where 'elites export --actor' with a descriptor finds them.

    Args:
        run: Run directory, or --pretrained MODEL. Its algorithm must train an actor that takes
            a descriptor.
        rounds: Number of rounds. In each, the actor is rolled out once for every cell.
        device: Device to compute on.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    directory = directories.existing(run)
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    config = trusted_config(directory, trust_task)
    from elites.runs import calibrating, job
    from elites.training.display import Display

    job.choose_device(device)
    display = Display(rounds)
    try:
        found, iteration = calibrating.calibrate(
            directory, rounds, lambda done: display.count(done, "round")
        )
    finally:
        display.close()
    print(f"{run}, iteration {iteration}, {counted(config.seeds, 'seed')}")
    print("\n".join(columns(calibrating.table(found), right=(1, 2))))
    print(
        f"tables: {directory.calibration / 'requests.csv'}, {directory.calibration / 'metrics.csv'}"
    )


def plot(
    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
    ],
    output: Annotated[Path | None, shown("PATH", "comparison")] = None,
    seed: Annotated[int | None, shown("INT", "the one with the highest QD-score")] = None,
) -> None:
    """Draw the figures of a run, or the learning curves of several runs in one figure.

    Args:
        runs: Run directories, or --pretrained MODEL. The figures of a single run go to its
            own directory.
        output: Directory for the figures of several runs.
        seed: Seed whose archive is drawn. For a single run.
    """
    if not runs:
        raise ValueError("name a run directory to draw. See 'elites plot --help'")
    if len(runs) == 1 and output is not None:
        raise ValueError(
            f"--output is for several runs. The figures of one run go to {runs[0] / 'figures'}"
        )
    if len(runs) > 1 and seed is not None:
        raise ValueError("--seed is for one run. The figures of several runs show all seeds")
    found = [directories.existing(run) for run in runs]
    from elites.runs import figures

    if len(found) == 1:
        drawn = figures.draw_run(found[0], seed)
    else:
        drawn = figures.draw_comparison(found, output or Path("comparison"))
    for path in drawn:
        print(f"{path}  (and .pdf)")


def info(run: RunPath) -> None:
    """Show the configuration, progress and results of a run.

    Args:
        run: Run directory, or --pretrained MODEL.
    """
    from elites.runs import info as describing

    print(describing.describe(directories.existing(run)))
