"""The directory of a study: its plan, an index of its runs, and the runs.

    plan.json      the complete plan
    index.json     the runs: task, algorithm, seeds, attempts, last error
    runs/          one run directory for each run
    logs/          output of each run
    imported/      results of other programs, as CSV
    report/        written by `elites report`

Whether a run is done is read from its own directory, never from the index. A killed process
therefore leaves nothing to repair. Only one process at a time computes the runs of a study.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from elites.references import short_name
from elites.runs import directory as directories
from elites.runs.config import Config
from elites.runs.directory import RunDirectory, RunError
from elites.study.plan import Plan, from_values

PLAN, INDEX = "plan.json", "index.json"
FORMAT = 1
ATTEMPTS = 2  # a failed run is tried once more
State = Literal["queued", "running", "done", "failed"]


@dataclasses.dataclass(frozen=True)
class Item:
    """One run of a study."""

    task: str
    algorithm: str
    first_seed: int
    seeds: int
    attempts: int = 0
    error: str = ""

    @property
    def name(self) -> str:
        """Name of the run and of its directory."""
        seeds = f"seeds-{self.first_seed}-{self.seed_numbers[-1]}"
        return f"{short_name(self.task)}-{short_name(self.algorithm)}-{seeds}"

    @property
    def seed_numbers(self) -> range:
        """The seeds of the run."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def halves(self) -> tuple[Item, Item]:
        """Return two runs that share the seeds, for a run that does not fit in memory."""
        half = self.seeds // 2
        rest = dataclasses.replace(
            self, first_seed=self.first_seed + half, seeds=self.seeds - half, attempts=0, error=""
        )
        return dataclasses.replace(self, seeds=half, attempts=0, error=""), rest


@dataclasses.dataclass(frozen=True)
class Study:
    """A study in a directory."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def imported(self) -> Path:
        return self.path / "imported"

    @property
    def report(self) -> Path:
        return self.path / "report"

    def exists(self) -> bool:
        """Return whether the directory holds a study."""
        return (self.path / PLAN).is_file()

    def plan(self) -> Plan:
        """Read the plan."""
        where = self.path / PLAN
        data = directories.read_json(where)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise RunError(f"{where}: not a plan that this version of elites reads")
        return from_values(data, str(where))

    def items(self) -> list[Item]:
        """Read the index of runs."""
        where = self.path / INDEX
        try:
            return [Item(**entry) for entry in directories.read_json(where)["runs"]]
        except (KeyError, TypeError) as error:
            raise RunError(f"{where}: damaged: {error}") from None

    def write_items(self, items: Sequence[Item]) -> None:
        """Write the index of runs."""
        data = {"format": FORMAT, "runs": [dataclasses.asdict(item) for item in items]}
        directories.write_json(self.path / INDEX, data)

    def run(self, item: Item) -> RunDirectory:
        """Return the directory of a run."""
        return RunDirectory(self.path / "runs" / item.name)

    def config(self, item: Item) -> Config:
        """Return the configuration of a run."""
        return self.plan().config(item.task, item.algorithm, item.seed_numbers)

    def state(self, item: Item) -> State:
        """Return the state of a run that no process is computing."""
        if (self.run(item) / directories.SUMMARY).exists():
            return "done"
        return "failed" if item.attempts >= ATTEMPTS else "queued"


def existing(path: Path) -> Study:
    """Return the study at a path, or raise a ValueError that says what is there instead."""
    study = Study(path)
    if not path.exists():
        raise ValueError(f"{path}: no such directory. Start a study with 'elites study PLAN'")
    if not study.exists():
        kind = "a run, not a study" if RunDirectory(path).exists() else "not a study"
        raise ValueError(f"{path}: {kind}, it has no {PLAN}")
    return study


def open_study(path: Path, plan: Plan) -> Study:
    """Start the study of a plan in a directory that this process has locked, or continue it."""
    study = Study(path)
    if study.exists():
        differing = differences(study.plan(), plan)
        if differing:
            raise ValueError(
                f"{path} holds another study: {'; '.join(differing)}. Choose another --output"
            )
        if not (path / INDEX).exists():
            study.write_items(_first_items(plan))
        return study
    if RunDirectory(path).exists():
        raise ValueError(f"{path} holds a run. Choose another --output")
    strangers = [e.name for e in path.iterdir() if e.name != directories.LOCK]
    if any(not name.startswith(".") for name in strangers):
        raise ValueError(f"{path} is not empty and not a study. Choose another --output")
    # The plan is written first: if the process ends here, the next start writes the index.
    directories.write_json(path / PLAN, {"format": FORMAT, **plan.to_json()})
    study.write_items(_first_items(plan))
    return study


def _first_items(plan: Plan) -> list[Item]:
    return [Item(task, algorithm, plan.first_seed, plan.seeds) for task, algorithm in plan.pairs()]


def differences(one: Plan, other: Plan) -> list[str]:
    """Return the fields in which two plans differ, as in 'seeds is 3, not 5'."""
    a, b = (json.loads(json.dumps(plan.to_json())) for plan in (one, other))
    return [f"{name} is {_short(a[name])}, not {_short(b[name])}" for name in a
            if a[name] != b[name]]  # fmt: skip


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
