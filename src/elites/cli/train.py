"""Commands that train: start a run, continue one, distil its archive, and the demo."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from elites import presets, tasks, trust
from elites.cli.common import STOPPED, RunPath, program, shown, trusted_config
from elites.core import usage
from elites.core.hyperparameters import Hyperparameters
from elites.output import errors_as_warnings, say, warn
from elites.runs import directory as directories
from elites.runs import services, session
from elites.runs.config import Config, Device, preset
from elites.runs.directory import RunDirectory
from elites.words import columns, duration, plain, quoted


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, in a new run directory."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "paper"
    """Preset for all values that are not given: paper, short, vectors, demo or smoke. Tasks of
    plain vectors have the preset vectors by default."""
    output: Annotated[Path | None, shown("PATH", "runs/TASK-ALGORITHM")] = None
    """Run directory."""
    descriptor: Annotated[str, shown("NAME", "that of the task's name")] = ""
    """Descriptor of a task of another simulator: feet_contact, final_position, mean_height,
    mean_velocity, joint_range, or FILE.py:FUNCTION for one of your own."""
    resume: bool = False
    """Continue if the directory already holds a run with the same configuration."""
    accept_changed_task: bool = False
    """With --resume, continue even if the code of the task or of the algorithm has changed."""

    def __call__(self) -> int:
        if self.accept_changed_task and not self.resume:
            raise ValueError("--accept-changed-task is for --resume")
        config = self.config
        if self.descriptor:
            named = tasks.with_option(config.task, "descriptor", self.descriptor)
            config = dataclasses.replace(config, task=named)
        base = presets.get(self.preset).hp
        if base.grid and config.hp.grid == base.grid and config.hp.cells != base.cells:
            # Whoever asks for cells does not want the preset's grid.
            config = dataclasses.replace(config, hp=dataclasses.replace(config.hp, grid=()))
        config.check()
        services.check(config)
        trust.record(config.task, config.algorithm, *config.callback)  # named by the user
        if names := usage.ignored(config.algorithm, base, config.hp):
            options = [f"--hp.{name.replace('_', '-')}" for name in names]
            warn(usage.no_effect(config.algorithm, options))
        return _train(config, self.output, self.resume, self.accept_changed_task)

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> Train:
        """Return the defaults of all options, taken from the preset that the arguments name."""
        chosen = next(filter("vectors".__eq__, map(presets.default, arguments)), "paper")
        for i, argument in enumerate(arguments):
            if argument == "--preset":
                chosen = arguments[i + 1] if i + 1 < len(arguments) else chosen
            elif argument.startswith("--preset="):
                chosen = argument.partition("=")[2]
        found = preset(chosen, task=tyro.MISSING)
        if any(argument.startswith("--hp.centroids") for argument in arguments):
            # Whoever brings centroids does not want the preset's grid.
            found = dataclasses.replace(found, hp=dataclasses.replace(found.hp, grid=()))
        return cls(found, preset=chosen)


def resume(
    run: RunPath,
    evaluations: Annotated[int | None, shown("INT", "unchanged")] = None,
    checkpoint_every: Annotated[int | None, shown("INT", "unchanged")] = None,
    reevaluate_every: Annotated[int | None, shown("INT", "unchanged")] = None,
    device: Annotated[Device | None, shown("{auto,cpu,gpu}", "unchanged")] = None,
    log: Annotated[tuple[str, ...], shown("NAME ...", "unchanged")] = (),
    callback: Annotated[tuple[str, ...], shown("FILE.py:FUNCTION ...", "unchanged")] = (),
    accept_changed_task: bool = False,
    trust_task: bool = False,
) -> int:
    """Continue a run from its last complete checkpoint.

    Args:
        run: Run directory.
        evaluations: New budget of evaluations for each seed, to train longer than planned.
        checkpoint_every: Iterations between two checkpoints from now on.
        reevaluate_every: Iterations between two re-evaluations from now on.
        device: Device to compute on from now on. Only the same device gives the same bits.
        log: Services to log to from now on, wandb or mlflow. The word none turns logging off.
        callback: Functions to call after every iteration from now on. The word none calls none.
        accept_changed_task: Continue even if the code of the task or of the algorithm has changed
            since the run was trained. The run records it.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    given = {
        "evaluations": evaluations,
        "checkpoint_every": checkpoint_every,
        "reevaluate_every": reevaluate_every,
        "device": device,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    lists = {"log": log, "callback": callback}
    changes |= {k: () if v == ("none",) else v for k, v in lists.items() if v}
    directory = directories.existing(run)
    config = dataclasses.replace(directory.config(), **changes)
    services.check(config, resumed=True)
    # The user has named the files of new callbacks. Those of the run may be someone else's.
    trusted_config(directory, trust_task, *(() if callback else config.callback))
    trust.record(*config.callback)
    return _report(run, session.resume(run, accept_changed_task, **changes))


def distil(
    run: RunPath,
    output: Annotated[Path | None, shown("PATH", "RUN-distilled")] = None,
    iterations: int = 100,
    steps: int = Hyperparameters.distil_steps,
    learning_rate: float = Hyperparameters.distil_learning_rate,
    hidden: tuple[int, ...] = Hyperparameters.actor_hidden,
    checkpoint_every: int = 10,
    reevaluate_every: int = 20,
    device: Device = "auto",
    resume: bool = False,
    trust_task: bool = False,
) -> int:
    """Fit one policy to the archive of a run, to perform any of its behaviours on request.

    The result is a run with the same archive, whose actor is the fitted policy.

    Each iteration rolls out elites, and the policy at their descriptors, then fits it to the
    elites' actions.

    Args:
        run: Run directory. The run may be of any algorithm.
        output: Directory of the new run.
        iterations: Number of iterations, each with rollouts and fitting.
        steps: Gradient steps in each iteration.
        learning_rate: Initial learning rate. It falls as 1 / (1 + iteration / 10).
        hidden: Sizes of the policy's hidden layers.
        checkpoint_every: Iterations between two checkpoints.
        reevaluate_every: Iterations between two evaluations of the policy in all cells.
        device: Device to compute on.
        resume: Continue if the output directory already holds this distillation.
        trust_task: Run the file of the task or algorithm that the run names, and remember its
            contents as trusted. Needed for runs of other people.
    """
    if iterations < 1:
        raise ValueError(f"--iterations must be at least 1, got {iterations}")
    source = run.resolve()
    trained = trusted_config(directories.existing(run), trust_task)
    try:
        config = dataclasses.replace(
            trained.for_distillation(
                str(source),
                iterations,
                distil_steps=steps,
                distil_learning_rate=learning_rate,
                actor_hidden=hidden,
            ),
            checkpoint_every=checkpoint_every,
            reevaluate_every=reevaluate_every,
            device=device,
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        raise ValueError(f"{_DISTIL_OPTIONS.get(name, name)} {rest}") from None
    return _train(config, output or source.with_name(f"{source.name}-distilled"), resume)


_DISTIL_OPTIONS = {
    "distil_steps": "--steps",
    "distil_learning_rate": "--learning-rate",
    "actor_hidden": "--hidden",
    "checkpoint_every": "--checkpoint-every",
    "reevaluate_every": "--reevaluate-every",
}
"""Options of `distil`, keyed by the fields of the configuration that they set."""


def demo(output: Path = Path("demo")) -> int:
    """Train DCG-MAP-Elites on a walking robot in a few minutes and plot the result.

    Args:
        output: Run directory. An interrupted demo is continued.
    """
    code = _train(preset("demo", "walker_uni"), output, resume=True)
    elites, run, figures = program(), quoted(output), plain(str(output / "figures"))
    if code == 0:
        say(f"""
figures    {figures}/archive.png   fitness of the elites in the archive
           {figures}/actor.png     the distilled policy, asked for each behaviour
           {figures}/curves.png    learning curves
next       {elites} view {run}    explore the archive in the browser
           {elites} info {run}
           {elites} resume {run} --evaluations 20000
           {elites} export {run} walker.onnx --descriptor 0.8 0.2
           {elites} train ant_omni --preset paper    the paper's experiment, on a GPU""")
    return code


def _train(
    config: Config, output: Path | None, resume: bool, accept_changed_task: bool = False
) -> int:
    """Start or resume a run, print how it ended, and return the exit code."""
    config.check()
    path = output or Path("runs") / config.name
    return _report(path, session.start(path, config, resume, accept_changed_task))


def _report(path: Path, outcome: session.Outcome) -> int:
    """Print how the training of the run at a path ended, and return the exit code."""
    name = plain(str(path))
    again = f"{program()} resume {quoted(path)}"
    if outcome.interrupted:
        say(
            f"stopped after iteration {outcome.iteration} of {outcome.total}; everything is saved. "
            f"Continue with: {again}"
        )
        return STOPPED
    if outcome.was_finished:
        say(
            f"{name} is finished already, after {outcome.iteration} iterations. Train longer with: "
            f"{again} --evaluations N"
        )
        return 0
    say(f"finished after {outcome.iteration} iterations and {duration(outcome.seconds)}: {name}")
    folder = RunDirectory(path).evaluation
    with errors_as_warnings(f"reading the tables of {folder}", f"see '{program()} info'"):
        from elites.runs import evaluation

        say("\n".join(columns(evaluation.table(folder), right=(1, 2, 3))))
        if note := evaluation.note(RunDirectory(path)):
            say(note)
    return 0
