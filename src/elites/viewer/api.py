"""Endpoints of the page. The server calls them on request, an export calls them in advance."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from elites.runs.directory import RunDirectory, RunError
from elites.viewer import data, paths
from elites.viewer.player import Player

Query = dict[str, str]


def endpoints(run: RunDirectory, player: Player) -> dict[str, Callable[[Query], Any]]:
    """Return the endpoints of a run's page: functions, keyed by paths such as `/api/archive`.

    Each function takes a query and returns values that JSON can represent.
    """

    def describe(query: Query):
        """Return the description of the run, and the shapes of its robot under the key `scene`."""
        return {
            **data.describe(run),
            "scene": player.scene(),
            "has_paths": paths.has_paths(player.task),
        }

    def archive(query: Query):
        """Return the archive of the seed and iteration that the query names."""
        return data.archive(run, read_integer(query, "iteration"), read_integer(query, "seed"))

    def metrics(query: Query):
        """Return the metrics of all iterations after the one that the query names."""
        return data.metrics(run, read_integer(query, "after"))

    def watch(query: Query):
        """Return recordings of the elite in the queried cell, and of the actor imitating it."""
        return player.watch(*_snapshot(query), read_integer(query, "cell"), *_sender(query))

    def request(query: Query):
        """Return recordings of the actor at the queried descriptor, and of the nearest elite."""
        return player.request(*_snapshot(query), read_descriptor(query), *_sender(query))

    def nearest(query: Query):
        """Return a recording of the elite nearest to the queried descriptor."""
        return player.nearest(*_snapshot(query), read_descriptor(query), *_sender(query))

    def trails(query: Query):
        """Return the paths of some elites, from the one with the queried number on."""
        return player.paths(*_snapshot(query), read_integer(query, "start"))

    def film(query: Query):
        """Return a film of the elite in the queried cell, and of the actor beside it."""
        descriptor = read_descriptor(query) if "descriptor" in query else None
        return player.film(*_snapshot(query), read_integer(query, "cell"), descriptor)

    known = {
        "/api/run": describe,
        "/api/cells": lambda query: data.cells(run),
        "/api/archive": archive,
        "/api/metrics": metrics,
        "/api/watch": watch,
        "/api/request": request,
        "/api/nearest": nearest,
        "/api/paths": trails,
        "/api/film": film,
    }
    return {path: _for_this_run(run, player, endpoint) for path, endpoint in known.items()}


def _snapshot(query: Query) -> tuple[int, int]:
    """Return the iteration and the seed that a query names."""
    return read_integer(query, "iteration"), read_integer(query, "seed")


def _sender(query: Query) -> tuple[str, int]:
    """Return the id of the page that sent a query, and the page's number for the request."""
    return query.get("page", "")[:40], read_integer({"count": "0", **query}, "count")


def shared(players: Sequence[Player]) -> dict[str, Callable[[Query], Any]]:
    """Return the endpoints of a page that shows one run, or two side by side.

    A query names the run that it asks for by its id, under the key `run`. Without it, the first run
    answers. The description of the first run contains that of the second under the key `beside`.
    """
    tables = {player.identity: endpoints(player.run, player) for player in players}
    first, *others = tables

    def choose(path: str) -> Callable[[Query], Any]:
        """Return the endpoint at a path, which answers for the run that a query names."""
        return lambda query: tables.get(query.get("run", first), tables[first])[path](query)

    def describe(query: Query):
        """Return the description of the first run, with that of the run beside it."""
        beside = [tables[identity]["/api/run"]({}) for identity in others]
        return {**tables[first]["/api/run"](query), "beside": beside[0] if beside else None}

    return {**{path: choose(path) for path in tables[first]}, "/api/run": describe}


def _for_this_run(
    run: RunDirectory, player: Player, endpoint: Callable[[Query], Any]
) -> Callable[[Query], Any]:
    """Return an endpoint that first checks that page, server and directory show the same run.

    It raises a RunError if they do not, for example because the directory holds another run now.
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
    """Return the parameter `name` of a query as a whole number, or raise a ValueError."""
    text = query.get(name, "")
    # int() alone would also accept spaces, underscores and digits of other scripts.
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"{name} must be a whole number, got '{text[:40]}'")
    return int(text)


def read_descriptor(query: Query) -> list[float]:
    """Return the descriptor in a query as a list of numbers, or raise a ValueError."""
    text = query.get("descriptor", "")
    try:
        return [float(part) for part in text[:1000].split(",")]
    except ValueError:
        raise ValueError(f"descriptor must be numbers like 1.5,-2, got '{text[:40]}'") from None


def page_files() -> dict[str, bytes]:
    """Return the contents of all files of the viewer's page, keyed by path below `/static/`."""

    def walk(folder: Any, prefix: str):
        """Yield the path and the contents of every file in a folder and its subfolders."""
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry.read_bytes()

    return dict(walk(resources.files("elites.viewer") / "static", ""))


def to_json(values: Any) -> str:
    """Return values as JSON text that can be embedded safely in a script element of a page."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
