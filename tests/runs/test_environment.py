"""What a session records of its machine, and what another machine means for a run."""

from __future__ import annotations

import os

import pytest

from elites.runs import environment as environments
from elites.runs.directory import RunDirectory
from program import edit_json, environment, succeed


def test_seeds_on_another_number_of_devices_may_differ_in_their_last_bits(run):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    two = environment(XLA_FLAGS=flags)
    done = succeed("resume", run, "--evaluations", 352, apart=True, environ=two)
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert f"{run} was trained on 1 device (cpu) and continues on 2 devices (cpu): " in warning
    assert "the last bits of its results may differ" in warning


def test_the_same_devices_are_not_mentioned(run):
    assert environments.note_on_devices(RunDirectory(run), seeds=2) is None
    path = run / "environment.json"
    edit_json(path, lambda sessions: sessions[-1].update(devices=8))
    assert "was trained on 8 devices" in environments.note_on_devices(RunDirectory(run), seeds=8)
    # Two seeds do not divide evenly over eight devices, and used one of them.
    assert environments.note_on_devices(RunDirectory(run), seeds=2) is None


@pytest.mark.parametrize("text", ["[]", "3", "[{}]", '[{"devices": 0, "device": 1}]', "[", "[1]"])
def test_a_damaged_record_says_nothing(run, text):
    (run / "environment.json").write_text(text)
    assert environments.note_on_devices(RunDirectory(run), seeds=2) is None
