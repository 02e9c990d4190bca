"""The training loop, through the real command line."""

from __future__ import annotations

import json

import jax

from elites.runs import environment, evaluation, gaps, trainer
from elites.runs.directory import RunDirectory
from program import POINT, SMOKE, complaint, elites, started, succeed


def opening(*arguments: object) -> list[str]:
    """Return the lines of a command up to where it compiles, and end it there."""
    process = started(*arguments)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if line == "compiling\n":
            break
        lines.append(line.rstrip())
    process.kill()
    process.communicate()
    return lines


def test_a_long_run_on_a_cpu_is_announced_when_it_begins(tmp_path):
    path = tmp_path / "run"
    note, first = opening("train", "ant_omni", "me", "--output", path)
    assert "the paper's full experiment (1,000,000 evaluations). On a CPU" in note
    assert "--preset demo (9,000 evaluations)" in note
    assert first.startswith("me on ant_omni, 1 seed, in 3906 iterations, on cpu")
    # Someone who resumes the run knows.
    lines = opening("resume", path)
    assert "me on ant_omni" in lines[-1]
    assert not [line for line in lines if "full experiment" in line]


def test_only_a_full_experiment_is_called_one(tmp_path):
    note, _ = opening("train", "ant_omni", "me", *SMOKE, "--evaluations", 10**6,
                      "--output", tmp_path / "run")  # fmt: skip
    assert "this is a long run (1,000,000 evaluations" in note


def test_a_short_run_is_not_announced(tmp_path):
    done = succeed("train", "point_omni", "me", *SMOKE, "--output", tmp_path / "run")
    assert "note:" not in done.stderr


def test_a_new_run_that_runs_out_of_memory_does_not_block_the_next(tmp_path, monkeypatch):
    def start(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr(trainer, "_compile_and_start", start)
    path = tmp_path / "run"
    line = complaint(elites("train", *POINT, "--output", path), 1)
    assert "out of memory on cpu. Lower --seeds" in line
    assert not path.exists()


def test_a_budget_below_what_is_trained_changes_no_fact(run):
    (run / "summary.md").unlink()  # as if stopped before its end
    done = succeed("resume", run, "--evaluations", 32 * 5)
    assert "resumed at iteration 9 of 9 iterations" in done.stderr
    assert json.loads((run / "facts.json").read_text())["iterations"] == 9
    assert RunDirectory(run).config().evaluations == 32 * 10
    assert gaps.find(RunDirectory(run)) == []
    assert evaluation.is_done(RunDirectory(run))


def test_a_finished_run_that_starts_on_a_larger_budget_is_not_done(run, monkeypatch):
    def write(*_, **__):
        raise OSError(28, "No space left on device", "environment.json")

    monkeypatch.setattr(environment, "record_session", write)
    assert evaluation.is_done(RunDirectory(run))
    complaint(elites("resume", run, "--evaluations", 32 * 11), 1)
    assert not evaluation.is_done(RunDirectory(run))
