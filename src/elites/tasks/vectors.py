"""Plain optimisation: tasks whose policies are vectors, and the benchmark functions of the field.

    sphere, rastrigin    linear projection: the sums of both halves of the vector are the descriptor
    arm                  a planar arm, whose descriptor is the position of its hand

Such a task has one step without an observation: the action is the vector itself. Algorithms do not
run episodes of it. They evaluate a whole batch of vectors at once, see `core.evaluation`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites import references
from elites.core.networks import MLP
from elites.core.types import ActionNoise, Array, Evaluation, Transitions, Vectors, numbers
from elites.names import Name
from elites.tasks.task import Task, TaskState

Function = Callable[[Any], tuple[Any, Any]]

_LIMIT = 5.12  # of the linear projection: beyond, a coordinate counts less and less
_SHIFT = 0.4 * _LIMIT  # place of the optimum on every axis


def task(
    name: str,
    function: Function,
    dimensions: int,
    low: Sequence[float],
    high: Sequence[float],
    *,
    start: float | Sequence[float] = 0.0,
    spread: float = 0.5,
    is_numpy: bool = False,
    **fields: Any,
) -> Task:
    """Return a task whose policies are plain vectors of so many dimensions.

    `function` maps one vector [P] to its fitness and its descriptor [D], in JAX. With `is_numpy`,
    it is a function of NumPy that maps all vectors [n, P] of a batch to fitness [n] and descriptors
    [n, D]. `low` and `high` are the bounds of the descriptor. `start` is the vector at which
    emitters begin, or one number for all dimensions, and `spread` the standard deviation of the
    first vectors around it. `fields` are further fields of a `Task`, such as `descriptor_names`.
    """
    if not isinstance(dimensions, int) or isinstance(dimensions, bool) or dimensions < 1:
        raise ValueError(f"dimensions must be a whole number of at least 1, got {dimensions!r}")
    if not callable(function):
        raise ValueError(f"function must be a function of a vector, got {function!r}")
    low, high = numbers(name, "low", low), numbers(name, "high", high)
    begin = np.full(dimensions, start) if np.ndim(start) == 0 else np.asarray(start)
    vectors = Vectors(
        dimensions, None if is_numpy else function, tuple(begin.astype(float)), float(spread)
    )
    outside = NumPyFunction(name, function, dimensions, low, high) if is_numpy else None
    made = Task(
        name=name,
        observation_size=0,
        action_size=dimensions,
        episode_length=1,
        descriptor_low=low,
        descriptor_high=high,
        reset=functools.partial(_reset, len(low)),
        step=functools.partial(_step, function),
        vectors=vectors,
        outside=outside,
        **{"termination_text": "after one step", "reward_text": "the function", **fields},
    )
    if outside is not None:
        outside.check()
    else:
        _check(made, function)
    return made


def _reset(descriptor_size: int, key: Array) -> TaskState:
    del key
    place = jnp.zeros(descriptor_size)
    return TaskState((), jnp.zeros(0), jnp.float32(0.0), jnp.bool_(False), place)


def _step(function: Function, state: TaskState, action: Array) -> TaskState:
    fitness, descriptor = function(action)
    return TaskState((), state.observation, fitness, jnp.bool_(True), descriptor)


def _check(made: Task, function: Function) -> None:
    """Raise a ValueError if a function of JAX does not return a fitness and a descriptor."""
    try:
        vector = jax.ShapeDtypeStruct((made.action_size,), jnp.float32)
        found = jax.eval_shape(function, vector)
    except jax.errors.JAXTypeError as error:
        raise ValueError(
            f"{made.name}: the function cannot be compiled by JAX{references.place(error)}. Use "
            "jax.numpy in it, or is_numpy=True for a function of NumPy that takes all vectors"
        ) from error
    except Exception as error:
        raise ValueError(f"{made.name}: it raised {references.described(error)}") from error
    shapes = [getattr(part, "shape", None) for part in found] if _is_pair(found) else None
    if shapes != [(), (made.descriptor_size,)]:
        raise ValueError(
            f"{made.name}: the function must return a fitness of shape () and a descriptor of "
            f"shape ({made.descriptor_size},) for one vector, got "
            f"{shapes if shapes else references.kind(found)}"
        )


def _is_pair(found: Any) -> bool:
    return isinstance(found, list | tuple) and len(found) == 2


@dataclasses.dataclass(frozen=True)
class NumPyFunction:
    """Evaluates vectors by a function of NumPy, outside of JAX. See `core.types.Outside`."""

    name: str
    function: Function
    size: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    episode_length: int = 1

    def check(self) -> None:
        """Raise a ValueError if the function does not return fitness and descriptors."""
        self._call(np.zeros((2, self.size), np.float32))

    def run(
        self,
        policies: Sequence[tuple[MLP, np.ndarray]],
        seeds: np.ndarray,
        record: bool,
        noise: ActionNoise | None = None,
    ) -> Evaluation:
        """Evaluate n vectors and return the results as NumPy arrays, see `Outside.run`.

        There are no actions, so nobody asks for noise on them.
        """
        del seeds, noise
        n = len(policies)
        rows = np.stack([vector for _, vector in policies]) if n else np.zeros((0, self.size))
        fitness, descriptors = self._call(rows.astype(np.float32))
        steps = int(record)

        def each(values: np.ndarray) -> Any:
            return np.repeat(values[None], steps, 0)

        nothing, ended = np.zeros((n, 0), np.float32), np.ones(n, bool)
        transitions = Transitions(
            each(nothing), each(rows), each(fitness), each(nothing), each(ended), each(~ended),
            each(descriptors), each(ended),
        )  # fmt: skip
        valid: Any = np.isfinite(fitness) & np.isfinite(descriptors).all(-1)
        reached: Any = np.clip(descriptors, self.low, self.high)
        scored: Any = fitness
        taken: Any = np.ones(n, np.int32)
        return Evaluation(scored, reached, valid, taken, transitions)

    def record(
        self, policies: Sequence[tuple[MLP, np.ndarray]], seeds: np.ndarray
    ) -> tuple[Evaluation, None]:
        """Evaluate n vectors and return the results. There is nothing to draw."""
        return self.run(policies, seeds, True), None

    def scene(self) -> None:
        """Return None: there is nothing to draw."""

    def _call(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the fitness [n] and the descriptors [n, D] of vectors [n, P]."""
        try:
            found = self.function(rows)
        except Exception as error:
            raise ValueError(f"{self.name}: it raised {references.described(error)}") from error
        expected = [(len(rows),), (len(rows), len(self.low))]
        shapes = [np.shape(part) for part in found] if _is_pair(found) else None
        if shapes != expected:
            raise ValueError(
                f"{self.name}: the function must return fitness of shape {expected[0]} and "
                f"descriptors of shape {expected[1]} for vectors of shape {rows.shape}, got "
                f"{shapes if shapes else references.kind(found)}"
            )
        fitness, descriptors = (np.asarray(part, np.float32) for part in found)
        return fitness, descriptors


