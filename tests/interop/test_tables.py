"""Tables of archives and metrics: their columns, their values, and what pandas reads of them."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest

import archives
from elites import packages
from elites.interop import tables, writing
from elites.interop.tables import MetricsTable

pandas = pytest.importorskip("pandas", reason="LEFT OUT: needs pandas, pip install pandas")


def test_a_row_is_an_elite():
    data = archives.archive(names=("final x", "final y"))
    frame = tables.archive_frame(data)
    assert list(frame) == ["cell", "fitness", "final x", "final y", "origin", "born"]
    kept = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert frame["cell"].tolist() == frame["born"].tolist() == kept
    assert frame["origin"].tolist() == [("initial", "ga")[cell % 2] for cell in kept]
    np.testing.assert_array_equal(frame["fitness"], data.fitness[kept])
    np.testing.assert_array_equal(frame[["final x", "final y"]], data.descriptors[kept])


def test_policies_are_columns_if_asked_for():
    data = archives.archive()
    frame = tables.archive_frame(data, parameters=True)
    assert list(frame)[:7] == [
        "cell", "fitness", "descriptor_0", "descriptor_1", "origin", "born", "parameter_0",
    ]  # fmt: skip
    policies = frame[[f"parameter_{i}" for i in range(26)]]
    np.testing.assert_array_equal(policies, data.policies[data.cells])


@pytest.mark.parametrize("names", [("fitness", "y"), ("x", "x"), ("cell", "born")])
def test_axes_with_the_name_of_another_column_are_numbered(names):
    columns = tables.axis_columns(archives.archive(names=names))
    assert columns == ["descriptor_0", "descriptor_1"]


def test_the_csv_file_has_the_same_table(tmp_path):
    data = archives.archive(names=("x, in m", "y"))
    assert writing.write(data, tmp_path / "a.csv", "csv") == [tmp_path / "a.csv"]
    frame = pandas.read_csv(tmp_path / "a.csv", dtype={"x, in m": np.float32, "y": np.float32})
    expected = tables.archive_frame(data)
    assert list(frame) == list(expected)
    for name in ("cell", "x, in m", "y", "origin", "born"):
        assert frame[name].tolist() == expected[name].tolist()
    np.testing.assert_array_equal(frame["fitness"].astype(np.float32), expected["fitness"])


def test_metrics_have_a_row_for_each_iteration_and_seed():
    score = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    frame = MetricsTable({"qd_score": score, "added.ga": score + 10}, (7, 3)).to_pandas()
    assert list(frame) == ["iteration", "seed", "qd_score", "added.ga"]
    assert frame["iteration"].tolist() == [1, 1, 2, 2, 3, 3]
    assert frame["seed"].tolist() == [7, 3, 7, 3, 7, 3]
    assert frame["added.ga"].tolist() == [11, 12, 13, 14, 15, 16]
    one = MetricsTable({"qd_score": score[:, 1]}).to_pandas()
    assert list(one) == ["iteration", "qd_score"]
    assert one["qd_score"].tolist() == [2, 4, 6]
    assert MetricsTable({}, (0,)).to_pandas().empty


def test_an_archive_with_unknown_origins_is_refused():
    data = dataclasses.replace(archives.archive(), origins=("initial",))
    with pytest.raises(ValueError, match=r"cell 1 has origin 1, .* only 0 to 0 \(initial\)"):
        tables.archive_frame(data)


def test_a_missing_package_is_named():
    missing = mock.patch.object(packages, "is_installed", return_value=False)
    with missing, pytest.raises(ValueError, match=r"^a data frame needs .* pip install pandas$"):
        tables.archive_frame(archives.archive())
