"""Recorded tables: results of runs that are kept without the run directories.

    plan.toml                           the plan that they belong to
    TASK/ALGORITHM[.SETTING...].seeds_A-B[.BUDGET][.source_COMMIT].csv  metrics.csv of a run
    TASK/....reevaluations.csv          its reevaluations.csv
    TASK/....cells.csv                  its evaluation/cells.csv
    TASK/....new_process.csv            metrics.csv of `elites evaluate` in a new process

Tables of other kinds have other words before `.csv`, and are not read here. A setting is a
hyperparameter that differs from the plan's, as in `dcrl_me.discount_0.9.seeds_100-105.csv`. The
budget, as in `1M`, is only needed to tell two tables of the same seeds apart. A source is named if
it drew other random numbers than the current one. Its seeds are then other seeds, and count beside
those of the same number. Rows may be thinned out, to every tenth iteration for example.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elites import files, references
from elites.core.hyperparameters import Hyperparameters
from elites.files import RunError
from elites.names import short_name
from elites.runs import logs
from elites.runs.config import Config
from elites.study import plan as plans
from elites.study.groups import NEAR, Columns, SeedResults

PLAN = "plan.toml"
FEW = 4
"""Number of seeds that are enough to leave out those that were stopped earlier."""
_NAME = re.compile(
    r"(?P<algorithm>\w+)(?P<settings>(\.[a-z_]+_[\w.+-]*?)*)\.seeds_(?P<first>\d+)-(?P<last>\d+)"
    r"(\.(?P<budget>\d+[kM]))?(\.source_(?P<source>\w+))?"
)


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Recorded tables of one run."""

    path: Path
    task: str
    label: str
    """Name of the algorithm, with its settings, such as "dcrl_me, discount 0.9"."""
    metrics: Columns
    """Arrays [n, seeds], keyed by column."""
    source: str = ""
    """Name of the source code, if it draws other random numbers than the current one."""
    unreadable: tuple[str, ...] = ()
    """Kinds of other tables that are damaged, and left out."""

    @property
    def seeds(self) -> list[int]:
        """The seeds of the run."""
        return [int(seed) for seed in self.metrics["seed"][0]]

    @property
    def last(self) -> float:
        """Number of evaluations that the run has reached."""
        return float(self.metrics["evaluations"][-1, 0])

    def table(self, kind: str) -> Path:
        """Return the path of another table of the run, such as its `cells`. It may not exist."""
        return self.path.with_name(f"{self.path.name.removesuffix('.csv')}.{kind}.csv")

    @functools.cached_property
    def own_reevaluations(self) -> Columns:
        """Arrays [n, seeds] of the re-evaluations that the run made, empty if there are none."""
        return self._read("reevaluations", ("evaluations",))

    @functools.cached_property
    def new_process(self) -> Columns:
        """Arrays [1, seeds] of the re-evaluation by `elites evaluate` in a new process, if any.

        They have the names of `own_reevaluations`.
        """
        found = self._read("new_process", ("reevaluated_qd_score", "descriptor_error"))
        if not len(found.get("iteration", ())):
            return {}
        row = np.flatnonzero(self.metrics["iteration"][:, 0] == found["iteration"][0, 0])
        if not len(row):
            raise RunError(
                f"{self.table('new_process')}: is of iteration {found['iteration'][0, 0]:.0f}, "
                f"which {self.path.name} does not have"
            )
        spent = self.metrics["evaluations"][row]
        return {**found, "qd_score": found["reevaluated_qd_score"], "evaluations": spent}

    @functools.cached_property
    def reevaluations(self) -> Columns:
        """Arrays [n, seeds] of the re-evaluations of archive and actor, empty if there are none.

        The last one is that of a new process, if the run made none as late.
        """
        own, new = self.own_reevaluations, self.new_process
        if not own or not new:
            return own or new
        if new["iteration"][0, 0] <= own["iteration"][:, 0].max(initial=0.0):
            return own
        return {name: np.concatenate([own[name], new[name]]) for name in own if name in new}

    def _read(self, kind: str, needed: Sequence[str]) -> Columns:
        """Return another table of the run as arrays [n, seeds], empty if it does not exist.

        Raises a RunError if it lacks a column of `needed`.
        """
        path = self.table(kind)
        if kind in self.unreadable or not path.exists():
            return {}
        return logs.read_metrics(path, len(self.seeds), needed)

    def without_damage(self, problems: list[str]) -> Recording:
        """Return the recording without its damaged re-evaluations.

        Messages about them are appended to `problems`.
        """
        found = []
        for kind, name in (("reevaluations", "own_reevaluations"), ("new_process", "new_process")):
            try:
                getattr(self, name)
            except (RunError, OSError) as error:
                problems.append(str(error))
                found.append(kind)
        return dataclasses.replace(self, unreadable=tuple(found)) if found else self

    def part(self, budget: int) -> SeedResults:
        """Return the results of the run up to a budget of evaluations.

        They are final if the run has reached the budget. Then the metrics of the last re-evaluation
        are among them, if it was made near the end.
        """
        spent = self.metrics["evaluations"][:, 0]
        kept = spent <= budget * (1 + NEAR)
        curves = {name: values[kept] for name, values in self.metrics.items()}
        if not kept.any() or spent[kept][-1] < budget * (1 - NEAR):
            return SeedResults(self.seeds, curves if kept.any() else {}, source=self.source)
        final = {name: values[-1] for name, values in curves.items()}
        final = {**final, **self._reevaluated(final["evaluations"][0])}
        return SeedResults(self.seeds, curves, final, self.source)

    def _reevaluated(self, evaluations: float) -> Columns:
        """Return the metrics [seeds] of a re-evaluation near a number of evaluations, if any."""
        table = self.reevaluations
        if not len(table.get("evaluations", ())):
            return {}
        spent = table["evaluations"][:, 0]
        nearest = int(np.abs(spent - evaluations).argmin())
        if abs(spent[nearest] - evaluations) > NEAR * evaluations:
            return {}
        return {name: values[nearest] for name, values in table.items()}


