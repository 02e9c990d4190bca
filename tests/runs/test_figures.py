"""Figures: cells that are Voronoi cells, and pictures of every kind of run."""

from __future__ import annotations

import json
import shutil
from unittest import mock

import numpy as np
import pytest

from elites.runs import drawing, figures, snapshots, voronoi
from elites.runs.directory import RunDirectory
from program import SMOKE, complaint, edit_json, elites, succeed


def area(polygon: np.ndarray) -> float:
    x, y = polygon.T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2


@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_cells_tile_the_box(count):
    points = np.random.default_rng(count).uniform([-2, 0], [2, 30], (count, 2))
    cells = voronoi.polygons(points, (-2, 0), (2, 30))
    areas = [area(cell) for cell in cells]
    assert min(areas) > 0  # counter-clockwise
    assert sum(areas) == pytest.approx(120)


def test_a_cell_is_what_is_nearest():
    generator = np.random.default_rng(0)
    points = generator.uniform(-1, 1, (60, 2))
    cells = voronoi.polygons(points, (-1, -1), (1, 1))
    places = generator.uniform(-1, 1, (400, 2))
    nearest = np.linalg.norm(places[:, None] - points[None], axis=-1).argmin(axis=1)
    for place, cell in zip(places, nearest, strict=True):
        corners = cells[cell]
        edges = np.roll(corners, -1, axis=0) - corners
        offset = place - corners
        assert (edges[:, 0] * offset[:, 1] - edges[:, 1] * offset[:, 0] >= -1e-9).all()


def test_twins_share_a_cell():
    cells = voronoi.polygons(np.zeros((2, 2)), (-1, -1), (1, 1))
    assert [area(cell) for cell in cells] == pytest.approx([4, 4])


PICTURES = {"archive", "curves", "origin", "actor"}


def test_a_run_draws_its_figures(conditioned):
    for kind in ("png", "pdf"):
        assert {p.stem for p in (conditioned / "figures").glob(f"*.{kind}")} == PICTURES
    assert (conditioned / "figures" / "archive.png").read_bytes().startswith(b"\x89PNG")
    assert (conditioned / "figures" / "archive.pdf").read_bytes().startswith(b"%PDF")


def test_an_algorithm_without_actor_has_no_reach(finished):
    assert {p.stem for p in (finished / "figures").glob("*.png")} == PICTURES - {"actor"}


def test_the_archive_is_coloured_by_fitness(run):
    """Filled cells of the picture have the colours of their fitness, empty ones are grey."""
    matplotlib = pytest.importorskip("matplotlib")
    facts = json.loads((run / "facts.json").read_text())
    snapshot = snapshots.newest(RunDirectory(run))
    assert snapshot is not None
    figure = figures._archive_figure(facts, snapshot, 1, [0, 1])
    shades = figure.axes[0].collections[0].get_facecolor()
    fitness = snapshot["fitness"][1]
    full = np.isfinite(fitness)
    grey = matplotlib.colors.to_rgba(drawing.EMPTY)
    assert (shades[~full] == grey).all()
    best, worst = shades[np.nanargmax(np.where(full, fitness, np.nan))], None
    worst = shades[np.nanargmin(np.where(full, fitness, np.nan))]
    colours = matplotlib.colormaps["viridis"]
    np.testing.assert_allclose(best, colours(1.0))
    np.testing.assert_allclose(worst, colours(0.0))
    assert f"{full.sum()} of 32 cells" in figure.axes[0].get_title()


def test_curves_show_median_and_quartiles():
    import matplotlib.pyplot as plt

    values = np.array([[1.0, 2, 3, 4, 5], [2, 4, 6, 8, 10]])
    figure, axes = plt.subplots()
    drawing.band(axes, np.array([10.0, 20]), values, "black", "-")
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [3, 6])
    corners = axes.collections[0].get_paths()[0].vertices
    for point in ((10, 2), (10, 4), (20, 4), (20, 8)):
        assert (corners == point).all(axis=1).any()
    plt.close(figure)


