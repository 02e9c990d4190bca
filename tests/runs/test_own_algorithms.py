"""An algorithm of one's own by FILE.py:FUNCTION: every command takes it, faults are one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import elites as package
from program import HERE, SMOKE, bits, complaint, edit_json, elites, newest, rows, succeed, watched

OWN = HERE / "own_algorithms.py"
DOCS = HERE.parents[1] / "docs" / "examples" / "own_algorithm.py"


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    """A run of DCG-MAP-Elites with crossover, named by a relative path. Read only."""
    path = tmp_path_factory.mktemp("own") / "run"
    name = f"{os.path.relpath(DOCS)}:dcg_with_crossover"
    succeed("train", "point_omni", name, *SMOKE, "--seeds", 2, "--output", path)
    return path


def test_it_is_saved_with_its_path(own):
    assert (
        json.loads((own / "config.json").read_text())["algorithm"] == f"{DOCS}:dcg_with_crossover"
    )
    assert "added.crossover" in rows(own / "metrics.csv")[0]
    assert (own / "summary.md").read_text().startswith("# dcg_with_crossover on point_omni\n")


def test_it_resumes_to_the_same_bits(own, tmp_path):
    half = tmp_path / "half"
    options = (*SMOKE, "--seeds", 2, "--evaluations", 32 * 5, "--output", half)
    succeed("train", "point_omni", f"{DOCS}:dcg_with_crossover", *options)
    succeed("resume", half, "--evaluations", 320)
    assert bits(newest(half)) == bits(newest(own))


def test_every_command_takes_it(own, tmp_path):
    run = Path(shutil.copytree(own, tmp_path / "run", symlinks=True))
    assert "dcg_with_crossover on point_omni" in succeed("info", run).stdout
    assert "QD-score" in succeed("evaluate", run, apart=True).stdout
    succeed("plot", run)
    succeed("plot", run, own, "--output", tmp_path / "comparison")
    succeed("export", run, tmp_path / "actor.safetensors", "--actor")
    succeed("view", run, "--export", tmp_path / "page.html", "--rollouts", 2)
    succeed("pack", run, "--output", tmp_path / "run.zip")
    succeed("unpack", tmp_path / "run.zip", "--output", tmp_path / "again")
    loaded = package.load(tmp_path / "again")
    assert loaded.algorithm.origins == ("initial", "ga", "pg", "crossover")
    assert loaded.metrics["added.crossover"].sum() > 0


def test_a_run_without_a_place_is_named_after_the_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeed("train", "point_omni", f"{OWN}:mutation", *SMOKE)
    assert (tmp_path / "runs" / "point_omni-mutation" / "summary.md").exists()


def test_it_is_explained():
    text = succeed("algorithms", f"{OWN}:mutation").stdout
    assert text.startswith("own_mutation: MAP-Elites under another name.\n")
    assert "mutation 256" in text


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("absent", "'absent' must be a function that returns an Algorithm, found nothing of that"),
        ("number", "'number' must be a function that returns an Algorithm, found an int"),
        ("returns_nothing", "'returns_nothing' must return an Algorithm, as map_elites.algorithm"),
        ("refuses", "'refuses' failed: ValueError: batch_size must be odd, got 32"),
        ("fails", "'fails' failed: KeyError: 'mistake'"),
        ("takes_one", "'takes_one' failed: TypeError: takes_one() takes 1 positional argument"),
    ],
)
def test_a_bad_function_is_one_line(function, said, tmp_path):
    path = tmp_path / "run"
    done = elites("train", "point_omni", f"{OWN}:{function}", *SMOKE, "--output", path)
    assert said in complaint(done, 2)
    assert len(done.stderr.splitlines()) == 1
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.py:make", "algorithm 'nowhere.py:make': there is no file nowhere.py"),
        ("nowhere:make", "an algorithm of your own is given as FILE.py:FUNCTION, got"),
        ("nothing", "or FILE.py:FUNCTION for one of your own"),
    ],
)
def test_a_bad_name_is_one_line_before_jax_loads(name, said):
    done = watched("train", "point_omni", name)
    assert said in complaint(done, 2)
    assert "jax" not in done.stdout


def test_a_file_that_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "own.py").write_text("import nothing_of_that_name\n")
    done = elites("train", "point_omni", f"{tmp_path / 'own.py'}:f", *SMOKE)
    assert "own.py cannot be loaded: ModuleNotFoundError" in complaint(done, 2)


def test_a_shared_run_brings_no_algorithm(own, tmp_path):
    run = Path(shutil.copytree(own, tmp_path / "run", symlinks=True))
    (run / "evil.py").write_text("print('CODE RAN')")
    relative = os.path.relpath(f"{run}/evil.py:f")
    edit_json(run / "config.json", lambda config: config.update(algorithm=relative))
    done = elites("evaluate", run)
    assert "the file of algorithm" in complaint(done, 2)
    assert "no absolute path" in complaint(done, 2)
    assert "CODE RAN" not in done.stdout


def test_python_takes_the_same_name():
    small = vars(package.presets.get("smoke").hp)
    assert package.build("point_omni", f"{OWN}:mutation", **small).origins == (
        "initial",
        "mutation",
    )
    with pytest.raises(ValueError, match=r"must return an Algorithm.*returned None"):
        package.build("point_omni", lambda problem, hp: None)
