"""Fingerprints of the code that a run is trained with, to notice when it changes.

Two things are recorded with a run:

    code    digests of the traced code: `reset` and `step` of the task, and the stages of an
            algorithm of one's own
    probe   rewards, descriptors and observations of a few steps of the task

Traced code does not depend on comments, formatting or names. Equal digests mean equal code. Unequal
ones mean that the code has changed, but only if versions and device are the same: another JAX
may trace the same code in another way. Otherwise the probe decides. It starts from a fixed key,
takes fixed actions, always runs on the CPU, and is compared with a tolerance, because another
machine rounds differently.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

import elites
from elites.tasks.task import Array, Task, TaskState
from elites.training import Batched

STEPS = 8  # of the probe
TOLERANCE = 2e-3  # of a series of the probe, as a share of its largest number
_CONSTANTS_TOLERANCE = 1e-6  # as a share of their sum

Code = dict[str, Any]  # {"digest": ..., "constants": [two numbers]}
Probe = dict[str, Any]  # {"reward": [STEPS], "descriptor": [STEPS][D], "observation": [STEPS]}


# -------------------------------------------------------------------------------- record, compare


def of_task(task: Task) -> dict[str, Any] | None:
    """Return the fingerprint of a task: versions, digests of its traced code, and a probe of it.

    A probe is a short fixed rollout of the task. Returns None if the task cannot be run. Training
    then fails as well, with a message about the fault.
    """
    try:
        return {**_made_with(), "code": _task_code(task), "probe": _probe(task)}
    except Exception:
        return None


def of_algorithm(batched: Batched, shapes: Any, keys: Array) -> dict[str, Any]:
    """Return the fingerprint of an algorithm: versions, and digests of its traced stages.

    The rollouts are left out. `shapes` and `keys` are those of the training state.
    """
    code = {"train": _code(batched.compiled.train, shapes, keys)}
    for i, (ask, tell, _) in enumerate(batched.compiled.rounds):
        request = jax.eval_shape(ask, shapes, keys)
        evaluation = jax.eval_shape(batched.compiled.evaluate, request)
        code[f"ask {i}"] = _code(ask, shapes, keys)
        code[f"tell {i}"] = _code(tell, shapes, request, evaluation)
    return {**_made_with(), "devices": jax.local_device_count(), "code": code}


def is_current(fingerprint: Any) -> bool:
    """Return whether a fingerprint was made with these versions, on this kind of device.

    A fingerprint holds digests of traced code.
    """
    made_with = _made_with()
    return isinstance(fingerprint, Mapping) and made_with.items() <= fingerprint.items()


def task_changes(before: Mapping[str, Any], task: Task) -> list[str]:
    """Return sentences about what changed in a task since its fingerprint `before` was recorded.

    The list is empty if nothing changed, or if the task cannot be run.
    """
    try:
        differing = _code_changes(before, _task_code(task))
        numbers = _probe_changes(before.get("probe"), _probe(task)) if differing else []
    except Exception:
        return []  # the task cannot be run, see `of_task`
    if not differing or not is_current(before):
        return numbers
    known = "; ".join(numbers) or f"a probe of {STEPS} steps agrees within {TOLERANCE:.1%}"
    return [f"the code of the task's {' and '.join(differing)} is different ({known})"]


def algorithm_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return sentences about what changed in an algorithm between two fingerprints.

    The list is empty if nothing changed, or if versions or devices differ, so that the fingerprints
    cannot be compared.
    """
    if not is_current(before) or before.get("devices") != now["devices"]:
        return []
    differing = _code_changes(before, now["code"])
    stages = sorted({name.split()[0] for name in differing})
    return [f"the algorithm's code of {' and '.join(stages)} is different"] if stages else []


def _made_with() -> dict[str, str]:
    """Return the versions of JAX and elites, and the JAX backend, by name."""
    return {
        "jax": jax.__version__,
        "elites": elites.__version__,
        "backend": jax.default_backend(),
    }


def _code_changes(before: Mapping[str, Any], now: Mapping[str, Code]) -> list[str]:
    """Return the names of the functions whose code or constants differ from those recorded.

    `before` is a recorded fingerprint. `now` maps function names to digests and constants.
    """
    recorded = before.get("code")
    if not isinstance(recorded, Mapping):
        return []
    return [name for name, code in now.items() if not _same_code(recorded.get(name), code)]


