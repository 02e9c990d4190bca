"""Start a run from the archive of another run (`elites train --start-from RUN`).

The policies must have the same layers, and the descriptor the same bounds. The algorithm, the cells
and the number of seeds may differ: seed i starts from the source's seed i modulo their number. The
elites keep the names of their origins, with "start." in front. Only the files of the source are
read. Its code is not executed, and once the run has a checkpoint, the source is not needed.

The source may also be an archive that pyribs or QDax made (`elites.interop`). All seeds start from
it, and its elites have the origin "start.pyribs" or "start.qdax".
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites.core import catalogue
from elites.core.algorithm import Algorithm, S
from elites.core.archive import Archive
from elites.core.types import Array
from elites.interop import reading
from elites.interop.reading import ForeignArchive
from elites.output import warn
from elites.runs import checkpoint as checkpoints
from elites.runs import directory as directories
from elites.runs import distilling
from elites.runs.checkpoint import WEIGHTS
from elites.runs.config import Config
from elites.runs.directory import FACTS, RunDirectory, RunError
from elites.training import Batched
from elites.training.starting import Given, archive_of

PREFIX = "start."  # of the origins of elites that came from another run


def given_to(algorithm: Algorithm[S], source: str | Path, seeds: int) -> tuple[Algorithm[S], Given]:
    """Return an algorithm that knows the origins of a source's elites, and the elites.

    `source` is the path of the run or archive to start from, and `seeds` the number of seeds to
    train.
    """
    found = source_at(Path(source))
    algorithm = _with_origins(algorithm, found.origins)
    return algorithm, found.read(algorithm, seeds)


class Source(NamedTuple):
    """Archive that a new run can start from."""

    origins: tuple[str, ...]
    """Names of the origins of its elites."""
    check: Callable[[Algorithm], object]
    """Raises a ValueError if its policies do not fit an algorithm."""
    read: Callable[[Algorithm, int], Given]
    """(algorithm with the names of the origins, number of seeds) -> policies for each seed

    Raises a ValueError if they do not fit the algorithm.
    """


def source_at(path: Path) -> Source:
    """Return the source at a path: a run directory, or an archive of pyribs or QDax."""
    if kind := reading.kind_of(path):
        return _of_foreign(path, kind)
    return _of_run(directories.run_to_start_from(path))


def extended(algorithm: Algorithm[S], config: Config, run: RunDirectory) -> Algorithm[S]:
    """Return the algorithm of a run that starts from another one, `config.start_from`.

    The names of the origins are those in the facts of the run or, if it has none yet, own names and
    those of the source.
    """
    if (run / FACTS).exists():
        known = tuple(directories.read_facts(run)["origins"])
        if known[: len(algorithm.origins)] == algorithm.origins:
            return dataclasses.replace(algorithm, origins=known)
    return _with_origins(algorithm, source_at(Path(config.start_from)).origins)


def _with_origins(algorithm: Algorithm[S], theirs: Sequence[str]) -> Algorithm[S]:
    """Return the algorithm with the origins of a source's elites after its own."""
    names = dict.fromkeys((*algorithm.origins, *map(_named, theirs)))
    return dataclasses.replace(algorithm, origins=tuple(names))


def _named(origin: str) -> str:
    """Return the name of a source's origin in a new run: "start.ga" for "ga" or "start.ga"."""
    return origin if origin.startswith(PREFIX) else PREFIX + origin


def source_archive(
    config: Config, batched: Batched, shapes: Archive, keys: Array
) -> Archive | None:
    """Return the archives [seeds, ...] that a new run starts from, or None for empty ones.

    A distillation keeps the archive of its source as it is. Other runs evaluate the elites again.
    `shapes` are the shapes of the archives, and `keys` [seeds] the random keys of the seeds.
    """
    if not config.start_from:
        return None
    if config.algorithm == catalogue.DISTIL:
        return distilling.source_archive(config, shapes)
    source = source_at(Path(config.start_from))
    return archive_of(batched, source.read(batched.algorithm, config.seeds), keys)


def check_source(config: Config, algorithm: Algorithm) -> None:
    """Raise an error if a new run cannot start from the source that its configuration names."""
    if config.start_from and config.algorithm != catalogue.DISTIL:
        source_at(Path(config.start_from)).check(algorithm)


# ------------------------------------------------------------------------------------------- runs


def _of_run(run: RunDirectory) -> Source:
    """Return a run as a source of policies."""
    facts = directories.read_facts(run)
    return Source(
        origins=tuple(facts["origins"]),
        check=functools.partial(_check_run, run, facts),
        read=functools.partial(_read_run, run, facts),
    )


