"""Commands for existing runs: evaluate, calibrate, plot, export, info, pack and unpack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import tyro

from elites.cli.common import RunPath, program, shown, trusted_config
from elites.runs import directory as directories
from elites.runs.config import Device, seed_index
from elites.runs.directory import RunDirectory
from elites.words import amount, columns, counted, quoted


def evaluate(
    run: RunPath,
    checkpoint: Annotated[int | None, shown("ITERATION", "the last one")] = None,
    interpolate: bool = False,
    points: int = 2500,
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
    if points < 1:
        raise ValueError(f"--points must be at least 1, got {points}")
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
    kept = directories.kept_cells(directory)
    if kept is not None and folder != directory.evaluation:
        print(
            f"These are figures of the {counted(len(kept), 'elite')} that this run has kept. Those "
            f"of the whole archive, from training: {directory.evaluation / 'metrics.csv'}"
        )


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


def export(
    run: RunPath,
    output: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    archive: Annotated[str, shown("FORMAT", "none")] = "",
    switcher: bool = False,
    actor: bool = False,
    cell: Annotated[int | None, shown("INT", "none")] = None,
    descriptor: Annotated[tuple[float, ...], shown("FLOAT ...", "none")] = (),
    seed: Annotated[int | None, shown("INT", "the one with the highest QD-score")] = None,
    checkpoint: Annotated[int | None, shown("ITERATION", "the last one")] = None,
    trust_task: bool = False,
) -> None:
    """Write a policy as ONNX, safetensors or C, a switcher, or the whole archive.

    Without --switcher, --actor, --cell and --descriptor, the elite with the highest fitness is
    written.

    Args:
        run: Run directory, or --pretrained MODEL.
        output: File to write. The suffix of a policy's file, .onnx, .safetensors, .c or .h,
            chooses its format.
        archive: Export the whole archive: csv for a table of the elites without policies, pyribs
            for a CSV file of pyribs with them, qdax for a folder with the arrays of QDax.
        switcher: Export all elites and the actor in one .safetensors file, with what each is known
            to reach. With --descriptor, export the policy that is known to come nearest to it.
        actor: Export the actor. A conditioned actor takes descriptors in task units as an input.
        cell: Export the elite of this cell.
        descriptor: Export the elite nearest to this descriptor, in task units. With --actor,
            export the actor for this descriptor alone, a policy that takes observations only.
        seed: Seed to take the policy from.
        checkpoint: Iteration of the checkpoint to read.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    directory = directories.existing(run)
    _refuse_two_choices(archive, switcher, actor, cell, descriptor)
    if archive:
        return _export_archive(directory, output, archive, seed, checkpoint, trust_task)
    from elites.runs import formats

    formats.check(output)
    if switcher and not descriptor and output.suffix != ".safetensors":
        raise ValueError(
            f"a switcher is a .safetensors file, got '{output}'. With --descriptor, it writes the "
            "policy that it chooses, in any format"
        )
    trusted_config(directory, trust_task)
    from elites.runs import export as exporting
    from elites.runs import job, saved

    job.choose_device("cpu")  # a GPU may be training
    results, iteration = saved.load_checkpoint(directory, checkpoint)
    if switcher and not descriptor:
        return _export_switcher(results, iteration, output, seed)
    if switcher:
        policy, information = exporting.switched(results, descriptor, seed)
    elif actor and descriptor:
        policy, information = exporting.actor_at(directory, results, iteration, descriptor, seed)
    else:
        policy, information = exporting.choose(results, actor, cell, descriptor, seed)
    error = exporting.export(policy, output, {**information, "iteration": iteration})
    compared = (
        "not compared with JAX, because there is no C compiler (cc) here"
        if error is None
        else f"differs from JAX by {error:.1g} on 1,000 observations"
    )
    print(f"{output}: {information['what']}; {compared}")


def _refuse_two_choices(
    archive: str, switcher: bool, actor: bool, cell: int | None, descriptor: tuple[float, ...]
) -> None:
    """Raise a ValueError if the options of `export` name more than one thing to export."""
    if cell is not None and (actor or descriptor):
        raise ValueError("--cell names an elite: give it without --actor and --descriptor")
    if switcher and (actor or cell is not None):
        raise ValueError("--switcher chooses the policy: give it without --actor and --cell")
    if archive and (switcher or actor or descriptor or cell is not None):
        raise ValueError(
            "--archive exports all elites: give it without --switcher, --actor, --cell and "
            "--descriptor"
        )