def test_a_variation_has_one_colour_in_both_panels():
    """The columns of the table are in alphabetical order, the origins in that of the algorithm."""
    facts = {
        "algorithm": "progress_me", "task": "task", "descriptor": "", "descriptor_low": [0, 0],
        "descriptor_high": [1, 1], "origins": ["initial", "ga", "pg", "injection"],
    }  # fmt: skip
    columns = ("iteration", "evaluations", "added.ga", "added.injection", "added.pg")
    table = {name: np.arange(3.0)[:, None] for name in columns}
    snapshot = {
        "centroids": np.random.default_rng(0).uniform(size=(4, 2)),
        "origin": np.arange(4)[None],
    }
    with drawing.styled():
        figure = figures._origin_figure(facts, table, snapshot, 0)
        left, right = figure.axes
        lines = {line.get_label(): line.get_color() for line in left.get_lines()}
        squares = {line.get_label(): line.get_color() for line in right.get_legend().get_lines()}
        drawing.plt.close(figure)
    assert len(set(lines.values())) == 3
    assert {name: squares[name] for name in lines} == lines
    assert set(squares) == {"initial", *lines}


def test_a_long_title_is_broken_between_the_options_of_a_task():
    title = "dcg_me on gymnasium:Walker2d-v5,descriptor=mean_velocity,episode_length=250"
    lines = drawing.wrapped(title, 40).splitlines()
    assert lines == [
        "dcg_me on gymnasium:Walker2d-v5,",
        "descriptor=mean_velocity,",
        "episode_length=250",
    ]
    assert drawing.wrapped("me on ant_omni, iteration 3", 50) == "me on ant_omni, iteration 3"
    assert drawing.wrapped("x" * 60, 50) == "x" * 60  # one word


def test_several_runs_share_a_figure(finished, conditioned, tmp_path):
    done = succeed("plot", finished, conditioned, "--output", tmp_path / "both")
    assert "curves_point_omni.png" in done.stdout
    assert (tmp_path / "both" / "curves_point_omni.pdf").exists()


def test_a_fact_that_a_comparison_needs_is_named(finished, run, tmp_path):
    edit_json(run / "facts.json", lambda facts: facts.pop("action_size"))
    line = complaint(elites("plot", finished, run, "--output", tmp_path / "both"), 1)
    assert f"{run / 'facts.json'}: damaged: 'action_size' is missing" in line


def test_an_option_of_the_other_kind_of_figure_is_refused(run, tmp_path):
    line = complaint(elites("plot", run, "--output", tmp_path / "both"), 2)
    assert f"--output is for several runs. The figures of one run go to {run / 'figures'}" in line
    assert "--seed is for one run" in complaint(elites("plot", run, run, "--seed", 1), 2)
    assert not (tmp_path / "both").exists()


@pytest.fixture
def compare(monkeypatch, tmp_path):
    """`elites plot` of several runs: the labels of each figure's curves, and the warnings."""

    def plot(*runs) -> tuple[dict[str, list[str]], list[str]]:
        labels = {}

        def save(figure, where, name):
            texts = figure.axes[0].get_legend().get_texts()
            labels[name] = [text.get_text() for text in texts]
            assert len(figure.axes[0].lines) == len(texts)
            figures.plt.close(figure)
            return where / f"{name}.png"

        monkeypatch.setattr(figures, "_save", save)
        done = succeed("plot", *runs, "--output", tmp_path / "figures")
        return labels, done.stderr.splitlines()

    return plot


def another(run, path, **facts):
    """A copy of a run with other facts."""
    shutil.copytree(run, path, symlinks=True)
    edit_json(path / "facts.json", lambda resolved: resolved.update(facts))
    return path


def test_runs_that_compare_are_drawn_without_a_word(finished, conditioned, compare):
    labels, said = compare(finished, conditioned)
    assert labels == {"curves_point_omni": ["me", "dcg_me"]}
    assert said == []


def test_different_numbers_of_cells_are_named(finished, tmp_path, compare):
    other = tmp_path / "other"
    succeed("train", "point_omni", "me", *SMOKE, "--hp.cells", 64, "--output", other)
    labels, said = compare(finished, other)
    assert labels == {"curves_point_omni": ["me, 32 cells", "me, 64 cells"]}
    assert said == [
        "elites: warning: these runs of point_omni differ in number of cells (32 cells, 64 cells). "
        "Their QD-score and coverage do not compare; the legend says which is which"
    ]


