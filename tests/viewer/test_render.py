"""Test `elites render` on a run."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from elites import load
from elites.rendering import movie
from page import SCENES
from program import SMOKE, elites, environment, succeed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("render") / "run"
    task = f"{SCENES}:two_links"
    succeed("train", task, "dcg_me", *SMOKE, "--evaluations", 160, "--output", path)
    return path


def opened(path) -> tuple[int, tuple[int, int]]:
    with Image.open(path) as image:
        return image.n_frames, image.size


def test_an_elite_is_filmed_into_the_figures_of_the_run(run):
    said = succeed("render", run, "--size", 96, 72).stdout
    path = run / "figures" / "elite.gif"
    frames, size = opened(path)
    assert said.startswith(f"{path}: {frames} pictures")
    assert re.search(r"\nelite of cell \d+: fitness \S+, reached \S+, \S+, error 0\n", said)
    assert size == (96, 72)
    with Image.open(path) as image:
        first = np.asarray(image.convert("RGB")).astype(int)
        image.seek(frames - 1)
        last = np.asarray(image.convert("RGB")).astype(int)
    assert np.abs(first - last).max() > 50  # something moves
    succeed("render", run, "--size", 96, 72)  # replaces it


def test_elite_and_actor_stand_side_by_side(run, tmp_path):
    path = tmp_path / "film.gif"
    succeed("render", run, "--beside", "--size", 96, 72, "--output", path)
    assert opened(path)[1] == (192, 72)
    message = elites("render", run, "--output", path)
    assert message.returncode == 2
    assert "exists already" in message.stderr


def test_the_suffix_chooses_the_format(run, tmp_path):
    films = tmp_path / "film.MP4", tmp_path / "film.GIF"
    if movie._encoder() is None:
        pytest.skip("LEFT OUT: needs ffmpeg, elites[video]")
    for path in films:
        succeed("render", run, "--cell", filled(run), "--size", 64, 48, "--output", path)
    assert films[0].read_bytes()[4:8] == b"ftyp"
    assert films[1].read_bytes()[:6] == b"GIF89a"


def filled(run) -> int:
    """Return a cell of the archive that has an elite."""
    return next(iter(load(run).archive)).cell


def test_the_actor_is_filmed_at_a_descriptor(run):
    succeed("render", run, "--actor", "--descriptor", 0.4, 0.2, "--size", 64, 48)
    assert opened(run / "figures" / "actor_0.4_0.2.gif")[1] == (64, 48)


def test_a_film_of_an_elite_of_another_cell_is_warned_of(run):
    archive = load(run).archive
    centroids = archive.arrays.centroids
    cells = range(len(centroids))
    wanted = centroids[next(cell for cell in cells if cell not in archive.cells)]
    given = ("--descriptor", *wanted, "--size", 64, 48)
    warning = f"no elite in the cell of --descriptor {wanted[0]:g} {wanted[1]:g}. The nearest one"
    alone, beside, actor = (
        elites("render", run, *given, *more) for more in ((), ("--beside",), ("--actor",))
    )
    assert warning in alone.stderr
    assert "'--actor --descriptor" in alone.stderr
    assert warning in beside.stderr
    assert "'--actor --descriptor" not in beside.stderr  # the actor is in the film already
    assert actor.stderr == ""


def test_a_gallery_has_a_panel_for_each_behaviour(run):
    succeed("render", run, "--gallery", 3, "--size", 64, 48, "--speed", 4)
    frames, size = opened(run / "figures" / "gallery_of_elites.gif")
    assert size == (192, 48)
    slow = "render", run, "--gallery", 3, "--size", 64, 48, "--speed", 2, "--layout", "together"
    said = succeed("render", run, "--gallery", 400, "--size", 64, 48, "--speed", 20).stdout
    filled = len(load(run).archive)
    assert said.endswith(f"The archive has {filled} elites. The film shows all of them\n")
    succeed(*slow)
    assert opened(run / "figures" / "gallery_of_elites.gif") == (2 * frames - 1, (64, 48))


def test_compiled_rollouts_are_kept_for_the_next_film(run, tmp_path):
    """In the user's cache, unless JAX was told another place."""
    given = {"XDG_CACHE_HOME": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environ = environment(cache=False, **given)
    succeed("render", run, "--size", 64, 48, apart=True, environ=environ)
    kept = [path for path in (tmp_path / "elites" / "compiled").rglob("*") if path.is_file()]
    assert any("jit_run" in path.name for path in kept)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--cell", 1, "--descriptor", 0, 0), "give --cell or --descriptor, not both"),
        (("--gallery", 1), "--gallery must be between 2 and 400"),
        (("--gallery", 5, "--beside"), "--gallery chooses the behaviours itself"),
        (("--speed", "nan"), "--speed must be between 0.05 and 20"),
        (("--size", 400), "--size takes a width and a height in pixels, got 400"),
        (("--descriptor", "nan", 1), "--descriptor must be finite numbers, got nan 1.0"),
        (("--size", 4, 4), "--size must be between 16 and 4096 pixels"),
        (("--output", "film.avi"), "the name of a film ends with .gif or .mp4"),
        (("--output", "nowhere/film.gif"), "no such directory"),
        (("--cell", 100000), "cell 100000 does not exist"),
        (("--layout", "panels"), "--layout is for --gallery"),
    ],
)
def test_bad_input_gets_one_line(run, options, says):
    failed = elites("render", run, *options)
    assert failed.returncode == 2
    assert says in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_task_without_bodies_has_nothing_to_draw(tmp_path):
    succeed("train", "point_omni", "me", *SMOKE, "--evaluations", 64, "--output", tmp_path / "run")
    failed = elites("render", tmp_path / "run")
    assert "has nothing to draw" in failed.stderr
