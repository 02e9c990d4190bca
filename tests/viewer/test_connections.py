"""Connections that are idle, slow, too many, or speak something else than HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elites.viewer import server
from elites.viewer.connections import Gate, Limits
from page import serving
from program import SMOKE, succeed

TOKEN, COOKIE = "the-right_token", "elites_token_1"
KNOWN = f"Cookie: {COOKIE}={TOKEN}\r\n"


class Served:
    """A server in a thread, whose application answers with the path, and what it has printed."""

    def __init__(self, token: str | None, limits: Limits):
        self.printed: list[str] = []
        self.gate = Gate(token, COOKIE, self.printed.append, limits)
        self.listener = server.bind("127.0.0.1", 0)
        self.asked: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self.server = server.Server(self._application, self.gate)
        run = self.server.run
        self.thread = threading.Thread(target=run, kwargs={"sockets": [self.listener]})

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the server."""
        self.ask(request("/loop"))
        assert self._loop is not None
        return self._loop

    async def _application(self, scope, receive, send):
        self._loop = asyncio.get_running_loop()
        self.asked.append(scope["path"])
        self.begun.release()
        while scope["path"] == "/slow" and not self.go_on.is_set():
            await asyncio.sleep(0.01)
        body = scope["path"].encode()
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    def connect(self, data: str | bytes = b"") -> socket.socket:
        line = socket.create_connection(self.listener.getsockname(), timeout=60)
        line.sendall(data.encode() if isinstance(data, str) else data)
        return line

    def ask(self, data: str | bytes) -> bytes:
        """Send bytes, and return all that the server answers until it closes the connection."""
        with self.connect() as line:
            with contextlib.suppress(ConnectionError):  # it may close before all is sent
                line.sendall(data.encode() if isinstance(data, str) else data)
            return rest_of(line)


def rest_of(line: socket.socket) -> bytes:
    """Return what a server sends until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while data := line.recv(4096):
            parts.append(data)
    return b"".join(parts)


def read_until(line: socket.socket, end: bytes) -> bytes:
    """Return what a server sends, up to a certain end."""
    data = b""
    while not data.endswith(end):
        more = line.recv(4096)
        assert more, data
        data += more
    return data


@contextlib.contextmanager
def served(token: str | None = None, **limits: float) -> Iterator[Served]:
    made = Served(token, Limits()._replace(**limits))
    made.thread.start()
    try:
        yield made
    finally:
        made.go_on.set()
        made.server.should_exit = True
        made.thread.join()
        made.listener.close()


def request(path: str = "/", more: str = "Connection: close\r\n") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n"


HOSTILE = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "binary": (bytes(range(128, 256)), 400),
    "HTTP 0.9": (b"GET /\r\n", 400),
    "HTTP 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "lower case": (b"get / http/1.1\r\n\r\n", 400),
    "method": (b"BREW /pot HTTP/1.1\r\n", 405),
    "post": (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde", 405),
    "no end of line": (b"A" * 100_000, 431),
    "large header": (b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000, 431),
    "endless lines": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000, 431),
    "body": (f"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 05\r\n{KNOWN}\r\nabcde".encode(), 413),
    "chunks": (f"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{KNOWN}\r\n".encode(), 413),
    "no colon": (f"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n{KNOWN}\r\n".encode(), 400),
    "null": (f"GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n{KNOWN}\r\n".encode(), 400),
    "no token": (request().encode(), 401),
    "wrong token": (request("/?token=wrong", f"Cookie: {COOKIE}=wrong\r\n").encode(), 401),
    "cookie of another": (request("/", f"Cookie: x{COOKIE}={TOKEN}\r\n").encode(), 401),
}


def test_what_is_not_allowed_is_refused_before_it_is_parsed():
    with served(TOKEN) as page:
        for name, (data, status) in HOSTILE.items():
            answer = page.ask(data)
            if len(data) > 50_000 and not answer:
                continue  # the answer is lost if the server closes while the client still sends
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), name
            assert json.loads(body)["error"], name
            assert b"content-security-policy: default-src 'none'" in head
        assert page.asked == []
        for given in (request(f"/?token={TOKEN}"), request("/a", f"Connection: close\r\n{KNOWN}")):
            assert page.ask(given).startswith(b"HTTP/1.1 200")
        assert page.asked == ["/", "/a"]
        # A line for each kind, however often it comes.
        for _ in range(20):
            page.ask(HOSTILE["TLS"][0])
        assert len(page.printed) == len(set(page.printed)) == len(page.gate.refused) == 5
        assert "refused a connection from 127.0.0.1: not HTTP" in page.printed[0]
        assert f"{len(HOSTILE) + 20} connections" in page.gate.summary()


def test_a_request_that_is_not_complete_in_time_is_refused():
    with served(head_seconds=0.2) as page:
        with page.connect("GET / HTTP/1.1\r\nHost") as half, page.connect() as idle:
            assert rest_of(half).startswith(b"HTTP/1.1 408")
            assert rest_of(idle) == b""
        # A byte now and then does not extend the time.
        with page.connect() as slow, contextlib.suppress(ConnectionError):
            slow.settimeout(0.02)
            for byte in request() * 1000:
                slow.sendall(byte.encode())
                with contextlib.suppress(TimeoutError):
                    answer = slow.recv(4096)
                    break
            assert answer.startswith(b"HTTP/1.1 408")
        assert [line.count("incomplete") for line in page.printed] == [1]  # idle ones do no harm
        assert page.asked == []


def test_a_connection_is_used_again_and_then_closed():
    with served(idle_seconds=1) as page, page.connect(request("/a", "")) as line:
        read_until(line, b"/a")
        line.sendall((request("/b", "") + request("/c", "")).encode())  # two at once
        assert read_until(line, b"/c").count(b"HTTP/1.1 200") == 2
        assert page.asked == ["/a", "/b", "/c"]
        line.sendall(b"GET /half HTTP/1.1\r\n")
        assert rest_of(line) == b""


@pytest.mark.parametrize("limits", [{"per_address": 4}, {"connections": 4}])
def test_the_oldest_idle_connection_makes_room(limits):
    with served(**limits) as page, contextlib.ExitStack() as stack:
        first, second, *_ = [stack.enter_context(page.connect()) for _ in range(4)]
        assert page.ask(request("/new")).endswith(b"/new")
        assert rest_of(first) == b""
        second.sendall(request("/second").encode())
        assert rest_of(second).endswith(b"/second")
        assert "too many at a time" in page.printed[0]


def test_a_connection_that_is_being_answered_is_not_dropped():
    with served(per_address=2) as page, contextlib.ExitStack() as stack:
        busy = [stack.enter_context(page.connect(request("/slow"))) for _ in range(2)]
        for _ in busy:
            assert page.begun.acquire(timeout=60)
        assert page.ask(request("/new")).startswith(b"HTTP/1.1 503")
        page.go_on.set()
        for line in busy:
            assert rest_of(line).endswith(b"/slow")


# ------------------------------------------------------------------------------- the real program


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run to serve, and enough open files for this process to attack it."""
    path = tmp_path_factory.mktemp("runs") / "run"
    succeed("train", "point_omni", "me", *SMOKE, "--output", path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2048), hard), hard))
    return path


