"""Test the page of a trained model that comes with elites, in a real browser."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from browser import browsing, errors, needs_browser
from elites.runs import pretrained
from page import click_map, ready, serving, watched
from program import succeed

MODEL = "ant_omni"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a shipped model with --pretrained, in a process with an empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        with serving(f"--pretrained={MODEL}") as served:
            yield served


def test_the_page_gets_the_whole_map_and_the_cells_with_policies(server):
    said = pretrained.models()[MODEL]
    about = server.json("/api/run")
    assert (about["task"], about["seeds"], about["trained_on"]) == (MODEL, [said.seed], said.device)
    assert about["name"] == MODEL  # without the checksum of its folder
    (iteration,) = about["playable"]
    archive = server.json(f"/api/archive?iteration={iteration}&seed={said.seed}")
    assert sum(value is not None for value in archive["fitness"]) == said.cells
    assert len(archive["kept"]) == said.elites
    left_out = min(set(range(said.cells)) - set(archive["kept"]))
    answer = server.get(f"/api/watch?iteration={iteration}&seed={said.seed}&cell={left_out}")
    assert answer[0] == 404
    assert json.loads(answer[2])["error"] == f"cell {left_out} has no policy in this run"


def test_the_command_films_a_shipped_model(tmp_path):
    film = tmp_path / "film.gif"
    succeed("render", "--pretrained", MODEL, "--output", film)
    assert film.stat().st_size < 3_000_000
    with Image.open(film) as image:
        assert (image.n_frames, image.info["duration"]) == (251, 50)  # the start, and 250 steps


@needs_browser
def test_a_cell_without_its_policy_asks_the_distilled_policy(server):
    said = pretrained.models()[MODEL]
    about, cells = server.json("/api/run"), server.json("/api/cells")
    kept = server.json(f"/api/archive?iteration={about['playable'][0]}&seed={said.seed}")["kept"]
    low, high = np.array(about["low"]), np.array(about["high"])
    shares = (np.array(cells["centroids"]) - low) / (high - low)
    inside = [c for c in range(len(shares)) if (abs(shares[c] - 0.5) < 0.4).all()]
    with browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        assert page.locator("#iteration").is_disabled()  # a model has one iteration
        assert "has its policy in this run" in page.locator("#legend").inner_text()
        assert f"{said.cells} of {len(shares)} cells" in page.locator("#status").inner_text()
        click_map(page, shares[next(c for c in inside if c in kept)])
        watched(page)
        assert page.locator("#elite-title").inner_text().startswith("Elite of cell")
        click_map(page, shares[next(c for c in inside if c not in kept)])
        page.locator("#elite-title", has_text="Nearest elite, of cell").wait_for()
        watched(page)
        assert "requested descriptor" in page.locator("#actor-title").inner_text()
        assert not errors(complaints)