def _read_run(
    source: RunDirectory, facts: Mapping[str, Any], algorithm: Algorithm, seeds: int
) -> Given:
    """Return the policies of a source run's archives, see `Source.read`.

    `facts` are the source's. Raises a RunError if the source cannot be read.
    """
    _check_run(source, facts, algorithm)
    found = checkpoints.newest(
        source.checkpoints, lambda path: checkpoints.load(path, (WEIGHTS,)), warn
    )
    if found is None:
        raise RunError(f"{source.path} has no checkpoint yet, so there is no archive to start from")
    nothing, arrays = np.zeros(0), found.arrays
    policies = arrays.get("archive.policies", nothing)
    fitness, origin = (arrays.get(f"archive.{name}", nothing) for name in ("fitness", "origin"))
    if fitness.ndim != 2 or policies.shape != (*fitness.shape, algorithm.policy.size):
        raise RunError(f"{source.checkpoints}: damaged: the archive has arrays of another shape")
    filled = np.isfinite(fitness)
    if origin.shape != fitness.shape or not (origin[filled] < len(facts["origins"])).all():
        raise RunError(f"{source.checkpoints}: damaged: elites have unknown origins")
    if not filled.any(axis=1).all():
        raise RunError(f"{source.path}: the archive of a seed is empty, so nothing can start there")
    numbers = [algorithm.origins.index(_named(name)) for name in facts["origins"]]
    origins = np.array(numbers, np.int32)[np.where(filled, origin, 0)]
    rows = np.arange(seeds) % len(fitness)
    return Given(policies[rows], origins[rows], filled[rows])


def _check_run(source: RunDirectory, facts: Mapping[str, Any], algorithm: Algorithm) -> None:
    """Raise a ValueError if the policies of a source run do not fit an algorithm.

    `facts` are the source's. Layers, activation and descriptor bounds must be the same.
    """
    problem, policy = algorithm.problem, algorithm.policy
    layers = "-".join(map(str, facts.get("policy_layers", policy.sizes)))
    theirs = {
        "policies": f"{layers} {facts.get('activation', 'relu')}",
        "descriptor_low": str(list(map(float, facts["descriptor_low"]))),
        "descriptor_high": str(list(map(float, facts["descriptor_high"]))),
    }
    ours = {
        "policies": f"{'-'.join(map(str, policy.sizes))} {policy.activation}",
        "descriptor_low": str(list(problem.descriptor_low)),
        "descriptor_high": str(list(problem.descriptor_high)),
    }
    differing = [
        f"{name} {theirs[name]}, not {ours[name]}" for name in ours if theirs[name] != ours[name]
    ]
    if differing:
        raise ValueError(
            f"cannot start from {source.path}: it has {'; '.join(differing)}. Its policies and "
            "its descriptor must be those of the new run"
        )


# -------------------------------------------------------------------- archives of other programs


def _of_foreign(path: Path, kind: str) -> Source:
    """Return an archive of pyribs or QDax as a source of policies."""
    return Source(
        origins=(kind,),
        check=functools.partial(_checked_foreign, path),
        read=functools.partial(_read_foreign, path),
    )


def _read_foreign(path: Path, algorithm: Algorithm, seeds: int) -> Given:
    """Return the elites of an archive of pyribs or QDax for every seed, see `Source.read`."""
    found = _checked_foreign(path, algorithm)
    policies = found.policies(algorithm.policy.sizes)
    shape = (seeds, len(policies))
    return Given(
        policies=np.broadcast_to(policies, (seeds, *policies.shape)),
        origins=np.full(shape, algorithm.origins.index(_named(found.kind)), np.int32),
        filled=np.ones(shape, bool),
    )


def _checked_foreign(path: Path, algorithm: Algorithm) -> ForeignArchive:
    """Return the archive at a path. Raises a ValueError if it does not fit an algorithm."""
    found, policy, problem = reading.read(path), algorithm.policy, algorithm.problem
    if found.solutions.shape[1] != policy.size:
        raise ValueError(
            f"cannot start from {path}: its elites have {found.solutions.shape[1]} parameters, but "
            f"a policy of the new run has {policy.size} (layers {'-'.join(map(str, policy.sizes))})"
        )
    if found.descriptors.shape[1] != problem.descriptor_size:
        raise ValueError(
            f"cannot start from {path}: its descriptors have {found.descriptors.shape[1]} "
            f"dimensions, those of '{problem.name}' {problem.descriptor_size}"
        )
    return found
