"""Estimate how long an iteration takes on a device, from measurements. Loads without JAX.

Measurements come from `measured.json` of this package and from the user's cache, to which
`elites study PLAN --measure` adds. Each one is the time of an iteration without checkpoints and
re-evaluations. Some were derived from a run that had both, by taking off a share (`less`).

For a number of seeds that was not measured, the time is estimated, in this order:

1. Between two numbers of seeds of the same task and algorithm: on the line between them.
2. Beyond them: from the nearest, in the proportion that the stages of an iteration give.
3. On a line through two measurements, if the stages were not measured on this device.
4. For a task and an algorithm without a measurement: from the stages alone.

The stages are those of one algorithm on one task for several numbers of seeds. `train` and `ask`
grow with the seeds and with the gradient steps of an algorithm, see `_WORK`. `evaluate` grows with
the number of robots, and differs between tasks by a constant factor.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from elites import files
from elites.files import RunError
from elites.output import complain
from elites.words import listed, one_line
from elites.writing import write_json

TABLE = Path(__file__).with_name("measured.json")
OVERHEAD = 1.07
"""Time of a run, with metrics, checkpoints and re-evaluations, over that of its iterations.

Four seeds of dcg_me on ant_omni on an NVIDIA H200 took 0.285 s an iteration in a run and 0.266 s in
a benchmark of the iteration alone.
"""
SHARING = 1.07
"""Time of runs side by side over that of one run with the seeds of all of them.

