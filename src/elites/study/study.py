"""The directory of a study: its plan, an index of its runs, and the runs.

    plan.json      the complete plan
    index.json     the runs: task, algorithm, seeds, attempts, last error
    runs/          one run directory for each run
    logs/          output of each run
    kept/          a model of each run, if the plan has `keep_elites`: RUN.zip, or
                   RUN.iteration-N.zip while the run is unfinished
    imported/      results of other programs, as CSV
    report/        written by `elites report`

Whether a run is done is read from its files, never from the index. A killed process therefore
leaves nothing to repair. Only one process at a time computes the runs of a study. The
directory itself may be a link, but links inside of it are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from elites import files, presets, tasks
from elites.names import short_name
from elites.runs import directory as directories
from elites.runs import evaluation
from elites.runs.config import Config
from elites.runs.directory import RunDirectory, RunError
from elites.study.packing import divided
from elites.study.plan import BUILT_IN, Part, Plan, from_values

PLAN, INDEX = "plan.json", "index.json"
TOKEN = ".study-is-here"  # shows a machine of a cluster that it sees the same directory
_LAYOUT = (
    rf"({'|'.join(map(re.escape, (PLAN, INDEX, TOKEN, directories.LOCK)))}"
    rf"|logs|imported|report)(/(?s:.*))?|kept(/[^./][^/]*)?"
    rf"|runs(/[^/]+(/{directories.LAYOUT})?)?"
)
"""Pattern of the paths inside of a study that must not be links.

While a model is written, there are hidden folders in `kept/` with a link of our own.
"""
FORMAT = 1
ATTEMPTS = 2  # a failed run is tried once more
State = Literal["queued", "done", "failed"]


@dataclasses.dataclass(frozen=True)
class Item:
    """One run of a study: some seeds of one algorithm on one task, and the attempts that failed."""

    task: str
    algorithm: str
    first_seed: int
    seeds: int
    attempts: int = 0
    error: str = ""

    @property
    def name(self) -> str:
        """Name of the run and of its directory: task, algorithm, first and last seed."""
        seeds = f"seeds-{self.first_seed}-{self.seed_numbers[-1]}"
        return f"{short_name(self.task)}-{short_name(self.algorithm)}-{seeds}"

    @property
    def seed_numbers(self) -> range:
        """The seeds of the run, as a range of whole numbers."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def halves(self) -> tuple[Item, Item]:
        """Return two runs that replace this one: one with half of its seeds, one with the others.

        Used for a run that does not fit in memory.
        """
        half = self.seeds // 2
        rest = dataclasses.replace(
            self, first_seed=self.first_seed + half, seeds=self.seeds - half, attempts=0, error=""
        )
        return dataclasses.replace(self, seeds=half, attempts=0, error=""), rest


