"""Check a task before training: trace it, then run it, and say what is wrong.

Messages name the function, the field and the line of the task's file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from elites import references, tasks
from elites.core import networks
from elites.core.types import Outside
from elites.tasks.rollout import finite
from elites.tasks.task import Array, Task, TaskState

POLICIES = 8  # of each check
STEPS, LONGEST = 20, 1000  # steps of the check before training, and at most of whole episodes
_FIELDS = ("observation", "reward", "descriptor", "inner")

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

    The task's `reset` and `step` are traced, and then run with random actions. A task that runs
    outside of JAX was checked when it was made.
    """
    if task.outside is not None:
        return
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


class _Trial(NamedTuple):
    """Episodes of random policies: when each first had numbers that are not finite, and where."""

    first: np.ndarray  # [n] step, from 1 on; 0 after reset; -1 if there is none
    fields: list[str]  # of the earliest such state, those of `_FIELDS` that are not finite

    @property
    def broken(self) -> int:
        """Number of episodes with numbers that are not finite."""
        return int(np.sum(self.first >= 0))


def _try(task: Task) -> None:
    """Raise a ValueError if every one of a few random policies gets numbers that are not finite.

    Each policy is simulated for at most `STEPS` steps.
    """
    steps = min(STEPS, task.episode_length)
    found = _simulated(task, steps)
    if found.broken < POLICIES:
        return
    if found.first.max() == 0:
        raise ValueError(
            f"task '{task.name}': reset returns numbers that are not finite: "
            f"{', '.join(found.fields)}"
        )
    raise ValueError(
        f"task '{task.name}': within {steps} steps every one of {POLICIES} random policies has "
        f"numbers that are not finite: {', '.join(found.fields)}"
    )


def check_episodes(task: Task) -> str:
    """Check a task like `check`, then run whole episodes, and return what was found in words.

    A few random policies are evaluated for one episode each, of at most `LONGEST` steps. Raises a
    ValueError if each of them comes to numbers that are not finite. If only some do, the words say
    so: training rejects such evaluations.
    """
    check(task)
    if task.outside is not None:
        return _check_outside(task, task.outside)
    steps = min(LONGEST, task.episode_length)
    found = _simulated(task, steps)
    done = f"{steps} steps of {POLICIES} random policies"
    if not found.broken:
        return f"{task.name}: {done} found no fault"
    earliest = found.first[found.first >= 0].min()
    where = f"first in step {earliest} of {task.episode_length}: {', '.join(found.fields)}"
    if found.broken == POLICIES:
        raise ValueError(
            f"task '{task.name}': every one of {POLICIES} random policies comes to numbers that "
            f"are not finite, {where}"
        )
    return (
        f"{task.name}: in {done}, {found.broken} came to numbers that are not finite, {where}. "
        "Training rejects such evaluations"
    )


def _check_outside(task: Task, runner: Outside) -> str:
    """Run episodes of a task outside of JAX, and return what was found in words.

    Raises a ValueError if every episode comes to numbers that are not finite.
    """
    network = networks.policy(task.observation_size, task.action_size, hidden=())
    drawn = np.random.default_rng(0).normal(size=(POLICIES, network.size)).astype(np.float32)
    found = runner.run([(network, row) for row in drawn], np.arange(POLICIES), record=False)
    broken = POLICIES - int(np.sum(found.valid))
    done = f"whole episodes of {POLICIES} random policies, {np.sum(found.steps)} steps in all,"
    if broken == POLICIES:
        raise ValueError(
            f"task '{task.name}': every one of {POLICIES} random policies comes to numbers that "
            "are not finite"
        )
    if broken:
        return (
            f"{task.name}: in {done} {broken} came to numbers that are not finite. Training "
            "rejects such evaluations"
        )
    return f"{task.name}: {done} found no fault"


def _simulated(task: Task, steps: int) -> _Trial:
    """Simulate one episode of each of n random linear policies for at most `steps` steps.

    Raises a ValueError if that raises an error.
    """
    try:
        first, good = map(np.asarray, jax.jit(functools.partial(_episodes, task, steps))())
    except Exception as error:
        raise ValueError(
            f"task '{task.name}': {steps} steps of {POLICIES} policies raised "
            f"{references.described(error)}"
        ) from error
    if (first < 0).all():
        return _Trial(first, [])
    earliest = np.argmin(np.where(first < 0, steps + 1, first))
    fields = [name for name, is_good in zip(_FIELDS, good[earliest], strict=True) if not is_good]
    return _Trial(first, fields)


def _episodes(task: Task, steps: int) -> tuple[Array, Array]:
    """Simulate one episode of each of n random linear policies, as `rollout` does.

    Returns the number of the first step with numbers that are not finite [n], 0 if that is so
    after reset and -1 if there is none, and which of `_FIELDS` were finite then [n, 4].
    """
    shape = (POLICIES, task.observation_size, task.action_size)
    weights = jax.random.normal(jax.random.key(2), shape)
    bias = jax.random.normal(jax.random.key(3), (POLICIES, task.action_size))
    start = jax.vmap(task.reset)(jax.random.split(jax.random.key(0), POLICIES))

    def step(carry: tuple[TaskState, Array, Array, Array], number: Array):
        state, alive, first, good = carry
        action = jnp.tanh(jnp.einsum("no,noa->na", state.observation, weights) + bias)
        state = jax.vmap(task.step)(state, action)
        found = _finite_fields(state)
        breaks = alive & ~found.all(-1)
        first = jnp.where(breaks, number, first)
        good = jnp.where(breaks[:, None], found, good)
        return (state, alive & ~breaks & ~state.done, first, good), None

    good = _finite_fields(start)
    alive = good.all(-1)
    before = (start, alive, jnp.where(alive, -1, 0), good)
    (_, _, first, good), _ = jax.lax.scan(step, before, jnp.arange(1, steps + 1))
    return first, good


def _finite_fields(state: TaskState) -> Array:
    """Return whether each of `_FIELDS` is finite for each robot: booleans [n, 4]."""
    return jnp.stack([finite(getattr(state, name), len(state.reward)) for name in _FIELDS], -1)
