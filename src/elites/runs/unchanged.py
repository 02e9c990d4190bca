"""Compare a run's task and algorithm with those that it was trained with.

`facts.json` holds facts about them, such as sizes and bounds, and fingerprints of their code. A run
is not resumed if anything has changed, because its archive would mix results of two tasks. It is
not loaded if a fact has changed that determines what its files mean. Other changes cause a warning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from elites import references, training
from elites.files import read_record
from elites.output import warn
from elites.runs import fingerprints
from elites.runs.config import Config
from elites.runs.directory import FACTS, RunDirectory
from elites.runs.job import Job

FINGERPRINT = "fingerprint"
ACCEPT = "--accept-changed-task"
_ACCEPTABLE = (
    "task", "algorithm", "episode_length", "episode_descriptor", "deterministic", "repeatable",
    "lengthscale", "offspring", "qd_offset",
)  # fmt: skip
"""Facts that may change if the user accepts it. If others change, the saved arrays do not fit."""
_DESCRIPTIONS = ("descriptor", "descriptor_names", "descriptor_units")
"""Facts that only describe the descriptor. A run can be resumed even if they have changed."""
_READABLE = (
    "iterations", "state_bytes", "descriptor_weights", "lengthscale", "offspring", "qd_offset",
    *_DESCRIPTIONS,
)  # fmt: skip
"""Facts that may differ when a run is loaded, because they do not affect how its files are read."""


class Comparison(NamedTuple):
    """Result of comparing a resumed run's task and algorithm with the recorded ones."""

    accepted: list[str]
    """Sentences about the changes that the user has accepted."""
    fingerprint: dict[str, Any] | None
    """The recorded fingerprints (digests of traced code), or None if they must be recorded anew."""


def check_resumed(run: RunDirectory, config: Config, job: Job, accept: bool) -> Comparison:
    """Compare a resumed run's task and algorithm with the recorded ones.

    Returns the changes as a `Comparison`. Raises a ValueError if there are any, unless `accept` is
    true and the saved arrays still fit.
    """
    before = _recorded(run)
    facts = _changed_facts(before, job, but=("iterations", "state_bytes", *_DESCRIPTIONS))
    recorded = _fingerprint(before)
    changes = [*facts.values(), *_changed_code(recorded, config, job)]
    acceptable = set(facts) <= set(_ACCEPTABLE)
    if changes and not (accept and acceptable):
        hint = (
            f". Undo the change, start a new run, or continue with {ACCEPT}" if acceptable else ""
        )
        raise ValueError(
            f"{run.path} was started with a different task or version: {'; '.join(changes)}{hint}"
        )
    own = references.is_reference(config.algorithm)
    needed = ("task", "algorithm") if own else ("task",)
    current = all(fingerprints.is_current(recorded.get(name)) for name in needed)
    return Comparison(changes, recorded if current and not changes else None)


def check_loaded(run: RunDirectory, job: Job) -> None:
    """Raise a ValueError if the files of a run do not fit its task as it is now.

    Prints a warning if the task has changed, but the files still fit.
    """
    before = _recorded(run)
    facts = _changed_facts(before, job, but=_READABLE)
    if facts:
        raise ValueError(
            f"{run.path} was started with a different task or version: {'; '.join(facts.values())}"
        )
    recorded = _fingerprint(before).get("task")
    if recorded is not None:
        changes = fingerprints.task_changes(recorded, job.task)
        if changes:
            warn(
                f"the task changed since {run.path} was trained: {'; '.join(changes)}. "
                "What is computed now may not agree with the archive"
            )


def fingerprint(config: Config, job: Job) -> dict[str, Any]:
    """Return the fingerprints (digests of traced code) of a run, keyed "task" and "algorithm".

    The algorithm is included only if it is the user's own, given as FILE.py:FUNCTION.
    """
    found = {"task": fingerprints.of_task(job.task)}
    if references.is_reference(config.algorithm):
        found["algorithm"] = _of_algorithm(config, job)
    return {name: value for name, value in found.items() if value is not None}


def _of_algorithm(config: Config, job: Job) -> dict[str, Any] | None:
    """Return the fingerprint of a run's algorithm, or None if the algorithm cannot be traced."""
    try:
        keys = training.seed_keys(config.seed_numbers)
        return fingerprints.of_algorithm(job.batched, job.shapes, keys)
    except Exception:  # training fails as well, with a message about the fault
        return None


def _changed_code(recorded: Mapping[str, Any], config: Config, job: Job) -> list[str]:
    """Return sentences about how the code of task and algorithm changed since it was recorded.

    `recorded` has their fingerprints, keyed "task" and "algorithm".
    """
    changes = []
    if "task" in recorded:
        changes += fingerprints.task_changes(recorded["task"], job.task)
    if "algorithm" in recorded:
        now = _of_algorithm(config, job)
        changes += fingerprints.algorithm_changes(recorded["algorithm"], now) if now else []
    return changes


def _recorded(run: RunDirectory) -> dict[str, Any]:
    """Return the entries of a run's facts.json, or an empty dictionary if the file is missing."""
    path = run / FACTS
    return read_record(path, {}) if path.exists() else {}


def _fingerprint(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fingerprints of a run from its facts, keyed "task" and "algorithm".

    `before` are the entries of `facts.json`. Returns an empty dictionary for runs of older
    versions, which did not record any.
    """
    recorded = before.get(FINGERPRINT)
    if not isinstance(recorded, dict):
        return {}
    return {name: value for name, value in recorded.items() if isinstance(value, dict)}


def _changed_facts(before: Mapping[str, Any], job: Job, but: Collection[str]) -> dict[str, str]:
    """Return a sentence for each fact (entry of facts.json) that changed, by the fact's name.

    `before` are the recorded facts. Facts named in `but` are ignored.
    """
    now = json.loads(json.dumps(job.facts()))
    if before:  # runs that do not say how they weighted axes measured distances in task units
        before = {"descriptor_weights": [1.0] * job.task.descriptor_size, **before}
    return {
        name: f"{name} was {before[name]}, is {value}"
        for name, value in now.items()
        if name not in but and before.get(name, value) != value
    }
