"""Errors in the user's own code: one line with file, function and line, also for sys.exit."""

from __future__ import annotations

from pathlib import Path

import pytest

from elites import Hyperparameters, references, tasks
from elites.tasks.rollout import problem
from elites.training import builders
from program import complaint, elites, forget

FAULTS = {
    "boom": ('raise ValueError("boom")', "'boom' failed: ValueError: boom ({own}, line 5)"),
    "nothing": ("raise RuntimeError", "'nothing' failed: RuntimeError ({own}, line 5)"),
    "leaves": ("sys.exit(0)", "'leaves' failed: it calls sys.exit(0) ({own}, line 5), which"),
    "invalid": (
        'return Task("x", 0, 2, 8, (0.0,), (1.0,), lambda key: None, lambda state, action: None)',
        "task 'x': observation_size must be a whole number of at least 1, got 0 ({own}, line 5)",
    ),
}


def written(path: Path, name: str, body: str) -> Path:
    """Write a file with one function whose only line is the fifth of the file."""
    path.write_text(f"import sys\nfrom elites import Task\n\ndef {name}(*_):\n    {body}\n")
    forget()
    return path


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_in_a_factory_or_builder_names_its_place(name, tmp_path):
    body, message = FAULTS[name]
    own = written(tmp_path / "own.py", name, body)
    message = message.format(own=own)
    done = elites("train", f"{own}:{name}", "me", "--output", tmp_path / "run")
    line = complaint(done, 2)
    assert message in line
    assert message.startswith("task") or f"elites: {own}: {message}" in line
    assert not (tmp_path / "run").exists()
    point = problem(tasks.make("point_omni"))
    with pytest.raises(ValueError, match="line 5") as error:
        builders.build_algorithm(f"{own}:{name}", point, Hyperparameters())
    assert message in str(error.value)


def test_sys_exit_in_the_file_of_a_task_is_an_error(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("import sys\n\nsys.exit(0)\n")
    forget()
    done = elites("train", f"{own}:task", "me", "--output", tmp_path / "run")
    expected = f"{own} cannot be loaded: it calls sys.exit(0) ({own}, line 3), which would end"
    assert expected in complaint(done, 2)
    assert not (tmp_path / "run").exists()


def test_a_place_is_in_the_user_s_code_only():
    with pytest.raises(ValueError, match="nothing") as error:
        references.check("task", "nothing.py:task")
    assert references.place(error.value).startswith(f" ({__file__}, line ")
