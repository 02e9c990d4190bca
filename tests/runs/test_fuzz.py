"""No file that elites reads, however damaged, ends in a traceback, a hang or harm elsewhere.

2,000 cases each damage one file at random and run a command that reads it. A case is a number, and
ELITES_FUZZ=NUMBER runs that case alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fuzzing
import sandboxes

FILES = list(fuzzing.FILES)
ALONE = os.environ.get("ELITES_FUZZ")


@pytest.fixture(scope="module")
def sandbox(conditioned: Path, tmp_path_factory: pytest.TempPathFactory):
    """A sandbox of a trained run, a study and every other file that elites reads."""
    root = tmp_path_factory.mktemp("fuzz")
    sandboxes.prepare(root / "base", conditioned)
    (root / "box").mkdir()
    (root / "outside").mkdir()
    (root / "outside" / "kept.txt").write_text("kept")
    (root / "outside" / ".kept.writing-here-1").write_text("kept as well")
    with fuzzing.shortcuts():
        yield fuzzing.Sandbox(
            root / "box", root / "base", root / "outside", sandboxes.digest(root / "outside")
        )


def test_every_command_succeeds_with_whole_files(sandbox: fuzzing.Sandbox):
    for command in {command for commands in fuzzing.FILES.values() for command in commands}:
        sandboxes.restore(sandbox.base, sandbox.box)
        assert command(sandbox.box) is None


@pytest.mark.parametrize("name", FILES)
def test_damage_is_told_in_one_line(sandbox: fuzzing.Sandbox, name: str):
    cases = range(FILES.index(name), fuzzing.CASES, len(FILES))
    if ALONE:
        cases = [int(ALONE)] if int(ALONE) in cases else []
    wrong = [fault for fault in map(sandbox.run, cases) if fault]
    repeat = "repeat one with ELITES_FUZZ=NUMBER pytest -n 0 tests/runs/test_fuzz.py"
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(cases)}; {repeat}", *wrong])
