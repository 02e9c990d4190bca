"""Configuration of a run. Loads without JAX, so that wrong values are refused quickly.

`preset("demo", task="walker_uni")` returns a configuration. `to_json` gives the form that is saved
with a run. `from_json` is strict: it refuses unknown and missing fields.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import tyro

from elites import loggers, names, presets, references, tasks
from elites.core import catalogue
from elites.core.catalogue import suggestion
from elites.core.hyperparameters import Hyperparameters
from elites.words import shortened

FORMAT = 2  # of config.json
Device = Literal["auto", "cpu", "gpu"]
_LOGGERS = tyro.conf.arg(metavar="NAME ...", help_behavior_hint="(default: none)")
_CALLBACKS = tyro.conf.arg(metavar="FILE.py:FUNCTION ...", help_behavior_hint="(default: none)")
_SOURCE = tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: none)")


@dataclasses.dataclass(frozen=True)
class Config:
    """Complete configuration of a run. On the same device, it determines every result."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A task by name (see 'elites tasks'), such as ant_omni or brax:hopper, or FILE.py:FUNCTION for
    one of your own."""
    algorithm: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[ALGORITHM]")] = "dcg_me"
    """An algorithm by name (see 'elites algorithms'), or FILE.py:FUNCTION for one of your own.

    Where the descriptor is a final position, progress_me needs the fewest evaluations.
    """
    seeds: int = 1
    """Number of seeds, trained together."""
    first_seed: int = 0
    """First seed; the others follow it."""
    seed_list: Annotated[tuple[int, ...], tyro.conf.Fixed, tyro.conf.Suppress] = ()
    """All seeds, if they are not consecutive. Only runs trained in Python can have this."""
    start_from: Annotated[str, _SOURCE] = ""
    """Run directory whose archive the run starts from, or an archive of another program: a CSV file
    of pyribs, or a folder of QDax. Its policies must have the same layers.

    Its elites are evaluated again, which does not count towards the budget.
    """
    evaluations: int = presets.PAPER.evaluations
    """Budget of each seed: episodes of offspring. The iteration that reaches it is the last."""
    checkpoint_every: int = presets.PAPER.checkpoint_every
    """Iterations between two checkpoints."""
    reevaluate_every: int = presets.PAPER.reevaluate_every
    """Iterations between two re-evaluations of archive and actor; 0 for only one, at the end."""
    figures: bool = True
    """Draw figures at the end of training; 'elites plot' draws them at any time."""
    log: Annotated[tuple[str, ...], _LOGGERS] = ()
    """Log the metrics to these services as well: wandb for Weights & Biases, mlflow for MLflow.

    A resumed run continues the service's run. The extras wandb and mlflow install the packages.
    """
    callback: Annotated[tuple[str, ...], _CALLBACKS] = ()
    """Functions of your own to call after every iteration, with the iteration and its metrics.

    One that raises elites.StopTraining ends training: the run is finished there.
    """
    device: Device = "auto"
    """Device to compute on; auto takes a GPU if JAX finds one."""
    hp: Hyperparameters = dataclasses.field(default_factory=Hyperparameters)
    """Hyperparameters of the algorithm."""

    def __post_init__(self):
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"{name} must be a whole number of at least {least}, got {value!r}"
                )
            if value > most:
                raise ValueError(f"{name} must be at most {most}, got {value!r}")
        if self.seed_list and not self._lists_seeds():
            raise ValueError(
                f"seed_list must be {self.seeds} different seeds that begin with "
                f"{self.first_seed}, got {self.seed_list!r}"
            )
        if not isinstance(self.start_from, str):
            raise ValueError(f"start_from must be a path, got {self.start_from!r}")
        if not isinstance(self.figures, bool):
            raise ValueError(f"figures must be true or false, got {self.figures!r}")
        loggers.checked(self.log)
        for name in self.callback:
            references.check_form("callback", str(name))
        if self.device not in get_args(Device):
            known = ", ".join(get_args(Device))
            raise ValueError(f"device must be one of {known}, got {self.device!r}")

    def _lists_seeds(self) -> bool:
        """Return whether `seed_list` is valid: distinct seeds that agree with the other fields.

        There must be `seeds` of them, and the first must be `first_seed`.
        """
        seeds = self.seed_list
        if not isinstance(seeds, tuple) or not all(
            isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32
            for seed in seeds
        ):
            return False
        return len(set(seeds)) == len(seeds) == self.seeds and seeds[0] == self.first_seed

    def check(self) -> Config:
        """Return this configuration. Raises a ValueError if its task or algorithm is unknown."""
        if self.algorithm != catalogue.DISTIL:
            catalogue.check(self.algorithm)
        elif not self.start_from:
            raise ValueError("'distil' needs the archive of a run: use 'elites distil RUN'")
        tasks.check(self.task)
        return self

    def absolute(self) -> Config:
        """Return a copy of this configuration in which all paths are absolute.

        Paths occur in FILE.py:FUNCTION, a task, an algorithm or a callback of the user's own, in
        the names of simulators' tasks, and in `start_from`.
        """
        task, algorithm = names.absolute(self.task), references.absolute(self.algorithm)
        source = os.path.abspath(self.start_from) if self.start_from else ""
        called = tuple(map(references.absolute, self.callback))
        return dataclasses.replace(
            self, task=task, algorithm=algorithm, start_from=source, callback=called
        )

    def for_distillation(self, source: str, iterations: int, **hp: Any) -> Config:
        """Return the configuration of a run that distils the archive of another run.

        This is the configuration of the run to distil, and `source` is its directory. `hp` are the
        hyperparameters to change.
        """
        values = dataclasses.replace(self.hp, **hp)
        return dataclasses.replace(
            self,
            algorithm=catalogue.DISTIL,
            start_from=source,
            evaluations=values.batch_size * (1 + iterations),
            log=(),
            callback=(),
            hp=values,
        )

    @property
    def name(self) -> str:
        """Short name for directories and titles, made of task and algorithm: walker_uni-dcg_me."""
        return "-".join(map(names.short_name, (self.task, self.algorithm)))

    @property
    def seed_numbers(self) -> Sequence[int]:
        """The seeds of the run, as a sequence of whole numbers."""
        return self.seed_list or range(self.first_seed, self.first_seed + self.seeds)

    def to_json(self) -> dict[str, Any]:
        """Return this configuration as a dictionary that can be written as JSON.

        The fields of `_OPTIONAL` are left out where they are empty.
        """
        values = dataclasses.asdict(self)
        return {"format": FORMAT} | {k: v for k, v in values.items() if v or k not in _OPTIONAL}

    @classmethod
    def from_json(cls, data: Any, where: str) -> Config:
        """Return the configuration that was saved as `data`, the contents of a config.json.

        `where` is the name of the file, for error messages. Raises a ValueError if a field is
        unknown, missing or wrong.
        """
        if not isinstance(data, dict):
            raise ValueError(f"{where}: not a configuration")
        version = data.get("format")
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValueError(f"{where}: not a configuration, it has no format number")
        if version > FORMAT:
            raise ValueError(
                f"{where}: format {version} was written by a newer elites, this one reads up to "
                f"{FORMAT}: install a newer version of elites"
            )
        if version < 1:
            raise ValueError(f"{where}: format {version} is not known; formats begin with 1")
        values: dict[str, Any] = {name: [] for name in _OPTIONAL} | {
            name: value for name, value in data.items() if name not in ("format", "hp")
        }
        if version == 1:
            values = _from_format_1(values)
        _refuse_strangers(where, "", values, cls, ("hp",))
        for name in ("seed_list", *_OPTIONAL):
            if isinstance(listed := values.get(name), list):
                values[name] = tuple(listed)
        _check_names(where, values)
        given = data.get("hp")
        if not isinstance(given, dict):
            raise ValueError(f"{where}: 'hp' must be a table of hyperparameters")
        paper = Hyperparameters()
        given = {name: getattr(paper, name) for name in _ADDED} | given
        _refuse_strangers(where, "hp.", given, Hyperparameters)
        try:
            return cls(**values, hp=Hyperparameters.of(given))
        except ValueError as error:
            raise ValueError(f"{where}: {shortened(str(error), 500)}") from None


def _check_names(where: str, values: Mapping[str, Any]) -> None:
    """Raise a ValueError if a name of the configuration in the file `where` is not valid.

    The files that it names are code. A relative path could run code of someone else's run.
    """
    for name in _OPTIONAL:
        given = values[name]
        if not isinstance(given, tuple) or not all(isinstance(text, str) for text in given):
            raise ValueError(f"{where}: '{name}' must be a list of names")
    for name, text in [
        *((name, values[name]) for name in ("task", "algorithm")),
        *(("callback", text) for text in values["callback"]),
    ]:
        if not isinstance(text, str):
            raise ValueError(f"{where}: '{name}' must be a name")
        if not all(map(os.path.isabs, names.paths(text))):
            raise ValueError(f"{where}: the file of {name} '{text}' has no absolute path")


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of a configuration from format 1 to format 2 and return them.

    Format 1 had another name for `reevaluate_every`, and neither `seed_list` nor `start_from`.
    """
    renamed = {"reach_every": "reevaluate_every"}
    return {"seed_list": [], "start_from": ""} | {
        renamed.get(name, name): value for name, value in values.items()
    }


