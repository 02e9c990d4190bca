"""Archives of the real pyribs: ours become theirs, and theirs are read."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import archives
from elites.interop import pyribs, reading, writing

ribs = pytest.importorskip("ribs.archives", reason="LEFT OUT: needs pyribs, pip install ribs")
pandas = pytest.importorskip("pandas")

BOXES = {
    "square": ((-1.0, -1.0), (1.0, 1.0)),
    "long": ((-1.0, 0.0), (1.0, 20.0)),  # distances are relative to the extents
    "line": ((0.0,), (3.0,)),
    "five": ((-1.0,) * 5, (1.0, 2.0, 3.0, 4.0, 5.0)),
}


@pytest.mark.parametrize("box", BOXES)
def test_a_live_archive_holds_every_elite_in_its_own_cell(box):
    low, high = BOXES[box]
    data = archives.archive(40, low, high, qd_offset=-3.0)
    archive = pyribs.to_pyribs(data)
    assert isinstance(archive, ribs.CVTArchive)
    found = archive.data()
    order = np.argsort(found["index"])
    np.testing.assert_array_equal(found["index"][order], data.cells)
    np.testing.assert_array_equal(found["solution"][order], data.policies[data.cells])
    np.testing.assert_array_equal(found["objective"][order], data.fitness[data.cells])
    np.testing.assert_array_equal(found["measures"][order], data.descriptors[data.cells])
    expected = (data.fitness[data.cells] + 3.0).sum()
    assert archive.stats.qd_score == pytest.approx(expected, rel=1e-5)
    assert archive.stats.coverage == pytest.approx(38 / 40)


def test_a_grid_has_the_same_cells_in_both(tmp_path):
    """Also for descriptors on the borders of cells and outside of the bounds."""
    from elites.core.cells import Cells

    low, high, grid = (-1.0, 0.0), (1.0, 20.0), (5, 4)
    cells = Cells(low, high, 20, grid)
    generator = np.random.default_rng(0)
    borders = np.stack(np.meshgrid(np.linspace(-1, 1, 6), np.linspace(0, 20, 5)), -1)
    places = np.concatenate([generator.normal(size=(200, 2)) * (1, 15), borders.reshape(-1, 2)])
    places = places.astype(np.float32)
    made = archives.archive(20, low, high, empty=(3,), grid=grid)
    centroids = np.asarray(cells.centroids())
    data = dataclasses.replace(made, centroids=centroids, descriptors=centroids)
    archive = pyribs.to_pyribs(data)
    assert isinstance(archive, ribs.GridArchive)
    np.testing.assert_array_equal(np.sort(archive.data("index")), data.cells)
    mine = np.asarray(cells.index(cells.centroids(), jnp.asarray(places)))
    np.testing.assert_array_equal(archive.index_of(places), mine)
    assert writing.write(data, tmp_path / "grid.csv", "pyribs") == [tmp_path / "grid.csv"]
    assert pandas.read_csv(tmp_path / "grid.csv")["index"].tolist() == data.cells.tolist()


def test_thresholds_are_written(tmp_path):
    data = archives.archive(threshold=np.arange(12.0))
    writing.write(data, tmp_path / "annealed.csv", "pyribs")
    assert pandas.read_csv(tmp_path / "annealed.csv")["threshold"].tolist() == data.cells.tolist()


def test_an_empty_archive_is_an_empty_archive_of_pyribs():
    assert len(pyribs.to_pyribs(archives.archive(3, empty=(0, 1, 2)))) == 0


def test_pyribs_reads_what_is_written(tmp_path):
    """The table is the one that pyribs writes of the same archive, and the centroids fit it."""
    data = archives.archive(20)
    written = writing.write(data, tmp_path / "deep" / "archive.csv", "pyribs")
    assert [path.name for path in written] == ["archive.csv", "archive_centroids.npy"]
    table = ribs.ArchiveDataFrame(pandas.read_csv(written[0]))
    theirs = pyribs.to_pyribs(data).data(return_type="pandas")
    assert list(table) == list(theirs)
    for field in ("solution", "objective", "measures", "threshold", "index"):
        mine = table.get_field(field).astype(theirs.get_field(field).dtype)
        order = np.argsort(theirs.get_field("index"))
        np.testing.assert_array_equal(mine, theirs.get_field(field)[order])
    ranges = list(zip(data.low, data.high, strict=True))
    again = ribs.CVTArchive(solution_dim=26, centroids=written[1], ranges=ranges)
    np.testing.assert_array_equal(again.centroids, data.centroids)


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_an_archive_that_pyribs_made_is_read(tmp_path, kind):
    """As it is written by `to_csv`, with and without pandas' own column of row numbers."""
    if kind == "grid":
        archive = ribs.GridArchive(solution_dim=5, dims=[6, 4], ranges=[(-2, 2), (-2, 2)])
    else:
        archive = ribs.CVTArchive(
            solution_dim=5, centroids=np.eye(2) - 0.5, ranges=[(-2, 2), (-2, 2)]
        )
    generator = np.random.default_rng(0)
    drawn = generator.normal(size=(30, 8))
    archive.add(drawn[:, :5], drawn[:, 5], drawn[:, 6:])
    archive.data(return_type="pandas").to_csv(tmp_path / "archive.csv", index=kind == "cvt")
    found = reading.read(tmp_path / "archive.csv")
    assert found.kind == "pyribs"
    for mine, field in ((found.solutions, "solution"), (found.fitness, "objective"),
                        (found.descriptors, "measures")):  # fmt: skip
        np.testing.assert_array_equal(mine, archive.data(field).astype(np.float32))
    np.testing.assert_array_equal(found.policies((0, 5)), found.solutions)


GOOD = "solution_0,solution_1,objective,measures_0\n1,2,3,4\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no column solution_0"),
        ("a,b\n1,2\n", r"has no column solution_0. Write one with archive.data"),
        ("solution_0,measures_0\n", "has no column objective"),
        ("solution_0,objective\n", "has no column measures_0"),
        (GOOD.splitlines()[0] + "\n", "the archive is empty"),
        (GOOD + "1,2,3\n", "line 3 has 3 fields, the header 4"),
        (GOOD + "1,2,nan,4\n", "line 3: nan is not a finite 32-bit number"),
        (GOOD + "1,1e60,3,4\n", "line 3: 1e60 is not a finite 32-bit number"),
        (GOOD + "1,x,3,4\n", "line 3: could not convert string to float: 'x'"),
        (GOOD.replace("solution_1", "solution_0"), "2 columns named 'solution_0'"),
        ("\0", "has no column solution_0"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "archive.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        reading.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_tables_of_earlier_versions_are_read(tmp_path):
    for name in ("measure", "behavior"):
        path = tmp_path / f"{name}.csv"
        path.write_text(GOOD.replace("measures", name))
        assert reading.read(path).descriptors.tolist() == [[4.0]]


def test_nothing_is_overwritten(tmp_path):
    data = archives.archive()
    (tmp_path / "a_centroids.npy").touch()
    (tmp_path / "b.csv").symlink_to("nowhere")
    with pytest.raises(ValueError, match=r"a_centroids.npy exists already"):
        writing.write(data, tmp_path / "a.csv", "pyribs")
    with pytest.raises(ValueError, match=r"b.csv exists already"):
        writing.write(data, tmp_path / "b.csv", "csv")
    with pytest.raises(ValueError, match=r"must end in .csv, got '.*c.txt'"):
        writing.write(data, tmp_path / "c.txt", "pyribs")
    assert {path.name for path in tmp_path.iterdir()} == {"a_centroids.npy", "b.csv"}
