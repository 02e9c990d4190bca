"""Write the page as one file, with all responses that it would request from the server.

An exported page contains the archive at up to about fifty snapshots, all metrics, and recordings of
some cells. Its modules are `data:` addresses in an import map, because a page that is opened from
the disk cannot load other files.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from elites.runs.directory import RunDirectory, write_text
from elites.runs.reducing import spread
from elites.viewer import data
from elites.viewer.api import endpoints, page_files, to_json
from elites.viewer.player import Player

POLICY = (
    "default-src 'none'; script-src data: 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def export(
    run: RunDirectory, path: Path, cells: tuple[int, ...], rollouts: int, seed: int | None
) -> tuple[int, int]:
    """Write the page of a run to one file. Return its number of recordings and its size in bytes.

    `cells` are the cells to record. If there are none, `rollouts` cells are chosen that are spread
    over the archive. If `seed` is given, the page contains only that seed.
    """
    player = Player(run)
    calls = endpoints(run, player)
    responses: dict[str, Any] = {}

    def call(endpoint: str, **query: object) -> Any:
        """Call an endpoint, store its response for the exported page, and return it."""
        values = calls[endpoint]({name: str(value) for name, value in query.items()})
        responses[f"{endpoint}?{urlencode(query)}" if query else endpoint] = values
        return values

    about = call("/api/run")
    if not about["iterations"]:
        raise ValueError(f"{run.path} has no snapshot of its archive yet: nothing to show")
    count = len(call("/api/cells")["centroids"])
    call("/api/metrics", after=0)
    if seed is not None:
        data.seed_index(run, seed)
    seeds = about["seeds"] if seed is None else [seed]
    last = player.newest if player.newest in about["iterations"] else None
    _check_cells(run, cells, count, last)
    iterations = _thinned(about["iterations"])
    if last is not None and last not in iterations:
        iterations = sorted([*iterations, last])
    recorded = []
    for place, number in enumerate(seeds):
        for iteration in iterations:
            call("/api/archive", iteration=iteration, seed=number)
        if last is None:
            continue
        archive = data.archive(run, last, number)
        share = rollouts // len(seeds) + (place < rollouts % len(seeds))
        for cell in _filled(archive, cells) if cells else _spread(archive, share):
            call("/api/watch", iteration=last, seed=number, cell=cell)
            recorded.append(cell)
    for cell in sorted(set(cells) - set(recorded)):  # empty for every seed: the first one raises
        call("/api/watch", iteration=last, seed=seeds[0], cell=cell)
    responses["/api/run"] = {
        **about,
        "all_seeds": about["seeds"],
        "seeds": seeds,
        "iterations": iterations,
        "playable": [] if last is None else [last],
    }
    write_text(path, _page(responses))
    return len(recorded), path.stat().st_size


def _check_cells(
    run: RunDirectory, cells: tuple[int, ...], count: int, iteration: int | None
) -> None:
    """Raise a ValueError if one of the cells cannot be recorded.

    The archive has `count` cells. `iteration` is the iteration to record, or None if the run has no
    policies to record.
    """
    if cells and iteration is None:
        raise ValueError(f"{run.path} keeps no policies of an iteration that has a snapshot")
    for cell in cells:
        if not 0 <= cell < count:
            raise ValueError(f"there is no cell {cell}. Cells are numbered 0 to {count - 1}")


def _filled(archive: dict[str, Any], cells: tuple[int, ...]) -> list[int]:
    """Return those of the given cells that have an elite, sorted and without duplicates."""
    return [cell for cell in sorted(set(cells)) if archive["fitness"][cell] is not None]


def _thinned(iterations: list[int], most: int = 50) -> list[int]:
    """Return at most `most` of the iterations, evenly spread. The last one is always included."""
    if len(iterations) <= most:
        return iterations
    places = np.linspace(0, len(iterations) - 1, most).round().astype(int)
    return [iterations[i] for i in places]


def _spread(archive: dict[str, Any], count: int) -> list[int]:
    """Choose up to `count` cells with a policy that are far apart, and return their numbers."""
    fitness = np.array([np.nan if v is None else v for v in archive["fitness"]], float)
    kept = archive.get("kept", range(len(fitness)))
    fitness[~np.isin(np.arange(len(fitness)), kept)] = np.nan
    return sorted(spread(fitness, np.array(archive["descriptors"], float), count))


def _page(responses: dict[str, Any]) -> str:
    """Return the HTML of an exported page, which contains its style, its modules and its data.

    `responses` maps addresses to the values that the endpoints would return for them.
    """
    files = page_files()
    head = (
        f'<meta http-equiv="content-security-policy" content="{POLICY}">\n'
        f"<style>\n{files['style.css'].decode()}</style>\n"
        f'<script type="importmap">{to_json({"imports": modules(files)})}</script>'
    )
    body = (
        f'<script type="application/json" id="recorded">{to_json(responses)}</script>\n'
        '<script type="module">import "elites/main.js";</script>'
    )
    page = files["page.html"].decode()
    for served, inside in (
        ('<link rel="stylesheet" href="/static/style.css">', head),
        ('<script type="module" src="/static/main.js"></script>', body),
    ):
        before, found, after = page.partition(served)
        assert found, f"page.html has no {served}"
        page = before + inside + after
    return page


def modules(files: dict[str, bytes]) -> dict[str, str]:
    """Return the page's import map: a `data:` address for each name such as `elites/dom.js`.

    `files` maps the paths of the page's files to their contents.
    """
    result = {}
    for name, content in files.items():
        if not name.endswith(".js"):
            continue
        folder = name[: name.rfind("/") + 1]
        text = re.sub(
            r"""(\bfrom\s*|\bimport\s*)(["'])\./""", rf"\1\2elites/{folder}", content.decode()
        )
        packed = base64.b64encode(text.encode()).decode("ascii")
        result[f"elites/{name}"] = f"data:text/javascript;base64,{packed}"
    return result