_ADDED: tuple[str, ...] = (
    "activation", "normalise_observations", "evaluations_per_policy", "average", "qd_offset",
    "distil_steps", "distil_batch_size", "distil_learning_rate", "progress_weight",
    "progress_final_weight", "progress_weight_start", "progress_weight_end", "progress_discount",
    "progress_batch_size", "progress_learning_rate", "progress_final_rate", "progress_rate_start",
    "progress_rate_end", "progress_reached", "progress_uniform", "progress_near", "progress_empty",
    "progress_proximity", "grid", "centroids_file", "cma_emitters", "cma_sigma", "cma_form",
    "cma_rank_one", "cma_ranker", "cma_selection", "cma_restart", "cma_ascent", "cma_copies",
    "cma_critic_batch", "archive_rate", "archive_minimum",
    "pbt_population", "pbt_offspring", "pbt_episodes", "pbt_steps",
    "pbt_replay_size", "pbt_copying", "pbt_best", "pbt_drawing", "pbt_discount",
    "pbt_actor_learning_rate", "pbt_critic_learning_rate", "pbt_smoothing_noise",
    "pbt_smoothing_clip", "pbt_exploration_noise", "dns_population", "dns_neighbours",
)  # fmt: skip
"""Hyperparameters that were added after version 0.1.0.

Runs that were saved earlier get the defaults, which do not change their results.
"""

