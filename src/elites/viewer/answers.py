"""What the page can ask for: by the server, or beforehand for a page that is exported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import resources
from typing import Any

from elites.runs.directory import RunDirectory, RunError
from elites.viewer import data
from elites.viewer.replay import Player

Query = dict[str, str]


def answers(run: RunDirectory, player: Player) -> dict[str, Callable[[Query], Any]]:
    """What can be asked, by path; each takes the query and gives plain values."""

    def describe(query: Query):
        return {**data.describe(run), "scene": player.scene()}

    def archive(query: Query):
        return data.archive(run, whole(query, "iteration"), whole(query, "seed"))

    def metrics(query: Query):
        return data.metrics(run, whole(query, "after"))

    def watch(query: Query):
        return player.watch(*moment(query), whole(query, "cell"), *asker(query))

    def ask(query: Query):
        return player.ask(*moment(query), numbers(query), *asker(query))

    def moment(query: Query) -> tuple[int, int]:
        return whole(query, "iteration"), whole(query, "seed")

    def asker(query: Query) -> tuple[str, int]:
        return query.get("page", "")[:40], whole({"count": "0", **query}, "count")

    def of_the_same_run(answer: Callable[[Query], Any]) -> Callable[[Query], Any]:
        def checked(query: Query):
            now = data.identity(run)
            if query.get("run", now) != now:
                raise RunError("another run is served here now: load the page again")
            if now != player.identity:
                raise RunError(
                    f"the run at {run.path} is another one now: start 'elites view' again"
                )
            return answer(query)

        return checked

    known = {
        "/api/run": describe,
        "/api/cells": lambda query: data.cells(run),
        "/api/archive": archive,
        "/api/metrics": metrics,
        "/api/watch": watch,
        "/api/ask": ask,
    }
    return {path: of_the_same_run(answer) for path, answer in known.items()}


def whole(query: Query, name: str) -> int:
    text = query.get(name, "")
    try:
        if not re.fullmatch(r"-?[0-9]{1,18}", text):  # int() takes more than people write
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, got '{text[:40]}'") from None


def numbers(query: Query) -> list[float]:
    text = query.get("descriptor", "")
    try:
        return [float(part) for part in text[:1000].split(",")]
    except ValueError:
        raise ValueError(f"descriptor must be numbers like 1.5,-2, got '{text[:40]}'") from None


def page_files() -> dict[str, bytes]:
    """Every file of the page, by its name in the address."""

    def walk(folder: Any, prefix: str):
        for entry in folder.iterdir():
            if entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry.read_bytes()

    return dict(walk(resources.files("elites.viewer") / "static", ""))


def to_json(values: Any) -> str:
    """JSON that may stand inside a script element of a page."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
