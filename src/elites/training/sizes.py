"""Shapes of states and results, and the memory that they and compiled programs need."""

from __future__ import annotations

from typing import TypeVar

import jax
from jax.sharding import Sharding

from elites.core.algorithm import SearchState
from elites.core.types import Evaluation

T = TypeVar("T")


def size_in_bytes(tree: SearchState | Evaluation) -> int:
    """Return the total size in bytes of a state's arrays. They may be shapes only."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def shapes_of(tree: T, sharding: Sharding | None = None) -> T:
    """Return a tree with shapes and types in place of its arrays, all with the same sharding."""

    def shape(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)


def compiled_size(compiled: jax.stages.Compiled) -> int:
    """Return the number of bytes that a compiled program holds while it runs, or 0 if unknown."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    fields = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    total = sum(getattr(analysis, field, 0) for field in fields)
    return total - getattr(analysis, "alias_size_in_bytes", 0)
