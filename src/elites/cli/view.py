"""Command that shows a run in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from elites import packages
from elites.cli.common import RunPath, shown, trusted_config
from elites.runs import directory as directories
from elites.words import amount, counted

_LOCAL = "127.0.0.1"


def view(
    run: RunPath,
    beside: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")
    ] = None,
    export: Annotated[Path | None, shown("FILE", "none")] = None,
    cells: Annotated[tuple[int, ...], shown("INT ...", "none")] = (),
    rollouts: Annotated[int | None, shown("INT", "24")] = None,
    seed: Annotated[int | None, shown("INT", "all")] = None,
    host: str = _LOCAL,
    port: Annotated[int | None, shown("INT", "the first free one from 8765 on")] = None,
    browser: bool = True,
    trust_task: bool = False,
) -> None:
    """Show one or two runs in the browser: maps of archives, moving robots, learning curves.

    Args:
        run: Run directory, or --pretrained MODEL. The run may still be training.
        beside: A second run of the same task, to show beside the first.
        export: Write the page to this file, which needs no server to open, instead of serving it.
        cells: With --export, cells to record for the page.
        rollouts: With --export, number of cells to record, spread over the archive.
        seed: With --export, the only seed that the page contains.
        host: Address to serve on. On any other than the default, visitors need a token.
        port: Port to serve on.
        browser: Open the page in the browser.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    directory = directories.existing(run)
    others = [] if beside is None else [directories.existing(beside)]
    if export is None:
        if cells or rollouts is not None or seed is not None:
            raise ValueError("--cells, --rollouts and --seed are for --export")
        _check_serving(host, port)
    else:
        if host != _LOCAL or port is not None:
            raise ValueError("--host and --port are not for --export, which serves nothing")
        if beside is not None:
            raise ValueError("--export writes the page of one run. Name one run")
        _check_export(export, cells, rollouts)
    for shown_run in (directory, *others):
        trusted_config(shown_run, trust_task)
    from elites.runs import job, kept

    job.choose_device("cpu")  # a GPU may be training
    if export is not None:
        from elites.viewer import export as exporting

        with kept.keeping():
            count, size = exporting.export(directory, export, cells, rollouts or 24, seed)
        print(f"{export}: {counted(count, 'recording')}, {amount(size)}")
        return
    from elites.viewer import server

    with kept.keeping():
        server.serve([directory, *others], host, port, browser)


def _check_serving(host: str, port: int | None) -> None:
    """Raise a ValueError if the host or port is invalid, or if a needed package is missing."""
    if not host:
        raise ValueError("--host is empty. Use 0.0.0.0 for every address of this machine")
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"--port must be between 0 and 65535, got {port}")
    packages.require("starlette", "uvicorn", extra="viewer", purpose="the page")


def _check_export(path: Path, cells: tuple[int, ...], rollouts: int | None) -> None:
    """Raise a ValueError if the page cannot be exported to `path`, or if options conflict."""
    if rollouts is not None and cells:
        raise ValueError("give --cells or --rollouts, not both")
    if rollouts is not None and rollouts < 1:
        raise ValueError(f"--rollouts must be at least 1, got {rollouts}")
    if path.exists():
        raise ValueError(f"{path} exists already. Choose another name")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent}: no such directory to write {path.name} to")
