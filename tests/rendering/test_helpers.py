"""Test the processes that help with drawing: their answers, their failures and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elites.rendering import helpers
from elites.rendering.helpers import Team

# Functions of Python itself take the place of drawing, because helpers do not know this file.
WHO = ("__import__('os').getpid()",)


def is_alive(process: int) -> bool:
    """Return whether a process exists and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def test_every_process_does_one_job():
    with Team(2) as team:
        assert team.size == 3
        found = team.map(eval, [WHO] * 3)
        assert found[0] == os.getpid()
        assert len(set(found)) == 3
        assert team.map(divmod, [(7, 2), (9, 4)]) == [(3, 1), (2, 1)]  # fewer than there are


def test_helpers_end_with_the_block():
    with Team(2) as team:
        _, *others = team.map(eval, [WHO] * 3)
        assert all(map(is_alive, others))
    assert not any(map(is_alive, others))


def test_helpers_end_with_the_block_while_they_work():
    with pytest.raises(KeyboardInterrupt), Team(1) as team:  # noqa: PT012
        _, other = team.map(eval, [WHO] * 2)
        assert helpers._ask(team._helpers[0], time.sleep, (1000,))
        raise KeyboardInterrupt
    assert not is_alive(other)


def test_helpers_end_if_their_process_is_killed():
    program = (
        "import time; from elites.rendering.helpers import Team\n"
        f"print(Team(1).map(eval, [{WHO}] * 2), flush=True); time.sleep(1000)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    _, other = map(int, owner.stdout.readline().strip("[]\n").split(","))
    assert is_alive(other)
    owner.kill()
    owner.communicate()
    for _ in range(600):
        if not is_alive(other):
            return
        time.sleep(0.1)
    pytest.fail(f"process {other} is still there")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_job_of_a_helper_that_has_died_is_done_all_the_same(number):
    with Team(1) as team:
        _, other = team.map(eval, [WHO] * 2)
        os.kill(other, number)
        team._helpers[0].wait()
        assert team.map(eval, [WHO] * 2) == [os.getpid()] * 2


def test_the_job_of_a_helper_that_dies_while_it_works_is_done_all_the_same():
    ends = "__import__('os').getpid() if __import__('os').getpid() == {0} else exit(1)"
    with Team(1) as team:
        assert team.map(eval, [WHO, (ends.format(os.getpid()),)]) == [os.getpid()] * 2


def test_an_error_in_a_job_is_raised():
    with Team(1) as team, pytest.raises(ZeroDivisionError):
        team.map(divmod, [(1, 1), (1, 0)])


def test_helpers_load_no_jax():
    with Team(1) as team:
        modules = team.map(eval, [("[]",), ("list(__import__('sys').modules)",)])[1]
    assert "elites.rendering.film" in modules
    assert not {"jax", "matplotlib", "scipy"} & set(modules)


def test_there_is_a_helper_for_every_further_core(monkeypatch):
    monkeypatch.setattr(helpers, "cores", lambda: 1)
    with Team() as team:
        assert team.size == 1
    monkeypatch.setattr(helpers, "cores", lambda: 64)
    with Team() as team:
        assert team.size == 4
