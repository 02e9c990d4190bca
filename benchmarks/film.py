"""Measure how long `elites render` takes, from the start of the process to its end: one JSON line.

    python benchmarks/film.py [--model ant_omni] [--repeat 7] [-- --gallery 16]

`first` is a film with empty caches, and `later` are those that follow: the least, the median, and
the processor time of user and system together. `parts` are the seconds of the parts of a film, from
another process: the medians of as many films. Options after `--` are passed to `elites render`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Seconds = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="ant_omni", help="a model of 'elites pretrained'")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--parts-from", type=float, help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help="options of elites render")
    given = parser.parse_args()
    if given.parts_from is not None:
        return print(json.dumps(parts(given.parts_from, given.options)))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        run_process("-m", "elites", "pretrained", given.model)
        path = Path(folder) / "film.gif"
        command = ["render", "--pretrained", given.model, *given.options, "--output", str(path)]
        first = film(path, command)
        later = [film(path, command) for _ in range(given.repeat)]
        split = [split_up(path, command) for _ in range(given.repeat)]
    print(
        json.dumps(
            {
                "benchmark": "film",
                "model": given.model,
                "options": given.options,
                "cores": len(os.sched_getaffinity(0)),
                "bytes": first.pop("bytes"),
                "first": first,
                "later": summary(later),
                "parts": {n: round(statistics.median(s[n] for s in split), 3) for n in split[0]},
            }
        )
    )


def run_process(*arguments: str) -> str:
    """Run Python with some arguments, and return what it prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def film(path: Path, command: list[str]) -> dict[str, Any]:
    """Make a film with a new process. Returns its seconds, processor time and bytes."""
    path.unlink(missing_ok=True)
    before, start = processor_time(), time.perf_counter()
    run_process("-m", "elites", *command)
    wall = time.perf_counter() - start
    return {
        "seconds": round(wall, 2),
        "processor": round(processor_time() - before, 2),
        "bytes": path.stat().st_size,
    }


def processor_time() -> float:
    """Return the seconds that processes which this one started have used the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(films: list[dict[str, Any]]) -> Seconds:
    """Return the least and the median time of several films, and of the processor."""
    seconds, processor = ([f[name] for f in films] for name in ("seconds", "processor"))
    return {
        "least": min(seconds),
        "median": round(statistics.median(seconds), 2),
        "processor_least": min(processor),
        "processor_median": round(statistics.median(processor), 2),
    }


# ------------------------------------------------------------------------------------------- parts


def split_up(path: Path, command: list[str]) -> Seconds:
    """Make a film with a process that measures its parts, and return their seconds."""
    path.unlink(missing_ok=True)
    start = time.monotonic()
    said = run_process(__file__, "--parts-from", str(start), "--", *command)
    return {**json.loads(said.splitlines()[-1]), "whole process": time.monotonic() - start}


def parts(start: float, command: list[str]) -> Seconds:
    """Make a film in this process, which was started at a time, and return the seconds of parts."""
    from elites import cli
    from elites.rendering import helpers

    found: Seconds = {}
    enter = helpers.Team.__enter__

    def imported(team: helpers.Team) -> helpers.Team:
        """Measure all until the helpers have been started, and what is imported next."""
        found["start of Python, command line"] = time.monotonic() - start
        measure(found, "import of JAX", lambda: importlib.import_module("jax.numpy"))
        modules = ("elites.runs.export", "elites.runs.saved", "elites.viewer.filming")
        measure(found, "import of elites", lambda: list(map(importlib.import_module, modules)))
        replace(found, "elites.runs.saved", "Reader.__init__", "task and algorithm")
        replace(found, "elites.runs.saved", "Reader.load", "checkpoint")
        replace(found, "elites.viewer.filming", "of", "simulation")
        replace(found, "elites.rendering.movie", "write", "drawing and writing")
        return enter(team)

    setattr(helpers.Team, "__enter__", imported)  # noqa: B010  (pyright compares names otherwise)
    assert cli.main(command) == 0
    return found


def measure(found: Seconds, title: str, function: Callable[[], Any]) -> Any:
    """Call a function, enter its seconds in `found`, and return its result."""
    began = time.monotonic()
    try:
        return function()
    finally:
        found[title] = time.monotonic() - began


def replace(found: Seconds, module: str, name: str, title: str) -> None:
    """Replace a function of a module by one that enters its seconds in `found`."""
    owner: Any = importlib.import_module(module)
    *inside, last = name.split(".")
    for part in inside:
        owner = getattr(owner, part)
    function: Callable[..., Any] = getattr(owner, last)
    setattr(owner, last, lambda *a, **k: measure(found, title, lambda: function(*a, **k)))


if __name__ == "__main__":
    main()
