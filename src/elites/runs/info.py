"""Describe a run in a few lines, from its files alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from elites import presets
from elites.core import catalogue
from elites.runs import checkpoint as checkpoints
from elites.runs import config as configs
from elites.runs import directory as directories
from elites.runs import environment, evaluation, gaps, logs, snapshots
from elites.runs.directory import FACTS, RunDirectory
from elites.words import counted, duration, plain, policy_text


def describe(run: RunDirectory) -> str:
    """Return a description of a run, a text of several lines that is made from its files."""
    config = run.config()
    seeds = counted(config.seeds, "seed")
    title = f"{run.path}: {config.algorithm} on {config.task}, {seeds}"
    lines = [plain(title), ""]
    if os.path.lexists(run / FACTS):
        facts = directories.read_facts(run)
        lines += _rows(
            iterations=f"{facts['iterations']}, for {config.evaluations:,} evaluations",
            policy=policy_text(facts.get("policy_layers", ()), facts.get("policy_parameters", 0)),
            archive=f"{config.hp.cell_count} cells{_source(config)}",
        )
        if offset := facts.get("qd_offset", 0.0):
            lines += _rows(**{"QD offset": f"{offset:g}"})
    if (kept := directories.kept_cells(run)) is not None:
        text = f"kept of the actor and {counted(len(kept), 'elite')}"
        if directories.has_half_precision(run):
            text += ", these in half precision"
        lines += _rows(policies=text)
    lines += _rows(**_progress(run))
    if warning := snapshots.below_offset(run):
        lines += _rows(warning=warning)
    if missing := gaps.find(run):
        lines += _rows(missing="; ".join(f"{gap.text} in {gap.path.name}" for gap in missing))
    kept = ", ".join(str(int(p.name)) for p in checkpoints.complete(run.checkpoints)) or "none yet"
    size = 0
    for name in run.files():
        with contextlib.suppress(FileNotFoundError):  # a checkpoint, renamed or removed meanwhile
            size += size_on_disk((run / name).lstat())
    lines += _rows(
        checkpoints=kept,
        snapshots=f"{len(snapshots.paths(run))} of the archive",
        size=f"{size / 1e6:,.1f} MB on the disk",
    )
    lines += _rows(**_machine(run))
    lines += _rows(**{"not the default": ", ".join(_changed(run, config)) or "nothing"})
    if os.path.lexists(run.evaluation / "metrics.csv"):
        lines += [
            "",
            *(f"  {row[0]:<34}{row[1]:>12}" for row in evaluation.table(run.evaluation)[1:]),
        ]
        if os.path.lexists(run / FACTS) and (note := evaluation.note(run)):
            lines += ["", note]
    return "\n".join(lines)


def size_on_disk(status: os.stat_result) -> int:
    """Return the bytes that a file takes on the disk, from its status.

    Files of trained models have long parts of zeros, which take no space. Systems that do not count
    blocks give the length of the file.
    """
    blocks = getattr(status, "st_blocks", None)
    return status.st_size if blocks is None else 512 * blocks


def _source(config: configs.Config) -> str:
    """Return where the archive of a run comes from, as a text after the number of its cells."""
    if not config.start_from:
        return ""
    how = "of" if config.algorithm == catalogue.DISTIL else "started from the archive of"
    return f", {how} {config.start_from}"


def _rows(**facts: str) -> list[str]:
    """Return a line for each fact, with its name in the first column and its text in the second."""
    return [f"{name:<16}{plain(text)}" for name, text in facts.items()]


def _progress(run: RunDirectory) -> dict[str, str]:
    """Return the progress, QD-scores and coverages of a run so far, as texts keyed by title."""
    table = logs.metrics(run)
    if not len(table.get("iteration", ())):
        return {"progress": "no iteration finished yet"}
    last = {name: column[-1] for name, column in table.items()}
    return {
        "progress": f"iteration {int(last['iteration'][0])}, {last['evaluations'][0]:,.0f} "
        f"evaluations, {duration(float(last['seconds'][0]))}",
        "QD-score": " ".join(f"{value:,.0f}" for value in last["qd_score"]),
        "coverage": " ".join(f"{100 * value:.1f} %" for value in last["coverage"]),
    }


def _machine(run: RunDirectory) -> dict[str, str]:
    """Return the machine, source, start time and command of a run, as texts keyed by title.

    The texts come from environment.json. Returns an empty dictionary if that file is missing.
    """
    sessions = environment.read_sessions(run)
    if not sessions:
        return {}
    last = sessions[-1]
    simulator = [f"{name} {version}" for name, version in last.get("simulator", {}).items()]
    accepted = [change for session in sessions for change in session.get("accepted_changes", ())]
    return {
        **({"simulator": ", ".join(simulator)} if simulator else {}),
        "machine": f"{last['backend']} ({last['device']}), jax {last['jax']}, "
        f"elites {last['elites']}; {counted(len(sessions), 'session')}",
        **({"source": source} if (source := _sources(sessions)) else {}),
        "started": sessions[0]["time"],
        "command": sessions[0]["command"],
        **({"accepted": "; ".join(accepted)} if accepted else {}),
    }


def _sources(sessions: Sequence[Mapping[str, Any]]) -> str:
    """Return the sources of elites that trained a run, in the order of its sessions, as text.

    A source is the digest of its files and its Git commit, as far as they are recorded.
    """
    texts = []
    for session in sessions:
        digest, commit = session.get("source"), session.get("commit")
        short = commit and f"commit {commit[:12]}{'+' if commit.endswith('+') else ''}"
        texts.append(f"{digest} ({short})" if digest and short else digest or short)
    return ", then ".join(dict.fromkeys(filter(None, texts)))


def _changed(run: RunDirectory, config: configs.Config) -> list[str]:
    """Return texts such as "hp.cells 256", one for each setting that differs from the default.

    Compares the hyperparameters and the number of evaluations with the preset that the task has by
    default. A hyperparameter that is None there equals the number that it stands for.
    """
    usual = configs.preset(presets.default(config.task), config.task)
    default, shown = configs.flat(usual), configs.flat(config)
    facts = directories.read_facts(run) if os.path.lexists(run / FACTS) else {}
    final = facts.get("episode_descriptor")  # older runs do not have it
    numbers = usual.hp.progress_numbers(final == "final") if final else {}
    meant = default | {f"hp.{name}": value for name, value in numbers.items()}
    names = [name for name in shown if name.startswith("hp.") or name == "evaluations"]
    return [f"{n} {shown[n]}" for n in names if shown[n] not in (default[n], meant[n])]
