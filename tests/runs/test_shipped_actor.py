"""The actor of a shipped model, evaluated by the real command on a CPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from elites.runs import pretrained
from program import rows, succeed

MODEL = "ant_omni"  # the fastest to evaluate on a CPU

# Rounding decides how far an ant walks, so another compiler or processor gives other figures. These
# tolerances are about twice the largest deviation from the index, over 23 evaluations in which the
# weights of the actor were changed at random by at most one millionth. The median error of the
# actor was 0.077 to 0.141 m then (index: 0.094 m), and its mean fitness was up to 9 % lower, if one
# or two of the 16 walks went wrong. An actor that is asked for the origin instead misses by 28 m.
MEDIAN_ERROR = 0.1  # m
MEAN_FITNESS = 0.18  # relative


def test_a_shipped_actor_is_evaluated_on_a_cpu_as_the_index_says(tmp_path, monkeypatch, optimised):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = pretrained.models()[MODEL]
    told = succeed("evaluate", "--pretrained", MODEL).stdout
    (folder,) = pretrained.place(MODEL).glob("evaluation_*")
    cells = rows(folder / "cells.csv")
    assert len(cells) == said.elites
    errors, fitness = (
        np.array([float(cell[name]) for cell in cells])
        for name in ("actor_descriptor_error", "actor_fitness")
    )
    assert np.median(errors) == pytest.approx(said.on_cpu["actor_median_error"], abs=MEDIAN_ERROR)
    assert fitness.mean() == pytest.approx(said.on_cpu["actor_fitness"], rel=MEAN_FITNESS)
    # What is printed are the mean error and the sum of the fitness of these cells.
    printed = {
        title: float(re.search(rf"^{title} +([\d.,]+)$", told, re.MULTILINE)[1].replace(",", ""))
        for title in ("descriptor error of the actor", "descriptor-conditioned QD-score")
    }
    assert printed == {
        "descriptor error of the actor": pytest.approx(errors.mean(), rel=1e-3),
        "descriptor-conditioned QD-score": pytest.approx(fitness.sum(), rel=1e-3),
    }