def _same_code(before: Any, now: Code) -> bool:
    """Return whether two functions have the same digest and, within a tolerance, constants."""
    try:
        first, second = np.array(before["constants"]), np.array(now["constants"])
        close = np.abs(first - second) <= _CONSTANTS_TOLERANCE * (1 + second[0])
        return before["digest"] == now["digest"] and bool(close.all())
    except (TypeError, KeyError, ValueError):
        return False


# ----------------------------------------------------------------------------------------- probe


def _probe(task: Task) -> Probe:
    """Return the probe of a task: its rewards, descriptors and observations in a fixed rollout."""
    sizes = (task.observation_size, task.action_size)
    return _probe_of(task.reset, task.step, *sizes)


@functools.cache
def _probe_of(
    reset: Callable[[Array], TaskState],
    step: Callable[[TaskState, Array], TaskState],
    observation_size: int,
    action_size: int,
) -> Probe:
    """Take a few steps of a task and return rewards, descriptors and observations of each.

    The actions are computed from the observations, so that the probe covers all observed values.
    """
    weights = np.cos(1.0 + np.arange(action_size * observation_size))
    weights = weights.reshape(action_size, observation_size)
    # Compiled fast, to slow code: it is used for a few steps.
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    compiled_step = jax.jit(step, compiler_options=options)
    probe: Probe = {"reward": [], "descriptor": [], "observation": []}
    with _on_cpu():
        state = jax.jit(reset, compiler_options=options)(jax.random.key(0))
        for _ in range(STEPS):
            seen = np.nan_to_num(np.asarray(state.observation, np.float64))
            state = compiled_step(state, jnp.asarray(np.tanh(weights @ seen), jnp.float32))
            observation = np.asarray(state.observation, np.float64)
            probe["reward"].append(_number(state.reward))
            probe["descriptor"].append([_number(value) for value in np.asarray(state.descriptor)])
            probe["observation"].append(_number(np.mean(weights[0] * observation)))
    return probe


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Compute on the CPU inside the `with` block, if JAX has that device."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use the accelerator alone
        yield
        return
    with jax.default_device(device):
        yield


def _number(value: Any) -> float | None:
    """Return a number with six digits, as it is recorded, or None if it is not finite."""
    number = float(value)
    return float(f"{number:.6g}") if np.isfinite(number) else None


def _probe_changes(before: Any, now: Probe) -> list[str]:
    """Return sentences about the series of a probe that differ in most of their steps.

    A series is the reward, descriptor or observation at each step. A difference in rounding grows
    with the steps, and can change a single step from contact to no contact.
    """
    if not isinstance(before, Mapping):
        return []
    said = []
    for name, series in now.items():
        recorded = before.get(name)
        try:
            pairs = [(_row(a), _row(b)) for a, b in zip(recorded or (), series, strict=True)]
            largest = max(np.nanmax(np.abs(np.stack(pair)), initial=0.0) for pair in pairs)
            differing = [not _close(*pair, TOLERANCE * largest) for pair in pairs]
        except (TypeError, ValueError):
            differing = [True] * STEPS  # of another number
        if sum(differing) > STEPS // 2:
            last = f"{_shown(series)}, before {_shown(recorded)}"
            said.append(f"the {name} of a probe is {last}")
    return said


def _row(value: Any) -> np.ndarray:
    """Return one step of a probe's series as an array of floats. None becomes NaN."""
    return np.array([value], float).reshape(-1)  # None becomes NaN


def _close(before: np.ndarray, now: np.ndarray, tolerance: float) -> bool:
    """Return whether two arrays agree within an absolute tolerance. NaN equals NaN."""
    return bool(np.isclose(before, now, rtol=0.0, atol=tolerance, equal_nan=True).all())


def _shown(series: Any) -> str:
    """Return the last number of a probe's series as text, as an example for a message."""
    last = series[-1] if isinstance(series, list) and series else None
    return f"[{', '.join(map(str, last))}]" if isinstance(last, list) else str(last)


# ------------------------------------------------------------------------------------ traced code


def _task_code(task: Task) -> dict[str, Code]:
    """Return digest and constants of a task's traced `reset` and `step`, by function name."""
    return _task_code_of(task.reset, task.step, task.action_size)