@dataclasses.dataclass(frozen=True)
class Study:
    """A study in a directory: its plan, the index of its runs, and the runs themselves."""

    path: Path

    @property
    def logs(self) -> Path:
        """Folder with the output of each run's workers."""
        return self.path / "logs"

    @property
    def kept(self) -> Path:
        """Folder with the models that are kept of the runs."""
        return self.path / "kept"

    @property
    def imported(self) -> Path:
        """Folder with results of other programs, as CSV files."""
        return self.path / "imported"

    @property
    def report(self) -> Path:
        """Folder with the report page and its figures."""
        return self.path / "report"

    def exists(self) -> bool:
        """Return whether the directory holds a study, that is, whether it has a `plan.json`."""
        return os.path.lexists(self.path / PLAN)

    def has_index(self) -> bool:
        """Return whether the runs of the study are chosen, that is, whether it has an index."""
        return self.exists() and os.path.lexists(self.path / INDEX)

    def plan(self) -> Plan:
        """Read the plan of the study from `plan.json` and return it."""
        where = self.path / PLAN
        data = files.read_record(where, {"format": int})
        if data.pop("format") != FORMAT:
            raise RunError(f"{where}: not a plan that this version of elites reads")
        return from_values(data, str(where), saved=True)

    def write_plan(self, plan: Plan) -> None:
        """Write the plan of the study to `plan.json`."""
        directories.write_json(self.path / PLAN, {"format": FORMAT, **plan.to_json()})

    def items(self) -> list[Item]:
        """Read the runs of the study from `index.json` and return them."""
        where = self.path / INDEX
        data = files.read_record(where, {"format": int, "runs": list})
        if data["format"] != FORMAT:
            raise RunError(f"{where}: not an index that this version of elites reads")
        return [_item(f"{where}, run {i}", e) for i, e in enumerate(data["runs"], start=1)]

    def write_items(self, items: Sequence[Item]) -> None:
        """Write the runs of the study to `index.json`."""
        data = {"format": FORMAT, "runs": [dataclasses.asdict(item) for item in items]}
        directories.write_json(self.path / INDEX, data)

    def run(self, item: Item) -> RunDirectory:
        """Return the run directory of one run of the study. The directory may not exist yet."""
        return RunDirectory(self.path / "runs" / item.name)

    def config(self, item: Item) -> Config:
        """Return the configuration of one run of the study, as the study's plan determines it."""
        return self.plan().config(item.task, item.algorithm, item.seed_numbers)

    def model(self, item: Item, iteration: int | None = None) -> Path:
        """Return the path of the model that is kept of one run of the study.

        If `iteration` is given, it is the path for the unfinished run after so many iterations.
        """
        when = "" if iteration is None else f".iteration-{iteration}"
        return self.kept / f"{item.name}{when}.zip"

    def models(self) -> list[Path]:
        """Return the paths of the models that are kept, sorted by name."""
        return sorted(p for p in self.kept.glob("*.zip") if not p.name.startswith("."))

    def models_of(self, item: Item) -> list[Path]:
        """Return the paths of the models that are kept of one run of the study.

        There is at most one, unless a process was killed when it had written a new one.
        """
        return [path for path in self.models() if is_model_of(item, path.name)]

    def newest_model_of(self, item: Item) -> Path | None:
        """Return the path of the newest model that is kept of a run, or None if there is none."""
        models = self.models_of(item)
        if (whole := self.model(item)) in models:
            return whole
        return max(models, key=_iteration_of, default=None)

    def set_aside_models_of(self, item: Item) -> list[Path]:
        """Rename the models of one run of the study, so that they no longer count.

        Returns their new paths, which end in `.zip.old`.
        """
        found = self.models_of(item)
        return [path.replace(path.with_name(f"{path.name}.old")) for path in found]

    def remove_models_of(self, item: Item, other_than: Path) -> None:
        """Remove the models of one run of the study, except for one."""
        for path in self.models_of(item):
            if path != other_than:
                path.unlink()

    @functools.cached_property
    def keeps_elites(self) -> int:
        """Largest number of elites in the models that the study keeps, or 0 if it keeps none.

        It is read once from `plan.json`.
        """
        return self.plan().keep_elites

    def is_trained(self, item: Item) -> bool:
        """Return whether one run of the study is trained to its end."""
        return evaluation.is_done(self.run(item))

    def is_done(self, item: Item, keeps_models: bool) -> bool:
        """Return whether one run of the study is trained and, if models are kept, has its model."""
        return self.is_trained(item) and (not keeps_models or self.model(item).exists())

    def state(self, item: Item) -> State:
        """Return the state of one run of the study: "done", "failed" or "queued".

        The files of the study do not say whether a process is computing the run.
        """
        if self.is_done(item, self.keeps_elites > 0):
            return "done"
        return "failed" if item.attempts >= ATTEMPTS else "queued"


def _iteration_of(model: Path) -> int:
    """Return the iteration in the name of an unfinished run's model."""
    return int(model.stem.rpartition("-")[2])


def is_model_of(item: Item, name: str) -> bool:
    """Return whether a file with this name in `kept/` is a model of a run."""
    return re.fullmatch(rf"{re.escape(item.name)}(\.iteration-\d+)?\.zip", name) is not None


