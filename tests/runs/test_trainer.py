"""The training loop, through the real command line."""

from __future__ import annotations

from program import SMOKE, started, succeed


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
