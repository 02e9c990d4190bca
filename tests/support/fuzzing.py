"""A sandbox with every file that elites reads, and cases that damage one file and run a command.

A case is a number. It determines the file, the damage and the command, so that it can be repeated
alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import matplotlib.figure
import matplotlib.pyplot as plt

import damage
import elites
import sandboxes
from elites import physics
from elites.cli import main
from elites.runs import fingerprints, job, logs, recording, trainer
from elites.runs.directory import METRICS, RunDirectory, RunError
from elites.runs.outcome import Outcome
from elites.study import collect, report, scheduler
from elites.study.recorded import Folder
from elites.study.study import Study
from elites.viewer import api, data
from elites.viewer.player import Player
from sandboxes import IN_STUDY

CASES = 2000
SECONDS = 60  # after which a case counts as hanging
MEMORY = 4 << 30  # bytes that a case may add to the address space of the process

EXPECTED = (ValueError, OSError, RunError)


# ------------------------------------------------------------------------------------ commands


def _command(*arguments: str) -> Callable[[Path], str | None]:
    """Return a function that runs a command line in a sandbox and returns its complaint."""

    def run(box: Path) -> str | None:
        # As in a process: stdout refuses what it cannot encode.
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        err = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([argument.replace("BOX", str(box)) for argument in arguments])
        lines = err.getvalue().splitlines()
        if code == 0:
            # A study says how it will compute its runs before it begins.
            expected = r".* unknown\b.*|\d+ runs at a time, .*"
            study = arguments[0] == "study"
            said = [line for line in lines if not (study and re.fullmatch(expected, line))]
            assert all(line.startswith("elites: ") for line in said), lines
            return None
        assert code in (1, 2), f"exit code {code}"
        assert "".join(lines[-1:]).startswith("elites: "), lines
        return lines[-1]

    run.__name__ = arguments[0]
    return run


def _complaint(call: Callable[[Path], Any]) -> Callable[[Path], str | None]:
    """Return a function that calls a function of the library and returns its complaint."""

    @functools.wraps(call)
    def run(box: Path) -> str | None:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                call(box)
        except data.NotFoundError:
            return None
        except EXPECTED as error:
            return str(error)
        return None

    return run


@_complaint
def load(box: Path) -> None:
    elites.load(box / "run")


@_complaint
def page(box: Path) -> None:
    """Request everything that the page requests when it opens."""
    run = RunDirectory(box / "run")
    task = elites.tasks.make("point_omni")
    shown: Any = SimpleNamespace(identity=data.identity(run), scene=lambda: None, task=task)
    calls = api.endpoints(run, shown)
    about = calls["/api/run"]({})
    api.to_json(about)
    api.to_json(calls["/api/metrics"]({"after": "0"}))
    api.to_json(calls["/api/cells"]({}))
    for iteration in about["iterations"][-1:]:
        for seed in about["seeds"]:
            api.to_json(calls["/api/archive"]({"iteration": str(iteration), "seed": str(seed)}))


@_complaint
def player(box: Path) -> None:
    """Load the policies that the page plays."""
    Player(RunDirectory(box / "run")).scene()


@_complaint
def collected(box: Path) -> None:
    collect.collect(Study(box / "study"))


@_complaint
def recorded_tables(box: Path) -> None:
    collect.collect(Folder(box / "tables"))


@_complaint
def listed(box: Path) -> None:
    """Write the part of a report that quotes the files of its runs."""
    study = Study(box / "study")
    report._runs(collect.collect(study))


@_complaint
def added(box: Path) -> None:
    collect.add_imported(Study(box / "study"), box / "foreign.csv")


@_complaint
def body_model(box: Path) -> None:
    physics.load(box / "body.json")


@_complaint
def search(box: Path) -> None:
    elites.ask_tell("point_omni", "me", preset="smoke").load(box / "search.npz")


INFO, PLOT = _command("info", "BOX/run"), _command("plot", "BOX/run")
COMPARE = _command("plot", "BOX/run", f"BOX/{IN_STUDY}", "--output", "BOX/both")
PACK, RESUME = _command("pack", "BOX/run"), _command("resume", "BOX/run")
EXPORT = _command("export", "BOX/run", "BOX/policy.safetensors")
UNPACK = _command("unpack", "BOX/packed.zip", "--output", "BOX/unpacked")
REPORT = _command("report", "BOX/study")
ADD = _command("report", "BOX/study", "--add", "BOX/foreign.csv")
STUDY = _command("study", "BOX/plan.toml", "--output", "BOX/another")
GO_ON = _command("study", "BOX/plan.toml", "--output", "BOX/study")

# The commands of a file. Those that take long are drawn less often.
_OF_RUN = {INFO: 20, page: 20, load: 20, player: 10, RESUME: 20, PACK: 3, PLOT: 1, EXPORT: 1}
_DRAWN = {**_OF_RUN, PLOT: 5, COMPARE: 5}
_OF_STUDY = {collected: 30, GO_ON: 15, REPORT: 1}
FILES: dict[str, dict[Callable[[Path], str | None], int]] = {
    "run/config.json": _OF_RUN,
    "run/facts.json": _DRAWN,
    "run/environment.json": _OF_RUN,
    "run/metrics.csv": _DRAWN,
    "run/reevaluations.csv": _OF_RUN,
    "run/evaluation/metrics.csv": _OF_RUN,
    "run/evaluation/cells.csv": {page: 20, PLOT: 2, INFO: 1},
    "run/snapshots/000000009.npz": {page: 20, PLOT: 2, INFO: 1},
    "run/checkpoints/000000009/manifest.json": _OF_RUN,
    "run/checkpoints/000000009/weights.npz": _OF_RUN,
    "run/checkpoints/000000009/state.npz": _OF_RUN,
    "run/run.lock": {RESUME: 10, PACK: 5, INFO: 1},
    "run/summary.md": {RESUME: 10, PACK: 2, INFO: 1},
    "run/checkpoints": _OF_RUN,
    "run/checkpoints/000000009": _OF_RUN,
    "run/snapshots": _OF_RUN,
    "run/evaluation": _OF_RUN,
    "study/plan.json": _OF_STUDY,
    "study/index.json": _OF_STUDY,
    "study/imported/other.csv": {collected: 1},
    f"{IN_STUDY}/config.json": _OF_STUDY,
    f"{IN_STUDY}/facts.json": _OF_STUDY,
    f"{IN_STUDY}/metrics.csv": _OF_STUDY,
    f"{IN_STUDY}/evaluation/metrics.csv": _OF_STUDY,
    f"{IN_STUDY}/environment.json": {listed: 12, REPORT: 1},
    "plan.toml": {STUDY: 1},
    "tables/plan.toml": {recorded_tables: 1},
    "tables/point_omni/me.seeds_0-1.csv": {recorded_tables: 1},
    "tables/point_omni/me.seeds_0-1.reevaluations.csv": {recorded_tables: 1},
    "tables/point_omni/me.seeds_0-1.cells.csv": {recorded_tables: 1},
    "foreign.csv": {added: 12, ADD: 1},
    "packed.zip": {UNPACK: 1},
    "body.json": {body_model: 1},
    "search.npz": {search: 1},
}


# --------------------------------------------------------------------------------------- cases


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """A directory to damage, its pristine original, and a folder that nothing may change."""

    box: Path
    base: Path
    outside: Path
    outside_digest: str

    def run(self, number: int) -> str | None:
        """Run a case and return what is wrong with its end, or None."""
        sandboxes.restore(self.base, self.box)
        random = Random(number)
        names = list(FILES)
        name = names[number % len(names)]
        how = damage.damage(self.box / name, random, self.outside)
        commands = FILES[name]
        command = random.choices(list(commands), list(commands.values()))[0]
        if command is PACK and how == "_to_huge":
            command = INFO  # it would really be packed
        title = f"case {number}: {command.__name__} after {how} of {name}"
        said = None
        try:
            with _limits():
                said = command(self.box)
        except BaseException:
            return f"{title}\n{traceback.format_exc()}"
        finally:
            plt.close("all")  # a process would have ended
        if said is not None and str(self.box) not in said:
            return f"{title}\nnames no file: {said}"
        if said is not None and (len(said.splitlines()) > 1 or len(said) > 2000):
            return f"{title}\nis not one short line: {said[:200]}"
        if sandboxes.digest(self.outside) != self.outside_digest:
            return f"{title}\nchanged something outside of the sandbox"
        if sorted(p.name for p in self.box.parent.iterdir()) != ["base", "box", "outside"]:
            return f"{title}\nleft something outside of the sandbox"
        return None


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """Raise an error in a block that takes too long or too much memory."""

    def stop(number: int, frame: Any) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def shortcuts() -> Iterator[None]:
    """Build the algorithm of a configuration once, draw without writing images, train nothing."""

    def draw(figure: Any, path: Any, **options: Any) -> None:
        if isinstance(path, Path) and path.suffix == ".pdf":
            path.write_text("drawn")  # drawn as a PNG already
            return
        figure.draw_without_rendering()
        if isinstance(path, Path):
            path.write_text("drawn")
        elif isinstance(path, io.StringIO):
            path.write("<svg></svg>")
        else:
            path.write(b"drawn")

    def loop(run: RunDirectory, config: Any, job: Any, last: Any, *_: Any) -> Outcome:
        """Open the files that training would continue, and train nothing."""
        recording.Logs(run, config, job, last).close()
        header = (run / METRICS).read_text().partition("\n")[0].split(",")
        logs.Table(run / METRICS, header, last.iteration if last else None).close()
        return Outcome(9, 9, 1.0, interrupted=False)

    def subplots(*arguments: Any, layout: Any = None, **options: Any) -> Any:
        """Leave out the layout, which takes longer than all the rest."""
        return original(*arguments, **options)

    original = plt.subplots
    built = functools.lru_cache(maxsize=32)(job.build)
    code = functools.lru_cache(maxsize=32)(fingerprints._task_code)
    nothing = scheduler.Result(0, [], False)
    with (
        mock.patch.object(job, "build", built),
        mock.patch.object(fingerprints, "_task_code", code),
        mock.patch.object(matplotlib.figure.Figure, "savefig", draw),
        mock.patch.object(plt, "subplots", subplots),
        mock.patch.object(trainer, "_loop", loop),
        mock.patch.object(scheduler, "run_unfinished", return_value=nothing),
    ):
        yield
