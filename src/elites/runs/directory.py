"""The directory of a run, and its files.

    config.json        the complete configuration
    facts.json         values derived from it: sizes, bounds, lengthscale, number of iterations
    environment.json   versions, device and source, one entry for each session
    metrics.csv        one row for each iteration and seed
    reevaluations.csv  re-evaluations of archive and actor
    events/            the same numbers for TensorBoard
    loggers.json       runs of W&B and MLflow that the numbers are logged to, if any
    checkpoints/       the last two checkpoints, and a link to the last
    snapshots/         fitness, descriptors and origin of the archive at every checkpoint
    kernels/           kernels that the GPU compiler chose, so that the next process uses the same
    evaluation/        the paper's metrics and a table of all cells, written by `elites evaluate`
    interpolation/     how the actor does between elites, written by `elites evaluate --interpolate`
    calibration/       requests at which the actor hits the cells, written by `elites calibrate`
    figures/           written by `elites plot`
    summary.md         a summary for people
    run.lock           names the process that is writing

Only one process at a time writes, see `lock`. Important files are written under a temporary name,
flushed to disk, and then renamed. The directory itself may be a link, but links inside of it are
refused, so that elites never reads, overwrites or deletes files elsewhere.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path
from typing import Any

from elites import files, tasks
from elites.files import ListOf, RunError, read_json
from elites.runs.config import Config
from elites.words import plain, quoted
from elites.writing import (  # noqa: F401 (other modules find these functions here)
    flush,
    is_gone,
    path_in_errors,
    replacing,
    sweep,
    sync_directory,
    this_process,
    write_json,
    write_text,
)

CONFIG, FACTS, ENVIRONMENT = "config.json", "facts.json", "environment.json"
METRICS, REEVALUATIONS = "metrics.csv", "reevaluations.csv"
LOCK, SUMMARY, LOGGERS = "run.lock", "summary.md", "loggers.json"
OLD_NAMES = {FACTS: "resolved.json", REEVALUATIONS: "reach.csv"}  # in runs of version 0.1.0
MAX_UNPACKED = 1.0  # default limit for the size of a run that is unpacked, in gigabytes
KEPT_CELLS = "kept_cells"  # fact of a reduced run, see `reducing`
HALF_PRECISION = "half_precision"  # fact of a reduced run with rounded policies, see `rounding`
LONGEST_TEXT = 1000  # of a task or an algorithm, when it is shown
_FILES = (
    CONFIG, FACTS, ENVIRONMENT, METRICS, REEVALUATIONS, LOCK, SUMMARY, LOGGERS,
    *OLD_NAMES.values(),
)  # fmt: skip
_FOLDERS = (
    r"checkpoints|snapshots|kernels|events|figures|calibration|interpolation|evaluation(_\d{9})?"
)
LAYOUT = rf"(?!checkpoints/last$)({'|'.join(map(re.escape, _FILES))}|{_FOLDERS})(/(?s:.*))?"
"""Pattern of the paths inside of a run that must not be links. elites makes checkpoints/last."""


class OutOfMemoryError(RunError):
    """The device ran out of memory during computation."""


class TooLargeError(ValueError):
    """The run does not fit in memory. Raised before training starts."""


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run directory, with the paths of the files and folders in it."""

    path: Path

    def __truediv__(self, name: str) -> Path:
        """Return the path of the file `name` in the run directory.

        Version 0.1.0 used other names for some files. They are used for its runs.
        """
        old = OLD_NAMES.get(name)
        if old and os.path.lexists(self.path / old) and not os.path.lexists(self.path / name):
            return self.path / old
        return self.path / name

    @property
    def checkpoints(self) -> Path:
        """Path of the folder with the last two checkpoints."""
        return self.path / "checkpoints"

    @property
    def snapshots(self) -> Path:
        """Path of the folder with snapshots: for each checkpoint, its archive without policies."""
        return self.path / "snapshots"

    @property
    def kernels(self) -> Path:
        """Path of the folder with the GPU kernels that the compiler chose for this run."""
        return self.path / "kernels"

    @property
    def evaluation(self) -> Path:
        """Path of the folder with the evaluation tables that are written at the end of training."""
        return self.path / "evaluation"

    @property
    def calibration(self) -> Path:
        """Path of the folder with the calibrated requests to the actor."""
        return self.path / "calibration"

    @property
    def interpolation(self) -> Path:
        """Path of the folder with the actor's results between elites."""
        return self.path / "interpolation"

    @property
    def figures(self) -> Path:
        """Path of the folder with the figures of the run."""
        return self.path / "figures"

    def exists(self) -> bool:
        """Return whether the directory holds a run, that is, whether it has a config.json."""
        return os.path.lexists(self.path / CONFIG)

    def files(self) -> list[str]:
        """Return the paths of all files of the run, relative to its directory and sorted.

        Works while another process writes to the run. `Path.rglob` would fail if a folder vanished.
        """
        return sorted(
            Path(folder, name).relative_to(self.path).as_posix()
            for folder, _, names in os.walk(self.path)
            for name in names
        )

    def config(self) -> Config:
        """Read the configuration of the run from `config.json` and return it."""
        return Config.from_json(read_json(self.path / CONFIG), str(self.path / CONFIG))

    def checked_config(self) -> Config:
        """Return the configuration of the run, after checking that its task and algorithm exist.

        Raises a ValueError that names the file config.json if they do not.
        """
        config = self.config()
        try:
            return config.check()
        except ValueError as error:
            raise ValueError(f"{self.path / CONFIG}: {error}") from None