def _item(where: str, entry: Any) -> Item:
    """Return the run that an entry of `index.json` describes. `where` names it in errors."""
    fields = {"task": str, "algorithm": str, "first_seed": int, "seeds": int}
    optional = {"attempts": int, "error": str}
    files.check_record(entry, where, fields, optional=optional)
    for name in entry:
        if name not in (*fields, *optional):
            raise RunError(f"{where}: damaged: unknown field {files.shown(name)}")
    if not 1 <= entry["seeds"] <= presets.MAX_SEEDS or not 0 <= entry["first_seed"] < 2**31:
        raise RunError(
            f"{where}: damaged: {entry['seeds']} seeds from {entry['first_seed']} on are not seeds"
        )
    item = Item(**entry)
    if "/" in item.name or not item.name.isprintable() or len(item.name.encode()) > 200:
        raise RunError(f"{where}: damaged: {files.shown(item.name)} is not the name of a run")
    return item


def argument(path: Path) -> str:
    """Return the path of a study as an argument of `elites study`.

    A path such as `paper` would be taken for the built-in plan of that name.
    """
    return f"./{path}" if str(path) in BUILT_IN else str(path)


def existing(path: Path) -> Study:
    """Return the study in the directory at a path.

    If there is no study, raises a ValueError that says which file is missing.
    """
    study = Study(path)
    if not path.exists():
        raise ValueError(f"{path}: no such directory. Start a study with 'elites study PLAN'")
    if not study.exists():
        kind = "a run, not a study" if RunDirectory(path).exists() else "not a study"
        raise ValueError(f"{path}: {kind}, which has a file {PLAN}")
    directories.refuse_links(path, _LAYOUT, "study")
    return study


def resolved(path: Path, plan: Plan, say: Callable[[str], object]) -> Plan:
    """Return a plan whose tasks have names that determine them completely.

    The bounds of descriptors that are not known are those of the study in the directory, if there
    is one with the same tasks. Otherwise they are estimated, and `say` is called with a sentence
    about them. All runs of a study thus have the same bounds. Loads JAX.
    """
    if Study(path).exists():
        plan = _with_bounds_of(Study(path).plan(), plan)
    return dataclasses.replace(plan, tasks=tuple(tasks.resolve(task, say) for task in plan.tasks))


def refuse_other(path: Path, plan: Plan) -> None:
    """Raise an error if a directory holds something other than the study of a plan.

    The number of elites that are kept may differ, because it changes no result. Accepts a directory
    that is empty or does not exist. Writes nothing, so that a directory of the user's that is
    refused stays as it is.
    """
    study = Study(path)
    directories.refuse_links(path, _LAYOUT, "study")
    if study.exists():
        saved = dataclasses.replace(study.plan(), keep_elites=plan.keep_elites)
        if differing := differences(saved, _with_bounds_of(saved, plan)):
            raise ValueError(
                f"{path} holds another study: {'; '.join(differing)}. Choose another --output"
            )
        return
    if RunDirectory(path).exists():
        raise ValueError(f"{path} holds a run. Choose another --output")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, not a directory. Choose another --output")
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    if any(name != directories.LOCK and not name.startswith(".") for name in names):
        raise ValueError(f"{path} is not empty and not a study. Choose another --output")


def _with_bounds_of(saved: Plan, plan: Plan) -> Plan:
    """Return a plan in which tasks without bounds have those of the saved plan's tasks."""
    named = plan.tasks
    for before in saved.tasks:
        named = tuple(tasks.with_bounds_of(before, task) for task in named)
    return dataclasses.replace(plan, tasks=named)


def open_study(path: Path, plan: Plan, runs: Sequence[Item] | None = None) -> Study:
    """Return the study of a plan in a directory. Creates the study if it does not exist yet.

    A new study has the given runs, or one run for each task and algorithm. This process must have
    locked the directory. Raises a ValueError if the directory holds something else, such as a study
    with another plan.
    """
    refuse_other(path, plan)
    study, first = Study(path), runs or first_items(plan)
    if study.exists():
        if not study.has_index():
            study.write_items(first)
        refuse_strange_items(study, plan)
        if study.keeps_elites != plan.keep_elites:
            study.write_plan(dataclasses.replace(study.plan(), keep_elites=plan.keep_elites))
        return Study(path)
    # The plan is written first: if the process ends here, the next start writes the index.
    study.write_plan(plan)
    study.write_items(first)
    return study


