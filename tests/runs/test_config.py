"""What a run is asked to do: presets, and files that are read strictly."""

from __future__ import annotations

import dataclasses
import json

import pytest

from elites import presets
from elites.core.hyperparameters import Hyperparameters
from elites.runs import config
from elites.runs.config import Config


def test_the_paper_preset_is_the_table_of_the_paper():
    """The numbers of the paper's tables of hyperparameters, written down here once more."""
    chosen = config.preset("paper", "ant_omni")
    assert (chosen.evaluations, chosen.algorithm) == (1_000_000, "dcg_me")
    hp = chosen.hp
    assert (hp.cells, hp.batch_size, hp.policy_hidden) == (1024, 256, (128, 128))
    assert (hp.iso_sigma, hp.line_sigma) == (0.005, 0.05)
    assert (hp.actor_hidden, hp.critic_hidden) == ((256, 256), (256, 256))
    assert (hp.td3_batch_size, hp.critic_steps, hp.pg_steps) == (100, 3000, 150)
    assert (hp.policy_learning_rate, hp.actor_learning_rate, hp.critic_learning_rate) == (
        5e-3,
        3e-4,
        3e-4,
    )
    assert (hp.replay_size, hp.discount, hp.actor_delay) == (10**6, 0.99, 2)
    assert (hp.target_update_rate, hp.smoothing_noise, hp.smoothing_clip) == (0.005, 0.2, 0.5)
    assert (hp.descriptor_noise, hp.lengthscale) == (0.0004, None)


@pytest.mark.parametrize("name", presets.names())
def test_presets_survive_the_file(name):
    chosen = config.preset(name, "walker_uni")
    assert Config.from_json(json.loads(json.dumps(chosen.to_json())), "x") == chosen


def test_the_demo_is_as_large_as_promised():
    assert config.preset("demo", "walker_uni").hp.cells >= 128


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sedes": 3}, "unknown field 'sedes'. Did you mean 'seeds'?"),
        ({"seeds": None}, "missing seeds"),
        ({"seeds": "many"}, "seeds must be a whole number"),
        ({"hp": 3}, "'hp' must be a table"),
        ({"hp": {"cells": 3}}, "missing hp.batch_size"),
        ({"format": None}, "no format"),
        ({"device": "toaster"}, "device must be one of auto, cpu, gpu"),
    ],
)
def test_a_strange_file_is_refused(change, words):
    data = config.preset("smoke", "point_omni").to_json()
    for name, value in change.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    with pytest.raises(ValueError, match=r"there/config\.json: ") as error:
        Config.from_json(data, "there/config.json")
    assert words in str(error.value)


def test_differences_are_those_that_decide_results():
    saved = config.preset("smoke", "point_omni")
    asked = dataclasses.replace(saved, evaluations=10**6, device="cpu", checkpoint_every=7)
    assert config.differences(saved, asked) == []
    asked = dataclasses.replace(saved, first_seed=4, hp=Hyperparameters())
    found = config.differences(saved, asked)
    assert "first_seed is 0, not 4" in found
    assert "hp.cells is 32, not 1024" in found


def test_every_option_is_explained():
    """The help of the command line is the text behind each field."""
    import inspect

    for record in (Config, Hyperparameters):
        source = inspect.getsource(record)
        for field in dataclasses.fields(record):
            after = source.partition(f"    {field.name}: ")[2].partition("\n")[2]
            assert after.lstrip().startswith('"""'), field.name