@pytest.mark.parametrize("most_files", [128, 256])
def test_the_page_answers_although_it_can_open_few_files(run, most_files):
    half = b"GET / HTTP/1.1\r\nHost: half"
    with (
        serving(run, "--host", "127.0.0.2", most_files=most_files) as page,
        contextlib.ExitStack() as stack,
    ):
        cookie = f"elites_token_{page.port}={page.address.partition('?token=')[2]}"
        address = (page.host, int(page.port))
        for i in range(500):
            source = (f"127.0.{1 + i // 250}.{1 + i % 250}", 0)
            line = stack.enter_context(socket.create_connection(address, 60, source))
            with contextlib.suppress(ConnectionError):
                line.sendall(half)
        for asked in ("/", "/static/main.js", "/api/run", "/api/cells"):
            assert page.get(asked, Cookie=cookie)[0] == 200
        page.process.terminate()
        assert page.process.stderr is not None
        printed = page.process.stderr.read()
        assert page.process.wait(60) == 0
    assert len(printed.splitlines()) <= 5, printed[:2000]
    assert "too many at a time" in printed
    assert "Traceback" not in printed


def test_a_lack_of_file_descriptors_is_one_line():
    with served() as page:
        loop = page.loop()
        lack = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        for _ in range(1000):
            context = {"message": "socket.accept() out of system resource", "exception": lack}
            loop.call_soon_threadsafe(loop.call_exception_handler, context)
        assert page.ask(request("/new")).endswith(b"/new")
        assert page.printed == [
            "cannot accept connections for now: Too many open files. Others are counted, but not "
            "printed"
        ]
        assert "1000 times" in page.gate.summary()


def test_the_page_answers_among_500_idle_and_100_hostile_connections(run):
    kinds = [data for data, _ in HOSTILE.values()] + [b"GET / HTTP/1.1\r\nHost: half"]
    with serving(run, "--host", "127.0.0.2") as page, contextlib.ExitStack() as stack:
        token = page.address.partition("?token=")[2]
        cookie = f"elites_token_{page.port}={token}"
        address = (page.host, int(page.port))
        for _ in range(500):
            stack.enter_context(socket.create_connection(address, timeout=60))
        for i in range(100):
            line = stack.enter_context(socket.create_connection(address, timeout=60))
            with contextlib.suppress(ConnectionError):
                line.sendall(kinds[i % len(kinds)])
        for asked in ("/", "/static/main.js", "/api/run", "/api/cells"):
            assert page.get(asked, Cookie=cookie)[0] == 200
        assert page.get("/api/run")[0] == 401
        page.process.terminate()
        assert page.process.stderr is not None
        lines = page.process.stderr.read().splitlines()
        assert page.process.wait(60) == 0
    assert 2 <= len(lines) <= 10, lines
    assert all(line.startswith("elites: refused ") for line in lines)
    assert lines[-1].startswith("elites: refused ")
    assert "too many at a time" in lines[-1]
