"""The functions of `elites.words`, under the name that they had before."""

from elites.words import amount, columns, counted, duration, number

__all__ = ["amount", "columns", "counted", "duration", "number"]