_OPTIONAL = ("log", "callback")
"""Lists that a saved configuration may lack: they are empty then."""

_BOUNDS = {  # lowest, highest
    "seeds": (1, presets.MAX_SEEDS),
    "first_seed": (0, 2**31 - 1),
    "evaluations": (1, 2**31 - 1),
    "checkpoint_every": (1, 2**31 - 1),
    "reevaluate_every": (0, 2**31 - 1),
}

CHANGEABLE = (
    "evaluations", "checkpoint_every", "reevaluate_every", "figures", "device", "log", "callback"
)  # fmt: skip
"""Fields that may change when a run is resumed. All others determine its results."""


def _refuse_strangers(
    where: str, prefix: str, values: Mapping, record: type, absent: Collection[str] = ()
) -> None:
    """Raise a ValueError if `values` has unknown fields or lacks fields of the dataclass `record`.

    `absent` names fields of the dataclass that must not be in `values`. `where` (a file) and
    `prefix` (of the field names) are for the error message.
    """
    known = [field.name for field in dataclasses.fields(record) if field.name not in absent]
    for name in values:
        if name not in known:
            raise ValueError(f"{where}: unknown field '{prefix}{name}'.{suggestion(name, known)}")
    missing = [prefix + name for name in known if name not in values]
    if missing:
        raise ValueError(f"{where}: missing {', '.join(missing)}")


def flat(config: Config) -> dict[str, Any]:
    """Return all values of a configuration, keyed by option: `seeds`, `hp.cells` and so on."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name != "hp"}
    for field in dataclasses.fields(config.hp):
        values[f"hp.{field.name}"] = getattr(config.hp, field.name)
    return values


def differences(saved: Config, asked: Config) -> list[str]:
    """Return the differences between two configurations as texts such as "seeds is 2, not 3".

    There the saved value is 2 and the requested one is 3. Fields that do not affect the
    results of a run are ignored.
    """
    before, after = flat(saved), flat(asked)
    return [
        f"{name} is {before[name]}, not {after[name]}"
        for name in before
        if name not in CHANGEABLE and before[name] != after[name]
    ]


def seed_index(seeds: Sequence[int], seed: int) -> int:
    """Return the position of `seed` among the seeds of a run.

    Raises a ValueError that lists the seeds if it is not one of them.
    """
    if seed not in seeds:
        known = ", ".join(map(str, seeds))
        raise ValueError(f"the run has no seed {seed}. Its seeds are {known}")
    return seeds.index(seed)


# -------------------------------------------------------------------------------------- presets


def preset(name: str, task: str) -> Config:
    """Return the configuration of the preset `name` for a task. Its algorithm is dcg_me."""
    chosen = presets.get(name)
    return Config(
        task=task,
        evaluations=chosen.evaluations,
        checkpoint_every=chosen.checkpoint_every,
        reevaluate_every=chosen.reevaluate_every,
        hp=chosen.hp,
    )
