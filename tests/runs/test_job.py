"""What is checked before a run: the device and its memory."""

from __future__ import annotations

import jax
import pytest

from elites.runs import config, job
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
