"""Save and load an ask-and-tell search, also while a request waits for its results.

A search is one `.npz` file with named arrays, and an entry `search` with facts in JSON. Reading it
executes no code.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

import jax
import jax.numpy as jnp
import numpy as np

from elites import files
from elites.arrays import read_arrays
from elites.core.algorithm import S
from elites.core.td3 import Losses
from elites.core.types import Array, Evaluation, Request, Transitions
from elites.writing import replacing

FORMAT = 2
Facts = Mapping[str, str | int]


@dataclasses.dataclass(frozen=True)
class Position:
    """Progress of an ask-and-tell search: iteration, round and number of answered requests."""

    iteration: int = 0
    """0 for the initial policies."""
    round: int = 0
    told: int = 0
    """Number of requests whose results were told."""

    def next(self, rounds: int) -> Position:
        """Return the position after one more answered request.

        `rounds` is the number of rounds in the current iteration.
        """
        if self.round + 1 < rounds:
            return Position(self.iteration, self.round + 1, self.told + 1)
        return Position(self.iteration + 1, 0, self.told + 1)


@dataclasses.dataclass(frozen=True)
class Saved(Generic[S]):
    """Everything that an ask-and-tell search needs to continue, as written to its file."""

    position: Position
    state: S
    request: Request | None
    """The request that waits for its results, or None."""
    started: Evaluation | None
    """Results of the initial policies, until those of the start's actor rollouts are told."""
    losses: dict[str, Losses]
    metrics: dict[str, np.ndarray]


def save(path: Path, facts: Facts, saved: Saved[S]) -> None:
    """Write an ask-and-tell search to an `.npz` file, which is replaced atomically.

    `facts` are stored with it, so that `load` can check that they match.
    """
    entries: dict[str, Any] = {
        **_named("state", saved.state),
        **_named("request", saved.request),
        **_named("started", saved.started),
        **_named("losses", saved.losses),
        **{f"metrics/{name}": np.asarray(value) for name, value in saved.metrics.items()},
    }
    information = {"format": FORMAT, **facts, "position": dataclasses.asdict(saved.position)}
    entries["search"] = np.array(json.dumps(information))
    with replacing(path) as temporary, open(temporary, "xb") as file:
        np.savez(file, **entries)


def load(path: Path, facts: Facts, shapes: S) -> Saved[S]:
    """Return the ask-and-tell search saved in an `.npz` file.

    Raises a ValueError if the file is damaged, or if its facts (algorithm, task, seed, ...) or the
    shapes of its state differ from the given ones.
    """
    arrays = read_arrays(path, error=ValueError)
    information, position = _information(path, arrays)
    if information.get("format") != FORMAT:
        raise ValueError(f"{path} has format {information.get('format')}; this is {FORMAT}")
    for name, value in facts.items():
        if information.get(name) != value:
            raise ValueError(
                f"{path} was saved by another search: {name} is {information.get(name)!r}, "
                f"not {value!r}"
            )
    state = _state(path, shapes, arrays)
    try:
        request, started, losses = _request(arrays), _evaluation(arrays), _losses(arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {type(error).__name__}: {error}") from None
    metrics = {name.removeprefix("metrics/"): arrays[name] for name in _those_of("metrics", arrays)}
    return Saved(position, state, request, started, losses, metrics)


def _information(path: Path, arrays: dict[str, np.ndarray]) -> tuple[dict[str, Any], Position]:
    """Take the facts of a saved search out of its arrays, and return them and its position."""
    try:
        information = json.loads(str(arrays.pop("search")))
        position = files.check_record(information["position"], "position", _POSITION, ValueError)
        if min(position.values()) < 0:
            raise ValueError(f"position is {position}")
        return information, Position(**position)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a saved search, or is damaged: {error}") from None


_POSITION = {"iteration": int, "round": int, "told": int}


def _named(prefix: str, tree: object) -> dict[str, np.ndarray]:
    """Return the arrays of a pytree by name: "prefix/path", where path is the place in the tree.

    JAX random keys are converted to arrays of integers.
    """
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        found[f"{prefix}/{name}"] = np.asarray(leaf)
    return found


def _those_of(prefix: str, arrays: Mapping[str, np.ndarray]) -> list[str]:
    return [name for name in arrays if name.startswith(f"{prefix}/")]


def _state(path: Path, shapes: S, arrays: Mapping[str, np.ndarray]) -> S:
    """Return the state whose arrays are stored under "state/...".

    `shapes` is a state of expected shapes and types. Raises a ValueError if an array is missing or
    differs from them. `path` names the file in the message.
    """
    leaves = []
    for place, shape in jax.tree_util.tree_leaves_with_path(shapes):
        name = "state/" + jax.tree_util.keystr(place, simple=True, separator=".")
        array = arrays.get(name)
        found = None if array is None else (array.shape, array.dtype)
        if array is None or found != (shape.shape, shape.dtype):
            raise ValueError(
                f"{path} was saved by another search: {name} is {found}, "
                f"not {(shape.shape, shape.dtype)}"
            )
        leaves.append(jnp.asarray(array))
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _request(arrays: Mapping[str, np.ndarray]) -> Request | None:
    names = _those_of("request", arrays)
    if not names:
        return None
    fields = {name.removeprefix("request/"): jnp.asarray(arrays[name]) for name in names}
    fields["key"] = jax.random.wrap_key_data(fields["key"])
    return Request(**{"actor": None, **fields})


def _evaluation(arrays: Mapping[str, np.ndarray]) -> Evaluation | None:
    names = _those_of("started", arrays)
    if not names:
        return None
    fields: dict[str, Array] = {
        name.removeprefix("started/"): jnp.asarray(arrays[name]) for name in names
    }
    steps = {name: fields.pop(f"transitions.{name}") for name in Transitions._fields}
    return Evaluation(**fields, transitions=Transitions(**steps))


def _losses(arrays: Mapping[str, np.ndarray]) -> dict[str, Losses]:
    names = {
        name.removeprefix("losses/").rpartition(".")[0] for name in _those_of("losses", arrays)
    }
    return {
        name: Losses(
            jnp.asarray(arrays[f"losses/{name}.critic"]),
            jnp.asarray(arrays[f"losses/{name}.actor"]),
        )
        for name in sorted(names)
    }