@functools.cache
def _task_code_of(
    reset: Callable[[Array], TaskState],
    step: Callable[[TaskState, Array], TaskState],
    action_size: int,
) -> dict[str, Code]:
    """Return digest and constants of the traced `reset` and `step`, by function name.

    The result is cached.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, action = jax.eval_shape(reset, key), jax.ShapeDtypeStruct((action_size,), jnp.float32)
    return {"reset": _code(jax.jit(reset), key), "step": _code(jax.jit(step), state, action)}


def _code(function: Callable[..., Any], *arguments: Any) -> Code:
    """Return digest and constants of a jitted function, traced with `arguments` or their shapes."""
    traced = cast(jax.stages.Wrapped, function).trace(*arguments).jaxpr
    text = _Tracer().closed(traced)
    return {"digest": text.digest[:16], "constants": _summary(text.constants)}


class _Text(NamedTuple):
    """Digest of a traced function, and the constant arrays in it."""

    digest: str
    constants: list[Any]


class _Tracer:
    """Computes digests of traced code that are the same in every process.

    JAX prints traced code as well, but with names of functions, and in a form that depends on what
    was traced before.
    """

    def __init__(self):
        self._known: dict[int, _Text] = {}

    def closed(self, code: ClosedJaxpr) -> _Text:
        """Return digest and constants of traced code, including the constants bound to it."""
        inner = self._function(code.jaxpr)
        return _Text(inner.digest, [*code.consts, *inner.constants])

    def _function(self, code: Jaxpr) -> _Text:
        """Return digest and constants of a traced function. The result is cached."""
        if id(code) not in self._known:
            constants: list[Any] = []
            lines = "\n".join(self._lines(code, constants))
            self._known[id(code)] = _Text(hashlib.sha256(lines.encode()).hexdigest(), constants)
        return self._known[id(code)]

    def _lines(self, code: Jaxpr, constants: list[Any]) -> Iterator[str]:
        """Yield a traced function as lines of text without names, one for each operation.

        Adds the arrays in the code to `constants`.
        """
        numbers: dict[Any, int] = {}

        def define(variables: Iterable[Any]) -> str:
            """Number new variables, and return their numbers and types as text."""
            for variable in variables:
                numbers[variable] = len(numbers)
            return " ".join(f"{numbers[v]}:{v.aval.str_short()}" for v in variables)

        def use(atoms: Iterable[Any]) -> str:
            """Return the inputs of an operation as text: variable numbers, or literal values."""
            return " ".join(
                f"{self._value(atom.val, constants)}:{atom.aval.str_short()}"
                if isinstance(atom, Literal)
                else str(numbers[atom])
                for atom in atoms
            )

        yield f"{define(code.constvars)} ; {define(code.invars)}"
        for step in code.eqns:
            yield f"{self._operation(step, constants)} {use(step.invars)} > {define(step.outvars)}"
        yield use(code.outvars)

    def _operation(self, step: JaxprEqn, constants: list[Any]) -> str:
        """Return name and parameters of an operation as text. Adds arrays to `constants`."""
        described = [
            f"{name}={self._value(value, constants)}"
            for name, value in sorted(step.params.items())
            if name != "name"
        ]
        return f"{step.primitive.name}[{' '.join(described)}]"

    def _value(self, value: Any, constants: list[Any]) -> str:
        """Return a parameter of an operation as text.

        A function becomes its digest, an array the word "array". Arrays are added to `constants`.
        """
        if isinstance(value, ClosedJaxpr | Jaxpr):
            text = self.closed(value) if isinstance(value, ClosedJaxpr) else self._function(value)
            constants += text.constants
            return text.digest
        if isinstance(value, list | tuple):
            return f"({' '.join(self._value(item, constants) for item in value)})"
        if isinstance(value, Mapping):
            return self._value(sorted(value.items()), constants)
        if isinstance(value, np.ndarray | jax.Array) and value.ndim:
            constants.append(value)
            return "array"
        if isinstance(value, float | np.floating):
            return f"{value:.6g}"  # the mathematics library of another machine may differ
        if callable(value) and not isinstance(value, type):
            return "function"  # rules of derivatives, or Python to call back: probed, not read
        return _rounded(re.sub(r"0x[0-9a-fA-F]+", "", str(value)))


def _rounded(text: str) -> str:
    """Return a text with its decimal numbers rounded to six digits."""
    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def _summary(constants: Iterable[Any]) -> list[float]:
    """Return two numbers that change with any constant. They are compared with a tolerance."""
    total, weighted, count = 0.0, 0.0, 0
    for constant in constants:
        if jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        values = np.nan_to_num(np.asarray(constant).astype(np.float64).reshape(-1))
        values = np.sign(values) * np.log1p(np.abs(values))  # so that no large one hides the others
        total += float(np.abs(values).sum())
        weighted += float(values @ np.cos(1.0 + count + np.arange(len(values))))
        count += len(values)
    return [float(f"{total:.9g}"), float(f"{weighted:.9g}")]
