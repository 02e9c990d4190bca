"""Serve the page on this machine, and check who may read it.

The server binds 127.0.0.1. Other web sites in the same browser could still send requests to it.
A request must therefore name this server as its Host. If the browser names the page that sends the
request, it must be this server's page. On any other address, every request needs a token: first in
the link, later in a cookie. `elites.viewer.connections` limits the connections, and refuses those
without a token before their requests are parsed. No file is served by its path on the disk. The
files of the page are read once into a table, and the data of a run is available through endpoints
only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hmac
import ipaddress
import os
import platform
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from elites import output
from elites.runs import pretrained
from elites.runs.directory import RunDirectory, RunError
from elites.viewer import data
from elites.viewer.api import page_files, shared
from elites.viewer.connections import HEADERS, Connection, Gate, Limits, affordable
from elites.viewer.player import Player
from elites.words import plain

LOCAL = "127.0.0.1"
FIRST_PORT, TRIES = 8765, 50
QUEUE = 1024  # connections that the operating system keeps until they are accepted
_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    "": "text/plain; charset=utf-8",
}


# ----------------------------------------------------------------------------------- application


def application(players: Sequence[Player], guard: Guard) -> Any:
    """Return the ASGI application that serves a page of runs. The guard checks every request."""
    files = page_files()

    def page(request: Request) -> Response:
        """Return a response with the HTML of the page."""
        return Response(files["page.html"], media_type=KINDS[".html"])

    def file(request: Request) -> Response:
        """Return a response with the requested file of the page, or raise an HTTPException."""
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404, "no such file")
        return Response(files[name], media_type=KINDS.get(Path(name).suffix, KINDS[""]))

    def handler(endpoint: Callable[[dict[str, str]], Any]):
        """Return a function that answers requests with the values of an endpoint, or its error."""

        # Not a coroutine: Starlette runs it in a thread, so a rollout does not block others.
        def respond(request: Request) -> Response:
            query = {name: values[-1] for name, values in parse_qs(request.url.query).items()}
            try:
                return JSONResponse(endpoint(query))
            except data.NotFoundError as error:
                return _refusal(404, str(error))
            except ValueError as error:
                return _refusal(400, str(error))
            except (RunError, OSError) as error:
                return _refusal(409, str(pretrained.explained(error)))
            except (LookupError, TypeError) as error:  # unexpected contents of a file
                return _refusal(409, f"a file of the run is damaged: {error!r}")

        return respond

    routes = [
        Route("/", page),
        Route("/static/{name:path}", file),
        *(Route(path, handler(endpoint)) for path, endpoint in shared(players).items()),
    ]
    errors = {HTTPException: lambda _, e: _refusal(e.status_code, e.detail)}
    return guard.wrap(Starlette(routes=routes, exception_handlers=errors))  # pyright: ignore[reportArgumentType]


def _refusal(code: int, text: str) -> JSONResponse:
    """Return a JSON response with a status code and an error message."""
    return JSONResponse({"error": plain(text)}, status_code=code)


# --------------------------------------------------------------------------------------- access


class Guard:
    """Rejects requests to the server from other origins, and adds the security headers."""

    def __init__(self, host: str, port: int, token: str | None):
        self.host, self.port, self.token = host.lower(), port, token
        self.cookie = f"elites_token_{port}"  # browsers share cookies between ports

    def wrap(self, app: Any) -> Any:
        """Return an ASGI application that checks every request before it passes it to `app`."""

        async def guarded(scope, receive, send):
            if scope["type"] != "http":
                return await app(scope, receive, send)

            async def send_with_headers(message):
                if message["type"] == "http.response.start":
                    added = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *added]}
                await send(message)

            response = self.reject(Request(scope))
            await (response or app)(scope, receive, send_with_headers)

        return guarded

    def reject(self, request: Request) -> Response | None:
        """Return the error response to a request that is not allowed, or None if it is allowed."""
        if not self._is_own_host(request.headers.get("host", "")):
            return _refusal(403, "the request names another host")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers['host']}":
            return _refusal(403, "the request comes from another web site")
        # A link on another site may open the page, for example in a terminal in the browser.
        link = request.url.path == "/" and request.headers.get("sec-fetch-dest") == "document"
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not link:
            return _refusal(403, "the request comes from another web site")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "only GET requests are allowed")
        return self._check_token(request) if self.token is not None else None

    def _check_token(self, request: Request) -> Response | None:
        """Return None if a request has the right cookie, otherwise the response to send instead.

        If the address has the token, the response sets the cookie and redirects. If not, it is an
        error.
        """
        assert self.token is not None
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self.token.encode()):
            # The redirect removes the token from the address bar, where others could read it.
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return response
        held = request.cookies.get(self.cookie, "")
        if not hmac.compare_digest(held.encode(), self.token.encode()):
            return _refusal(401, "open the address that 'elites view' printed, with its token")
        return None

    def _is_own_host(self, host: str) -> bool:
        """Return whether the value of a Host header names this server."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if (port if port is not None else 80) != self.port:
            return False
        if name in (LOCAL, "localhost"):
            return True
        if self.token is None:
            return False
        # Any other name could be made to resolve to this machine by somebody else.
        return name in (self.host, platform.node().lower()) or _is_address(name)


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- serving


