"""Trace and compile each published algorithm once in a process, however often tests train it.

A command or a call of `elites.train` builds its algorithm anew, and JAX traces and lowers the
stages of a new algorithm again, which takes most of the time of a small run. Here, an algorithm
with the same name, task and hyperparameters is the same object, and so are its compiled stages.
They would have been the same code: other processes of the tests load it from the cache on disk.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

MOST = 400  # stages or algorithms that are kept
_PAUSED: list[bool] = []  # not empty while nothing is shared


class Kept:
    """The results of the last MOST different calls."""

    def __init__(self):
        self._found: collections.OrderedDict[Hashable, tuple[Any, Any]] = collections.OrderedDict()

    def get(self, key: Hashable, used: Any, make: Callable[[], Any]) -> Any:
        """Return what was made for a key. `used` are the objects whose identities it holds."""
        if key not in self._found:
            self._found[key] = (make(), used)
            if len(self._found) > MOST:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return self._found[key][0]


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Build and compile everything anew meanwhile, for tests of what is compiled when."""
    _PAUSED.append(True)
    try:
        yield
    finally:
        _PAUSED.pop()


def _mark(value: Any) -> Hashable:
    """Return what a value is compared by: records and plain values by value, the rest as such."""
    if isinstance(value, functools.partial):
        named = tuple(sorted((name, _mark(each)) for name, each in value.keywords.items()))
        return (_mark(value.func), tuple(map(_mark, value.args)), named)
    if _is_record(value):
        fields = (getattr(value, field.name) for field in dataclasses.fields(value))
        return (type(value), *map(_mark, fields))
    if type(value) is tuple:
        return tuple(map(_mark, value))
    plain = value is None or isinstance(value, bool | int | float | str)
    return (type(value), value) if plain else id(value)


def _is_record(value: Any) -> bool:
    """Return whether a value is a frozen dataclass, whose fields do not change."""
    known = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return known and type(value).__dataclass_params__.frozen and hasattr(value, "__dict__")


def install() -> None:
    """Share algorithms and stages in this process, from now on."""
    import jax  # after tests/conftest.py has set the environment

    from elites.core.algorithms import ALGORITHMS
    from elites.training import ask_tell, loop
    from elites.training.seeds import Batched

    build, compiled, kept = loop.build_algorithm, Batched.over_seeds, Kept()

    def optimises() -> bool:
        return jax.config.read("jax_disable_most_optimizations")

    def build_algorithm(algorithm, on, hp):
        published = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else algorithm
        if _PAUSED or published not in ALGORITHMS.values():
            return build(algorithm, on, hp)
        key = ("algorithm", id(published), optimises(), _mark(on), _mark(hp))
        return kept.get(key, (on, hp), lambda: build(algorithm, on, hp))

    def over_seeds(self, function, donate=False, concurrent=False):
        if _PAUSED:
            return compiled(self, function, donate, concurrent)
        how = (donate, concurrent, self.seeds, self.devices, *sorted(self._options.items()))
        key = ("stage", _mark(function), optimises(), *how)
        make = functools.partial(compiled, self, function, donate, concurrent)
        return kept.get(key, function, make)

    for module in (loop, ask_tell):
        module.build_algorithm = build_algorithm
    Batched.over_seeds = over_seeds