def test_different_bounds_and_episodes_are_named(finished, tmp_path, compare):
    other = another(finished, tmp_path / "other", descriptor_low=[-3.0, -1.0], episode_length=99)
    labels, (said,) = compare(finished, other)
    first, second = labels["curves_point_omni"]
    assert second == "me, descriptors in [-3, 1] x [-1, 1], episodes of 99 steps"
    assert first.startswith("me, descriptors in [-1, 1] x [-1, 1], episodes of ")
    assert "differ in descriptor bounds (" in said
    assert "Their QD-score, coverage and maximum fitness do not compare" in said


def test_different_tasks_have_figures_of_their_own(finished, tmp_path, compare):
    other = another(finished, tmp_path / "other", task="elsewhere", descriptor_low=[-3.0, -1.0])
    labels, said = compare(finished, other)
    assert labels == {"curves_point_omni": ["me"], "curves_elsewhere": ["me"]}
    assert said == []


def test_runs_of_one_name_are_told_apart(finished, tmp_path, compare):
    copies = [another(finished, tmp_path / where / "run") for where in ("a", "b")]
    labels, _ = compare(finished, *copies)
    expected = ["me (finished)", *(f"me ({path})" for path in copies)]
    assert labels == {"curves_point_omni": expected}


def test_a_seed_can_be_chosen_and_must_exist(run):
    succeed("plot", run, "--seed", 0)
    assert "the run has no seed 7. Its seeds are 0, 1" in elites("plot", run, "--seed", 7).stderr


FACTS = {"task": "t", "algorithm": "a", "descriptor": "", "origins": ["initial", "ga"]}


def in_box(size: int) -> dict:
    """Facts of a run with descriptors from -1 to 1."""
    return FACTS | {"descriptor_low": [-1.0] * size, "descriptor_high": [1.0] * size}


def snapshot_at(centroids: np.ndarray) -> dict[str, np.ndarray]:
    """A snapshot in which every third cell is empty. Fitness is the number of the cell minus 4."""
    cells = np.arange(len(centroids))
    return {
        "fitness": np.where(cells % 3, cells - 4.0, -np.inf)[None],
        "descriptors": centroids[None],
        "centroids": centroids,
        "origin": np.where(cells % 3, cells % 2, -1)[None],
        "iteration": np.array(3),
    }


def test_one_dimension_is_drawn_as_bars():
    """They are as high as the fitness. Empty cells are grey over the whole height."""
    snapshot = snapshot_at(np.array([[0.8], [-0.6], [0.2], [-0.2], [-0.9]]))
    figure = figures._archive_figure(in_box(1), snapshot, 0, [0])
    bars = figure.axes[0].collections[0]
    corners = [path.vertices[:4] for path in bars.get_paths()]
    left, right = ([bar[:, 0].min() for bar in corners], [bar[:, 0].max() for bar in corners])
    np.testing.assert_allclose(left, [-1, -0.75, -0.4, 0, 0.5])
    np.testing.assert_allclose(right, [-0.75, -0.4, 0, 0.5, 1])
    ends = [(bar[:, 1].min(), bar[:, 1].max()) for bar in corners]
    assert ends == [(0, 0), (-3, 0), (-3, 0), (-2, 0), (-3, 0)]  # cells 4, 1, 3, 2, 0
    grey = drawing.plt.matplotlib.colors.to_rgba(drawing.EMPTY)
    assert [tuple(c) == grey for c in bars.get_facecolor()] == [False, False, True, False, True]
    figure.canvas.draw()
    drawing.plt.close(figure)


