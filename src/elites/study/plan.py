"""Plans of studies: tasks, algorithms, seeds, budget and hyperparameters. Loads without JAX.

A plan is given by a built-in name or as a TOML file:

    tasks = ["ant_omni", "walker_uni"]
    algorithms = ["dcg_me", "pga_me", "me"]
    seeds = 10
    preset = "paper"            # gives every value that the plan does not
    evaluations = 200_000

    [hp]
    cells = 512

Errors in a file name the line.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elites import files, names, references
from elites import tasks as registry
from elites.core import catalogue, usage
from elites.core.catalogue import suggestion
from elites.core.hyperparameters import Hyperparameters
from elites.files import shown
from elites.runs.config import Config, preset
from elites.runs.directory import RunDirectory

PAPER_TASKS = ("ant_omni", "anttrap_omni", "hexapod_omni", "walker_uni")
ABLATIONS = (
    "dcg_me",
    "dcg_me_no_actor_evaluation",
    "dcg_me_sampled_negatives",
    "dcg_me_unconditioned_actor",
)
BASELINES = ("me", "me_es", "pga_me", "qd_pg")
RELATED = ("pbt_me", "cma_me", "cma_mae", "cma_mega_es", "cma_mega_td3", "dns")
"""Algorithms that the paper discusses or that followed it, without those for plain vectors."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Plan of a study: every algorithm on every task, with the same seeds and budget."""

    tasks: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: int = 20
    first_seed: int = 0
    preset: str = "paper"
    evaluations: int | None = None
    """Budget of evaluations for each seed. None means the budget of the preset."""
    checkpoint_every: int | None = None
    reevaluate_every: int | None = None
    keep_elites: int = 0
    """Largest number of elites in the model that is kept of each run. 0 keeps no models."""
    hp: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config(self, task: str, algorithm: str, seeds: range) -> Config:
        """Return the configuration of a run: an algorithm on a task, with the given seeds."""
        base = preset(self.preset, task)
        hp = Hyperparameters.of({**vars(base.hp), **self.hp})
        given = {
            name: getattr(self, name)
            for name in ("evaluations", "checkpoint_every", "reevaluate_every")
            if getattr(self, name) is not None
        }
        return dataclasses.replace(
            base, algorithm=algorithm, seeds=len(seeds), first_seed=seeds.start, hp=hp,
            figures=False, **given,
        )  # fmt: skip

    @property
    def seed_numbers(self) -> range:
        """The seeds with which each algorithm is trained on each task."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def budget(self, task: str) -> int:
        """Return the budget of evaluations for each seed on a task."""
        return self.evaluations or preset(self.preset, task).evaluations

    def pairs(self) -> list[tuple[str, str]]:
        """Return all (task, algorithm) pairs of the plan, grouped by task."""
        return [(task, algorithm) for task in self.tasks for algorithm in self.algorithms]

    def unread(self) -> list[str]:
        """Return the hyperparameters of the plan that none of its algorithms reads.

        Returns an empty list if an algorithm is the user's own, about which nothing is known.
        """
        known = [usage.READ.get(algorithm, tuple(self.hp)) for algorithm in self.algorithms]
        return [name for name in self.hp if not any(name in read for read in known)]

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the plan as a dictionary that can be written as JSON."""
        return {**dataclasses.asdict(self), "hp": dict(self.hp)}


@dataclasses.dataclass(frozen=True)
class Part:
    """Part of a plan: some of its tasks, algorithms and seeds. An empty field stands for all."""

    tasks: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    seeds: tuple[range, ...] = ()

    def has(self, task: str, algorithm: str, seeds: range) -> bool:
        """Return whether a run of these seeds belongs to the part, with all of its seeds."""
        return self.has_pair(task, algorithm) and all(
            not self.seeds or any(seed in some for some in self.seeds) for seed in seeds
        )

    def has_pair(self, task: str, algorithm: str) -> bool:
        """Return whether some seeds of this task and algorithm belong to the part."""
        return (not self.tasks or task in self.tasks) and (
            not self.algorithms or algorithm in self.algorithms
        )


