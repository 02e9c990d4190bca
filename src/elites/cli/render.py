"""Command that films the behaviours of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from elites.cli.common import RunPath, shown, trusted_config, warn_other_cell, warn_outside_bounds
from elites.runs import directory as directories
from elites.runs.config import seed_index
from elites.words import amount, counted

if TYPE_CHECKING:
    from elites.runs.directory import RunDirectory
    from elites.tasks.task import Task
    from elites.training import Elite, SeedResult

_MOST = 400  # robots of a gallery
_SIDES = 16, 4096  # least and most pixels of a side


def render(
    run: RunPath,
    output: Annotated[Path | None, shown("FILE", "a GIF in the figures of the run")] = None,
    cell: Annotated[int | None, shown("INT", "none")] = None,
    descriptor: Annotated[tuple[float, ...], shown("FLOAT ...", "none")] = (),
    actor: bool = False,
    beside: bool = False,
    gallery: Annotated[int | None, shown("INT", "none")] = None,
    layout: Literal["auto", "together", "panels"] = "auto",
    size: Annotated[tuple[int, ...], shown("WIDTH HEIGHT", "depends on the film")] = (),
    speed: float = 1.0,
    seed: Annotated[int | None, shown("INT", "the one with the highest QD-score")] = None,
    checkpoint: Annotated[int | None, shown("ITERATION", "the last one")] = None,
    trust_task: bool = False,
) -> None:
    """Film behaviours of a run as a GIF or MP4 file. Needs neither a display nor a browser.

    By default, film the elite that ends farthest from the origin. If the descriptor is not a place,
    film the fittest elite.

    Args:
        run: Run directory, or --pretrained MODEL.
        output: File to write. Its suffix, .gif or .mp4, chooses the format.
        cell: Film the elite of this cell.
        descriptor: Film the elite nearest to this descriptor, in task units.
        actor: Film the actor instead, asked for the descriptor or for that of the cell's elite.
        beside: Film the elite and the actor that imitates it side by side.
        gallery: Film this number of behaviours, spread over the archive, at once.
        layout: Show a gallery in one world (together) or each robot in its own panel. By default,
            robots are in one world if their descriptor is the place where they end.
        size: Size of the film in pixels, of each panel if there are several.
        speed: Speed of the film; 2 is twice as fast as the robot.
        seed: Seed to take policies from.
        checkpoint: Iteration of the checkpoint to read.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    directory = directories.existing(run)
    directories.require_policy(directory, cell)
    _check(cell, descriptor, actor, beside, gallery, layout, size, speed)
    target = output or _in_figures(directory, _name(cell, descriptor, actor, beside, gallery))
    from elites.rendering import helpers, movie

    movie.check(target, replace=output is None)
    trusted_config(directory, trust_task)
    with helpers.Team(None if movie.is_gif(target) else 0) as team:  # started before JAX
        result, task = _loaded(directory, seed, checkpoint)
        from elites.runs import kept
        from elites.viewer import filming

        with kept.keeping():
            elites = _elites(task, result, cell, descriptor, gallery)
            casting = filming.cast(result, elites, descriptor, not actor, actor or beside)
            film = filming.of(task, casting, layout, (size[0], size[1]) if size else None, speed)
        written = movie.write(target, film, team)
    print(f"{target}: {counted(len(film.frames), 'picture')}, {amount(written)}")
    warn_outside_bounds(task, descriptor)
    warn_other_cell(directory, result, elites[0], () if actor else descriptor, not beside)
    for line in film.summary if gallery is None else _fewer(directory, gallery, len(elites)):
        print(line)


def _in_figures(directory: RunDirectory, name: str) -> Path:
    """Return the path of a GIF in the figures of a run, whose folder is created."""
    directory.figures.mkdir(exist_ok=True)
    return directory.figures / f"{name}.gif"


def _loaded(
    directory: RunDirectory, seed: int | None, checkpoint: int | None
) -> tuple[SeedResult, Task]:
    """Return the results of one seed of a run, and its task. Raises a ValueError without bodies."""
    from elites.runs import job, kept, saved
    from elites.viewer import filming

    job.choose_device("cpu")  # a GPU may be training
    with kept.keeping():
        reader = saved.Reader(directory)
        filming.drawable(reader.task)
        results, _ = reader.load(checkpoint)
    index = results.best if seed is None else seed_index(results.seeds, seed)
    return results.seed(index), reader.task


def _fewer(directory: RunDirectory, gallery: int, filmed: int) -> list[str]:
    """Return a note if a gallery has fewer elites than were asked for, otherwise an empty list.

    `filmed` is the number of elites in the film.
    """
    if gallery <= filmed:
        return []
    have = "The archive has" if directories.kept_cells(directory) is None else "This run has kept"
    return [f"{have} {counted(filmed, 'elite')}. The film shows all of them"]


def _elites(task: Task, result: SeedResult, cell, descriptor, gallery) -> list[Elite]:
    """Return the elites to film: the one that the options choose, or those of a gallery."""
    from elites.runs import export
    from elites.viewer import filming

    if gallery is not None:
        return filming.spread(result.archive, gallery)
    if cell is None and not descriptor:
        return [filming.default_elite(task, result.archive)]
    return [export.choose_elite(result, cell, descriptor)]


def _check(cell, descriptor, actor, beside, gallery, layout, size, speed) -> None:
    """Raise a ValueError if options conflict or a value is out of range."""
    if cell is not None and descriptor:
        raise ValueError("give --cell or --descriptor, not both")
    if actor and beside:
        raise ValueError("--beside films the actor too: give it without --actor")
    if gallery is not None and (cell is not None or descriptor or beside):
        raise ValueError(
            "--gallery chooses the behaviours itself: give it without --cell, --descriptor and "
            "--beside"
        )
    if gallery is not None and not 2 <= gallery <= _MOST:
        raise ValueError(f"--gallery must be between 2 and {_MOST}, got {gallery}")
    if layout != "auto" and gallery is None:
        raise ValueError("--layout is for --gallery")
    if descriptor and not all(map(math.isfinite, descriptor)):
        given = " ".join(map(str, descriptor))
        raise ValueError(f"--descriptor must be finite numbers, got {given}")
    if len(size) not in (0, 2):
        given = " ".join(map(str, size))
        raise ValueError(f"--size takes a width and a height in pixels, got {given}")
    if size and not all(_SIDES[0] <= side <= _SIDES[1] for side in size):
        raise ValueError(
            f"--size must be between {_SIDES[0]} and {_SIDES[1]} pixels, got {size[0]} {size[1]}"
        )
    if not (math.isfinite(speed) and 0.05 <= speed <= 20):
        raise ValueError(f"--speed must be between 0.05 and 20, got {speed}")


def _name(cell, descriptor, actor, beside, gallery) -> str:
    """Return the name of a film, without its suffix."""
    who = "actor" if actor else "elite_and_actor" if beside else "elite"
    if gallery is not None:
        return f"gallery_of_{'actors' if actor else 'elites'}"
    if cell is not None:
        return f"{who}_{cell}"
    return "_".join([who, *(f"{value:g}" for value in descriptor)]) if descriptor else who
