"""Build an algorithm from its name, from FILE.py:FUNCTION, or with a function of the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

from elites import presets, references
from elites.core import algorithms, catalogue, usage
from elites.core.algorithm import Algorithm
from elites.core.hyperparameters import Hyperparameters, Value
from elites.core.types import Problem

Builder = Callable[[Problem, Hyperparameters], Algorithm]  # an algorithm of your own


def preset_for(problem: Problem) -> str:
    """Return the name of the preset that a problem has by default."""
    return "paper" if problem.vectors is None else "vectors"


def hyperparameters_of(
    algorithm: str | Builder,
    preset: str,
    hp: Hyperparameters | None,
    given: Mapping[str, Value],
    arguments: tuple[str, ...] = (),
) -> Hyperparameters:
    """Return the hyperparameters of the record `hp`, or of the preset if `hp` is None.

    The `given` values replace single ones. Raises a ValueError for an unknown name. `arguments` are
    names that its message may suggest besides hyperparameters. Warns if the algorithm does not read
    a value that was replaced. The warning is about the line that called the calling function.
    """
    if hp is not None and not isinstance(hp, Hyperparameters):
        raise ValueError(
            f"hp must be an elites.Hyperparameters record, got {references.kind(hp)}. Give single "
            "values by name, such as cells=256"
        )
    base = presets.get(preset).hp if hp is None else hp
    if {"cells", "centroids_file"} & given.keys() and "grid" not in given:
        given = {**given, "grid": ()}  # whoever asks for cells does not want the preset's grid
    found = Hyperparameters.of({**vars(base), **given}, arguments=arguments)
    if isinstance(algorithm, str) and (names := usage.ignored(algorithm, base, found)):
        warnings.warn(usage.no_effect(algorithm, names), stacklevel=3)
    return found


def build_algorithm(algorithm: str | Builder, on: Problem, hp: Hyperparameters) -> Algorithm:
    """Return an algorithm built on the problem `on`.

    `algorithm` is the name of a published algorithm, a reference FILE.py:FUNCTION, or a function.
    The function takes a problem and hyperparameters. A ValueError is raised if it does not return
    an `Algorithm`.
    """
    if on.vectors is not None and hp.normalise_observations:
        raise ValueError(f"task '{on.name}' has no observations: leave normalise_observations out")
    if not isinstance(algorithm, str):
        if not callable(algorithm):
            raise ValueError(
                "an algorithm is a name or a function of a problem and hyperparameters, got "
                f"{algorithm!r}"
            )
        return _checked(algorithm(on, hp), getattr(algorithm, "__name__", repr(algorithm)))
    if not references.is_reference(catalogue.check(algorithm)):
        return algorithms.make(algorithm, on, hp)
    name = references.absolute(algorithm)
    where, _, function = name.rpartition(":")
    builder = references.load(name)
    if not callable(builder):
        have = "nothing of that name" if builder is None else references.kind(builder)
        raise ValueError(
            f"{where}: '{function}' must be a function that returns an Algorithm, found {have}"
        )
    return _checked(references.call(name, builder, on, hp), f"{where}: '{function}'")


def _checked(built: object, name: str) -> Algorithm:
    if not isinstance(built, Algorithm):
        raise ValueError(
            f"{name} must return an Algorithm, as map_elites.algorithm(Spec(...)) does, but it "
            f"returned {references.kind(built)}"
        )
    return built


def lasting_name(algorithm: str | Builder) -> str:
    """Return a name by which another process can build the same algorithm, or raise a ValueError.

    It is the name of a published algorithm, or a reference FILE.py:FUNCTION with an absolute path.
    """
    if isinstance(algorithm, str):
        return references.absolute(catalogue.check(algorithm))
    for name, published in algorithms.ALGORITHMS.items():
        if algorithm is published:
            return name
    return references.lasting("algorithm", algorithm)
