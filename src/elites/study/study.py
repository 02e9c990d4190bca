"""The directory of a study: its plan, an index of its runs, and the runs.

    plan.json      what was asked, completely
    index.json     the runs: task, algorithm, seeds, attempts, what went wrong
    runs/          a run directory for each
    logs/          what each run printed
    imported/      results of other programs, as CSV
    report/        by `elites report`

Whether a run is done is read off its own directory, never off the index: a process that is killed
leaves nothing to repair. One process at a time works a study off.
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
ATTEMPTS = 2  # a run that failed is tried once more
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
        seeds = f"seeds-{self.first_seed}-{self.seed_numbers[-1]}"
        return f"{short_name(self.task)}-{short_name(self.algorithm)}-{seeds}"

    @property
    def seed_numbers(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    def halves(self) -> tuple[Item, Item]:
        """The same seeds as two runs, where one does not fit in memory."""
        half = self.seeds // 2
        rest = dataclasses.replace(
            self, first_seed=self.first_seed + half, seeds=self.seeds - half, attempts=0, error=""
        )
        return dataclasses.replace(self, seeds=half, attempts=0, error=""), rest


@dataclasses.dataclass(frozen=True)
class Study:
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
        return (self.path / PLAN).is_file()

    def plan(self) -> Plan:
        where = self.path / PLAN
        data = directories.read_json(where)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise RunError(f"{where}: not a plan of this version of elites")
        return from_values(data, str(where))

    def items(self) -> list[Item]:
        where = self.path / INDEX
        try:
            return [Item(**entry) for entry in directories.read_json(where)["runs"]]
        except (KeyError, TypeError) as error:
            raise RunError(f"{where}: damaged: {error}") from None

    def write_items(self, items: Sequence[Item]) -> None:
        data = {"format": FORMAT, "runs": [dataclasses.asdict(item) for item in items]}
        directories.write_json(self.path / INDEX, data)

    def run(self, item: Item) -> RunDirectory:
        return RunDirectory(self.path / "runs" / item.name)

    def config(self, item: Item) -> Config:
        return self.plan().config(item.task, item.algorithm, item.seed_numbers)

    def state(self, item: Item) -> State:
        """Of a run that nobody is working at."""
        if (self.run(item) / directories.SUMMARY).exists():
            return "done"
        return "failed" if item.attempts >= ATTEMPTS else "queued"


def existing(path: Path) -> Study:
    """The study at a path, or a ValueError that says what is there instead."""
    study = Study(path)
    if not path.exists():
        raise ValueError(f"{path}: no such directory. Start a study with 'elites study PLAN'")
    if not study.exists():
        kind = "a run, not a study" if RunDirectory(path).exists() else "not a study"
        raise ValueError(f"{path}: {kind}, it has no {PLAN}")
    return study


def open_study(path: Path, plan: Plan) -> Study:
    """The study of a plan in a directory that this process holds: begun, or gone on with."""
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
    # The plan first: with it alone, the next start makes the index.
    directories.write_json(path / PLAN, {"format": FORMAT, **plan.to_json()})
    study.write_items(_first_items(plan))
    return study


def _first_items(plan: Plan) -> list[Item]:
    return [Item(task, algorithm, plan.first_seed, plan.seeds) for task, algorithm in plan.pairs()]


def differences(one: Plan, other: Plan) -> list[str]:
    """Fields in which two plans differ, as 'seeds is 3, asked for was 5'."""
    a, b = (json.loads(json.dumps(plan.to_json())) for plan in (one, other))
    return [f"{name} is {_short(a[name])}, asked for was {_short(b[name])}" for name in a
            if a[name] != b[name]]  # fmt: skip


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
