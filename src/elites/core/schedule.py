"""A number that changes as the archive fills."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A positive number that goes from `first` to `last` as coverage rises.

    It changes evenly in the logarithm between the two coverages, and is constant outside of them.
    """

    first: float
    last: float
    start: float
    """Coverage, a share of the cells, at which it begins to change."""
    end: float
    """Coverage at which it has reached `last`."""

    def __post_init__(self):
        if min(self.first, self.last) <= 0:
            raise ValueError(f"a schedule needs positive values, got {self.first} and {self.last}")
        if not 0 <= self.start < self.end <= 1:
            raise ValueError(
                f"a schedule needs coverages 0 <= start < end <= 1, got {self.start} and {self.end}"
            )

    def at(self, coverage: Array) -> Array:
        """Return the value [] at a coverage []."""
        done = jnp.clip((coverage - self.start) / (self.end - self.start), 0.0, 1.0)
        return self.first * (self.last / self.first) ** done
