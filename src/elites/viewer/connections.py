"""Limit what connections to the page can cost, before their requests are parsed.

On an address that others reach, anybody can open connections, send half a request or none, or send
something else than HTTP. A `Connection` collects the head of a request in a buffer of limited size
and for a limited time. It answers what is not allowed with a fixed response, and passes only
complete requests that have the token to uvicorn. A `Gate` limits the number of connections. When
there are too many, it drops the oldest one that waits for a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
import resource
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from uvicorn.protocols.http.h11_impl import H11Protocol

from elites.words import counted, listed

HEADERS = {
    # Allow this server's own files only: no inline scripts, no other hosts, no frames.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Limits(NamedTuple):
    """Limits for the connections to a page: their number, and the size and time of a request."""

    connections: int = 256  # open at a time
    at_once: int = 64  # accepted at once, before others are closed to make room
    per_address: int = 64  # of these, from one address. A browser opens about 6
    head_bytes: int = 16_384
    head_lines: int = 100
    head_seconds: float = 10.0  # from the connection to the end of the first request's head
    idle_seconds: int = 5  # from a response to the end of the next request's head


RESERVE = 64
"""Number of files that a server needs beside its connections: libraries, and the run's files."""


def affordable(limits: Limits) -> Limits:
    """Return `limits`, lowered to what this process can have open at a time.

    Raises the process's limit of open files first, if it is too low and may be raised.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = RESERVE + limits.connections + limits.at_once
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):  # some systems have another limit as well
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    free = max(soft - RESERVE, 6)
    return limits._replace(
        connections=min(limits.connections, free * 2 // 3), at_once=min(limits.at_once, free // 3)
    )


class Refusal(NamedTuple):
    """Reason to refuse a request: the status and the message of the response, and a log entry."""

    status: str
    message: str
    log: str

    def response(self) -> bytes:
        """Return the complete HTTP response to a refused request, as bytes."""
        body = json.dumps({"error": self.message}).encode()
        fields = {
            **HEADERS,
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.status}\r\n{head}\r\n".encode() + body


NO_TOKEN = Refusal(
    "401 Unauthorized",
    "open the address that 'elites view' printed, with its token",
    "without the token",
)
NOT_HTTP = Refusal("400 Bad Request", "this is not an HTTP request", "not HTTP")
METHOD = Refusal("405 Method Not Allowed", "only GET requests are allowed", "not a GET request")
BODY = Refusal("413 Content Too Large", "a request must not have a body", "with a body")
LARGE = Refusal("431 Request Header Fields Too Large", "the header is too large", "too large")
LATE = Refusal("408 Request Timeout", "the request was not complete in time", "incomplete")
CROWDED = Refusal("503 Service Unavailable", "too many connections", "too many at a time")

_LINE = re.compile(rb"([A-Z]{1,20}) ([^\s]+) HTTP/1\.[01]\r?\n")
_END = re.compile(rb"\n\r?\n")
_BODY = re.compile(rb"\n(?:transfer-encoding[ \t]*:|content-length[ \t]*:[ \t]*0*[1-9])", re.I)


class Gate:
    """Registry of the open connections to a server, which enforces limits and counts refusals.

    `report` is called with a line of text when a kind of refusal occurs for the first time.
    """

    def __init__(
        self,
        token: str | None,
        cookie: str,
        report: Callable[[str], None],
        limits: Limits | None = None,
    ):
        self.limits = limits or Limits()
        self.refused: dict[Refusal, int] = {}
        self.failures = 0  # to accept a connection
        self._token, self._report = token, report
        self._tokens = re.compile(rb"(?:[?&]token|\b%b)=([^&;\s#]*)" % re.escape(cookie.encode()))
        self._open: dict[Connection, None] = {}  # the oldest first

    def admit(self, connection: Connection) -> bool:
        """Register a new connection, and return whether it is accepted.

        If there are too many connections, the oldest one that waits for a request is closed. If
        none is waiting, the new connection is refused.
        """
        same = [other for other in self._open if other.address == connection.address]
        for others, most in (
            (same, self.limits.per_address),
            (self._open, self.limits.connections),
        ):
            if len(others) < most:
                continue
            oldest = next((other for other in others if other.waits), None)
            self.count(CROWDED, connection.address)
            if oldest is None:
                return False
            self.forget(oldest)
            oldest.drop()
        self._open[connection] = None
        return True

    def renew(self, connection: Connection) -> None:
        """Make a connection the youngest one in the registry, because it has just been used."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def forget(self, connection: Connection) -> None:
        """Remove a connection from the registry."""
        self._open.pop(connection, None)

    def judge(self, head: bytes, is_complete: bool) -> Refusal | None:
        """Return why a request must be refused, or None if it is acceptable so far.

        `head` is the part of the request's head that has arrived.
        """
        if not head[:1].isalpha():
            return NOT_HTTP
        line = _LINE.match(head)
        if line is None and b"\n" in head:
            return NOT_HTTP
        if line is not None and line[1] not in (b"GET", b"HEAD"):
            return METHOD
        if len(head) > self.limits.head_bytes or head.count(b"\n") > self.limits.head_lines:
            return LARGE
        if is_complete and _BODY.search(head):
            return BODY
        return NO_TOKEN if is_complete and not self._has_token(head) else None

    def _has_token(self, head: bytes) -> bool:
        """Return whether a request has the token in its address or in a cookie.

        `head` is the head of the request. Returns True if the server needs no token.
        """
        if self._token is None:
            return True
        given = (unquote_to_bytes(value) for value in self._tokens.findall(head))
        return any(hmac.compare_digest(value, self._token.encode()) for value in given)

    def count(self, refusal: Refusal, address: str) -> None:
        """Count a refusal of a connection, and report the first one of its kind."""
        self.refused[refusal] = self.refused.get(refusal, 0) + 1
        if self.refused[refusal] == 1:
            self._report(
                f"refused a connection from {address}: {refusal.log}. Others of this kind are "
                "counted, but not printed"
            )

    def count_failure(self, error: OSError) -> None:
        """Count a failure to accept a connection, and report the first one."""
        self.failures += 1
        if self.failures == 1:
            self._report(
                f"cannot accept connections for now: {error.strerror}. Others are counted, but "
                "not printed"
            )

    def summary(self) -> str:
        """Return a line about all refused connections, or an empty string if there were none.

        The line also says how often no connection could be accepted.
        """
        parts = [f"{count} {refusal.log}" for refusal, count in self.refused.items()]
        total = counted(sum(self.refused.values()), "connection")
        texts = [f"refused {total}: {listed(parts)}"] if parts else []
        texts += [f"could not accept any {counted(self.failures, 'time')}"] * bool(self.failures)
        return "; ".join(texts)


