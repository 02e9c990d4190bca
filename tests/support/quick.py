"""Compile in less than half the time to slower code, where little is computed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from unittest import mock

FLAG = "xla_cpu_use_fusion_emitters"


def usual() -> dict[str, bool]:
    """Return options of `jax.jit` that compile as for users, see XLA_FLAGS in tests/conftest.py."""
    return {FLAG: True} if FLAG in os.environ.get("XLA_FLAGS", "") else {}


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile so in this process, and in those that are started meanwhile.

    They share entries of the cache: the setting has the same effect in both.
    """
    import jax  # after tests/conftest.py has set the environment

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        with mock.patch.dict(os.environ, JAX_DISABLE_MOST_OPTIMIZATIONS="1"):
            yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
