"""Check a task before training: trace it, then run it, and say what is wrong.

Messages name the function, the field and the line of the task's file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elites import references, tasks
from elites.tasks.task import Array, Task, TaskState

ROBOTS, STEPS = 32, 20  # of the real trial
POLICIES, LONGEST = 8, 1000  # of the check of whole episodes: its policies, and steps at most
_FIELDS = ("observation", "reward", "descriptor")

_TRACED = (
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.TracerArrayConversionError,
    jax.errors.ConcretizationTypeError,
)


def check_own(task: Task) -> None:
    """Raise a ValueError if a task cannot be trained on. Built-in tasks are not checked."""
    if not tasks.is_built_in(task):
        check(task)


@functools.cache
def check(task: Task) -> None:
    """Raise a ValueError if a task cannot be trained on.

    The task's `reset` and `step` are traced, and then run with random actions.
    """
    start = _shapes(task, "reset", task.reset, jax.random.key(0))
    _check_state(task, "reset", start)
    action = jax.ShapeDtypeStruct((task.action_size,), jnp.float32)
    following = _shapes(task, "step", task.step, start, action)
    _check_state(task, "step", following)
    _check_inner(task, start.inner, following.inner)
    _try(task)


# --------------------------------------------------------------------------------------- abstractly


def _shapes(task: Task, name: str, function: Callable[..., TaskState], *arguments: Any) -> Any:
    """Return the shapes and types of what a task's `reset` or `step` returns, without running it.

    `name` is "reset" or "step". Errors in the function are raised as a ValueError that names it.
    """
    try:
        return jax.eval_shape(function, *arguments)
    except _TRACED as error:
        raise ValueError(
            f"task '{task.name}': {name} needs a number that is only known when the compiled "
            "program runs, for example in a Python 'if', int() or a NumPy function"
            f"{references.place(error)}. Use jnp.where, jax.lax.cond or jax.numpy instead"
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"task '{task.name}': {name} raised {references.described(error)}"
        ) from error


def _check_state(task: Task, name: str, state: Any) -> None:
    """Raise a ValueError if `state` is not a `TaskState` with the shapes and types of this task.

    `state` holds the shapes that the function `name`, "reset" or "step", returns.
    """
    if not isinstance(state, TaskState):
        kind = "None" if state is None else type(state).__name__
        raise ValueError(f"task '{task.name}': {name} must return a TaskState, it returned {kind}")
    for field, shape in task.state_shapes.items():
        kind, called = (jnp.bool_, "bool") if field == "done" else (jnp.floating, "float32")
        found = getattr(state, field)
        if not hasattr(found, "shape"):
            raise ValueError(
                f"task '{task.name}': {field} of {name} must be an array, got "
                f"{type(found).__name__}"
            )
        if found.shape != shape or not jnp.issubdtype(found.dtype, kind):
            raise ValueError(
                f"task '{task.name}': {field} of {name} must be {called}{list(shape)}, got "
                f"{found.dtype}{list(found.shape)}{_declared(task, field)}"
            )


def _declared(task: Task, field: str) -> str:
    """Return the end of a message with the size that a task declares for a field.

    It is "" for fields other than the observation and the descriptor.
    """
    if field == "observation":
        return f"; observation_size is {task.observation_size}"
    if field == "descriptor":
        return f"; descriptor_low has {task.descriptor_size} entries"
    return ""


def _check_inner(task: Task, before: Any, after: Any) -> None:
    """Raise a ValueError if `step` returns an inner state of other shapes than `reset`.

    `before` is the inner state after `reset`, and `after` the one after `step`.
    """
    old, new = ({_name(path): leaf for path, leaf in _leaves(tree)} for tree in (before, after))
    for name in {**old, **new}:
        have, get = (
            f"{leaf.dtype}{list(leaf.shape)}" if (leaf := found.get(name)) is not None else "absent"
            for found in (old, new)
        )
        if have != get:
            raise ValueError(
                f"task '{task.name}': inner{name} is {have} after reset and {get} after step; it "
                "must stay the same"
            )
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise ValueError(
            f"task '{task.name}': inner has the structure {jax.tree.structure(before)} after reset "
            f"and {jax.tree.structure(after)} after step; it must stay the same"
        )


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_leaves_with_path(tree)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path)


# ------------------------------------------------------------------------------------------- really


def _try(task: Task) -> None:
    """Raise a ValueError if every simulated robot gets numbers that are not finite.

    A few robots are simulated for a few steps with random actions.
    """
    keys = jax.random.split(jax.random.key(0), ROBOTS)
    steps = min(STEPS, task.episode_length)
    try:
        start, end, finite = jax.jit(functools.partial(_trial, task, steps))(keys)
    except Exception as error:
        raise ValueError(
            f"task '{task.name}': {steps} steps of {ROBOTS} robots raised "
            f"{references.described(error)}"
        ) from error
    if not np.asarray(_finite(start)).any():
        raise ValueError(
            f"task '{task.name}': reset returns numbers that are not finite: "
            f"{', '.join(_not_finite(start))}"
        )
    if not np.asarray(finite).any():
        raise ValueError(
            f"task '{task.name}': after {steps} steps of random actions every robot has numbers "
            f"that are not finite: {', '.join(_not_finite(end))}"
        )


def _trial(task: Task, steps: int, keys: Array) -> tuple[TaskState, TaskState, Array]:
    """Simulate one robot per key [n] for `steps` steps of random actions.

    Returns the first states, the last states, and whether each robot has stayed finite [n].
    """
    start = jax.vmap(task.reset)(keys)

    def step(carry: tuple[TaskState, Array], time: Array):
        state, finite = carry
        key = jax.random.fold_in(jax.random.key(1), time)
        action = jax.random.uniform(key, (len(keys), task.action_size), minval=-1.0)
        state = jax.vmap(task.step)(state, action)
        return (state, finite & _finite(state)), None

    (end, finite), _ = jax.lax.scan(step, (start, _finite(start)), jnp.arange(steps))
    return start, end, finite


def _finite(state: TaskState) -> Array:
    """Return whether each robot has a finite observation, reward and descriptor: booleans [n]."""
    return _finite_fields(state).all(-1)


def _finite_fields(state: TaskState) -> Array:
    """Return whether each of `_FIELDS` is finite for each robot: booleans [n, 3]."""
    values = (getattr(state, name) for name in _FIELDS)
    return jnp.stack([jnp.isfinite(v).reshape(len(v), -1).all(-1) for v in values], -1)


def _not_finite(state: TaskState) -> list[str]:
    return [name for name in _FIELDS if not np.isfinite(getattr(state, name)).all()]


# -------------------------------------------------------------------------------- whole episodes


def check_episodes(task: Task) -> str:
    """Check a task like `check`, then run whole episodes, and return what was found in words.

    A few random policies are evaluated for one episode each, of at most `LONGEST` steps. Raises a
    ValueError if each of them comes to numbers that are not finite. If only some do, the words say
    so: training rejects such evaluations.
    """
    check(task)
    steps = min(LONGEST, task.episode_length)
    try:
        first, finite = map(np.asarray, jax.jit(functools.partial(_episodes, task, steps))())
    except Exception as error:
        raise ValueError(
            f"task '{task.name}': an episode raised {references.described(error)}"
        ) from error
    done = f"{steps} steps of {POLICIES} random policies"
    broken = np.flatnonzero(first)
    if not len(broken):
        return f"{task.name}: {done} found no fault"
    i = broken[np.argmin(first[broken])]
    fields = [name for name, good in zip(_FIELDS, finite[i], strict=True) if not good]
    where = f"first in step {first[i]} of {task.episode_length}: {', '.join(fields)}"
    if len(broken) == POLICIES:
        raise ValueError(
            f"task '{task.name}': every one of {POLICIES} random policies comes to numbers that "
            f"are not finite, {where}"
        )
    return (
        f"{task.name}: in {done}, {len(broken)} came to numbers that are not finite, {where}. "
        "Training rejects such evaluations"
    )


def _episodes(task: Task, steps: int) -> tuple[Array, Array]:
    """Simulate one episode for each of n random linear policies.

    Returns the number of the first step with numbers that are not finite [n], from 1 on or 0 if
    there is none, and which of `_FIELDS` were finite then [n, 3].
    """
    shape = (POLICIES, task.observation_size, task.action_size)
    weights = jax.random.normal(jax.random.key(2), shape)
    bias = jax.random.normal(jax.random.key(3), (POLICIES, task.action_size))
    start = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), POLICIES))

    def step(carry: tuple[TaskState, Array, Array, Array], number: Array):
        state, alive, first, finite = carry
        action = jnp.tanh(jnp.einsum("no,noa->na", state.observation, weights) + bias)
        state = jax.vmap(task.step)(state, action)
        found = _finite_fields(state)
        breaks = alive & ~found.all(-1)
        first = jnp.where(breaks, number, first)
        finite = jnp.where(breaks[:, None], found, finite)
        return (state, alive & ~breaks & ~state.done, first, finite), None

    before = (start, jnp.ones(POLICIES, bool), jnp.zeros(POLICIES, int), _finite_fields(start))
    (_, _, first, finite), _ = jax.lax.scan(step, before, jnp.arange(1, steps + 1))
    return first, finite
