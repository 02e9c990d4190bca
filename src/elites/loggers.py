"""Loggers of other services: Weights & Biases and MLflow, off unless they are asked for.

    elites train walker_uni dcg_me --log wandb mlflow
    elites.train("walker_uni", "dcg_me", log="wandb")

One run of elites is one run of the service, whose name is that of task and algorithm. With several
seeds, a metric has the median over the seeds, and `seed_N/METRIC` has each. A logger that fails
warns once and stays silent from then on: training continues, and metrics.csv has all numbers.

The services read their own settings from the environment, such as WANDB_MODE and
MLFLOW_TRACKING_URI. WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME are "elites" if they are not set.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from elites import packages
from elites.output import warn
from elites.words import plain

GROUP = "elites"
"""Default name of the W&B project and of the MLflow experiment."""
_BATCH = 100  # parameters that MLflow accepts in one call


class Subject(NamedTuple):
    """What is logged: a name for the run, its settings by name, and its seeds."""

    name: str
    settings: Mapping[str, Any]
    seeds: Sequence[int]


class Logger(Protocol):
    """A run of a service. `identity` names it, so that a resumed session can continue it."""

    identity: str

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        """Log the values of an iteration, keyed by name."""

    def close(self) -> None:
        """End the session."""


class _Wandb:
    """A run of Weights & Biases."""

    def __init__(self, subject: Subject, identity: str | None):
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", GROUP),
            name=subject.name,
            config=dict(subject.settings),
            id=identity,
            resume="allow",
            reinit="create_new",  # a run that the user has begun is left alone
            allow_val_change=True,  # a longer budget of a resumed run
        )
        # The service's own steps only grow, but a resumed run may repeat iterations.
        self._run.define_metric("iteration")
        self._run.define_metric("*", step_metric="iteration")
        self.identity = str(self._run.id)

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        self._run.log({"iteration": iteration, **values})

    def close(self) -> None:
        self._run.finish()


class _Mlflow:
    """A run of MLflow."""

    def __init__(self, subject: Subject, identity: str | None):
        from mlflow import MlflowClient, entities

        self._entities, self._client = entities, MlflowClient()
        if identity is not None:
            self._client.update_run(identity, status="RUNNING")
            self.identity = identity
            return
        group = os.environ.get("MLFLOW_EXPERIMENT_NAME", GROUP)
        found = self._client.get_experiment_by_name(group)
        where = found.experiment_id if found else self._client.create_experiment(group)
        self.identity = self._client.create_run(where, run_name=subject.name).info.run_id
        settings = [
            self._entities.Param(name, str(value)[:500]) for name, value in subject.settings.items()
        ]
        for i in range(0, len(settings), _BATCH):
            self._client.log_batch(self.identity, params=settings[i : i + _BATCH])

    def log(self, iteration: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(k, v, now, iteration) for k, v in values.items()]
        for i in range(0, len(metrics), _BATCH):
            self._client.log_batch(self.identity, metrics=metrics[i : i + _BATCH])

    def close(self) -> None:
        self._client.set_terminated(self.identity)


_KINDS: dict[str, tuple[str, Callable[[Subject, str | None], Logger]]] = {
    "wandb": ("Weights & Biases", _Wandb),
    "mlflow": ("MLflow", _Mlflow),
}
NAMES = tuple(_KINDS)


def checked(names: object) -> tuple[str, ...]:
    """Return the names of loggers as a tuple, or raise a ValueError if they are invalid."""
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence):
        raise ValueError(f"log must be names of loggers, got {names!r}")
    for name in found:
        if name not in NAMES:
            raise ValueError(f"log must be {' or '.join(NAMES)}, got {name!r}")
    return tuple(dict.fromkeys(found))


def require(names: Sequence[str]) -> None:
    """Raise a ValueError if the package of a logger is not installed."""
    for name in names:
        packages.require(name, extra=name, purpose=f"logging to {_KINDS[name][0]}")


class Loggers:
    """The loggers of a training session. Use it in a `with` block, or call `close` at the end."""

    def __init__(
        self, names: Sequence[str], subject: Subject, identities: Mapping[str, str] | None = None
    ):
        """Start the loggers. `identities` are those of runs to continue, keyed by logger."""
        self._subject, self._open = subject, {}
        self.identities = dict(identities or {})
        """Names of the services' runs, keyed by logger. It also has those of earlier sessions."""
        for name in names:
            self._guarded(name, self._start, name)

    def _start(self, name: str) -> None:
        logger = _KINDS[name][1](self._subject, self.identities.get(name))
        self._open[name] = logger
        self.identities[name] = logger.identity

    def log(self, iteration: int, metrics: Mapping[str, Any], group: str = "") -> None:
        """Log the metrics [seeds] of an iteration, keyed by name. `group` begins their names."""
        if not self._open:
            return
        values = scalars(metrics, self._subject.seeds, group)
        for name, logger in [*self._open.items()]:
            self._guarded(name, logger.log, iteration, values)

    def close(self) -> None:
        """End the sessions of all loggers."""
        for name, logger in [*self._open.items()]:
            self._guarded(name, logger.close)
        self._open = {}

    def _guarded(self, name: str, function: Callable[..., object], *arguments: object) -> None:
        """Call a function of a logger. If it fails, warn and give the logger up."""
        try:
            function(*arguments)
        except (Exception, SystemExit) as error:  # whatever a service does, training goes on
            self._open.pop(name, None)
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            warn(f"no more logging to {_KINDS[name][0]}: {plain(what, 500)}")

    def __enter__(self) -> Loggers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def scalars(metrics: Mapping[str, Any], seeds: Sequence[int], group: str = "") -> dict[str, float]:
    """Return metrics [seeds] as numbers by name: the median over seeds, and `seed_N/NAME` of each.

    The dots of names become slashes, by which the services group their charts.
    """
    found: dict[str, float] = {}
    for name, column in metrics.items():
        title, values = group + name.replace(".", "/"), [float(value) for value in column]
        known = all(map(math.isfinite, values))
        found[title] = statistics.median(values) if known else math.nan
        if len(values) > 1:
            parts = zip(seeds, values, strict=True)
            found |= {f"seed_{seed}/{title}": value for seed, value in parts}
        else:
            found[title] = values[0]
    return found