@dataclasses.dataclass(frozen=True)
class Folder:
    """Folder of recorded tables, with their plan."""

    path: Path
    file: str = PLAN
    """Name of the plan's file."""
    evaluations: int | None = None
    """Budget up to which the tables are read. None means that of the plan."""

    @property
    def report(self) -> Path:
        """Folder with the report page and its figures."""
        return self.path / "report"

    def exists(self) -> bool:
        """Return whether the directory is such a folder, that is, whether it has a plan."""
        return (self.path / self.file).is_file()

    def plan(self) -> plans.Plan:
        """Read the plan of the folder and return it."""
        plan = plans.read(str(self.path / self.file), saved=True)
        budget = self.evaluations or plan.evaluations
        return dataclasses.replace(plan, evaluations=budget)

    def read(self, problems: list[str]) -> list[Recording]:
        """Read all recorded runs of the plan's tasks.

        Messages about damaged tables are appended to `problems`.
        """
        tasks = [short_name(task) for task in self.plan().tasks]
        found = []
        for path in sorted(path for task in tasks for path in (self.path / task).glob("*.csv")):
            match = _NAME.fullmatch(path.name.removesuffix(".csv"))
            if match is None:
                continue
            try:
                found.append(_read(path, match).without_damage(problems))
            except (RunError, OSError) as error:
                problems.append(str(error))
        return found


def _read(path: Path, match: re.Match[str]) -> Recording:
    """Read a table of metrics. `match` has the parts of its name."""
    seeds = range(int(match["first"]), int(match["last"]) + 1)
    metrics = logs.read_metrics(path, len(seeds), logs.SHOWN)
    if not len(metrics["seed"]) or metrics["seed"][0].tolist() != list(seeds):
        raise RunError(f"{path}: does not have the seeds {seeds[0]} to {seeds[-1]} of its name")
    settings = re.split(r"\.(?=[a-z])", match["settings"])[1:]
    label = ", ".join([match["algorithm"], *(text.replace("_", " ") for text in settings)])
    return Recording(path, path.parent.name, label, metrics, match["source"] or "")


def stem(algorithm: str, seeds: range, settings: Sequence[str] = (), budget: str = "") -> str:
    """Return the name of a run's tables, without the kind and `.csv`."""
    parts = [algorithm, *settings, f"seeds_{seeds[0]}-{seeds[-1]}", budget]
    return ".".join(filter(None, parts))