def test_a_grid_is_drawn_as_rectangles_in_any_order():
    """A hundred times a hundred cells need no polygon: one mesh shows their colours."""
    middles = (np.arange(100) + 0.5) / 50 - 1
    centroids = np.stack(np.meshgrid(middles, middles, indexing="ij"), -1).reshape(-1, 2)
    centroids = centroids[np.random.default_rng(0).permutation(10_000)].astype(np.float32)
    with mock.patch.object(voronoi, "_unit_cells", side_effect=AssertionError):
        figure = figures._archive_figure(in_box(2), snapshot_at(centroids), 0, [0])
        cells = voronoi.polygons(centroids, (-1, -1), (1, 1))
    assert sum(area(cell) for cell in cells) == pytest.approx(4)
    (mesh,) = figure.axes[0].collections
    np.testing.assert_allclose(cells[7].mean(0), centroids[7], atol=1e-6)
    colours = np.asarray(mesh.get_array()).reshape(100, 100, 4)
    column, row = np.floor((centroids[9_998] + 1) * 50).astype(int)
    np.testing.assert_allclose(colours[row, column], drawing.plt.get_cmap("viridis")(1.0))
    drawing.plt.close(figure)


@pytest.mark.parametrize(
    "centroids",
    [
        np.array([[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.4]]),  # one is not in the middle
        np.array([[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, 0.5]]),  # one is missing
        np.array([[-0.5, 0.0], [0.5, 0.0], [0.9, 0.0]]),
        np.array([[-1.0, 0.0], [0.5, 0.0]]),
    ],
)
def test_centroids_that_are_no_grid_are_noticed(centroids):
    assert voronoi.grid_places(centroids, (-1, -1), (1, 1)) is None
    assert sum(map(area, voronoi.polygons(np.unique(centroids, axis=0), (-1, -1), (1, 1)))) > 3.9


def test_many_dimensions_are_drawn_as_lines_and_projections():
    """Lines from the worst elite to the best; a bin has the colour of its best elite."""
    generator = np.random.default_rng(0)
    snapshot = snapshot_at(generator.uniform(-1, 1, (30, 4)))
    figure = figures._archive_figure(in_box(4), snapshot, 0, [0])
    lines = figure.axes[0].collections[0].get_segments()
    assert len(lines) == 20
    heights = (snapshot["centroids"][29] + 1) / 2
    np.testing.assert_allclose(lines[-1], np.stack([np.arange(4), heights], 1))
    figure.canvas.draw()
    drawing.plt.close(figure)
    figure = figures._projections_figure(in_box(4), snapshot, 0, [0])
    shown = [panel for panel in figure.axes[:9] if panel.axison]
    assert len(shown) == 6  # pairs of four dimensions
    mesh = figure.axes[6].collections[0]  # the last row: dimensions 0 and 3
    bins = np.asarray(mesh.get_array()).reshape(8, 8, 4)
    column, row = ((snapshot["centroids"][29, [0, 3]] + 1) * 4).astype(int)
    np.testing.assert_allclose(bins[row, column], drawing.plt.get_cmap("viridis")(1.0))
    assert figure.axes[6].get_ylabel() == "descriptor 4"
    drawing.plt.close(figure)


def test_of_very_many_elites_some_are_drawn_and_the_figure_says_so():
    snapshot = snapshot_at(np.random.default_rng(0).uniform(-1, 1, (3000, 7)))
    figure = figures._archive_figure(in_box(7), snapshot, 0, [0])
    assert len(figure.axes[0].collections[0].get_segments()) == 1500
    assert figure.axes[0].get_xlabel() == "1500 of 2000 elites, evenly by rank of fitness"
    drawing.plt.close(figure)


def test_axes_are_named_as_the_task_names_them(run):
    """Names are shown as they are written, also with characters that mean something elsewhere."""
    facts = json.loads((run / "facts.json").read_text())
    facts |= {"descriptor_names": ["price in $ and $_", "a <b>"], "descriptor_units": ["m", ""]}
    snapshot = snapshots.newest(RunDirectory(run))
    assert snapshot is not None
    with drawing.plt.rc_context(drawing.STYLE):
        figure = figures._archive_figure(facts, snapshot, 0, [0, 1])
        figure.canvas.draw()
    assert figure.axes[0].get_xlabel() == "price in $ and $_ (m)"
    assert figure.axes[0].get_ylabel() == "a <b>"
    drawing.plt.close(figure)