def existing(path: Path) -> RunDirectory:
    """Return the run directory at a path. Raises a ValueError if the path holds no run."""
    run = RunDirectory(path)
    if not path.exists():
        raise ValueError(f"{path}: no such directory. Start a run with 'elites train'")
    if not path.is_dir():
        raise ValueError(f"{path}: not a directory, so it cannot be a run")
    refuse_links(path)
    if not run.exists():
        raise ValueError(f"{path}: not a run, it has no {CONFIG}")
    return run


def run_to_start_from(path: Path) -> RunDirectory:
    """Return the run directory at a path that a new run starts from.

    Raises a ValueError if there is none. Its message also names what other programs write.
    """
    if not path.exists():
        raise ValueError(f"cannot start from {path}: there is no such file or directory")
    if not path.is_dir() or not RunDirectory(path).exists():
        raise ValueError(
            f"cannot start from {path}: it is neither a run directory, nor a CSV file of pyribs, "
            "nor a folder of QDax with genotypes.npy"
        )
    return existing(path)


def task_with_bounds(source: str | Path, task: str) -> str:
    """Return the name of a task with the descriptor bounds that were estimated for a source run.

    `source` is the directory of the run to start from. If its task is another one, or if the name
    has bounds already, the name is returned unchanged, and so it is if the source is an archive of
    pyribs or QDax. Raises a ValueError if there is neither.
    """
    from elites.interop import reading  # loads NumPy, which help does not need

    if reading.kind_of(Path(source)) is not None:
        return task
    return tasks.with_bounds_of(run_to_start_from(Path(source)).config().task, task)


def refuse_links(path: Path, layout: str = LAYOUT, kind: str = "run") -> None:
    """Raise a RunError if the directory of a run or study at a path contains a symbolic link.

    Writing through a link would change files elsewhere. `layout` is a pattern of the paths that are
    checked, relative to the directory. Other files, which a user may keep there, are not checked.
    `kind` says what the directory is, for the message.
    """
    ours = re.compile(layout)
    for folder, folders, names in os.walk(path):
        inside = Path(folder).relative_to(path)
        folders[:] = [name for name in folders if ours.fullmatch((inside / name).as_posix())]
        names = [name for name in names if ours.fullmatch((inside / name).as_posix())]
        for found in (Path(folder, name) for name in (*folders, *names)):
            if os.path.islink(found):
                raise RunError(files.about_link(found, kind))


def refuse_existing(path: Path, choose: str = "another --output") -> None:
    """Raise a ValueError if the directory at a path already holds a run or other files.

    Also raises one if the path is a file. `choose` completes the advice in the message: "Choose
    another --output".
    """
    if RunDirectory(path).exists():
        raise ValueError(
            f"{path} holds a run already. Continue it with 'elites resume {quoted(path)}', or "
            f"choose {choose}"
        )
    if os.path.lexists(path) and not path.is_dir():
        raise ValueError(f"{path} exists already, and is not a directory. Choose {choose}")
    if path.is_dir() and any(not _is_ours(entry.name) for entry in path.iterdir()):
        raise ValueError(f"{path} is not empty and not a run. Choose {choose}")