def bind(host: str, port: int | None) -> socket.socket:
    """Return a socket that is bound to a host and port.

    If `port` is None, uses the first free port from `FIRST_PORT` on. Raises a ValueError if the
    port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(FIRST_PORT, FIRST_PORT + TRIES) if port is None else [port]:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(QUEUE)
            return listener
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            if error.errno == errno.EADDRINUSE:
                raise ValueError(
                    f"port {port} of {host} is taken. Choose another --port, or omit the option "
                    "to use the next free port"
                ) from None
            raise ValueError(f"cannot serve on {host}: {error.strerror or error}") from None
    raise ValueError(
        f"ports {FIRST_PORT} to {FIRST_PORT + TRIES - 1} of {host} are taken. Choose a free --port"
    )


class Server(uvicorn.Server):
    """Web server that finishes a rollout after the first signal and ends at once after a second."""

    def __init__(self, app: Any, gate: Gate):
        self._gate = gate
        protocol: Any = functools.partial(Connection, gate)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                loop="asyncio",  # also where uvloop is installed: it reports errors differently
                ws="none",
                interface="asgi3",
                proxy_headers=False,
                timeout_keep_alive=gate.limits.idle_seconds,
                backlog=gate.limits.at_once,
                log_level="error",
                server_header=False,
                lifespan="off",
                access_log=False,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving on sockets that are already bound."""
        asyncio.get_running_loop().set_exception_handler(self._handle_error)
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(QUEUE)

    def _handle_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count errors of a lack of file descriptors or memory, and log others as usual.

        asyncio reports such an error many times a second, and tries to accept again later.
        """
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _LACKS:
            self._gate.count_failure(error)
        else:
            loop.default_exception_handler(context)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop the server after the current rollout, or end the process on a second signal."""
        if self.should_exit:
            os._exit(128 + sig)
        if self.server_state.tasks:
            print("stopping after this rollout; once more to stop at once", flush=True)
        super().handle_exit(sig, frame)


def _compile(players: Sequence[Player]) -> None:
    """Compile the rollouts of all players, one after the other."""
    for player in players:
        player.compile()


def _players(runs: Sequence[RunDirectory]) -> list[Player]:
    """Return the players of runs. Problems with the runs are reported before anything is served."""
    players = []
    for run in runs:
        players.append(Player(run))
        data.describe(run)
        if data.iterations(run):
            data.cells(run)
    if len({player.identity for player in players}) < len(players):
        raise ValueError(f"{runs[0].path} and {runs[1].path} are the same run. Name two runs")
    bounds = {(p.task.name, *p.task.descriptor_low, *p.task.descriptor_high) for p in players}
    if len(bounds) > 1:
        texts = [f"{run.path} is of {p.task.name}" for run, p in zip(runs, players, strict=True)]
        raise ValueError(
            f"{' and '.join(texts)}. Only runs of one task with the same descriptor bounds can be "
            "shown side by side"
        )
    return players


def serve(
    runs: Sequence[RunDirectory],
    host: str = LOCAL,
    port: int | None = None,
    open_browser: bool = True,
) -> None:
    """Serve the page of a run, or of two side by side, until the process is interrupted.

    Prints the address. If `open_browser` is true, also opens it in the browser.
    """
    host = LOCAL if host == "localhost" else host
    players = _players(runs)
    with contextlib.closing(bind(host, port)) as listener:
        bound = listener.getsockname()[1]
        token = None if host == LOCAL else secrets.token_urlsafe(16)
        everywhere = host in ("", "0.0.0.0", "::")
        shown = platform.node() if everywhere else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{bound}/" + (f"?token={token}" if token else "")
        guard = Guard(host, bound, token)
        gate = Gate(token, guard.cookie, output.complain, affordable(Limits()))
        server = Server(application(players, guard), gate)
        compiling = threading.Thread(target=_compile, args=(players,), daemon=True)
        compiling.start()
        names = " and ".join(str(run.path) for run in runs)
        print(f"{names}: {address}  (stop with Ctrl-C)", flush=True)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
        if summary := gate.summary():
            output.complain(summary)
        if compiling.is_alive():  # it cannot be stopped, and would make the interpreter abort
            output.finish()
            os._exit(0)
