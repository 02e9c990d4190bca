"""What `elites info` says about the settings of a run."""

from __future__ import annotations

import re
from unittest import mock

import pytest

from elites import training
from elites.core.hyperparameters import Hyperparameters
from elites.runs import directory as directories
from elites.runs import info, pretrained
from elites.runs.config import preset
from program import edit_json, succeed


def test_the_size_is_the_space_on_the_disk(run):
    with open(run / "figures" / "sparse.png", "wb") as file:
        file.truncate(10**9)  # takes no space
    found = re.search(r"^size +([\d.]+) MB on the disk$", succeed("info", run).stdout, re.MULTILINE)
    assert found
    assert 0 < float(found[1]) < 100
    assert info.size_on_disk(mock.Mock(st_size=7, st_blocks=8)) == 4096
    assert info.size_on_disk(mock.Mock(spec=["st_size"], st_size=7)) == 7


def settings(*run: object) -> str:
    """Return what `elites info` lists as different from the defaults."""
    found = re.search(r"^not the default +(.*)$", succeed("info", *run).stdout, re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("ant_omni", "nothing"),
        ("walker_uni", "evaluations 128000"),
        ("anttrap_omni_dcg_me", "nothing"),
    ],
)
def test_a_default_that_was_given_as_a_number_is_not_listed(model, said, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings("--pretrained", model) == said
    # The same file with other numbers, and as it was before facts.json had the kind of descriptor.
    path = pretrained.place(model)
    hp = {"discount": 0.5, "progress_learning_rate": 3e-3}
    edit_json(path / "config.json", lambda config: config["hp"].update(hp))
    others = [] if said == "nothing" else [said]
    given = [*others, "hp.discount 0.5", "hp.progress_learning_rate 0.003"]
    assert settings(path) == ", ".join(given)
    edit_json(path / "config.json", lambda config: config["hp"].update(progress_discount=0.95))
    edit_json(path / "facts.json", lambda facts: facts.pop("episode_descriptor"))
    assert "hp.progress_discount 0.95" in settings(path)


@pytest.mark.parametrize("task", ["ant_omni", "walker_uni"])
def test_the_numbers_of_progress_me_are_those_that_it_trains_with(task):
    built = training.build(task, "progress_me")
    learner = built.main_td3
    assert learner is not None
    numbers = Hyperparameters().progress_numbers(built.problem.final_descriptor)
    assert numbers == {
        "progress_discount": learner.discount, "progress_learning_rate": learner.actor_rate
    }  # fmt: skip
    assert numbers["progress_discount"] == (0.95 if task == "ant_omni" else 0.99)


def test_plain_vectors_are_compared_with_their_own_preset(tmp_path):
    usual = preset("vectors", "sphere")
    directories.write_json(tmp_path / "config.json", usual.to_json())
    assert settings(tmp_path) == "nothing"
    directories.write_json(tmp_path / "config.json", preset("paper", "sphere").to_json())
    assert "hp.grid ()" in settings(tmp_path)