def _export_switcher(results: Any, iteration: int, output: Path, seed: int | None) -> None:
    """Write the switcher of one seed of a run, and print what was written."""
    from elites.runs import switching

    index = results.best if seed is None else seed_index(results.seeds, seed)
    made = results.switcher(index)
    what = f"a {made}, of seed {results.seeds[index]}, iteration {iteration}"
    error = switching.write(made, output, {
        "task": results.algorithm.problem.name,
        "algorithm": results.algorithm.name,
        "seed": results.seeds[index],
        "iteration": iteration,
        "what": what,
    })  # fmt: skip
    print(f"{output}: {what}; differs from JAX by {error:.1g} on 1,000 observations")


def _export_archive(
    directory: RunDirectory,
    output: Path,
    form: str,
    seed: int | None,
    checkpoint: int | None,
    trust_task: bool,
) -> None:
    """Write the archive of one seed of a run for another program, and print what was written.

    If `seed` is None, it is the seed with the highest QD-score.
    """
    from elites.interop import writing

    writing.check(output, form)
    trusted_config(directory, trust_task)
    from elites.runs import job, saved

    job.choose_device("cpu")  # a GPU may be training
    results, iteration = saved.load_checkpoint(directory, checkpoint)
    index = results.best if seed is None else seed_index(results.seeds, seed)
    elites = results.seed(index).archive
    written = writing.write(elites.data(), output, form)
    names = ", ".join(map(str, written))
    what = f"{counted(len(elites), 'elite')} of seed {results.seeds[index]}, iteration {iteration}"
    print(f"{names}: {what}")


def info(run: RunPath) -> None:
    """Show the configuration, progress and results of a run.

    Args:
        run: Run directory, or --pretrained MODEL.
    """
    from elites.runs import info as describing

    print(describing.describe(directories.existing(run)))


def pack(
    run: RunPath,
    output: Annotated[Path | None, shown("FILE", "RUN.zip")] = None,
    training_state: bool = True,
    elites: Annotated[int | None, shown("INT", "all")] = None,
    seed: Annotated[int | None, shown("INT", "the one with the highest QD-score")] = None,
) -> None:
    """Write a run to one zip file, to share it.

    With --elites, the file is a small model that 'elites pretrained FILE' installs.

    Args:
        run: Run directory.
        output: File to write.
        training_state: Include the replay buffer and optimisers, which only resuming needs.
        elites: Keep the actor and at most this many elites of one seed, spread over the archive.
        seed: With --elites, the seed to keep.
    """
    from elites.runs import downloading, sharing

    directory, named = directories.existing(run), _named(run)
    target = output or named.with_name(f"{named.name}.zip")
    if elites is None:
        if seed is not None:
            raise ValueError("--seed is for --elites")
        size = sharing.pack(directory, target, training_state)
        print(f"{target}: {amount(size)}")
        return
    kept = sharing.pack_elites(directory, target, elites, seed)
    what = f"{counted(len(kept.cells), 'elite')} of seed {kept.seed}, iteration {kept.iteration}"
    print(f"{target}: {what}, {amount(target.stat().st_size)}")
    print(f"sha256={downloading.checksum(target)}")


def unpack(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    output: Annotated[Path | None, shown("PATH", "the file's name without .zip")] = None,
    max_size: float = directories.MAX_UNPACKED,
) -> None:
    """Create a run directory from a zip file written by 'elites pack'.

    Args:
        file: The zip file.
        output: Directory to create.
        max_size: Largest unpacked size in GB. A file may always unpack to 20 times its size.
    """
    from elites.runs import sharing

    target = output or _named(file).with_suffix("")
    sharing.unpack(file, target, max_size)
    print(f"{target}: see '{program()} info {quoted(target)}'")


def _named(path: Path) -> Path:
    """Return a path that ends with a name: paths such as "." and ".." become absolute."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))