def _is_ours(name: str) -> bool:
    """Return whether a file `name` may be left over from an elites process that was killed.

    A killed process leaves folders only together with a configuration.
    """
    return name == LOCK or (name.startswith(".") and ".writing" in name)


def discard(run: RunDirectory) -> None:
    """Remove the files of a new run that could not be started. Keeps a run with checkpoints.

    This process has created all of them, because `refuse_existing` accepts no directory that holds
    one of these names.
    """
    if not run.checkpoints.exists():
        for directory in (run.kernels, run.snapshots, run.path / "events"):
            shutil.rmtree(directory, ignore_errors=True)
        # The configuration goes last: while it exists, the directory still counts as a run.
        for name in (FACTS, ENVIRONMENT, METRICS, REEVALUATIONS, CONFIG):
            (run.path / name).unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------ files


def read_facts(run: RunDirectory) -> dict[str, Any]:
    """Read `facts.json` of a run and return its facts, keyed by name.

    Texts of the task and the algorithm are shortened and made plain, because they are shown in
    figures, on pages and in terminals. Raises a RunError if a fact that every reader needs is
    missing or has the wrong type.
    """
    path = run / FACTS
    facts = files.read_record(path, _FACTS, optional=_OPTIONAL_FACTS)
    low, high = facts["descriptor_low"], facts["descriptor_high"]
    # The sides of the box must have a length in single precision.
    sides = [b - a for a, b in zip(low, high, strict=False)]
    if not low or len(low) != len(high) or not all(1e-30 < side < 1e30 for side in sides):
        raise RunError(f"{path}: damaged: 'descriptor_low' and 'descriptor_high' are not a box")
    for name in ("iterations", "episode_length"):
        if not 1 <= facts[name] < 2**31:
            raise RunError(f"{path}: damaged: '{name}' is {facts[name]}")
    return {name: _shown(value) for name, value in facts.items()}


def kept_cells(run: RunDirectory) -> list[int] | None:
    """Return the cells whose policies a reduced run has kept, or None for any other run.

    `elites pack --elites` reduces a run.
    """
    path = run / FACTS
    if not os.path.lexists(path):
        return None
    return files.read_record(path, {}, optional=_OPTIONAL_FACTS).get(KEPT_CELLS)


def has_half_precision(run: RunDirectory) -> bool:
    """Return whether the policies of a run's elites were rounded to half precision.

    `elites pack --half-precision` rounds them. The run has then kept some of its elites.
    """
    facts = files.read_record(run / FACTS, {}, optional=_OPTIONAL_FACTS)
    return facts.get(HALF_PRECISION, False)


def require_policy(run: RunDirectory, cell: int | None) -> None:
    """Raise a ValueError if a reduced run has not kept the policy of a cell."""
    kept = kept_cells(run)
    if kept is None or cell is None or cell in kept:
        return
    raise ValueError(
        f"{run.path} has kept the policies of {len(kept)} cells, and cell {cell} is not one of "
        f"them. They are {', '.join(map(str, kept))}"
    )


def _shown(value: Any) -> Any:
    """Return a fact for display: texts, alone or in a list, are shortened and made plain."""
    if isinstance(value, list):
        return [_shown(entry) if isinstance(entry, str) else entry for entry in value]
    return plain(value, LONGEST_TEXT) if isinstance(value, str) else value


_FACTS = {
    "task": str,
    "algorithm": str,
    "iterations": int,
    "episode_length": int,
    "observation_size": int,
    "action_size": int,
    "deterministic": bool,
    "descriptor": str,
    "descriptor_low": ListOf((int, float)),
    "descriptor_high": ListOf((int, float)),
    "origins": ListOf(str),
    "actor_conditioned": bool,
}
_OPTIONAL_FACTS = {
    "initial_evaluations": int,
    "evaluations_per_iteration": int,
    "policy_layers": ListOf(int),
    "policy_parameters": int,
    "activation": str,
    "qd_offset": (int, float),
    "repeatable": bool,
    KEPT_CELLS: ListOf(int),
    HALF_PRECISION: bool,
}