Two runs of four seeds under MPS took 0.42 s an iteration, one run of eight seeds 0.394 s.
"""
_WORK = {  # training steps and PG steps of an iteration, relative to dcg_me
    "dcg_me": (1.0, 1.0),
    "dcg_me_no_actor_evaluation": (1.0, 1.0),
    "dcg_me_sampled_negatives": (1.0, 1.0),
    "dcg_me_unconditioned_actor": (1.0, 1.0),
    "pga_me": (1.0, 127 / 128),
    "qd_pg": (1.1, 168 / 128),  # 300 steps of a second critic
    "dcrl_me": (1.0, 0.5),
    "me": (0.0, 0.0),
    "me_es": (0.0, 0.0),
}
_STAGES = ("train", "ask", "evaluate", "tell")
_REFERENCE = "dcg_me"  # the algorithm by which tasks are compared
_FIELDS: files.Fields = {"device": str, "task": str, "algorithm": str, "seeds": int,
                         "seconds": (int, float), "source": str}  # fmt: skip
_OPTIONAL: files.Fields = {
    "together": int, "variant": str, "less": int, "stages": dict, "rows": int
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Measured time of an iteration of one algorithm on one task, for a number of seeds."""

    device: str
    task: str
    algorithm: str
    seeds: int
    seconds: float
    source: str
    """Where it was measured: a file, or a date."""
    together: int = 1
    """Number of such runs that shared the device."""
    variant: str = ""
    """Hyperparameters and files that differ from the paper's, see `Work`."""
    less: int = 0
    """Percentage taken off the time of a run for its checkpoints and re-evaluations, 0 if none."""
    stages: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds of each stage of the iteration, if they were measured."""
    rows: int = 0
    """Number of robots that `evaluate` simulates for all seeds, if stages were measured."""

    @property
    def estimate(self) -> Estimate:
        """Estimate for the same runs: the seconds, and whether a share was taken off."""
        derived = f", less {self.less} % for checkpoints" if self.less else ""
        return Estimate(self.seconds, f"measured{derived}")


class Work(NamedTuple):
    """What one seed of a run computes in an iteration, as far as its duration depends on it."""

    task: str
    algorithm: str
    rows: tuple[int, ...]  # robots that are simulated, for each round of the iteration
    variant: str = ""  # hyperparameters and files that differ from the paper's; "" if none does


class Estimate(NamedTuple):
    """Seconds of an iteration, and whether they were measured or what they were derived from."""

    seconds: float
    basis: str
    """Such as "measured", "measured, less 7 % for checkpoints", "from 4 and 8 seeds", "from stages"
    or "2 runs as one, from stages"."""

    @property
    def measured(self) -> bool:
        """Whether the seconds were measured for this task, algorithm and number of seeds.

        Seconds that were derived from those of a run with checkpoints do not count.
        """
        return self.basis == "measured"


class Clock:
    """Estimates of the time of an iteration on one device."""

    def __init__(self, device: str, measurements: Iterable[Measurement]):
        self.device = device
        self._rows = [m for m in measurements if m.device == device]
        self._staged = [m for m in self._rows if m.stages]

    def alone(self, work: Work, seeds: int) -> Estimate | None:
        """Return the time of an iteration of a run that has the device for itself.

        Returns None if it cannot be derived from what was measured on this device.
        """
        measured = self._alone(work)
        if seeds in measured:
            return measured[seeds].estimate
        points = {n: m.seconds for n, m in measured.items()}
        basis = f"from {listed([str(n) for n in points])} seeds"
        if points and min(points) < seeds < max(points):
            return Estimate(_on_lines(points, seeds), basis)
        modelled = self._model(work, seeds)
        if points and modelled is not None:
            nearest = min(points, key=lambda n: abs(n - seeds))
            scale = self._model(work, nearest)
            if scale:
                near = f"from {nearest} seed{'s' if nearest > 1 else ''}"
                return Estimate(points[nearest] * modelled / scale, near)
        if len(points) > 1:
            return Estimate(_on_lines(points, seeds), basis)
        return None if modelled is None or points else Estimate(modelled, "from stages")

    def together(self, work: Work, seeds: int, count: int) -> Estimate | None:
        """Return the time of an iteration of each of `count` such runs that share the device."""
        if count == 1:
            return self.alone(work, seeds)
        for m in self._of(work):
            if (m.seeds, m.together) == (seeds, count):
                return m.estimate
        merged = self.alone(work, count * seeds)
        return merged and Estimate(SHARING * merged.seconds, f"{count} runs as one, {merged.basis}")

    def _of(self, work: Work) -> list[Measurement]:
        """Return all measurements of a task and an algorithm, also of runs side by side."""
        wanted = (work.task, work.algorithm, work.variant)
        return [m for m in self._rows if (m.task, m.algorithm, m.variant) == wanted]

    def _alone(self, work: Work) -> dict[int, Measurement]:
        """Return the measurements of runs alone on the device, keyed by seeds, in order."""
        found = {m.seeds: m for m in self._of(work) if m.together == 1}  # the last one counts
        return dict(sorted(found.items()))

    def _model(self, work: Work, seeds: int) -> float | None:
        """Return the time of an iteration as the sum of its stages, or None if it is unknown."""
        factor = self._task_factor(work.task)
        if work.variant or work.algorithm not in _WORK or factor is None:
            return None
        train, gradient = _WORK[work.algorithm]
        rollouts = sum(self._evaluate(seeds * rows) for rows in work.rows)
        learning = train * self._stage("train", seeds) + gradient * self._stage("ask", seeds)
        return learning + factor * rollouts + self._stage("tell", seeds)

    def _task_factor(self, task: str) -> float | None:
        """Return how long rollouts of a task take, relative to the task with measured stages.

        Returns None if neither stages nor the reference algorithm on this task were measured.
        """
        if len(self._staged) < 2:
            return None
        if task == self._staged[0].task:
            return 1.0
        each = self._staged[0].rows / self._staged[0].seeds
        factors = []
        for seeds, measured in self._alone(Work(task, _REFERENCE, ())).items():
            others = sum(self._stage(name, seeds) for name in ("train", "ask", "tell"))
            rest = measured.seconds - others
            factors.append(rest / self._evaluate(seeds * each))
        return statistics.mean(factors) if factors else None

    def _stage(self, name: str, seeds: float) -> float:
        """Return the seconds of a stage of the reference algorithm for a number of seeds."""
        return _on_lines({m.seeds: m.stages[name] for m in self._staged}, seeds)

    def _evaluate(self, rows: float) -> float:
        """Return the seconds in which a number of robots of the reference task is simulated."""
        return _on_lines({m.rows: m.stages["evaluate"] for m in self._staged}, rows)


def _on_lines(points: Mapping[int, float], x: float) -> float:
    """Return the value at x on the lines between points, or on the first or last line beyond."""
    known = sorted(points)
    pairs = list(itertools.pairwise(known))
    left, right = next((pair for pair in pairs if x <= pair[1]), pairs[-1])
    share = (x - left) / (right - left)
    return points[left] + share * (points[right] - points[left])


# ------------------------------------------------------------------------------------------- files


def cache_file() -> Path | None:
    """Return the file with the user's own measurements. It need not exist.

    Returns None if the user has no home directory.
    """
    folder = files.user_cache()
    return None if folder is None else folder / "seconds.json"


def measurements() -> list[Measurement]:
    """Return the measurements of the package, and those in the user's cache.

    A damaged cache is left out with a warning.
    """
    found, own = read(TABLE), cache_file()
    if own is not None and own.exists():
        try:
            found += read(own)
        except (RunError, OSError) as error:
            complain(f"{one_line(error)}. Remove this file, and measure again with --measure")
    return found


def read(path: Path) -> list[Measurement]:
    """Read a file of measurements and return them. Raises a RunError if it is damaged."""
    entries = files.read_record(path, {"measurements": list})["measurements"]
    return [_measurement(f"{path}, entry {i}", e) for i, e in enumerate(entries, start=1)]


def _measurement(where: str, entry: Any) -> Measurement:
    """Return the measurement of an entry of a file. `where` names it in errors."""
    files.check_record(entry, where, _FIELDS, optional=_OPTIONAL)
    for name in entry:
        if name not in (*_FIELDS, *_OPTIONAL):
            raise RunError(f"{where}: damaged: unknown field {files.shown(name)}")
    if entry["seconds"] <= 0 or entry["seeds"] < 1:
        raise RunError(f"{where}: damaged: seconds and seeds must be greater than 0")
    if not 0 <= entry.get("less", 0) < 100:
        raise RunError(f"{where}: damaged: less must be a percentage from 0 to 99")
    if stages := entry.get("stages"):
        files.check_record(stages, f"{where}, stages", dict.fromkeys(_STAGES, (int, float)))
    return Measurement(**entry)


def store(new: Sequence[Measurement]) -> Path | None:
    """Add measurements to the user's cache, in place of older ones of the same runs.

    Returns the file, or None if the user has no home directory.
    """
    path = cache_file()
    if path is None:
        return None
    kept: list[Measurement] = []
    if path.exists():
        try:
            kept = read(path)
        except (RunError, OSError):
            kept = []  # damaged, and replaced
    merged = {_key(m): m for m in (*kept, *new)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"measurements": [dataclasses.asdict(m) for m in merged.values()]})
    return path


def _key(m: Measurement) -> tuple[Any, ...]:
    """Return what identifies the runs of a measurement."""
    return (m.device, m.task, m.algorithm, m.seeds, m.together, m.variant)
