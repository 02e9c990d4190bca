"""Endpoints of the page. The server calls them on request, an export in advance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import resources
from typing import Any

from elites.runs.directory import RunDirectory, RunError
from elites.viewer import data
from elites.viewer.player import Player

Query = dict[str, str]


def endpoints(run: RunDirectory, player: Player) -> dict[str, Callable[[Query], Any]]:
    """Return the endpoints of a run's page: functions by path, such as `/api/archive`.

    Each function maps a query to values that JSON can represent.
    """

    def describe(query: Query):
        """Return the description of the run, with the shapes of its robot as `scene`."""
        return {**data.describe(run), "scene": player.scene()}

    def archive(query: Query):
        """Return the archive of the queried seed at the queried iteration."""
        return data.archive(run, read_integer(query, "iteration"), read_integer(query, "seed"))

    def metrics(query: Query):
        """Return the metrics of the iterations after the queried one."""
        return data.metrics(run, read_integer(query, "after"))

    def watch(query: Query):
        """Return recordings of the elite of the queried cell and of the actor."""
        return player.watch(*snapshot(query), read_integer(query, "cell"), *sender(query))

    def request(query: Query):
        """Return recordings of the actor with the queried descriptor and of the nearest elite."""
        return player.request(*snapshot(query), read_descriptor(query), *sender(query))

    def snapshot(query: Query) -> tuple[int, int]:
        """Return the iteration and the seed of a query."""
        return read_integer(query, "iteration"), read_integer(query, "seed")

    def sender(query: Query) -> tuple[str, int]:
        """Return the id of the page that sends a query, and the number of its request."""
        return query.get("page", "")[:40], read_integer({"count": "0", **query}, "count")

    known = {
        "/api/run": describe,
        "/api/cells": lambda query: data.cells(run),
        "/api/archive": archive,
        "/api/metrics": metrics,
        "/api/watch": watch,
        "/api/request": request,
    }
    return {path: _for_this_run(run, player, endpoint) for path, endpoint in known.items()}


def _for_this_run(
    run: RunDirectory, player: Player, endpoint: Callable[[Query], Any]
) -> Callable[[Query], Any]:
    """Return an endpoint with a check that page, server and directory show the same run.

    The returned function raises a RunError if they do not.
    """

    def checked(query: Query):
        now = data.identity(run)
        if query.get("run", now) != now:
            raise RunError("this server shows another run now. Reload the page")
        if now != player.identity:
            raise RunError(
                f"{run.path} contains another run now. Stop 'elites view' and start it again"
            )
        return endpoint(query)

    return checked


def read_integer(query: Query, name: str) -> int:
    """Return the whole number that a query has under a name, or raise a ValueError."""
    text = query.get(name, "")
    # int() alone would also accept spaces, underscores and digits of other scripts.
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"{name} must be a whole number, got '{text[:40]}'")
    return int(text)


def read_descriptor(query: Query) -> list[float]:
    """Return the descriptor of a query, as a list of numbers, or raise a ValueError."""
    text = query.get("descriptor", "")
    try:
        return [float(part) for part in text[:1000].split(",")]
    except ValueError:
        raise ValueError(f"descriptor must be numbers like 1.5,-2, got '{text[:40]}'") from None


def page_files() -> dict[str, bytes]:
    """Return the contents of every file of the viewer's page by its path below `/static/`."""

    def walk(folder: Any, prefix: str):
        """Yield path and contents of every file in a folder and its subfolders."""
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry.read_bytes()

    return dict(walk(resources.files("elites.viewer") / "static", ""))


def to_json(values: Any) -> str:
    """Return values as JSON text that is safe inside a script element of a page."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
