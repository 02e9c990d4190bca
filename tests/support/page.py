"""Serve a page and use it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import quick
from program import environment, started

SCENES = Path(__file__).parent / "scenes.py"


def repeating() -> dict[str, str]:
    """Return an environment with optimised code, so that recordings repeat training exactly.

    LLVM's first level of optimisation suffices, and compiles in a third of the time.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1"
    return environment(**{quick.OFF: "0", "XLA_FLAGS": flags})


class Server:
    """A server of the page: `elites view` in a separate process, or a thread of this one."""

    def __init__(self, address: str, process: subprocess.Popen[str] | None = None):
        self.process, self.address = process, address
        self.host, self.port = re.findall(r"//([\d.]+):(\d+)/", address)[0]

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request with the path exactly as written."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=120)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest("GET", path, skip_host="Host" in named, skip_accept_encoding=True)
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, body

    def json(self, path: str) -> dict:
        status, _, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)


@contextlib.contextmanager
def serving(run: Path | str, *options: object, environ=None, most_files=None) -> Iterator[Server]:
    given = ("view", run, "--no-browser", *options)
    process = started(*given, environ=environ, most_files=most_files)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert "http://" in line, (line, process.stderr.read())
        yield Server(re.findall(r"http://\S+", line)[0], process)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


@contextlib.contextmanager
def serving_here(run: Path) -> Iterator[Server]:
    """Serve a run from this process, which has loaded JAX, for tests of the page alone."""
    from elites import output
    from elites.runs.directory import RunDirectory
    from elites.viewer import connections, server
    from elites.viewer.player import Player

    directory = RunDirectory(run)
    with contextlib.closing(server.bind(server.LOCAL, None)) as listener:
        port = listener.getsockname()[1]
        guard = server.Guard(server.LOCAL, port, None)
        limits = connections.affordable(connections.Limits())
        gate = connections.Gate(None, guard.cookie, output.complain, limits)
        served = server.Server(server.application([Player(directory)], guard), gate)
        thread = threading.Thread(target=served.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Server(f"http://{server.LOCAL}:{port}/")
        finally:
            served.should_exit = True
            thread.join()


def ready(page) -> None:
    page.wait_for_selector("body[data-ready=yes]")


def on_map(page, share: tuple[float, float]) -> tuple[float, float]:
    """Return the position on the screen of a position on the map, in shares of its bounds."""
    canvas = page.locator("#map")
    box, margin = canvas.bounding_box(), json.loads(canvas.get_attribute("data-margin"))
    width = box["width"] - margin["left"] - margin["right"]
    height = box["height"] - margin["top"] - margin["bottom"]
    return (
        box["x"] + margin["left"] + share[0] * width,
        box["y"] + margin["top"] + (1 - share[1]) * height,
    )


def click_map(page, share: tuple[float, float]) -> None:
    page.mouse.click(*on_map(page, share))


def write(field, text: str) -> None:
    """Replace the text of a field by keyboard. In Firefox, `fill` appends to a number."""
    field.press("Control+a")
    field.press_sequentially(text)


def watched(page) -> None:
    page.wait_for_selector("body[data-watching=ready]")


def numbers(page, who: str) -> dict[str, str]:
    """Return the numbers below a stage by name."""
    names = page.locator(f"#{who}-numbers dt").all_inner_texts()
    values = page.locator(f"#{who}-numbers dd").all_inner_texts()
    return dict(zip(names, values, strict=True))
