"""What is checked before a run: the device and its memory."""

from __future__ import annotations

import json

import jax
import pytest

from elites.runs import config, job, unchanged
from elites.runs.directory import RunDirectory, RunError


def test_out_of_memory_names_the_options_to_lower():
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")
    with (
        pytest.raises(RunError, match=r"out of memory on cpu\. Lower --seeds"),
        job.memory_errors_explained(),
    ):
        raise error


def test_other_errors_of_jax_stay_what_they_are():
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"),
        job.memory_errors_explained(),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")


def test_the_state_of_the_paper_is_as_large_as_it_should_be(tmp_path):
    """Mostly the replay buffer: a million rows of 29 + 8 + 1 + 29 + 1 + 1 + 2 + 2 numbers."""
    prepared = job.prepare(config.preset("paper", "ant_omni"), RunDirectory(tmp_path))
    assert prepared.total == 3906
    rows = 4 * 10**6 * 73
    assert rows < prepared.state_size < 1.4 * rows
    assert prepared.facts()["lengthscale"] == pytest.approx(0.48)


def test_facts_name_the_descriptor_axes(tmp_path):
    facts = job.build(config.preset("smoke", "walker_uni"), RunDirectory(tmp_path)).facts()
    assert facts["descriptor_names"] == ("right foot contact", "left foot contact")
    assert facts["descriptor_units"] == ("share of time", "share of time")


def test_a_task_may_be_described_differently_later(tmp_path):
    run = RunDirectory(tmp_path)
    asked = config.preset("smoke", "point_omni")
    built = job.build(asked, run)
    facts = built.facts()
    for named in ({"descriptor_names": ["a", "b"]}, {"descriptor": "other words"}):
        (tmp_path / "facts.json").write_text(json.dumps({**facts, **named}))
        unchanged.check_resumed(run, asked, built, accept=False)
    before = {key: value for key, value in facts.items() if not key.startswith("descriptor_")}
    (tmp_path / "facts.json").write_text(json.dumps(before))  # a run of an earlier version
    unchanged.check_resumed(run, asked, built, accept=False)
    (tmp_path / "facts.json").write_text(json.dumps({**facts, "episode_length": 3}))
    with pytest.raises(ValueError, match="episode_length was 3, is 25"):
        unchanged.check_resumed(run, asked, built, accept=False)
