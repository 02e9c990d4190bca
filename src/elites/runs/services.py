"""Loggers and callbacks of a run: what runs beside training, at the user's wish.

loggers.json in the run directory has the identity of each service's run, so that a resumed run
continues it. Callbacks are functions (iteration, metrics), named as FILE.py:FUNCTION.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from elites import loggers, references
from elites.files import RunError, read_record
from elites.loggers import Loggers, Subject
from elites.output import warn
from elites.runs import config as configs
from elites.runs.config import Config
from elites.runs.directory import LOGGERS, RunDirectory, write_json
from elites.words import one_line

if TYPE_CHECKING:
    import numpy as np


class Callback(NamedTuple):
    """A callback of the user's own, and its reference FILE.py:FUNCTION."""

    name: str
    function: Callable[[int, dict[str, np.ndarray]], object]


def check(config: Config, resumed: bool = False) -> None:
    """Raise a ValueError if the file of a callback or the package of a logger is missing.

    For a run that is `resumed`, the message also says how to continue without them.
    """
    option = "--callback"
    try:
        for name in config.callback:
            references.check("callback", name)
        option = "--log"
        loggers.require(config.log)
    except ValueError as error:
        if not resumed:
            raise
        raise ValueError(f"{error}. To continue without, add {option} none") from None


def load_callbacks(names: Sequence[str]) -> list[Callback]:
    """Return the callbacks that references name. Runs their files.

    Raises a ValueError if one cannot be called with an iteration and its metrics.
    """
    what = "a callback must be a function of (iteration, metrics)"
    found = [Callback(name, references.load_function(name, what)) for name in names]
    for name, function in found:
        try:
            inspect.signature(function).bind(1, {})
        except TypeError as error:
            where, _, called = name.rpartition(":")
            raise ValueError(f"{what}, but '{called}' of {where} is not: {error}") from None
        except ValueError:  # Python does not know the arguments, such as those of some built-ins
            continue
    return found


def call(callbacks: Sequence[Callback], iteration: int, metrics: dict[str, np.ndarray]) -> bool:
    """Call all callbacks with the metrics of an iteration. Return whether one ends training.

    Each gets a dictionary of its own. Raises a RunError if a callback fails.
    """
    from elites.training.stopping import StopTraining

    for name, function in callbacks:
        try:
            function(iteration, dict(metrics))
        except StopTraining:
            return True
        except (Exception, SystemExit) as error:
            where, _, called = name.rpartition(":")
            said = references.described(error)
            raise RunError(f"{where}: callback '{called}' failed: {said}") from error
    return False


def open_loggers(run: RunDirectory, config: Config, seeds: Sequence[int]) -> Loggers:
    """Start the loggers of a run, or continue those of an earlier session.

    Their identities are written to the run directory. If that fails, a warning says so.
    """
    hidden = ("log", "callback")
    settings = {name: value for name, value in configs.flat(config).items() if name not in hidden}
    subject = Subject(config.name, settings, seeds)
    if not config.log:
        return Loggers((), subject)
    try:
        known = read_identities(run)
    except (OSError, RunError) as error:
        warn(f"{one_line(error)}. The loggers begin new runs")
        known = {}
    opened = Loggers(config.log, subject, known)
    if opened.identities != known:
        try:
            write_json(run / LOGGERS, opened.identities)
        except OSError as error:
            warn(f"{one_line(error)}. A resumed run will begin new runs of the loggers")
    return opened


def read_identities(run: RunDirectory) -> dict[str, str]:
    """Return the identities of the services' runs, keyed by logger. Empty if there are none."""
    if not os.path.lexists(run / LOGGERS):
        return {}
    found = read_record(run / LOGGERS, {}, optional=dict.fromkeys(loggers.NAMES, str))
    return {name: found[name] for name in loggers.NAMES if name in found}
