"""Commands that turn a run into one file and back: pack and unpack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro

from elites.cli.common import RunPath, program, shown, trusted_config
from elites.runs import directory as directories
from elites.words import amount, counted, quoted


def pack(
    run: RunPath,
    output: Annotated[Path | None, shown("FILE", "RUN.zip")] = None,
    training_state: bool = True,
    elites: Annotated[int | None, shown("INT", "all")] = None,
    seed: Annotated[int | None, shown("INT", "the one with the highest QD-score")] = None,
    half_precision: bool = False,
    trust_task: bool = False,
) -> None:
    """Write a run to one zip file, to share it.

    With --elites, the file is a small model that 'elites pretrained FILE' installs.

    Args:
        run: Run directory.
        output: File to write.
        training_state: Include the replay buffer and optimisers, which only resuming needs. With
            --elites, the file never has them.
        elites: Keep the actor and at most this many elites of one seed, spread over the archive.
        seed: With --elites, the seed to keep.
        half_precision: With --elites, round policies to half precision, which halves the file.
            Elites are kept that still reach their cell with 95 % of their fitness.
        trust_task: With --half-precision, run the file of the task or algorithm that the run names,
            and remember its contents as trusted. Needed for runs of other people.
    """
    from elites.runs import downloading, sharing

    directory, named = directories.existing(run), _named(run)
    target = output or named.with_name(f"{named.name}.zip")
    if trust_task and not half_precision:
        raise ValueError("--trust-task is for --half-precision. Without it, packing runs no code")
    if elites is None:
        for name, given in (("--seed", seed is not None), ("--half-precision", half_precision)):
            if given:
                raise ValueError(f"{name} is for --elites")
        size = sharing.pack(directory, target, training_state)
        print(f"{target}: {amount(size)}")
        return
    if half_precision:
        trusted_config(directory, trust_task)  # policies are evaluated again
    kept = sharing.pack_elites(directory, target, elites, seed, half_precision)
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
    print(f"{target}: unpacked. To see what it holds: {program()} info {quoted(target)}")


def _named(path: Path) -> Path:
    """Return a path that ends with a name: paths such as "." and ".." become absolute."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))
