"""Hyperparameters that an algorithm does not read: a warning says that they have no effect.

`tests/core/test_algorithms.py` compares the lists with what the algorithms read.
"""

import dataclasses
import subprocess
import sys
import warnings

import pytest

import elites
from elites import presets
from elites.core import usage
from elites.core.hyperparameters import Hyperparameters
from program import POINT, SMOKE, succeed
from program import elites as command


def noted(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "no effect" in line]


def test_one_line_names_the_options_without_effect(tmp_path):
    options = ("--hp.discount", 0.9, "--hp.cells", 40, "--hp.cma-sigma", 0.1)
    done = succeed("train", *POINT, *options, "--output", tmp_path / "me")
    assert noted(done.stderr) == [
        "elites: warning: --hp.discount and --hp.cma-sigma have no effect on me. "
        "'elites algorithms me' lists the hyperparameters that it reads"
    ]


@pytest.mark.parametrize(
    "options",
    [
        ("dcg_me", "--hp.discount", 0.9, "--hp.critic-steps", 4),
        ("me", "--hp.replay-size", presets.get("smoke").hp.replay_size),
        ("me", "--hp.no-normalise-observations"),
    ],
)
def test_options_that_are_read_or_change_nothing_cause_no_warning(options, tmp_path):
    done = succeed("train", "point_omni", *SMOKE, *options, "--output", tmp_path / "run")
    assert noted(done.stderr) == []


def test_a_plan_warns_of_what_no_algorithm_reads(tmp_path):
    plan = tmp_path / "plan.toml"
    fields = 'tasks = ["point_omni"]\nseeds = 1\npreset = "smoke"\n'
    values = "[hp]\ndiscount = 0.9\ncma_sigma = 0.1\npg_steps = 2\n"
    plan.write_text(f'{fields}algorithms = ["me", "pga_me"]\n{values}')
    options = ("--dry-run", "--output", tmp_path / "study")
    done = succeed("study", plan, *options)
    assert noted(done.stderr) == [
        f"elites: warning: {plan}: cma_sigma has no effect: no algorithm of the plan reads it"
    ]
    plan.write_text(f'{fields}algorithms = ["me", "cma_me"]\n{values}')
    (line,) = noted(succeed("study", plan, *options).stderr)
    assert "discount and pg_steps have no effect: no algorithm of the plan reads them" in line


def test_python_warns_about_the_line_that_calls():
    with pytest.warns(UserWarning, match="^discount has no effect on me. 'elites algo") as caught:
        elites.build("point_omni", "me", preset="smoke", discount=0.9)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="^es_sigma has no effect on dcg_me"):
        elites.ask_tell("point_omni", preset="smoke", es_sigma=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        elites.build("point_omni", "pga_me", preset="smoke", discount=0.9)
        hp = dataclasses.replace(elites.Hyperparameters(), discount=0.9)
        elites.build("point_omni", "me", hp=hp)  # one record may be for several algorithms
        elites.build("point_omni", lambda on, hp: elites.build("point_omni", "me"), es_sigma=0.9)


def test_the_lists_have_known_names_and_load_without_jax():
    known = {field.name for field in dataclasses.fields(Hyperparameters)}
    for names in usage.READ.values():
        assert len(set(names)) == len(names)
        assert set(names) <= known
    # Those of 'elites distil' belong to no other algorithm.
    unread = known.difference(*usage.READ.values())
    assert {name for name in unread if not name.startswith("distil_")} == set()
    script = "import sys, elites.core.usage; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_wrong_value_of_an_unread_option_is_still_refused(tmp_path):
    done = command("train", *POINT, "--hp.discount", 3, "--output", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
