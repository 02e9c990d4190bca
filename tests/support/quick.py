"""Compile in less than half the time to slower code, where little is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """To the same bits, and the same entries of the cache, as JAX_DISABLE_MOST_OPTIMIZATIONS=1."""
    import jax  # after tests/conftest.py has set the environment

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
