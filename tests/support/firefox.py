#!/usr/bin/env python3
"""Start a Firefox of a distribution for Playwright: a program between the two.

Playwright controls such a Firefox with WebDriver BiDi, messages over a websocket. Two of them are
changed on the way. Playwright always sends a command that Firefox 153 does not have, which sets the
colour scheme of pages: this program sets a preference of Firefox instead. And Playwright overlooks
downloads of blobs, which have no navigation: they get one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sys
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

PATH = "ELITES_FIREFOX"  # environment variable with the path of Firefox
ENVIRONMENT = {
    "MOZ_WEBGL_FORCE_EGL": "1",  # WebGL without a screen
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1",  # the server of the settings can be chosen
}
PREFERENCES = {
    "webgl.force-enabled": True,
    # Firefox under remote control does not look for updates and sends no telemetry. Whatever is
    # left goes to a proxy that does not exist, so it reaches no host but this one.
    "services.settings.server": "data:,",
    "network.proxy.failover_direct": False,
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
}

DOWNLOADS = ("browsingContext.downloadWillBegin", "browsingContext.downloadEnd")
COLOURS = "emulation.setMediaFeaturesOverride"
SET_COLOURS = 'Services.prefs.setIntPref("layout.css.prefers-color-scheme.content-override", {})'
SCHEMES = {"dark": 0, "light": 1}
SYSTEM = 2  # the scheme of the desktop
# Messages have any size, and a busy machine may be slow to respond.
PATIENT: dict[str, Any] = {"max_size": None, "compression": None, "ping_interval": None}


class Bridge:
    """Two connections, to Playwright and to Firefox, and the messages that go between them."""

    def __init__(self, playwright: ServerConnection, firefox: ClientConnection):
        self.playwright, self.firefox = playwright, firefox
        self.numbers = itertools.count(2**40)  # of own commands. Playwright counts from 1
        self.answers = {}  # of own commands, by number

    async def pass_on(self) -> None:
        """Pass on messages until one of the two hangs up."""
        ways = [asyncio.create_task(way()) for way in (self._to_firefox, self._to_playwright)]
        _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in left:
            way.cancel()

    async def _to_firefox(self) -> None:
        changes = set()  # keeps the tasks alive
        async for message in self.playwright:
            command = json.loads(message)
            if command["method"] == COLOURS:
                changes.add(asyncio.create_task(self._set_colours(command)))
            else:
                await self.firefox.send(message)

    async def _to_playwright(self) -> None:
        async for message in self.firefox:
            answer = json.loads(message)
            if answer.get("id") in self.answers:
                self.answers.pop(answer["id"]).set_result(answer)
                continue
            if answer.get("method") in DOWNLOADS:
                answer["params"]["navigation"] = answer["params"]["url"]
            await self.playwright.send(json.dumps(answer))

    async def _ask(self, method: str, **parameters) -> dict:
        """Send a command of this program to Firefox and return the result."""
        number = next(self.numbers)
        answer = self.answers[number] = asyncio.get_running_loop().create_future()
        await self.firefox.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return (await answer)["result"]

    async def _set_colours(self, command: dict) -> None:
        """Set the colour scheme of all pages, where a script of Firefox itself may do so."""
        scheme = command["params"]["features"].get("prefers-color-scheme")
        windows = await self._ask("browsingContext.getTree", **{"moz:scope": "chrome"})
        target = {"context": windows["contexts"][0]["context"]}
        expression = SET_COLOURS.format(SCHEMES.get(scheme, SYSTEM))
        await self._ask("script.evaluate", expression=expression, target=target, awaitPromise=False)
        answer = {"type": "success", "id": command["id"], "result": {}}
        await self.playwright.send(json.dumps(answer))


async def address_of(errors: asyncio.StreamReader) -> str:
    """Return the address that Firefox prints when it listens."""
    said = b""
    while line := await errors.readline():
        said += line
        if ready := re.search(rb"BiDi listening on (ws://\S+)", line):
            return ready[1].decode()
    raise SystemExit(f"Firefox does not start: {said.decode()}")


async def copied(errors: asyncio.StreamReader) -> None:
    """Print what Firefox prints until it ends."""
    while part := await errors.read(2**16):
        os.write(sys.stderr.fileno(), part)


async def main(*options: str) -> int:
    """Start Firefox and a server for Playwright. When one of the two ends, so does the other."""
    firefox = await asyncio.create_subprocess_exec(
        os.environ[PATH], "--remote-allow-system-access", *options, stderr=asyncio.subprocess.PIPE
    )
    assert firefox.stderr is not None
    address = await address_of(firefox.stderr)
    finished = asyncio.Event()

    async def accept(playwright: ServerConnection) -> None:
        try:
            async with connect(f"{address}/session", **PATIENT) as remote:
                await Bridge(playwright, remote).pass_on()
        finally:
            finished.set()

    async with serve(accept, "127.0.0.1", 0, **PATIENT) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"WebDriver BiDi listening on ws://127.0.0.1:{port}", file=sys.stderr, flush=True)
        ends = copied(firefox.stderr), finished.wait()
        await asyncio.wait(map(asyncio.ensure_future, ends), return_when=asyncio.FIRST_COMPLETED)
    if firefox.returncode is None:
        firefox.terminate()
    return await firefox.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
