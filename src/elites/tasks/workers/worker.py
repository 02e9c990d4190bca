"""The main function of a worker process: make an environment, then run the episodes it is told to.

    python -m elites.tasks.workers.worker SOCKET LIFELINE < SPEC

SOCKET and LIFELINE are file descriptors, and SPEC is a `Spec` as JSON. The worker sends a line of
JSON when its environment is ready, and another after each episode. It ends when its parent closes
the socket, and at once when the parent closes the lifeline, even in the middle of an episode. The
system closes both if the parent is killed. The processes that the environment has started end with
the worker: it leads a session of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from elites import references
from elites.tasks.workers import block as blocks
from elites.tasks.workers import episode
from elites.tasks.workers.block import Block, Sizes
from elites.tasks.workers.environment import Environment, Spec

_MOST = 65536  # bytes read at once


def main() -> None:
    """Run the worker until its parent ends it."""
    handle, lifeline = map(int, sys.argv[1:3])
    atexit.register(_end)  # first, so that it is called last
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    warnings.simplefilter("ignore")
    orders = socket.socket(fileno=handle)

    def answer(message: dict[str, Any]) -> None:
        orders.sendall(json.dumps(message).encode() + b"\n")

    try:
        environment = Environment(Spec.of_json(sys.stdin.read()))
        _silence_mujoco()
    except (Exception, SystemExit) as error:
        return answer({"error": _described(error)})
    answer({"ready": environment.facts()})
    _serve(orders, environment, answer)


def _serve(orders: socket.socket, environment: Environment, answer: Any) -> None:
    """Carry out orders until the parent closes the socket."""
    memory: Block | None = None
    for order, handles in _messages(orders):
        if "block" in order:
            handle = handles.pop()
            memory = blocks.attach(handle, Sizes(*order["block"]))
            os.close(handle)
            continue
        assert memory is not None
        act = episode.policy(episode.Network(**order["network"]), memory.parameters)
        if order["noise"] is not None:
            act = episode.noisy(act, *order["noise"])
        try:
            outcome = episode.run(
                environment,
                act,
                order["seed"],
                order["length"],
                memory if order["record"] else None,
            )
        except (Exception, SystemExit) as error:
            answer({"error": _described(error)})
        else:
            answer({"row": order["row"], "outcome": outcome})


def _messages(orders: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield the orders of the parent, with the file descriptors that it has sent until then."""
    buffer, handles = b"", []
    while True:
        data, received, _, _ = socket.recv_fds(orders, _MOST, 4)
        if not data:
            return
        handles += received
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield json.loads(line), handles


def _end_with_parent(lifeline: int) -> None:
    """End this process as soon as the parent closes the other end of a pipe."""
    os.read(lifeline, 1)
    _end()


def _end() -> None:
    """Kill this process, and all that the environment has started."""
    os.killpg(os.getpid(), signal.SIGKILL)


def _described(error: BaseException) -> str:
    """Return an error as one line: its text if elites raised it, otherwise also type and place."""
    if type(error) is ValueError and references.is_raised_here(error):
        return str(error)
    return f"the environment raised {references.described(error)}"


def _silence_mujoco() -> None:
    """Keep MuJoCo from writing warnings to a file in the working directory."""
    silence = getattr(sys.modules.get("mujoco"), "set_mju_user_warning", None)
    if silence is not None:
        silence(lambda text: None)


if __name__ == "__main__":
    main()
