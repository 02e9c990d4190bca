"""The page on this machine, and who may ask for it.

The page binds 127.0.0.1. Web sites that the same browser has open could still try to talk to it: a
request must name this server as its Host, and, where a browser says which page it comes from, that
page must be ours. Another address needs a token in every request, first in the link, then in a
cookie. Nothing is served by its path on the disk: the files of the page are read once into a table,
and a run's data has questions of its own.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import os
import platform
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from elites.runs.directory import RunDirectory, RunError
from elites.viewer import data
from elites.viewer.answers import answers, page_files
from elites.viewer.replay import Player

LOCAL = "127.0.0.1"
FIRST_PORT, TRIES = 8765, 50
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    "": "text/plain; charset=utf-8",
}
HEADERS = {
    # Nothing but this server's own files: no inline script, no other host, no frame around us.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


# ------------------------------------------------------------------------------- the application


def application(run: RunDirectory, player: Player, guard: Guard) -> Any:
    """The server as an ASGI application."""
    files = page_files()

    def page(request: Request) -> Response:
        return Response(files["page.html"], media_type=KINDS[".html"])

    def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404, "no such file")
        return Response(files[name], media_type=KINDS.get(Path(name).suffix, KINDS[""]))

    def asked(answer: Callable[[dict[str, str]], Any]):
        # A plain function: Starlette gives it a thread, so that a rollout holds up no other answer.
        def respond(request: Request) -> Response:
            query = {name: values[-1] for name, values in parse_qs(request.url.query).items()}
            try:
                return JSONResponse(answer(query))
            except data.NotThereError as error:
                return _refusal(404, str(error))
            except ValueError as error:
                return _refusal(400, str(error))
            except (RunError, OSError) as error:
                return _refusal(409, str(error))
            except (LookupError, TypeError) as error:  # a file whose contents are not ours
                return _refusal(409, f"a file of the run is damaged: {error!r}")

        return respond

    routes = [
        Route("/", page),
        Route("/static/{name:path}", file),
        *(Route(path, asked(answer)) for path, answer in answers(run, player).items()),
    ]
    refused = {HTTPException: lambda _, e: _refusal(e.status_code, e.detail)}
    return guard.around(Starlette(routes=routes, exception_handlers=refused))  # pyright: ignore[reportArgumentType]


def _refusal(code: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=code)


# --------------------------------------------------------------------------------- who may ask


class Guard:
    """Lets through what comes from our own page, and adds the headers that keep it so."""

    def __init__(self, host: str, port: int, token: str | None):
        self.host, self.port, self.token = host.lower(), port, token
        self.cookie = f"elites_token_{port}"  # browsers share cookies between ports

    def around(self, app: Any) -> Any:
        async def guarded(scope, receive, send):
            if scope["type"] != "http":
                return await app(scope, receive, send)

            async def send_with_headers(message):
                if message["type"] == "http.response.start":
                    added = [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                    message = {**message, "headers": [*message["headers"], *added]}
                await send(message)

            response = self.refusal(Request(scope))
            await (response or app)(scope, receive, send_with_headers)

        return guarded

    def refusal(self, request: Request) -> Response | None:
        """None for a request that may pass."""
        if not self._is_ours(request.headers.get("host", "")):
            return _refusal(403, "this server is not known by that name")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_our_page(origin, request.headers["host"]):
            return _refusal(403, "asked by another web site")
        # A link elsewhere may lead to the page, as the one in a terminal in the browser does.
        followed = request.url.path == "/" and request.headers.get("sec-fetch-dest") == "document"
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not followed:
            return _refusal(403, "asked by another web site")
        if request.method not in ("GET", "HEAD"):
            return _refusal(405, "only GET is answered")
        return self._asking_for_token(request) if self.token is not None else None

    def _asking_for_token(self, request: Request) -> Response | None:
        assert self.token is not None
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self.token.encode()):
            # Out of the address, where it could be read over a shoulder or be copied.
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return response
        held = request.cookies.get(self.cookie, "")
        if not hmac.compare_digest(held.encode(), self.token.encode()):
            return _refusal(401, "open the address that 'elites view' printed, with its token")
        return None

    def _is_ours(self, host: str) -> bool:
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
        # A name that somebody else can point here is no proof; an address is, and so are these.
        return name in (self.host, platform.node().lower()) or _is_address(name)

    def _is_our_page(self, origin: str, host: str) -> bool:
        return origin == f"http://{host}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- serving


def bind(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, or on the first free one when none was."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(FIRST_PORT, FIRST_PORT + TRIES) if port is None else [port]:
        place = socket.socket(family, socket.SOCK_STREAM)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            place.bind((host, candidate))
            place.listen(128)
            return place
        except OSError as error:
            place.close()
            if error.errno == errno.EADDRINUSE and port is None:
                continue
            if error.errno == errno.EADDRINUSE:
                raise ValueError(
                    f"port {port} of {host} is taken. Choose another --port, or leave it out for "
                    "the next free one"
                ) from None
            raise ValueError(f"cannot serve on {host}: {error.strerror or error}") from None
    raise ValueError(
        f"ports {FIRST_PORT} to {FIRST_PORT + TRIES - 1} of {host} are taken. Name a free --port"
    )


class _Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:  # asked once before: not even a rollout is waited for
            os._exit(128 + sig)
        if self.server_state.tasks:
            print("ending after this rollout; once more to leave at once", flush=True)
        super().handle_exit(sig, frame)


def serve(
    run: RunDirectory, host: str = LOCAL, port: int | None = None, open_browser: bool = True
) -> None:
    """Serve the page of a run until interrupted."""
    host = LOCAL if host == "localhost" else host
    player = Player(run)  # whatever is wrong with the run is said before anything is served
    data.describe(run)
    if data.iterations(run):
        data.cells(run)
    with contextlib.closing(bind(host, port)) as place:
        bound = place.getsockname()[1]
        token = None if host == LOCAL else secrets.token_urlsafe(16)
        everywhere = host in ("", "0.0.0.0", "::")
        shown = platform.node() if everywhere else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{bound}/" + (f"?token={token}" if token else "")
        app = application(run, player, Guard(host, bound, token))
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, lifespan="off", access_log=False
        )
        server = _Server(config)
        threading.Thread(target=player.warm, daemon=True).start()
        print(f"{run.path}: {address}  (Ctrl-C ends it)", flush=True)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[place])
