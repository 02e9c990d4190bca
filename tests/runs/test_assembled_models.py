"""Models that `benchmarks/pretrained.py assemble` makes of elites and tables, and its refusals."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import elites as package
from elites.runs import reducing
from program import newest, rows, succeed
from scripts import benchmark

KEPT = 4


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return benchmark("pretrained")


@pytest.fixture
def elites_of(conditioned) -> dict[str, np.ndarray]:
    """The arrays of ELITES.npz: some elites and the actor of the second seed of a run."""
    with np.load(newest(conditioned) / "weights.npz") as file:
        weights = {name: file[name][1] for name in file.files}
    (actor,) = [array for name, array in weights.items() if name.startswith("learners.")]
    archive = {name: weights[f"archive.{name}"] for name in ("policies", "fitness", "descriptors")}
    cells = np.array(reducing.spread(archive["fitness"], archive["descriptors"], 2 * KEPT))
    return {
        "seed": np.array(1),
        "cells": cells,
        "actor": actor,
        **{name: array[cells] for name, array in archive.items()},
    }


@pytest.fixture
def tables(conditioned, tmp_path) -> Path:
    """The files of the run without its checkpoints."""
    left_out = shutil.ignore_patterns("checkpoints")
    return Path(shutil.copytree(conditioned, tmp_path / "tables", ignore=left_out))


def assemble(script, monkeypatch, folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(folder / "elites.npz", **arrays)
    words = ["assemble", folder / "elites.npz", folder / "tables", folder / "made.zip"]
    monkeypatch.setattr(sys, "argv", ["pretrained.py", *map(str, words), "--elites", str(KEPT)])
    script.main()
    return folder / "made.zip"


def test_a_model_is_made_of_elites_and_tables(
    script, monkeypatch, tmp_path, tables, elites_of, conditioned
):
    made = assemble(script, monkeypatch, tmp_path, elites_of)
    succeed("unpack", made, "--output", tmp_path / "run")
    archive = package.load(tmp_path / "run").archive
    assert archive.cells.tolist() == sorted(elites_of["cells"][:KEPT].tolist())
    whole = package.load(conditioned).seed(1).archive
    for elite in archive:
        assert np.array_equal(elite.policy, whole.at(elite.cell).policy)
    assert {row["seed"] for row in rows(tmp_path / "run" / "evaluation" / "cells.csv")} == {"1"}


def without_fitness(arrays, tables):
    del arrays["fitness"]


def of_another_archive(arrays, tables):
    arrays["descriptors"] = arrays["descriptors"] + 0.1


def of_other_cells(arrays, tables):
    arrays["cells"] = arrays["cells"] + 1000


def of_another_seed(arrays, tables):
    arrays["seed"] = np.array(7)


def with_other_centroids(arrays, tables):
    path = tables / "evaluation" / "cells.csv"
    header, *lines = path.read_text().splitlines()
    column = header.split(",").index("centroid_0")
    cells = [line.split(",") for line in lines]
    changed = [[*row[:column], "0.123", *row[column + 1 :]] for row in cells]
    path.write_text("\n".join([header, *map(",".join, changed)]) + "\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_fitness, "{folder}/elites.npz: lacks fitness. It needs seed, cells, policies, "),
        (of_another_archive, "{folder}/elites.npz: the array descriptors differs from {cells}"),
        (of_other_cells, "{folder}/elites.npz: the array fitness differs from {cells}"),
        (of_another_seed, "{cells}: has no elites of seed 7"),
        (with_other_centroids, "{cells}: its centroids are not those of {tables}/config.json"),
    ],
)
def test_files_that_do_not_fit_are_refused_with_one_line(
    script, monkeypatch, tmp_path, tables, elites_of, change, message
):
    change(elites_of, tables)
    with pytest.raises(SystemExit) as refused:
        assemble(script, monkeypatch, tmp_path, elites_of)
    cells = tables / "evaluation" / "cells.csv"
    expected = message.format(folder=tmp_path, tables=tables, cells=cells)
    assert str(refused.value).startswith(f"pretrained.py: {expected}")
    assert not (tmp_path / "made.zip").exists()
