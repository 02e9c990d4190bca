"""Lines that training prints before its first iteration."""

from __future__ import annotations

import jax

from elites.runs import config as configs
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.job import Job
from elites.words import amount, counted

LONG = 200_000_000
"""Number of environment steps per seed from which a run on a CPU is announced as long."""


def opening(run: RunDirectory, config: Config, job: Job, iteration: int) -> str:
    """Return the line that a training session prints first, about what is trained and where."""
    device = jax.devices()[0]
    whence = f"resumed at iteration {iteration} of" if iteration else "in"
    return (
        f"{job.algorithm.name} on {job.algorithm.problem.name}, {counted(config.seeds, 'seed')}, "
        f"{whence} {job.total} iterations, on {device.platform} ({device.device_kind}), "
        f"{amount(job.state_size)} of state; {run.path}"
    )


def note_on_length(config: Config, job: Job) -> str | None:
    """Return a note that a run takes long on a CPU, or None if it is short or uses a GPU."""
    steps = config.evaluations * job.task.episode_length
    if jax.default_backend() != "cpu" or steps < LONG:
        return None
    paper, demo = (configs.preset(name, config.task) for name in ("paper", "demo"))
    is_paper = (config.hp, config.evaluations) == (paper.hp, paper.evaluations)
    what = "the paper's full experiment" if is_paper and ":" not in config.task else "a long run"
    return (
        f"note: this is {what} ({config.evaluations:,} evaluations). On a CPU it can take many "
        f"hours or days. For a first look, use --preset demo ({demo.evaluations:,} evaluations)"
    )
