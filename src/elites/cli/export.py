"""Command that writes policies and archives of a run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from elites.cli.common import (
    RunPath,
    distance,
    shown,
    trusted_config,
    warn_other_cell,
    warn_outside_bounds,
)
from elites.runs import directory as directories
from elites.runs.config import seed_index
from elites.runs.directory import RunDirectory
from elites.words import counted


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
    directories.require_policy(directory, cell)
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
    policy, information = _choose(
        directory, results, iteration, switcher, actor, cell, descriptor, seed
    )
    warn_outside_bounds(results.algorithm.problem, descriptor)
    away = ""
    if descriptor and not actor and not switcher:  # the policy is the nearest elite
        result = results.seed(results.best if seed is None else seed_index(results.seeds, seed))
        warn_other_cell(directory, result, policy, descriptor)
        away = f", at a distance of {distance(directory, result, policy, descriptor)}"
    error = exporting.export(policy, output, {**information, "iteration": iteration})
    compared = (
        "not compared with JAX, because there is no C compiler (cc) here"
        if error is None
        else f"differs from JAX by {error:.1g} on 1,000 observations"
    )
    print(f"{output}: {information['what']}{away}; {compared}")


def _choose(
    directory: RunDirectory,
    results: Any,
    iteration: int,
    switcher: bool,
    actor: bool,
    cell: int | None,
    descriptor: tuple[float, ...],
    seed: int | None,
) -> tuple[Any, dict[str, Any]]:
    """Return the policy that the options of `export` name, and information about it."""
    from elites.runs import export as exporting

    if switcher:
        return exporting.switched(results, descriptor, seed)
    if actor and descriptor:
        return exporting.actor_at(directory, results, iteration, descriptor, seed)
    return exporting.choose(results, actor, cell, descriptor, seed)


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
