"""Runs of Python, saved: every command accepts them, and resuming comes to the same bits."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
import sys

import numpy as np
import pytest

import elites
from elites import tasks
from own_algorithms import mutation
from own_tasks import paid
from program import (
    HERE,
    SMOKE,
    bits,
    complaint,
    contents,
    environment,
    newest,
    rows,
    succeed,
)
from program import elites as command


@pytest.fixture(scope="module")
def trained() -> elites.Run:
    return elites.train("point_omni", "dcg_me", preset="smoke", seeds=2, evaluations=32 * 5)


@pytest.fixture(scope="module")
def small() -> elites.Run:
    """The smallest that can be saved."""
    return elites.train("point_omni", "me", preset="smoke", evaluations=64)


def test_resuming_comes_to_the_bits_of_one_training(trained, conditioned, tmp_path):
    saved = trained.save(tmp_path / "there" / "run")
    assert saved == tmp_path / "there" / "run"
    assert [path.name for path in saved.parent.iterdir()] == ["run"]
    succeed("resume", saved, "--evaluations", 320, apart=True)
    assert newest(saved).name == newest(conditioned).name
    assert bits(newest(saved)) == bits(newest(conditioned))
    assert rows(saved / "metrics.csv") == rows(conditioned / "metrics.csv")
    cells = "evaluation/cells.csv"
    assert rows(saved / cells) == rows(conditioned / cells)
    assert (saved / "summary.md").exists()


def test_every_command_accepts_it(trained, conditioned, tmp_path):
    run = trained.save(tmp_path / "run")
    text = succeed("info", run).stdout
    assert "iteration 4, 160 evaluations" in text
    assert "elites.train" in text
    succeed("plot", run)
    succeed("plot", run, conditioned, "--output", tmp_path / "comparison")
    succeed("evaluate", run, apart=True)
    assert {row["descriptor_error"] for row in rows(run / "evaluation" / "metrics.csv")} == {"0.0"}
    succeed("export", run, tmp_path / "actor.safetensors", "--actor")
    succeed("view", run, "--export", tmp_path / "page.html", "--rollouts", 1)
    succeed("pack", run, "--output", tmp_path / "run.zip")
    succeed("unpack", tmp_path / "run.zip", "--output", tmp_path / "again")
    assert "finished after 4 iterations" in succeed("resume", tmp_path / "again").stdout
    loaded = elites.load(run)
    assert loaded.seeds == trained.seeds
    np.testing.assert_array_equal(loaded.archives.policies, trained.archives.policies)
    np.testing.assert_array_equal(loaded.actors, trained.actors)
    assert set(loaded.metrics) == set(trained.metrics)
    np.testing.assert_allclose(loaded.metrics["qd_score"], trained.metrics["qd_score"], rtol=1e-6)


def test_a_stopped_training_goes_on_to_its_budget(conditioned, tmp_path):
    def stop(iteration, metrics):
        if iteration == 3:
            raise elites.StopTraining

    run = elites.train("point_omni", "dcg_me", preset="smoke", seeds=2, callback=stop)
    succeed("resume", run.save(tmp_path / "run"))
    assert bits(newest(tmp_path / "run")) == bits(newest(conditioned))


def test_it_has_the_numbers_of_its_preset(tmp_path):
    run = elites.train("point_omni", "me", preset="smoke", evaluations=64, cells=17)
    run.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["format"], config["checkpoint_every"], config["evaluations"]) == (2, 4, 64)
    assert (config["hp"]["cells"], config["hp"]["batch_size"]) == (17, 32)


def test_nothing_is_overwritten(small, tmp_path):
    run, strange, file = tmp_path / "run", tmp_path / "strange", tmp_path / "file"
    run.mkdir()  # an empty directory may be there
    small.save(str(run))
    strange.mkdir()
    (strange / "thesis.tex").write_text("")
    file.write_text("")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"holds a run already.*or choose another directory"):
        small.save(run)
    with pytest.raises(ValueError, match="is not empty and not a run"):
        small.save(strange)
    with pytest.raises(ValueError, match="exists already, and is not a directory"):
        small.save(file)
    assert contents(tmp_path) == before


def test_an_error_leaves_nothing_behind(small, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elites.runs.checkpoint.save", full)
    with pytest.raises(OSError, match="No space left"):
        small.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_does_not_matter(small, tmp_path):
    """An empty lock in the directory, and a folder beside it in which a run was written."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f".saving-{platform.node()}-{ended.pid}-abc"
    for folder in (left / "run", tmp_path / "run"):
        folder.mkdir(parents=True)
    (tmp_path / "run" / "run.lock").write_text("")
    small.save(tmp_path / "run")
    assert elites.load(tmp_path / "run").seeds == small.seeds
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_kernels_that_the_compiler_chose_are_kept(small, tmp_path):
    """As on a GPU, where other kernels would compute other bits."""
    (tmp_path / "chosen").mkdir()
    (tmp_path / "chosen" / "fusion_1.textproto").write_text("best")
    run = dataclasses.replace(small, kernels=tmp_path / "chosen")
    run.save(tmp_path / "run")
    succeed("pack", tmp_path / "run", "--output", tmp_path / "run.zip")
    succeed("unpack", tmp_path / "run.zip", "--output", tmp_path / "again")
    assert (tmp_path / "again" / "kernels" / "fusion_1.textproto").read_text() == "best"


def test_a_loaded_run_is_copied_not_saved(small, tmp_path):
    small.save(tmp_path / "run")
    with pytest.raises(ValueError, match="copy its directory instead"):
        elites.load(tmp_path / "run").save(tmp_path / "other")


