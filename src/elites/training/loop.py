"""Train in one call, and build algorithms by name."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import operator
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import SupportsIndex

import jax
import numpy as np

from elites import presets, references, tasks
from elites.core.algorithm import Algorithm, S
from elites.core.hyperparameters import Hyperparameters, Value
from elites.interop.tables import MetricsTable
from elites.output import complain, warn
from elites.tasks import checking
from elites.tasks.rollout import problem
from elites.tasks.task import Task
from elites.training import devices
from elites.training.builders import Builder, build_algorithm, hyperparameters_of, preset_for
from elites.training.display import notes_on_axes
from elites.training.keys import iteration_keys, seed_keys
from elites.training.reporting import Callback, Reports
from elites.training.results import Run, Source, named
from elites.training.seeds import Batched
from elites.training.starting import Given, archive_of
from elites.training.stopping import Interrupts, StopTraining, TrainingInterrupted


def build(
    task: str | Task | Callable[[], Task],
    algorithm: str | Builder = "dcg_me",
    *,
    preset: str | None = None,
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> Algorithm:
    """Return an algorithm built on a task, to run in your own loop.

    The result has `start(key) -> state` and `step(state, key) -> state, metrics`.

    `task` is a name, FILE.py:FUNCTION, a `Task`, or a function that returns one. `algorithm` is a
    name, FILE.py:FUNCTION, or a function of a problem and hyperparameters that returns an
    `Algorithm`.

    The hyperparameters are those of the preset (paper, short, vectors, demo or smoke), or of the
    record `hp` if it is given. The default is vectors for plain vectors, and paper for all other
    tasks. Keyword arguments replace single ones. One that the algorithm does not read causes a
    warning.
    """
    on = task_of(task)
    preset = preset_for(problem(on)) if preset is None else preset
    return _build(on, algorithm, hyperparameters_of(algorithm, preset, hp, hyperparameters))


def train(
    task: str | Task | Callable[[], Task],
    algorithm: str | Builder = "dcg_me",
    *,
    preset: str | None = None,
    seeds: int | Sequence[int] = 1,
    evaluations: int | None = None,
    progress: bool | Callback | None = None,
    callback: Callback | Sequence[Callback] = (),
    log: str | Sequence[str] = (),
    start_from: str | Path | None = None,
    hp: Hyperparameters | None = None,
    **hyperparameters: Value,
) -> Run:
    """Train an algorithm on a task and return the run: archives, actors and metrics of all seeds.

    Training ends with the first iteration that reaches the budget of evaluations.

    `seeds` is a sequence of seeds, or a number N for the seeds 0 to N - 1. `evaluations` is the
    budget of each seed and defaults to the preset's. See `build` for the task, the algorithm and
    the hyperparameters.

    `callback` is a function of (iteration, metrics), or a sequence of such functions. They are
    called after every iteration. To end training, a callback raises `elites.StopTraining`, and
    `train` returns the run so far.

    `progress` says whether to show a progress line. By default, it is shown on a terminal and in a
    notebook. If `progress` is a function, it is called like a callback, and no line is shown.

    `log` names services that the metrics are logged to as well, "wandb" or "mlflow", see
    `elites.loggers`.

    `start_from` is the directory of a run whose archive each seed starts from. Its policies must
    have the same layers, and its descriptor the same bounds. Bounds that were estimated for it are
    used again. Its elites are evaluated again, which does not count towards the budget. The archive
    may also be a CSV file of pyribs or a folder of QDax, see `elites.interop`.

    Ctrl-C ends training after the current iteration and raises `elites.TrainingInterrupted`, a
    KeyboardInterrupt whose attribute `run` is the run so far. A second Ctrl-C raises at once.
    """
    _refuse_seed(hyperparameters)
    seeds = _checked(seeds)
    devices.provide(len(seeds))  # before anything is computed
    if isinstance(task, str):
        name: str = task if start_from is None else _runs().task_with_bounds(start_from, task)
        task = tasks.resolve(name, complain if progress is not False else None)
    on = task_of(task)
    preset = preset_for(problem(on)) if preset is None else preset
    values = hyperparameters_of(algorithm, preset, hp, hyperparameters, _ARGUMENTS)
    checking.check_own(on)
    budget = presets.get(preset).evaluations if evaluations is None else evaluations
    where = str(Path(start_from).resolve()) if start_from is not None else ""
    source = Source(values, budget, preset, on, task, algorithm, where)
    built, given = _build(on, algorithm, values), None
    if start_from is not None:
        built, given = _runs().given_to(built, where, len(seeds))
    return _train(built, source, seeds, progress, callback, log, given)


def _runs() -> ModuleType:
    """Return the package `elites`, which knows how runs are read. Training itself does not."""
    import elites

    return elites


_ARGUMENTS = ("seeds", "evaluations", "preset", "progress", "callback", "log", "start_from", "hp")


def _refuse_seed(values: Mapping[str, Value]) -> None:
    """Raise a ValueError that explains `seeds` if an argument is called `seed`."""
    if "seed" in values:
        raise ValueError(
            f"unknown argument 'seed'. seeds=[{values['seed']!r}] trains the seed of that number; "
            "seeds=N trains N seeds, from 0 on"
        )


def train_algorithm(
    algorithm: Algorithm[S],
    *,
    seeds: int | Sequence[int] = 1,
    evaluations: int = presets.PAPER.evaluations,
    progress: bool | Callback | None = None,
    callback: Callback | Sequence[Callback] = (),
) -> Run[S]:
    """Train an algorithm that is already built and return the run.

    See `train` for the arguments.
    """
    seeds = _checked(seeds)
    devices.provide(len(seeds))  # has an effect if building the algorithm has not started JAX
    return _train(algorithm, Source(algorithm.hp, evaluations), seeds, progress, callback)


def _train(
    algorithm: Algorithm[S],
    source: Source,
    seeds: Sequence[int],
    progress: bool | Callback | None,
    callback: Callback | Sequence[Callback],
    log: str | Sequence[str] = (),
    given: Given | None = None,
) -> Run[S]:
    """Train an algorithm from the given policies, or from empty archives, and return the run."""
    total = iterations_for(algorithm, source.evaluations)
    history: list[dict[str, np.ndarray]] = []
    with Interrupts() as interrupts, Reports(progress, callback, log, total) as reports:
        with reports.compiling():
            batched, keys = Batched(algorithm, len(seeds), _kernels()), seed_keys(seeds)
            batched.compile(batched.shapes(keys), keys)
            archive = None if given is None else archive_of(batched, given, keys)
            state = jax.block_until_ready(batched.start(iteration_keys(keys, 0), archive))
        if source.task is not None:
            for note in notes_on_axes(source.task.descriptor_axes, batched.constant_axes):
                warn(note)
        name = f"{algorithm.problem.name}-{algorithm.name}"
        begun = time.perf_counter()
        with reports.logging(name, source, seeds) as logged, contextlib.suppress(StopTraining):
            while len(history) < total and not interrupts.received:
                state, metrics = batched.step(state, iteration_keys(keys, len(history) + 1))
                seconds = np.full(len(seeds), time.perf_counter() - begun)
                history.append({**named(metrics), "seconds": seconds})
                reports.iteration(len(history), history[-1])
    source = dataclasses.replace(source, logged=logged.identities)
    if not history:
        raise KeyboardInterrupt
    table = {name: np.stack([row[name] for row in history]) for name in history[0]}
    found = (state.archive, algorithm.actor(state))
    archives, actors = devices.on_one_device(found, batched.devices)
    metrics = MetricsTable(table, tuple(seeds))
    names = tuple(axis.name for axis in source.task.descriptor_axes) if source.task else ()
    run = Run(
        algorithm, tuple(seeds), archives, actors, metrics, state, _kernels(), batched.devices,
        source, names,
    )  # fmt: skip
    if interrupts.received:
        raise TrainingInterrupted(run, len(history), total)
    return run


@functools.cache
def _kernels() -> Path | None:
    """Return the directory in which this process keeps the compiler's choices of GPU kernels.

    Returns None without a GPU. With the same choices, a re-evaluation computes the same bits as
    training.
    """
    if jax.default_backend() != "gpu":
        return None
    path = tempfile.mkdtemp(prefix="elites-kernels-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def task_of(task: str | Task | Callable[[], Task]) -> Task:
    """Return the task that an argument `task` names, is, or returns when it is called.

    Raises a ValueError if it is anything else.
    """
    if isinstance(task, str):
        return tasks.make(task)
    made = task() if callable(task) else task
    if not isinstance(made, Task):
        raise ValueError(
            f"a task is a name, a Task or a function that returns one, got {references.kind(made)}"
        )
    return made


def _build(task: Task, algorithm: str | Builder, hp: Hyperparameters) -> Algorithm:
    return build_algorithm(algorithm, problem(task), hp)


def _checked(seeds: int | Sequence[int]) -> list[int]:
    """Return the argument `seeds` of `train` as a list, or raise a ValueError if it is invalid."""
    return checked_seeds(list(seeds) if isinstance(seeds, Iterable) else _first_seeds(seeds))


def _first_seeds(count: SupportsIndex) -> range:
    """Return the seeds 0 to `count` - 1, or raise a ValueError if there are too many."""
    number = _integer("seeds", count)
    if number > presets.MAX_SEEDS:
        raise ValueError(
            f"seeds must be at most {presets.MAX_SEEDS}, got {number}. seeds=[{number}] trains one "
            "seed"
        )
    return range(number)


def checked_seeds(seeds: Sequence[int]) -> list[int]:
    """Return the seeds as a list of ints, or raise a ValueError if they are invalid.

    There must be at least one seed. All must be different integers from 0 to 2**32 - 1.
    """
    found = [_integer("seeds", seed) for seed in seeds]
    if not found:
        raise ValueError("seeds must be at least 1")
    for seed in found:
        if not 0 <= seed < 2**32:
            raise ValueError(f"a seed must be between 0 and 2**32 - 1, got {seed}")
    if len(set(found)) < len(found):
        raise ValueError(f"seeds must be different from each other, got {found}")
    return found


def iterations_for(algorithm: Algorithm, evaluations: int) -> int:
    """Return the number of iterations after which the budget of evaluations is reached.

    The evaluations of the initial policies count towards the budget. Raises a ValueError if the
    budget is too small for one iteration.
    """
    evaluations = _integer("evaluations", evaluations)
    initial, each = algorithm.initial_evaluations, algorithm.evaluations_per_iteration
    if evaluations < initial + each:
        raise ValueError(
            f"evaluations must be at least {initial} + {each}, the start and one iteration of "
            f"{algorithm.name}; got {evaluations}"
        )
    return -(-(evaluations - initial) // each)


def _integer(name: str, value: SupportsIndex) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
