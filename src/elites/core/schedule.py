"""A number that changes as the archive fills."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A positive number that changes from `first` to `last` as coverage rises.

    Its logarithm changes linearly between the coverages `start` and `end`. It is constant below and
    above.
    """

    first: float
    last: float
    start: float
    """Coverage (share of filled cells) at which the number begins to change."""
    end: float
    """Coverage at which the number has reached `last`."""

    def __post_init__(self):
        if min(self.first, self.last) <= 0:
            raise ValueError(f"a schedule needs positive values, got {self.first} and {self.last}")
        if not 0 <= self.start < self.end <= 1:
            raise ValueError(
                f"a schedule needs coverages 0 <= start < end <= 1, got {self.start} and {self.end}"
            )

    def at(self, coverage: Array) -> Array:
        """Return the value [] of the number at a coverage []."""
        done = jnp.clip((coverage - self.start) / (self.end - self.start), 0.0, 1.0)
        return self.first * (self.last / self.first) ** done