def part(plan: Plan, words: Sequence[str]) -> Part:
    """Return the part of a plan that words describe: names of tasks and algorithms, and seeds.

    Seeds are a number, or the first and the last one, such as 800-803. Raises a ValueError if a
    word is none of them.
    """
    tasks = {names.short_name(task): task for task in plan.tasks}
    algorithms = {names.short_name(name): name for name in plan.algorithms}
    seeds: list[range] = []
    for word in words:
        if found := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            some = range(int(found[1]), int(found[2] or found[1]) + 1)
            inside = plan.seed_numbers
            if not some:
                raise ValueError(
                    f"--only {word}: an empty range of seeds. Did you mean {found[2]}-{found[1]}?"
                )
            if some[0] not in inside or some[-1] not in inside:
                raise ValueError(
                    f"--only {word}: the plan has the seeds {inside[0]} to {inside[-1]}"
                )
            seeds.append(some)
        elif word not in tasks and word not in algorithms:
            known = [*tasks, *algorithms]
            raise ValueError(
                f"--only {word}: the plan has no such task or algorithm."
                f"{suggestion(word, known)} It has {', '.join(known)}; or seeds, such as 0-3"
            )
    return Part(
        tuple(tasks[word] for word in words if word in tasks),
        tuple(algorithms[word] for word in words if word in algorithms),
        tuple(seeds),
    )


BUILT_IN: dict[str, Plan] = {
    # The paper's main comparison and its ablations: 4 tasks, 8 algorithms, 20 seeds.
    "paper": Plan(PAPER_TASKS, ("dcg_me", *BASELINES, *ABLATIONS[1:])),
    "ablations": Plan(PAPER_TASKS, ABLATIONS),
    # Beside the paper's algorithm and its strongest baseline: those of its related work.
    "related": Plan(PAPER_TASKS, ("dcg_me", "pga_me", *RELATED)),
    # Takes minutes on a CPU. Shows that everything works, not that anything is learned.
    "smoke": Plan(("point_omni", "arm_reach"), ("dcg_me", "pga_me", "me"), seeds=3, preset="smoke"),
}


def read(name: str, saved: bool = False) -> Plan:
    """Return the plan called `name`: a built-in plan, or one that is read from a TOML file.

    The files of a user's own tasks and algorithms must exist, unless the plan is `saved` beside
    results. Raises a ValueError if there is neither a plan nor a file of that name, or if the file
    has a mistake.
    """
    path = Path(name)
    if name in BUILT_IN:
        return BUILT_IN[name]
    if not path.suffix and not path.exists():
        known = ", ".join(BUILT_IN)
        raise ValueError(
            f"unknown plan '{name}'.{suggestion(name, BUILT_IN)} Known: {known}; or a TOML file"
        )
    if not path.exists():
        raise ValueError(f"{name}: no such file")
    if path.is_dir():
        if RunDirectory(path).exists():
            raise ValueError(f"{name} is a run, not a study. Continue it with 'elites resume'")
        raise ValueError(f"{name}: a directory, but not a study. A plan is a TOML file")
    values = files.read_toml(path)
    return from_values(values, name, files.read_text(path, error=ValueError, follow=True), saved)