# ------------------------------------------------------------------------------------------- seeds


def test_seeds_that_do_not_follow_each_other_are_listed(tmp_path):
    run = elites.train("point_omni", "me", preset="smoke", seeds=(7, 3), evaluations=64)
    path = run.save(tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    assert (config["format"], config["seed_list"], config["seeds"]) == (2, [7, 3], 2)
    succeed("resume", path, "--evaluations", 128)
    longer = elites.train("point_omni", "me", preset="smoke", seeds=(7, 3), evaluations=128)
    loaded = elites.load(path)
    assert loaded.seeds == (7, 3)
    np.testing.assert_array_equal(loaded.archives.policies, longer.archives.policies)
    assert [row["seed"] for row in rows(path / "evaluation" / "metrics.csv")] == ["7", "3"]
    succeed("export", path, tmp_path / "policy.safetensors", "--seed", 3)


@pytest.mark.parametrize(
    "change",
    [{"seed_list": [7, 7]}, {"seed_list": [3, 7]}, {"seed_list": [7]}, {"seed_list": [7, "x"]},
     {"seed_list": 7}, {"seeds": 3}],
)  # fmt: skip
def test_a_damaged_list_of_seeds_is_refused(change, tmp_path):
    from elites.runs.config import Config, preset

    config = dataclasses.replace(
        preset("smoke", "point_omni"), seeds=2, first_seed=7, seed_list=(7, 3)
    )
    assert Config.from_json(json.loads(json.dumps(config.to_json())), "x") == config
    with pytest.raises(ValueError, match="seed_list must be"):
        Config.from_json({**config.to_json(), **change}, "x")


def test_the_command_line_has_no_list_of_seeds(tmp_path):
    path = tmp_path / "run"
    done = command("train", "point_omni", "me", *SMOKE, "--seed-list", 3, 7, "--output", path)
    complaint(done, 2)
    assert "seed-list" not in succeed("train", "--help", apart=True).stdout


# --------------------------------------------------------------------------------------- own names


def test_functions_are_saved_by_their_files(tmp_path):
    run = elites.train(paid, mutation, preset="smoke", evaluations=64)
    path = run.save(tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    assert config["task"] == f"{HERE / 'own_tasks.py'}:paid"
    assert config["algorithm"] == f"{HERE / 'own_algorithms.py'}:mutation"
    succeed("resume", path, "--evaluations", 96, apart=True)
    succeed("evaluate", path)


@pytest.mark.parametrize("given", ["point_omni", "object", "function"])
def test_tasks_and_algorithms_of_elites_keep_their_names(given, tmp_path):
    from elites.core.algorithms import ALGORITHMS
    from elites.tasks.analytic import point_omni

    task = {"point_omni": given, "object": point_omni(), "function": point_omni}[given]
    run = elites.train(task, ALGORITHMS["me"], preset="smoke", evaluations=64)
    config = json.loads((run.save(tmp_path / "run") / "config.json").read_text())
    assert (config["task"], config["algorithm"]) == ("point_omni", "me")


def test_a_registered_task_is_saved_by_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_FACTORIES", dict(tasks._FACTORIES))
    tasks.register("mine", paid)
    run = elites.train("mine", "me", preset="smoke", evaluations=64)
    config = json.loads((run.save(tmp_path / "run") / "config.json").read_text())
    assert config["task"] == f"{HERE / 'own_tasks.py'}:paid"


def test_what_cannot_be_found_again_is_refused_until_it_is_named(tmp_path):
    task, own = paid(), str(HERE / "own_tasks.py")
    run = elites.train(task, lambda p, hp: mutation(p, hp), preset="smoke", evaluations=64)
    with pytest.raises(ValueError, match=r"task 'paid' was given as an object.*task='FILE"):
        run.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"algorithm was given as .*<lambda>, which another proc"):
        run.save(tmp_path / "run", task=f"{own}:paid")
    names = {"task": f"{own}:paid", "algorithm": f"{HERE / 'own_algorithms.py'}:mutation"}
    with pytest.raises(ValueError, match="do not build this run: the algorithm's name is me, not"):
        run.save(tmp_path / "run", **{**names, "algorithm": "me"})
    with pytest.raises(ValueError, match="the task's name is diverging, not paid"):
        run.save(tmp_path / "run", **{**names, "task": f"{own}:diverging"})
    assert not (tmp_path / "run").exists()
    run.save(tmp_path / "run", **names)
    succeed("resume", tmp_path / "run", "--evaluations", 96)


def test_an_algorithm_that_was_built_already_needs_its_name(tmp_path):
    built = elites.build("point_omni", mutation, preset="smoke")
    run = elites.training.train_algorithm(built, evaluations=64)
    with pytest.raises(ValueError, match="trained from an Algorithm that was already built"):
        run.save(tmp_path / "run")
    own = f"{HERE / 'own_algorithms.py'}:mutation"
    run.save(tmp_path / "run", task="point_omni", algorithm=own)
    succeed("resume", tmp_path / "run", "--evaluations", 96)


def test_a_script_saves_what_it_defines(tmp_path):
    """In a process of its own: its functions are those of __main__, found again by its file."""
    script = tmp_path / "script.py"
    script.write_text(
        (HERE / "own_tasks.py").read_text() + "\nif __name__ == '__main__':\n"
        "    import elites\n"
        "    elites.train(paid, 'me', preset='smoke', evaluations=64).save('run')\n"
    )
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment(), capture_output=True
    )
    assert done.returncode == 0, done.stderr
    succeed("resume", tmp_path / "run", "--evaluations", 96, apart=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"] == f"{script}:paid"
