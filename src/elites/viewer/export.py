"""The page as one file: the answers it would have got from the server are inside.

An exported page knows the archive at its snapshots, fifty or so at most, all metrics, and the
recordings of some cells. Its modules become `data:` addresses in an import map, since a page from
the disk may not load files beside it.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from elites.runs.directory import RunDirectory, write_text
from elites.viewer import data
from elites.viewer.answers import answers, page_files, to_json
from elites.viewer.replay import Player

POLICY = (
    "default-src 'none'; script-src data: 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def export(
    run: RunDirectory, path: Path, cells: tuple[int, ...], rollouts: int, seed: int | None
) -> tuple[int, int]:
    """Write the page; the number of recordings and the size of the file."""
    player = Player(run)
    about = answers(run, player)
    record: dict[str, Any] = {}

    def ask(question: str, **query: object) -> Any:
        values = about[question]({name: str(value) for name, value in query.items()})
        record[f"{question}?{urlencode(query)}" if query else question] = values
        return values

    known = ask("/api/run")
    if not known["iterations"]:
        raise ValueError(f"{run.path} has no snapshot of its archive yet: nothing to show")
    count = len(ask("/api/cells")["centroids"])
    ask("/api/metrics", after=0)
    if seed is not None:
        data.seed_index(run, seed)
    seeds = known["seeds"] if seed is None else [seed]
    last = player.newest if player.newest in known["iterations"] else None
    shown = _thinned(known["iterations"])
    if last is not None and last not in shown:
        shown = sorted([*shown, last])
    recorded = []
    if cells and last is None:
        raise ValueError(f"{run.path} keeps no policies of an archive that can be shown")
    for cell in cells:
        if not 0 <= cell < count:
            raise ValueError(f"there is no cell {cell}: they are numbered 0 to {count - 1}")
    for place, number in enumerate(seeds):
        for iteration in shown:
            ask("/api/archive", iteration=iteration, seed=number)
        if last is None:
            continue
        archive = data.archive(run, last, number)
        filled = {cell for cell, value in enumerate(archive["fitness"]) if value is not None}
        share = rollouts // len(seeds) + (place < rollouts % len(seeds))
        chosen = _spread(archive, share)
        for cell in sorted(filled & set(cells)) if cells else chosen:
            ask("/api/watch", iteration=last, seed=number, cell=cell)
            recorded.append(cell)
    for cell in sorted(set(cells) - set(recorded)):  # the first of them says what is wrong
        ask("/api/watch", iteration=last, seed=seeds[0], cell=cell)
    record["/api/run"] = {
        **known,
        "all_seeds": known["seeds"],
        "seeds": seeds,
        "iterations": shown,
        "kept": [] if last is None else [last],
    }
    write_text(path, _page(record))
    return len(recorded), path.stat().st_size


def _thinned(iterations: list[int], most: int = 50) -> list[int]:
    """Some of many, spread evenly; the last stays."""
    if len(iterations) <= most:
        return iterations
    places = np.linspace(0, len(iterations) - 1, most).round().astype(int)
    return [iterations[i] for i in places]


def _spread(archive: dict[str, Any], count: int) -> list[int]:
    """Filled cells far from each other: the fittest first, then always the farthest from those."""
    fitness = np.array([np.nan if v is None else v for v in archive["fitness"]], float)
    full = np.flatnonzero(np.isfinite(fitness))
    if not len(full) or not count:
        return []
    places = np.array([archive["descriptors"][cell] for cell in full], float)
    places = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), 1e-12)
    chosen = [int(np.argmax(fitness[full]))]
    distance = np.linalg.norm(places - places[chosen[0]], axis=1)
    while len(chosen) < min(count, len(full)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(places - places[chosen[-1]], axis=1))
    return sorted(int(full[i]) for i in chosen)


def _page(record: dict[str, Any]) -> str:
    files = page_files()
    head = (
        f'<meta http-equiv="content-security-policy" content="{POLICY}">\n'
        f"<style>\n{files['style.css'].decode()}</style>\n"
        f'<script type="importmap">{to_json({"imports": modules(files)})}</script>'
    )
    body = (
        f'<script type="application/json" id="recorded">{to_json(record)}</script>\n'
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
    """Every module by a name that needs no folder, as a `data:` address."""
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