def from_values(values: Mapping[str, Any], where: str, text: str = "", saved: bool = False) -> Plan:
    """Return the plan that has `values` as its fields. Raises a ValueError if one is wrong.

    `where` is the name of the plan's file and `text` its contents. They are used to name the line
    of a mistake. `saved` is as in `read`.
    """

    def refusal(what: str, *words: str) -> ValueError:
        """Return a ValueError about a mistake in the plan.

        Its message names the first line of the plan's file that contains one of `words`, if any.
        """
        line = _line_of(text, words) if text else None
        return ValueError(f"{where}{f', line {line}' if line else ''}: {what}")

    if saved:  # by version 0.1.0, which called a field by another name
        values = {"reevaluate_every" if n == "reach_every" else n: v for n, v in values.items()}
    fields = {field.name: field for field in dataclasses.fields(Plan)}
    for name in values:
        if name not in fields:
            raise refusal(
                f"unknown field '{name}'.{suggestion(name, fields)} Known: {', '.join(fields)}",
                name,
            )
    given = dict(values)
    for name, check in (("tasks", registry.check), ("algorithms", catalogue.check)):
        if name not in values:
            raise refusal(f"{name} is missing. Give a list of names")
        given[name] = _names(name, values[name], check, refusal, saved)
    whole_numbers = ("seeds", "first_seed", "evaluations", "checkpoint_every", "reevaluate_every",
                     "keep_elites")  # fmt: skip
    for name in whole_numbers:
        value = values.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise refusal(f"{name} must be a whole number, got {shown(value)}", name)
    if not isinstance(values.get("preset", ""), str):
        raise refusal(f"preset must be a name, got {shown(values['preset'])}", "preset")
    if (values.get("keep_elites") or 0) < 0:
        raise refusal(f"keep_elites must be at least 0, got {values['keep_elites']}", "keep_elites")
    if not isinstance(values.get("hp", {}), Mapping):
        raise refusal("hp must be a table of hyperparameters", "hp")
    try:
        plan = Plan(**given)
        for task, algorithm in plan.pairs():
            plan.config(task, algorithm, plan.seed_numbers)
    except (ValueError, TypeError) as error:
        named = re.match(r"(?:unknown (?=preset)|unknown hyperparameter ')?(\w+)", str(error))
        raise refusal(str(error), named[1] if named else "") from None
    return plan


def _names(
    field: str,
    entries: Any,
    check: Callable[[str], str],
    refusal: Callable[..., ValueError],
    saved: bool,
) -> tuple[str, ...]:
    """Return the names in a plan's field `tasks` or `algorithms`, with absolute paths of files.

    `check` raises a ValueError for an unknown name, and `refusal` makes the error to raise. The
    files of a `saved` study need not exist.
    """
    if not isinstance(entries, list | tuple) or not all(isinstance(e, str) for e in entries):
        raise refusal(f"{field} must be a list of names, got {shown(entries)}", field)
    if not entries:
        raise refusal(f"{field} is empty. Give at least one name", field)
    for entry in entries:
        try:
            if saved and field == "tasks":
                registry.check_form(entry)
            elif saved and references.is_reference(entry):
                references.check_form("algorithm", entry)
            else:
                check(entry)
        except ValueError as error:
            raise refusal(str(error), f'"{entry}"', f"'{entry}'", field) from None
        if list(entries).count(entry) > 1:
            raise refusal(f"{field} names {entry} twice", field)
    short = [names.short_name(entry) for entry in entries]
    if len(set(short)) < len(short):
        raise refusal(f"{field} has two of the same name: {', '.join(short)}", field)
    return tuple(names.absolute(entry) for entry in entries)


def _line_of(text: str, words: tuple[str, ...]) -> int | None:
    """Return the number of the first line, from 1, that has one of the words, or None.

    A quoted word may be anywhere in the line. A field name must be at its beginning.
    """
    for word in words:
        if not word:
            continue
        quoted = word[0] in "\"'"
        pattern = re.escape(word) if quoted else rf"^\s*\[?{re.escape(word)}\b"
        for number, line in enumerate(text.splitlines(), start=1):
            if re.search(pattern, line):
                return number
    return None


def refuse_small_budget(plan: Plan, where: str) -> None:
    """Raise a ValueError if the plan's budget does not suffice for one iteration of every run.

    The evaluations of the initial policies count as well. `where` is the name or the file of the
    plan, for the message. Loads JAX.
    """
    from elites import training

    path = Path(where)
    line = None
    if where not in BUILT_IN and path.is_file():
        text = files.read_text(path, error=ValueError, follow=True)
        line = _line_of(text, ("evaluations",))
    place = f"{where}, line {line}" if line else where

    for task, algorithm in plan.pairs():
        config = plan.config(task, algorithm, plan.seed_numbers)
        built = training.build(task, algorithm, hp=config.hp)
        try:
            training.iterations_for(built, config.evaluations)
        except ValueError as error:
            raise ValueError(f"{place}: {algorithm} on {task}: {error}") from None