# ---------------------------------------------------------------------------- benchmark functions


def linear_projection(vector: Array) -> Array:
    """Return the descriptor [2] of a vector [P]: the sums of its halves, of limited coordinates.

    A coordinate x beyond the limit counts 5.12 / x, so that extreme sums need moderate coordinates.
    """
    outside = jnp.abs(vector) > _LIMIT
    # Replaced twice: without the inner one, the gradient at 0 would be NaN.
    limited = jnp.where(outside, _LIMIT / jnp.where(outside, vector, 1.0), vector)
    half = vector.shape[0] // 2
    return jnp.stack([limited[:half].sum(), limited[half:].sum()])


def sphere(vector: Array) -> tuple[Array, Array]:
    """Return fitness and descriptor of the sphere function with linear projection.

    The fitness is 100 at the optimum, where all coordinates are 2.048, and 0 in the worst corner.
    """
    worst = (_LIMIT + _SHIFT) ** 2 * vector.shape[0]
    fitness = 100.0 * (1.0 - jnp.sum(jnp.square(vector - _SHIFT)) / worst)
    return fitness, linear_projection(vector)


def rastrigin(vector: Array) -> tuple[Array, Array]:
    """Return fitness and descriptor of the Rastrigin function with linear projection.

    The fitness is 100 at the optimum, where all coordinates are 2.048, and 0 in the worst corner.
    """
    edge, away = _LIMIT + _SHIFT, vector - _SHIFT
    worst = vector.shape[0] * (10.0 + edge**2 - 10.0 * np.cos(2.0 * np.pi * edge))
    height = jnp.sum(10.0 + jnp.square(away) - 10.0 * jnp.cos(2.0 * jnp.pi * away))
    return 100.0 * (1.0 - height / worst), linear_projection(vector)


def arm(vector: Array) -> tuple[Array, Array]:
    """Return fitness and descriptor of a planar arm, whose joints have the angles of the vector.

    All links have length 1. The fitness is 100 times 1 minus the variance of the angles in units of
    pi^2. The descriptor is the position of the hand.
    """
    heading = jnp.cumsum(vector)
    hand = jnp.stack([jnp.cos(heading).sum(), jnp.sin(heading).sum()])
    return 100.0 * (1.0 - jnp.var(vector) / jnp.pi**2), hand


_SUMS = {"descriptor_names": ("sum of the first half", "sum of the second half"),
         "descriptor_text": "sums of the two halves of the vector"}  # fmt: skip
_FUNCTIONS: dict[str, tuple[Function, str, Mapping[str, Any]]] = {
    "sphere": (sphere, "Sphere function with linear projection", _SUMS),
    "rastrigin": (rastrigin, "Rastrigin function with linear projection", _SUMS),
    "arm": (
        arm,
        "A planar arm whose hand must reach every position with joints bent alike",
        {"descriptor_names": ("hand x", "hand y"), "descriptor_text": "hand position x, y",
         "descriptor_units": ("links", "links")},
    ),
}  # fmt: skip


def make(name: Name, options: Mapping[str, Any]) -> Task:
    """Return the task of a benchmark function, such as `vectors:sphere,dimensions=20`."""
    if name.environment not in _FUNCTIONS:
        raise ValueError(
            f"task '{name}': unknown function '{name.environment}'. Known: {', '.join(_FUNCTIONS)}"
        )
    function, summary, fields = _FUNCTIONS[name.environment]
    dimensions = options.get("dimensions", 100)
    if dimensions < 2:
        raise ValueError(f"task '{name}': dimensions must be at least 2, got {dimensions}")
    reach = float(dimensions) if function is arm else dimensions / 2 * _LIMIT
    return task(
        str(name), function, dimensions, (-reach, -reach), (reach, reach),
        summary=f"{summary}, {dimensions} dimensions", **fields,
    )  # fmt: skip
