"""The script for bash that `elites completion` prints, run by bash itself."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from elites import cli, tasks
from elites.core import catalogue
from elites.tasks import families
from processes import run

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="LEFT OUT: needs bash")


@pytest.fixture(scope="module")
def script() -> str:
    done = run("completion")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("elites al", {"algorithms"}),
        ("elites train ant_m", {"ant_maze"}),
        ("elites train hopper", {"hopper_uni"}),
        ("elites train gym", {"gymnasium:"}),
        ("elites tasks bra", {"brax:"}),
        ("elites train ant_omni prog", {"progress_me"}),
        ("elites train brax:hopper dcr", {"dcrl_me"}),
        ("elites train ant_omni --hp.batch", {"--hp.batch-size"}),
        ("elites resume runs/a --eval", {"--evaluations"}),
        ("elites resume runs/a --pres", set()),  # an option of another command
        ("elites info ru", set()),  # bash completes paths itself
    ],
)
def test_bash_completes_a_line(script, line, expected):
    assert completed(script, line) == expected


def test_all_names_are_offered(script):
    assert completed(script, "elites ") == set(cli.COMMANDS)
    offered = completed(script, "elites train ")
    assert offered >= {*tasks.names(), *(f"{family}:" for family in families.FAMILIES)}
    assert completed(script, "elites train ant_omni ") == set(catalogue.ALGORITHMS)


def test_what_follows_a_colon_is_completed_alone(script):
    """bash takes the part of a word after its last colon for a word of its own."""
    named = script.replace("brax:", "brax:hopper")
    assert completed(named, "elites train brax:ho") == {"hopper"}


def completed(script: str, line: str) -> set[str]:
    """Return what bash would offer at the end of a line."""
    ask = (
        f'{script}\nCOMP_LINE="$1" COMP_POINT=${{#1}}\n_elites\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run([BASH, "-c", ask, "bash", line], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())
