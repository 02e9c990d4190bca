"""Archives that `benchmarks/perturbed.py` evaluates again with changed policies."""

from __future__ import annotations

import sys

import pytest

import elites
from scripts import benchmark


@pytest.fixture(scope="module")
def script():
    """Return the module benchmarks/perturbed.py."""
    return benchmark("perturbed")


def test_an_archive_repeats_and_a_changed_one_differs_the_more_it_is_changed(script, conditioned):
    run = elites.load(conditioned)
    assert script.perturbed(run, 0.0) == (0.0, 0.0, 1.0)
    small, large = (script.perturbed(run, noise) for noise in (1e-4, 1e-2))
    assert 0 < small[0] < large[0]
    assert 0 < small[1] < large[1]
    assert small[2] != 1


def test_the_command_prints_a_table_and_names_a_missing_run(
    script, conditioned, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["perturbed.py", str(conditioned), "--noise", "0"])
    script.main()
    assert capsys.readouterr().out.splitlines()[-1] == "| 0 | 0 | 0 | 100.0 % |"
    monkeypatch.setattr(sys, "argv", ["perturbed.py", "no/such/run"])
    with pytest.raises(SystemExit, match=r"perturbed\.py: no/such/run: no such directory"):
        script.main()
