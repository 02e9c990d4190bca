"""What the page can ask for: by the server, or beforehand for a page that is exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from elites.runs.directory import RunDirectory
from elites.viewer import data
from elites.viewer.replay import Player


def answers(run: RunDirectory, player: Player) -> dict[str, Callable[[dict[str, str]], Any]]:
    """What can be asked, by path; each takes the query and gives plain values."""

    def describe(query: dict[str, str]):
        return {**data.describe(run), "scene": player.scene()}

    def archive(query: dict[str, str]):
        return data.archive(run, whole(query, "iteration"), whole(query, "seed"))

    def metrics(query: dict[str, str]):
        return data.metrics(run, whole(query, "after"))

    def watch(query: dict[str, str]):
        return player.watch(whole(query, "iteration"), whole(query, "seed"), whole(query, "cell"))

    def ask(query: dict[str, str]):
        return player.ask(whole(query, "iteration"), whole(query, "seed"), numbers(query))

    return {
        "/api/run": describe,
        "/api/cells": lambda query: data.cells(run),
        "/api/archive": archive,
        "/api/metrics": metrics,
        "/api/watch": watch,
        "/api/ask": ask,
    }


def whole(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    try:
        if len(text) > 18:
            raise ValueError
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a whole number, got '{text[:40]}'") from None


def numbers(query: dict[str, str]) -> list[float]:
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
