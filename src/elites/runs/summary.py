"""Write the summary of a finished run, the last of its files."""

from __future__ import annotations

from elites.runs import directory as directories
from elites.runs import evaluation, snapshots
from elites.runs.config import Config
from elites.runs.directory import RunDirectory
from elites.runs.job import Job
from elites.runs.outcome import Outcome
from elites.words import counted, duration, in_markdown, policy_text


def write(run: RunDirectory, config: Config, job: Job, outcome: Outcome) -> None:
    """Write `summary.md` of a run. A run with a summary is done, see `evaluation.is_done`."""
    algorithm = job.algorithm
    problem = algorithm.problem
    policies = policy_text(algorithm.policy.sizes, algorithm.policy.size)
    lines = [
        f"# {in_markdown(algorithm.name)} on {in_markdown(problem.name)}",
        "",
        f"{outcome.iteration} iterations, {counted(config.seeds, 'seed')}, "
        f"{duration(outcome.seconds)}. Policies: {policies}; "
        f"archive: {config.hp.cell_count} cells.",
        "",
        *evaluation.markdown(run.evaluation),
        *(["", note] if (note := evaluation.note(run)) else []),
        "",
        *_scoring(run, job),
        "Medians over seeds where there are several; `evaluation/metrics.csv` has each, "
        "`evaluation/cells.csv` every cell.",
        "",
        "Figures: "
        + (", ".join(f"`figures/{p.name}`" for p in sorted(run.figures.glob("*.png"))) or "none"),
        "",
        "Configuration: `config.json`; machine and versions: `environment.json`.",
        "",
    ]
    directories.write_text(run / directories.SUMMARY, "\n".join(lines))


def _scoring(run: RunDirectory, job: Job) -> list[str]:
    """Return lines of the summary about the QD offset, or none if there is nothing to say."""
    offset, warning = job.algorithm.qd_offset, snapshots.below_offset(run)
    said = [f"QD-scores are sums of fitness minus {offset:g}."] if offset else []
    said += [f"Warning: {warning}."] if warning else []
    return [" ".join(said), ""] if said else []