def parts_for(recordings: Sequence[Recording], budget: int) -> list[SeedResults]:
    """Return the results of recorded runs of one algorithm on one task, up to a budget.

    Every seed occurs once, from the longest table that has it. Curves are compared where all seeds
    have them, so a seed that was stopped early would shorten all. Such seeds are left out if at
    least `FEW` others remain.
    """
    found: list[tuple[float, SeedResults]] = []  # with the evaluations that a run has, at most all
    known: set[tuple[str, int]] = set()
    for recording in sorted(recordings, key=lambda r: -r.last):
        part = recording.part(budget).without(known)
        if part is not None:
            # The last row of a thinned table may be far below a budget that its run has passed.
            found.append((min(recording.last, budget), part))
            known |= set(part.keys)
    lengths = sorted((length for length, part in found for _ in part.seeds), reverse=True)
    least = lengths[FEW - 1] * (1 - NEAR) if len(lengths) > FEW else 0.0
    return [part for length, part in found if length >= least]


def hyperparameters(recording: Recording, usual: Hyperparameters) -> Hyperparameters:
    """Return the hyperparameters of a run, from the configuration beside its tables.

    Returns `usual` if there is none. Raises a RunError or a ValueError if it cannot be read.
    """
    path = recording.path.with_suffix(".config.json")
    return Config.from_json(files.read_json(path), str(path)).hp if path.exists() else usual


class Archive(NamedTuple):
    """Recorded archive of one seed, without policies."""

    facts: dict[str, Any]  # of the task, as far as figures need them
    arrays: dict[str, np.ndarray]  # as in `Group.archive`
    seed: int
    evaluations: float  # of the whole run, which may be beyond the budget of the plan


def archive(recording: Recording, task_name: str, usual: Hyperparameters) -> Archive | None:
    """Return the archive of the seed with the highest QD-score, from the table of cells.

    `task_name` is the full name of its task. `usual` are the hyperparameters of the plan, for
    tables without a configuration. Returns None if there is no table of cells, or if its cells are
    a grid or come from a file. Raises a ValueError for a task in a Python file: a report does not
    execute it. Loads JAX.
    """
    path = recording.table("cells")
    if not path.exists():
        return None
    hp = hyperparameters(recording, usual)
    if hp.grid or hp.centroids_file:
        return None
    if references.is_reference(task_name):
        raise ValueError(
            f"{path}: archives of {task_name} cannot be drawn from tables, because a report does "
            "not execute the file of a task"
        )
    from elites import tasks
    from elites.core.centroids import box_centroids

    task = tasks.make(task_name)
    offset = task.qd_offset if hp.qd_offset is None else hp.qd_offset
    size = len(task.descriptor_low)
    names = [f"descriptor_{i}" for i in range(size)]
    table = logs.read_table(path, ("seed", "cell", "fitness", *names))
    count = hp.cells
    if not len(table["cell"]) or table["cell"].max() >= count:
        raise RunError(f"{path}: its cells are not those of an archive with {count} cells")
    above = table["fitness"] - offset
    scores = {s: above[table["seed"] == s].sum() for s in np.unique(table["seed"])}
    seed = max(scores, key=lambda s: scores[s])
    mine = table["seed"] == seed
    cells = table["cell"][mine].astype(int)
    fitness, descriptors = np.full((1, count), -np.inf), np.zeros((1, count, size))
    fitness[0, cells] = table["fitness"][mine]
    descriptors[0, cells] = np.stack([table[name][mine] for name in names], axis=1)
    low, high = tuple(map(float, task.descriptor_low)), tuple(map(float, task.descriptor_high))
    facts = {
        "descriptor_low": list(low),
        "descriptor_high": list(high),
        "descriptor_names": list(task.descriptor_names),
        "descriptor_units": list(task.descriptor_units),
        "qd_offset": offset,
    }
    centroids = np.asarray(box_centroids(low, high, count))
    found = {"fitness": fitness, "descriptors": descriptors, "centroids": centroids}
    return Archive(facts, found, int(seed), recording.last)