def refuse_strange_items(study: Study, plan: Plan) -> None:
    """Raise a RunError if a run in a study's index has a task or algorithm that is not planned.

    The user has trusted only the files that the plan names.
    """
    pairs = plan.pairs()
    for item in study.items():
        if (item.task, item.algorithm) not in pairs:
            raise RunError(
                f"{study.path / INDEX}: damaged: the plan has no run of {item.algorithm} on "
                f"{item.task}. Remove the file, and start the study again"
            )


def first_items(plan: Plan, most: Mapping[tuple[str, str], int] | None = None) -> list[Item]:
    """Return the runs of a new study, grouped by task and algorithm.

    `most` has the largest number of seeds of a run, keyed by task and algorithm. Without it, each
    pair is one run with all seeds.
    """
    return [
        Item(task, algorithm, seeds.start, len(seeds))
        for task, algorithm in plan.pairs()
        for seeds in divided(plan.seed_numbers, (most or {}).get((task, algorithm), plan.seeds))
    ]


def split_for(study: Study, part: Part) -> None:
    """Split the runs of a study so that each is inside or outside of a part of the plan.

    This process must have locked the study. Raises a ValueError if a run that would be split has
    begun.
    """
    study.write_items(split(study, study.items(), part))


def split(study: Study, items: Sequence[Item], part: Part) -> list[Item]:
    """Return runs of a study, split so that each is inside or outside of a part of the plan.

    Raises a ValueError if a run that would be split has begun.
    """
    found: list[Item] = []
    for item in items:
        inside = part.has_pair(item.task, item.algorithm)
        pieces = _pieces(item, part.seeds) if inside else [item]
        if len(pieces) > 1 and study.run(item).exists():
            first, last = item.first_seed, item.seed_numbers[-1]
            raise ValueError(
                f"{item.name} is one run and has begun. Give all of its seeds to --only: "
                f"{first}-{last}"
            )
        found += pieces
    return found


def _pieces(item: Item, seeds: Sequence[range]) -> list[Item]:
    """Return runs that replace a run, cut where one of the ranges of seeds begins or ends."""
    inside = item.seed_numbers
    cuts = {cut for some in seeds for cut in (some.start, some.stop) if cut in inside}
    starts = sorted({inside.start, *cuts})
    return [
        dataclasses.replace(item, first_seed=start, seeds=stop - start)
        for start, stop in zip(starts, [*starts[1:], inside.stop], strict=True)
    ]


def refuse_other_settings(ours: Plan, theirs: Plan, path: Path, any_budget: bool = False) -> None:
    """Raise a ValueError if results at a path cannot be joined with those of our plan.

    They were computed by the plan `theirs`. Its tasks, algorithms and seeds may differ, and so may
    what changes no result: when runs are saved and evaluated again, and how many elites are kept.
    With `any_budget`, the budget may differ too. All other settings must be the same.
    """
    # A budget may be that of the preset in one plan, and the same number in the other.
    budgets = {(p.budget(task), task) for p in (ours, theirs) for task in p.tasks}
    same_budget = len(budgets) == len({*ours.tasks, *theirs.tasks})
    may_differ = ["tasks", "algorithms", "seeds", "first_seed", "checkpoint_every",
                  "reevaluate_every", "keep_elites"]  # fmt: skip
    may_differ += ["evaluations"] if any_budget or same_budget else []
    same = dataclasses.replace(ours, **{name: getattr(theirs, name) for name in may_differ})
    if differing := differences(theirs, same):
        raise ValueError(f"{path}: cannot be joined, it has other settings: {'; '.join(differing)}")


def differences(one: Plan, other: Plan) -> list[str]:
    """Return the differences of two plans as texts such as 'seeds is 3, not 5', one per field."""
    a, b = (json.loads(json.dumps(plan.to_json())) for plan in (one, other))
    return [f"{name} is {_short(a[name])}, not {_short(b[name])}" for name in a
            if a[name] != b[name]]  # fmt: skip


def _short(value: Any) -> str:
    """Return the value of a plan's field as text. A list is written without brackets."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
