"""How fast the page of a run answers while others misuse its port: one JSON line.

    python benchmarks/connections.py runs/ant_omni-dcg_me

Serves the page with `--host 0.0.0.0`, opens idle connections, and keeps a number of hostile ones
going: halves of requests, single bytes, TLS, large headers, requests without the token. Then it
asks for the page, for a file and for the data of the run, one after the other. `alone_ms` are the
latencies before, `among_others_ms` those meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HOSTILE = (
    b"GET / HTTP/1.1\r\nHost: half",
    b"G",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /\r\n",
    b"BREW /pot HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: " + b"x" * 200_000,
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000,
    b"GET /api/run HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /?token=guessed HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n",
)
PATHS = ("/", "/static/main.js", "/api/run", "/api/cells")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--idle", type=int, default=500, help="idle connections")
    parser.add_argument("--hostile", type=int, default=100, help="hostile connections at a time")
    parser.add_argument("--requests", type=int, default=100, help="requests to measure")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    command = [sys.executable, "-m", "elites", "view", str(options.run), "--no-browser"]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            [*command, "--host", "0.0.0.0"], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert server.stdout is not None
            found = re.search(r":(\d+)/\?token=(\S+)", server.stdout.readline())
            assert found is not None, "the page was not served"
            result = measure(int(found[1]), found[2], options)
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        print(json.dumps({**result, "log_lines": len(log.readlines())}))


def measure(port: int, token: str, options: argparse.Namespace) -> dict[str, object]:
    """Return the latencies of a page on a port, alone and among other connections."""
    cookie = {"Cookie": f"elites_token_{port}={token}"}
    time.sleep(10)  # the server compiles a rollout at its start
    alone = [latency(port, path, cookie) for path in PATHS * (options.requests // len(PATHS))]
    over = threading.Event()
    sent: list[int] = []
    with contextlib.ExitStack() as stack:
        for _ in range(options.idle):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        attack = threading.Thread(target=misuse, args=(port, options.hostile, over, sent))
        attack.start()
        try:
            time.sleep(2)
            among = [latency(port, p, cookie) for p in PATHS * (options.requests // len(PATHS))]
        finally:
            over.set()
            attack.join()
    return {
        "benchmark": "connections",
        "idle": options.idle,
        "hostile": options.hostile,
        "hostile_sent": len(sent),
        "alone_ms": summary(alone),
        "among_others_ms": summary(among),
    }


def latency(port: int, path: str, headers: dict[str, str]) -> float:
    """Return how many seconds a request on a connection of its own takes."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 200, response.status
    return time.perf_counter() - begun


def misuse(port: int, count: int, over: threading.Event, sent: list[int]) -> None:
    """Keep `count` hostile connections open until `over` is set, and replace the oldest in turn.

    Adds an entry to `sent` for each.
    """
    lines: list[socket.socket] = []
    while not over.is_set():
        line = socket.create_connection(("127.0.0.1", port))
        line.setblocking(False)
        with contextlib.suppress(OSError):
            line.send(HOSTILE[len(sent) % len(HOSTILE)])
        sent.append(1)
        lines.append(line)
        if len(lines) > count:
            lines.pop(0).close()
        if len(sent) > count:
            time.sleep(0.005)
    for line in lines:
        line.close()


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median and the longest of some durations, in milliseconds."""
    values = [1000 * value for value in seconds]
    return {"median": round(statistics.median(values), 1), "longest": round(max(values), 1)}


if __name__ == "__main__":
    main()
