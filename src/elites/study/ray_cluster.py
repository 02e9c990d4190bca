"""Join a Ray cluster, or start one that only this machine can reach.

Ray has no passwords: whoever reaches its ports runs code. A cluster that elites starts therefore
listens on the loopback address alone and has no dashboard.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import Iterator

import ray
from ray._private import ray_constants
from ray.exceptions import RayError

ADDRESS = "RAY_ADDRESS"
"""Environment variable with the address of the cluster to join if --address is not given."""
PATIENCE = 5.0  # seconds that a cluster may take to answer

_LOCAL_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable of Ray. If it is "0", all Ray processes listen on loopback only."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes that a gRPC client sends: the preface of HTTP/2, and empty settings."""


def connect(address: str | None) -> str:
    """Join a Ray cluster and return a line for the user that says which one.

    Without an address, joins the cluster that RAY_ADDRESS names. If that is not set either, starts
    a cluster on this machine. Raises a ValueError if there is no cluster at the address.
    """
    given = address or os.environ.get(ADDRESS)
    if given and given != "local":
        _join(given, ADDRESS if not address else "--address")
        return f"computing on the Ray cluster at {given}"
    with _loopback_only():
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    hosts = [node["NodeManagerAddress"] for node in ray.nodes()]
    if not all(ipaddress.ip_address(host).is_loopback for host in hosts):
        ray.shutdown()
        raise ValueError(
            f"Ray {ray.__version__} does not keep its ports to this machine. Start a cluster "
            "yourself with 'ray start --head', and give its --address"
        )
    return f"Ray runs on this machine only: it listens on {hosts[0]} and has no dashboard"


def _join(address: str, source: str) -> None:
    """Join the cluster at an address. Raises a ValueError if that fails.

    `source` says where the address comes from, for the message.
    """
    try:
        _refuse_unreachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RayError, ValueError, RuntimeError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        hint = f"unset {ADDRESS}" if source == ADDRESS else "leave out --address"
        raise ValueError(
            f"no Ray cluster at '{address}', the address of {source}: {what}. Start a cluster with "
            f"'ray start --head', or {hint} to use one on this machine"
        ) from None


def _refuse_unreachable(address: str) -> None:
    """Raise an OSError if no gRPC server answers at the address of a cluster.

    Ray itself would try for minutes.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:  # 'auto': Ray looks for processes of this machine
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as connection:
        if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
            return
        connection.sendall(_PREFACE)
        try:
            answer = connection.recv(9)
        except TimeoutError:
            raise ConnectionError(f"nothing answers within {PATIENCE:g} s") from None
    if len(answer) < 4 or answer[3] != 4:  # a server of HTTP/2 begins with its settings
        raise ConnectionError("another program answers there")


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    """Make a Ray cluster that is started inside the `with` block listen on loopback only."""
    before, constant = os.environ.get(_LOCAL_ONLY), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[_LOCAL_ONLY] = "0"  # for the processes of the cluster
    ray_constants.ENABLE_RAY_CLUSTER = False  # for this process, which has read the variable
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = constant
        if before is None:
            del os.environ[_LOCAL_ONLY]
        else:
            os.environ[_LOCAL_ONLY] = before
