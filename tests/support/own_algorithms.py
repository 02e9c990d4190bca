"""Algorithms of one's own, for the command line: one that works, and one fault each."""

from __future__ import annotations

from elites import Hyperparameters
from elites.core import map_elites
from elites.core.algorithm import Algorithm
from elites.core.spec import Spec, Variation
from elites.core.types import Problem
from elites.core.variation import ga


def mutation(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """MAP-Elites under another name."""
    variations = (Variation("mutation", hp.batch_size, ga),)
    return map_elites.algorithm(Spec("own_mutation", problem, hp, variations))


def returns_nothing(problem: Problem, hp: Hyperparameters) -> None:
    """Forget to return the algorithm."""
    mutation(problem, hp)


def refuses(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """Refuse what it is given."""
    raise ValueError(f"batch_size must be odd, got {hp.batch_size}")


def fails(problem: Problem, hp: Hyperparameters) -> Algorithm:
    """End in an error that is not about its input."""
    raise KeyError("mistake")


def takes_one(problem: Problem) -> Algorithm:
    """Take too few arguments."""
    return mutation(problem, Hyperparameters())


number = 3