class Connection(H11Protocol):
    """A connection to the server. Passes only complete and acceptable requests to uvicorn."""

    def __init__(self, gate: Gate, **given: Any):
        super().__init__(**given)
        self.waits, self.address = True, ""
        self._gate, self._head = gate, bytearray()
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request, or refuse the connection if there are too many."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self._gate.admit(self):
            self._answer(CROWDED)
            return
        self._deadline = self.loop.call_later(self._gate.limits.head_seconds, self._end_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the closed connection from the registry."""
        self._stop_deadline()
        self._gate.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Collect the head of a request. A request waits while the previous one is answered."""
        if self.transport.is_closing():
            return
        self._head += data
        if self.waits:
            self._examine()
        elif len(self._head) > self._gate.limits.head_bytes:
            self._refuse(LARGE)

    def on_response_complete(self) -> None:
        """Start waiting for the next request. uvicorn closes a connection that stays idle."""
        super().on_response_complete()
        self.waits = True
        self._gate.renew(self)
        if self._head and not self.transport.is_closing():
            self._examine()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that uvicorn cannot parse. Called by uvicorn."""
        del msg
        self._refuse(NOT_HTTP)

    def drop(self) -> None:
        """Close the connection immediately, without an answer."""
        self._stop_deadline()
        self.transport.abort()

    def _examine(self) -> None:
        """Check the request that has arrived so far: refuse it, pass it on if complete, or wait."""
        end = _END.search(self._head)
        head = bytes(self._head[: end.end()] if end else self._head)
        refusal = self._gate.judge(head, is_complete=end is not None)
        if refusal is not None:
            self._refuse(refusal)
        elif end is not None:
            del self._head[: end.end()]
            self.waits = False
            self._stop_deadline()
            super().data_received(head)

    def _end_waiting(self) -> None:
        """Close the connection, because its first request was not completed in time."""
        if self._head:
            self._refuse(LATE)
        else:  # browsers open connections that they may never use
            self.transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Count a refusal, send its response, and close the connection."""
        self._gate.count(refusal, self.address)
        self._answer(refusal)

    def _answer(self, refusal: Refusal) -> None:
        """Send the response of a refusal and close the connection."""
        self._stop_deadline()
        self.transport.write(refusal.response())
        self.transport.close()

    def _stop_deadline(self) -> None:
        """Cancel the timer that limits the time for the first request."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
