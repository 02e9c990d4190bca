"""Choose how programs are compiled: in a fifth of the time to slower code, or as for users."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from unittest import mock

FLAG = "xla_cpu_use_fusion_emitters"
OFF = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # tests/conftest.py sets it, and processes inherit it


def usual() -> dict[str, bool]:
    """Return options of `jax.jit` that compile as for users, see XLA_FLAGS in tests/conftest.py."""
    return {FLAG: True} if FLAG in os.environ.get("XLA_FLAGS", "") else {}


@contextlib.contextmanager
def optimising() -> Iterator[None]:
    """Compile to fast code in this process, and in those that are started meanwhile.

    They share entries of the cache: the setting has the same effect in both.
    """
    import jax  # after tests/conftest.py has set the environment

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        with mock.patch.dict(os.environ, {OFF: "0"}):
            yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
