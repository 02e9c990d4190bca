"""Test the page of a run in a real browser: Chromium, and what is essential also in Firefox."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from browser import browsing, drawn, errors, in_all_browsers, needs_browser
from elites.viewer import filming
from page import (
    SCENES,
    click_map,
    numbers,
    on_map,
    ready,
    repeating,
    serving,
    serving_here,
    watched,
    write,
)
from program import SMOKE, complaint, elites, started, succeed

pytestmark = needs_browser

PIXEL = """([x, y]) => {
  const canvas = document.getElementById("map");
  const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
  const at = [(x - box.left) * ratio, (y - box.top) * ratio].map(Math.round);
  return [...canvas.getContext("2d").getImageData(...at, 1, 1).data];
}"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("view") / "run"
    succeed(
        "train", f"{SCENES}:two_links", "dcg_me", *SMOKE, "--seeds", 2, "--first-seed", 3,
        "--evaluations", 320, "--checkpoint-every", 3, "--output", path,
        apart=True, environ=repeating(),
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def server(run):
    with serving(run, environ=repeating()) as served:
        yield served


@pytest.fixture
def browser():
    """Return the browser of a test, unless it runs in all browsers."""
    return "chromium"


@pytest.fixture
def opened(server, browser):
    with browsing(browser) as (page, asked, complaints):
        page.goto(server.address)
        ready(page)
        yield page, asked, complaints


@pytest.fixture(scope="module")
def known(server):
    """Return what the server says of the run, its cells and all its archives."""
    about = server.json("/api/run")
    cells = server.json("/api/cells")
    archives = {
        (seed, iteration): server.json(f"/api/archive?iteration={iteration}&seed={seed}")
        for seed in about["seeds"]
        for iteration in about["iterations"]
    }
    return about, cells, archives


def places(known, seed: int, iteration: int, filled: bool) -> list[tuple[int, tuple[float, float]]]:
    """Return filled or empty cells, and their centroids in shares of the bounds."""
    about, cells, archives = known
    fitness = archives[seed, iteration]["fitness"]
    low, high = np.array(about["low"]), np.array(about["high"])
    shares = (np.array(cells["centroids"]) - low) / (high - low)
    return [
        (i, tuple(shares[i])) for i, value in enumerate(fitness) if (value is not None) == filled
    ]


def chosen_seed(page) -> int:
    return int(page.locator("#seed").input_value())


def picture(page, where: str) -> bytes:
    return page.locator(where).screenshot()


@in_all_browsers
def test_the_page_says_what_it_shows_and_asks_no_other_host(opened, server, known):
    page, asked, complaints = opened
    about, _, archives = known
    last = about["iterations"][-1]
    fitness = [v for v in archives[chosen_seed(page), last]["fitness"] if v is not None]
    assert page.locator("h1").inner_text() == "run"
    assert "dcg_me on two_links" in page.locator("#about").inner_text()
    status = page.locator("#status").inner_text()
    assert f"iteration {last}: {len(fitness)} of " in status
    assert f"{round(sum(fitness)):,}" in status
    assert all(url.startswith((server.address, "data:,")) for url in asked), asked
    assert errors(complaints) == []
    # The seed that is shown first is the one with the best score.
    scores = {s: sum(v or 0 for v in archives[s, last]["fitness"]) for s in about["seeds"]}
    assert chosen_seed(page) == max(scores, key=scores.__getitem__)


@in_all_browsers
def test_a_button_saves_elite_and_actor_as_a_film(opened, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    assert page.locator("#film").is_disabled()
    cell, share = places(known, seed, last, filled=True)[0]
    click_map(page, share)
    watched(page)
    with page.expect_download() as saved:
        page.locator("#film").click()
    assert saved.value.suggested_filename == f"run_{cell}.gif"
    with Image.open(saved.value.path()) as film:
        assert film.size == (2 * filming.HALF[0], filming.HALF[1])  # two panels
        assert film.n_frames > 20
    assert page.locator("#film").is_enabled()
    assert errors(complaints) == []


@in_all_browsers
def test_a_filled_cell_plays_its_elite_beside_the_distilled_policy(opened, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    cell, share = places(known, seed, last, filled=True)[0]
    click_map(page, share)
    watched(page)
    assert page.locator("#elite-title").inner_text() == f"Elite of cell {cell}"
    elite, actor = numbers(page, "elite"), numbers(page, "actor")
    # The recording repeats the archive exactly: the elite reaches its stored descriptor.
    assert elite["error"] == "0"
    assert elite["descriptor"] == elite["reached"]
    assert "stored" not in elite["fitness"]
    assert actor["requested"] == elite["descriptor"]
    assert elite["steps"] == "100, the whole episode"
    assert float(actor["error"]) >= 0
    # It moves by itself: later frames, other pixels, on both stages.
    page.locator("#frame").fill("0")
    drawn(page)
    before = {who: picture(page, f"#{who}-stage") for who in ("elite", "actor")}
    page.locator("#play").click()
    page.wait_for_function("() => Number(document.getElementById('elite-stage').dataset.frame) > 3")
    for who in ("elite", "actor"):
        assert picture(page, f"#{who}-stage") != before[who]
    assert errors(complaints) == []


def test_play_pause_scrub_and_camera(opened, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    click_map(page, places(known, seed, last, filled=True)[0][1])
    watched(page)
    page.wait_for_function("() => document.getElementById('play').textContent === 'Play'")
    end = int(page.locator("#frame").input_value())
    assert end == int(page.locator("#frame").get_attribute("max")) > 0  # played to its end
    page.locator("#frame").fill(str(end // 2))
    page.wait_for_function(
        "f => Number(document.getElementById('elite-stage').dataset.frame) === f", arg=end // 2
    )
    still = picture(page, "#elite-stage")
    for _ in range(10):
        drawn(page)
    assert page.locator("#elite-stage").get_attribute("data-frame") == str(end // 2)  # paused
    assert picture(page, "#elite-stage") == still
    page.locator("#camera").select_option("fixed")
    drawn(page)
    assert picture(page, "#elite-stage") != still
    page.locator("#elite-stage").focus()
    turned = picture(page, "#actor-stage")
    page.keyboard.press("ArrowLeft")
    drawn(page)
    assert picture(page, "#actor-stage") != turned  # both cameras turn together
    # In one go: however slow the machine is, it does not play to its end in between.
    words = page.evaluate(
        "() => { const play = document.getElementById('play');"
        " return [0, 1].map(() => { play.click(); return play.textContent; }); }"
    )
    assert words == ["Pause", "Play"]
    assert errors(complaints) == []


@in_all_browsers
def test_an_empty_cell_requests_its_descriptor(opened, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    before = picture(page, "#map")
    _, share = places(known, seed, last, filled=False)[0]
    click_map(page, share)
    watched(page)
    low, high = np.array(known[0]["low"]), np.array(known[0]["high"])
    asked = [float(v) for v in numbers(page, "actor")["requested"].split(",")]
    np.testing.assert_allclose(asked, low + np.array(share) * (high - low), atol=0.01)
    assert page.locator("#elite-title").inner_text().startswith("Nearest elite, of cell ")
    page.mouse.move(0, 0)
    assert picture(page, "#map") != before  # asked and reached are drawn
    # The form requests a descriptor by its numbers.
    assert page.locator("#request-numbers label").all_text_contents() == [
        "final x ",
        "final height ",
    ]
    form = page.locator("#request-numbers input")
    write(form.nth(0), "0.5")
    write(form.nth(1), "0.25")
    form.nth(1).press("Enter")
    page.wait_for_function(
        "() => document.getElementById('actor-numbers').textContent.includes('0.5, 0.25')"
    )
    # A filled cell can be requested, too.
    page.get_by_label("requests the descriptor").check()
    click_map(page, places(known, seed, last, filled=True)[0][1])
    watched(page)
    assert numbers(page, "actor")["requested"] != "0.5, 0.25"
    assert page.locator("#actor-title").inner_text() == "Distilled policy, requested descriptor"
    assert errors(complaints) == []


def test_the_time_slider_shows_the_archive_as_it_was(opened, known):
    page, _, complaints = opened
    about, _, archives = known
    seed, first = chosen_seed(page), about["iterations"][0]
    assert first not in about["playable"]
    now = picture(page, "#map")
    page.locator("#iteration").fill("0")
    page.wait_for_function(
        "i => document.getElementById('status').textContent.startsWith(`iteration ${i}:`)",
        arg=first,
    )
    full = sum(v is not None for v in archives[seed, first]["fitness"])
    assert f"iteration {first}: {full} of " in page.locator("#status").inner_text()
    assert picture(page, "#map") != now
    # The policies of that iteration were removed, and the page says so.
    kept = " and ".join(map(str, about["playable"]))
    assert f"Policies are kept for {kept}." in page.locator("#playback-note").inner_text()
    click_map(page, places(known, seed, first, filled=True)[0][1])
    assert f"Policies are kept for {kept}." in page.locator("#message").inner_text()
    assert numbers(page, "elite") == {}
    assert errors(complaints) == []


def test_recordings_belong_to_the_chosen_seed_and_iteration(opened, known):
    """A recording names its seed and iteration, and disappears when another seed is chosen."""
    page, _, complaints = opened
    about = known[0]
    seed, last = chosen_seed(page), about["iterations"][-1]
    cell, share = places(known, seed, last, filled=True)[0]
    click_map(page, share)
    watched(page)
    page.mouse.move(0, 0)
    drawn(page)
    watching = page.locator("#watching").inner_text()
    assert watching == f"cell {cell}, iteration {last}, seed {seed}"
    way = picture(page, "#map")
    page.locator("#iteration").fill(
        "0"
    )  # the trajectory is drawn on the map of its own iteration only
    page.wait_for_function("() => document.getElementById('playback-note').textContent !== ''")
    page.locator("#iteration").fill(str(len(about["iterations"]) - 1))
    page.wait_for_function("() => document.getElementById('playback-note').textContent === ''")
    page.locator("#iteration").blur()
    drawn(page)
    assert picture(page, "#map") == way
    # Choosing another seed cancels a request that has no response yet.
    other = next(number for number in about["seeds"] if number != seed)
    held = []
    page.route("**/api/watch*", lambda route: held.append(route))
    click_map(page, places(known, seed, last, filled=True)[1][1])
    page.wait_for_selector("body[data-watching=waiting]")
    while not held:
        page.wait_for_timeout(10)
    with page.expect_event("requestfailed", lambda request: "/api/watch" in request.url):
        page.locator("#seed").select_option(str(other))
    page.unroute("**/api/watch*")
    drawn(page)
    assert page.locator("#watching").inner_text() == "Click a cell to play its elite."
    assert numbers(page, "elite") == {}
    assert page.locator("#play").is_disabled()
    assert errors(complaints) == []


def test_seeds_colours_filter_and_zoom(opened, known):
    page, _, complaints = opened
    about, _, archives = known
    last = about["iterations"][-1]
    other = next(seed for seed in about["seeds"] if seed != chosen_seed(page))
    page.locator("#seed").select_option(str(other))
    score = f"{round(sum(v or 0 for v in archives[other, last]['fitness'])):,}"
    page.wait_for_function(
        "score => document.getElementById('status').textContent.includes(score)", arg=score
    )
    seen = {picture(page, "#map")}
    for colour in ("actor_error", "origin", "born"):
        page.locator("#colour").select_option(colour)
        drawn(page)
        seen.add(picture(page, "#map"))
    assert len(seen) == 4
    page.locator("#colour").select_option("origin")
    assert "ga (" in page.locator("#legend").inner_text()
    page.locator("#colour").select_option("fitness")
    page.locator("#fitness-low").fill("900")
    drawn(page)
    seen.add(picture(page, "#map"))
    page.locator("#zoom-in").click()
    drawn(page)
    seen.add(picture(page, "#map"))
    assert len(seen) == 6
    assert errors(complaints) == []


@in_all_browsers
def test_hovering_tells_the_values_of_a_cell(opened, known):
    page, _, _ = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    cell, share = places(known, seed, last, filled=True)[-1]
    page.mouse.move(*on_map(page, share))
    tip = page.locator("#tooltip").inner_text()
    fitness = known[2][seed, last]["fitness"][cell]
    assert tip.startswith(f"cell {cell}\n")
    assert "\nfinal x (m): " in tip
    assert "\nfinal height (m): " in tip
    assert f"fitness: {fitness:,.0f}" in tip


def box_of(page, where: str) -> tuple[float, float, float, float]:
    """Return the left, top, right and bottom of an element in the window."""
    box = page.locator(where).bounding_box()
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


def test_the_tooltip_covers_neither_its_cell_nor_the_neighbours(opened, known):
    page, _, _ = opened
    low, high = np.array(known[0]["low"]), np.array(known[0]["high"])
    shares = (np.array(known[1]["centroids"]) - low) / (high - low)
    extremes = [*shares.argmin(0), *shares.argmax(0), np.square(shares - 0.5).sum(1).argmin()]
    for cell in extremes:
        page.mouse.move(*on_map(page, tuple(shares[cell])))
        assert page.locator("#tooltip").inner_text().startswith(f"cell {cell}")
        left, top, right, bottom = box_of(page, "#tooltip")
        assert 0 <= left <= right <= 1280
        assert 0 <= top <= bottom <= 800
        nearest = np.square(shares - shares[cell]).sum(1).argsort()[:4]
        for share in shares[nearest]:
            x, y = on_map(page, tuple(share))
            assert not (left < x < right and top < y < bottom), (cell, share)


def test_light_is_good_and_the_colour_bar_has_ticks(opened, known):
    page, _, _ = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    shares = dict(places(known, seed, last, filled=True))
    page.mouse.move(0, 0)
    for colour, best in (("fitness", max), ("actor_error", min)):
        page.locator("#colour").select_option(colour)
        drawn(page)
        labels = page.locator("#legend .scale span").all_inner_texts()
        assert len(labels) >= 2
        assert [float(label.replace(",", "")) for label in labels] == sorted(
            float(label.replace(",", "")) for label in labels
        )
        values = {cell: known[2][seed, last][colour][cell] for cell in shares}
        worst = {max: min, min: max}[best]
        good, bad = (choose(values, key=values.__getitem__) for choose in (best, worst))
        lights = [sum(page.evaluate(PIXEL, on_map(page, shares[cell]))[:3]) for cell in (good, bad)]
        assert lights[0] > lights[1]


def test_errors_between_elites_colour_empty_cells(server, known):
    """A column that has values for empty cells, too, is shown there."""

    def answer(route):
        archive = route.fetch().json()
        archive["between_error"] = [0.1 + 0.01 * i for i in range(len(archive["fitness"]))]
        route.fulfill(json=archive)

    with browsing() as (page, _, complaints):
        page.route("**/api/archive*", answer)
        page.goto(server.address)
        ready(page)
        seed, last = chosen_seed(page), known[0]["iterations"][-1]
        cells = places(known, seed, last, filled=False)
        at = [on_map(page, share) for _, share in (cells[0], cells[-1])]
        assert page.evaluate(PIXEL, at[0]) == page.evaluate(PIXEL, at[1])
        page.locator("#colour").select_option("between_error")
        drawn(page)
        assert page.evaluate(PIXEL, at[0]) != page.evaluate(PIXEL, at[1])
        page.mouse.move(*at[0])
        said = page.locator("#tooltip").inner_text()
        assert f"cell {cells[0][0]}, empty\ndescriptor error between elites: 0.1" in said
        assert [text for text in errors(complaints) if "getImageData" not in text] == []


def test_the_paths_of_all_elites(opened, server, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    archive = known[2][seed, last]
    filled = [i for i, value in enumerate(archive["fitness"]) if value is not None]
    found = server.json(f"/api/paths?iteration={last}&seed={seed}&start=0")
    assert (found["done"], found["total"], found["next"]) == (len(filled), len(filled), None)
    ends = [path[-1] for path in found["paths"]]
    np.testing.assert_allclose(ends, [archive["descriptors"][i] for i in filled], atol=1e-3)
    assert all(len(path) <= 40 for path in found["paths"])
    before = picture(page, "#map")
    page.locator("#paths").click()
    page.wait_for_function(
        "() => document.getElementById('paths').textContent === 'Hide all paths'"
    )
    page.locator("#paths").blur()
    page.mouse.move(0, 0)
    drawn(page)
    assert picture(page, "#map") != before
    page.locator("#iteration").fill("0")  # hides the paths of another archive
    page.wait_for_function(
        "() => document.getElementById('paths').textContent === 'Show all paths'"
    )
    assert page.locator("#paths").is_disabled()  # the policies of that iteration were removed
    answer = server.get(f"/api/paths?iteration={last}&seed={seed}&start=999")
    assert answer[0] == 404
    assert errors(complaints) == []


@in_all_browsers
def test_a_tour_plays_cells_one_after_the_other(opened, known):
    page, _, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    first, second, third = places(known, seed, last, filled=True)[:3]
    assert page.locator("#tour-play").is_disabled()
    page.keyboard.down("Shift")
    for _, share in (first, second, third):
        click_map(page, share)
    click_map(page, second[1])  # a second click removes it
    page.keyboard.up("Shift")
    assert page.locator("#tour-text").inner_text() == "2 cells"
    assert page.locator("#watching").inner_text() == "Click a cell to play its elite."
    page.locator("#speed").select_option("4")
    page.locator("#tour-play").click()
    for number, (cell, _) in enumerate((first, third), start=1):
        page.wait_for_function(
            "title => document.getElementById('elite-title').textContent === title",
            arg=f"Elite of cell {cell}",
        )
        assert page.locator("#tour-text").inner_text() == f"stop {number} of 2"
    page.wait_for_function("() => document.getElementById('tour-text').textContent === '2 cells'")
    # The keyboard adds cells, too.
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+Enter")
    assert page.locator("#tour-text").inner_text() in ("3 cells", "1 cell")
    page.locator("#tour-clear").click()
    assert page.locator("#tour-text").inner_text() == ""
    assert errors(complaints) == []


@pytest.fixture(scope="module")
def pair(run, tmp_path_factory):
    """Serve a run beside a copy of it that was started at another time, so it is another run."""
    copy = tmp_path_factory.mktemp("pair") / "copy"
    shutil.copytree(run, copy, symlinks=True)
    assert "are the same run" in complaint(elites("view", run, copy, "--no-browser"), 2)
    sessions = json.loads((copy / "environment.json").read_text())
    sessions[0]["time"] = "2020-01-01T00:00:00+00:00"
    (copy / "environment.json").write_text(json.dumps(sessions))
    # The curves of the copy are lower, and end sooner.
    lines = (copy / "metrics.csv").read_text().splitlines()
    place = lines[0].split(",").index("qd_score")
    rows = [line.split(",") for line in lines[1:-4]]
    halved = [[*row[:place], str(float(row[place]) / 2), *row[place + 1 :]] for row in rows]
    (copy / "metrics.csv").write_text("\n".join([lines[0], *map(",".join, halved)]) + "\n")
    with serving(run, copy) as server:
        yield server


@in_all_browsers
def test_two_runs_side_by_side(pair, known, browser):
    with browsing(browser) as (page, asked, complaints):
        page.goto(pair.address)
        ready(page)
        other = pair.json("/api/run")["beside"]
        assert other["name"] == page.locator("#beside-name").inner_text() == "copy"
        assert page.locator("#elite-title").inner_text() == "run: elite"
        assert page.locator("#actor-title").inner_text() == "copy: elite"
        seed, last = chosen_seed(page), known[0]["iterations"][-1]
        page.locator("#beside-seed").select_option(str(seed))
        cell, share = places(known, seed, last, filled=True)[0]
        click_map(page, share)
        watched(page)
        assert page.locator("#elite-title").inner_text() == f"run: elite of cell {cell}"
        assert page.locator("#actor-title").inner_text() == f"copy: elite of cell {cell}"
        assert numbers(page, "elite") == numbers(page, "actor")
        assert any(f"run={other['id']}" in url and "/api/nearest" in url for url in asked)
        # The second map plays, too, and the right stage can show the distilled policy.
        page.locator("#beside-map").focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#selection").inner_text().startswith("cell ")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "t => document.getElementById('actor-title').textContent !== t", arg=f"copy: {cell}"
        )
        page.locator("#right").select_option("actor")
        assert page.locator("#actor-title").inner_text() == "Distilled policy, same descriptor"
        click_map(page, share)
        watched(page)
        assert page.locator("#actor-title").inner_text() == "Distilled policy, same descriptor"
        for width in (1280, 900, 420):
            page.set_viewport_size({"width": width, "height": 800})
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert errors(complaints) == []


PIXELS_OF_COLOUR = """([id, name]) => {
  const canvas = document.getElementById(id), probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { data } = canvas.getContext("2d").getImageData(0, 30, canvas.width, canvas.height - 30);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    found += data[i + 3] > 60 && colour.every((v, k) => Math.abs(data[i + k] - v) < 15);
  }
  return found;
}"""


def test_two_runs_have_two_colours_in_the_learning_curves(pair, opened):
    alone, _, _ = opened
    drawn(alone)
    assert alone.evaluate(PIXELS_OF_COLOUR, ["curve-0", "elite"]) > 0
    assert alone.evaluate(PIXELS_OF_COLOUR, ["curve-0", "actor"]) == 0
    assert alone.locator("#curves-legend").is_hidden()
    with browsing() as (page, _, complaints):
        page.goto(pair.address)
        ready(page)
        assert page.locator("#curves-legend span").all_inner_texts() == ["run", "copy"]
        page.wait_for_function("() => document.getElementById('curve-0').ariaLabel !== null")
        for colour in ("elite", "actor"):
            assert page.evaluate(PIXELS_OF_COLOUR, ["curve-0", colour]) > 0
        first, second = pair.json("/api/run"), pair.json("/api/run")["beside"]
        said = []
        for run, chosen in ((first, "#seed"), (second, "#beside-seed")):
            table = pair.json(f"/api/metrics?after=0&run={run['id']}")
            scores = table["values"]["qd_score"][-1]
            # The seed with the best score is chosen.
            assert run["seeds"][np.argmax(scores)] == int(page.locator(chosen).input_value())
            evaluations = f"{table['evaluations'][-1]:,}"
            said.append(f"{run['name']} {max(scores):,.0f} after {evaluations} evaluations")
        label = page.locator("#curve-0").get_attribute("aria-label")
        assert label == f"QD-score of the chosen seed: {said[0]}, {said[1]}"
        # Another seed of the second run has another curve.
        other = next(seed for seed in second["seeds"] if second["seeds"][np.argmax(scores)] != seed)
        page.locator("#beside-seed").select_option(str(other))
        page.wait_for_function(
            "old => document.getElementById('curve-0').ariaLabel !== old", arg=label
        )
        assert said[0] in page.locator("#curve-0").get_attribute("aria-label")
        assert [text for text in errors(complaints) if "getImageData" not in text] == []


@in_all_browsers
def test_the_keyboard_reaches_everything(opened):
    page, _, complaints = opened
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name"))
    expected = {"seed", "colour", "map", "iteration", "fitness-low", "fitness-high", "mode"}
    expected |= {"request-button", "elite-stage", "actor-stage", "speed", "camera", "curve"}
    expected |= {"paths"}
    assert expected <= reached, expected - reached
    page.locator("#map").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
        if "fitness" in page.locator("#selection").inner_text():
            break
        page.keyboard.press("ArrowUp")
        if "fitness" in page.locator("#selection").inner_text():
            break
    assert "cell " in page.locator("#selection").inner_text()
    page.keyboard.press("Enter")
    watched(page)
    # Every control has a name for screen readers.
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button, canvas[tabindex]')].filter(
            (e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map((e) => e.id)"""
    )
    assert unnamed == []
    assert errors(complaints) == []


@in_all_browsers
def test_nothing_scrolls_sideways_in_the_dark(server, known, browser):
    with browsing(browser, color_scheme="dark") as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(22, 24, 28)"
        seed, last = chosen_seed(page), known[0]["iterations"][-1]
        click_map(page, places(known, seed, last, filled=True)[0][1])
        watched(page)
        for width in (1280, 1024, 901, 900, 420, 320):
            page.set_viewport_size({"width": width, "height": 800})
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            box = page.locator("#map").bounding_box()
            assert box["width"] > 0.3 * width
            assert box["height"] <= 800
        assert errors(complaints) == []


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """Return the path of an exported page with four recordings."""
    path = tmp_path_factory.mktemp("exported") / "page.html"
    done = succeed("view", run, "--export", path, "--rollouts", 4, apart=True, environ=repeating())
    assert "4 recordings" in done.stdout
    return path


@in_all_browsers
def test_an_exported_page_plays_from_the_disk(exported, known, browser):
    with browsing(browser) as (page, asked, complaints):
        page.goto(exported.as_uri())
        ready(page)
        # Chromium reports the page itself, too.
        assert {url for url in asked if not url.startswith("data:")} <= {exported.as_uri()}
        seed, last = chosen_seed(page), known[0]["iterations"][-1]
        record = json.loads(page.locator("#recorded").inner_text())
        start = f"/api/watch?iteration={last}&seed={seed}&cell="
        recorded = {int(key.removeprefix(start)) for key in record if key.startswith(start)}
        filled = dict(places(known, seed, last, filled=True))
        assert len(recorded) == 2
        assert recorded <= set(filled)
        click_map(page, filled[min(recorded)])
        watched(page)
        assert numbers(page, "elite")["error"] == "0"
        page.wait_for_function(
            "() => Number(document.getElementById('elite-stage').dataset.frame) > 3"
        )
        other = next(cell for cell in filled if cell not in recorded)
        click_map(page, filled[other])
        assert "marked cells" in page.locator("#message").inner_text()
        assert numbers(page, "elite")["error"] == "0"  # the playback continues
        # The keyboard reaches the marked cells, too.
        page.locator("#map").focus()
        page.keyboard.press("n")
        following = [cell for cell in sorted(recorded) if cell > other] or sorted(recorded)
        assert page.locator("#selection").inner_text().startswith(f"cell {following[0]},")
        assert "has a recording" in page.locator("#selection").inner_text()
        page.locator("#iteration").fill("0")
        first = known[0]["iterations"][0]
        page.wait_for_function(
            "i => document.getElementById('status').textContent.startsWith(`iteration ${i}:`)",
            arg=first,
        )
        click_map(page, places(known, seed, first, filled=True)[0][1])
        said = page.locator("#message").inner_text()
        assert said.endswith(f"Its recordings are of iteration {last}.")
        assert errors(complaints) == []


def test_iterations_that_the_metrics_lack_are_named(tmp_path):
    path = tmp_path / "run"
    succeed("train", "point_omni", "me", *SMOKE, "--output", path)
    lines = (path / "metrics.csv").read_text().splitlines(keepends=True)
    (path / "metrics.csv").write_text("".join(lines[:3] + lines[5:]))
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        page.wait_for_function("document.getElementById('missing').textContent !== ''")
        said = page.locator("#missing").inner_text()
        assert said == "without iterations 3 to 4, which metrics.csv lacks"
        assert errors(complaints) == []


def test_curves_and_slider_follow_a_run_that_is_training(tmp_path):
    """Another process trains and saves. The open page shows new iterations by itself."""
    path = tmp_path / "run"
    arguments = ("train", "point_omni", "me", *SMOKE, "--checkpoint-every", 1, "--output", path)
    succeed(*arguments, "--evaluations", 96)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        last = int(page.locator("#iteration").get_attribute("max"))
        trained = server.json("/api/metrics?after=0")["iteration"][-1]
        training = started("resume", path, "--evaluations", 320)
        page.wait_for_function(
            "n => Number(document.getElementById('iteration').max) > n", arg=last, timeout=180_000
        )
        page.wait_for_function(
            "n => Number(document.getElementById('iteration').value) > n", arg=last
        )  # it stays at the end
        training.communicate(timeout=180)
        assert training.returncode == 0
        more = server.json(f"/api/metrics?after={trained}")
        assert more["iteration"][0] == trained + 1
        label = f"after {more['evaluations'][-1]:,.0f} evaluations"
        page.wait_for_function(
            "text => document.getElementById('curve-0').ariaLabel?.endsWith(text)", arg=label
        )
        about = server.json("/api/run")
        assert about["planned_iterations"] == about["iterations"][-1]
        page.wait_for_function(
            "n => document.getElementById('iteration-value').textContent === `${n} of ${n}`",
            arg=about["planned_iterations"],
        )
        assert errors(complaints) == []


@pytest.mark.parametrize(("scene", "size"), [("line", 1), ("space", 3)])
def test_other_dimensions_and_tasks_without_a_body(tmp_path, scene, size):
    """The map shows bars in one dimension and pairs of axes in three."""
    path = tmp_path / "run"
    succeed("train", f"{SCENES}:{scene}", "dcg_me", *SMOKE, "--output", path)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        assert page.locator("#elite-stage").is_hidden()
        assert "no body model" in page.locator("#elite-note").inner_text()
        assert page.locator("#axes-label").is_visible() == (size == 3)
        before = picture(page, "#map")
        if size == 3:
            pairs = page.locator("#axes option").all_text_contents()
            assert pairs[0] == "descriptor 1 and descriptor 2"
            page.locator("#axes").select_option("0,2")
            drawn(page)
            assert picture(page, "#map") != before
        inputs = page.locator("#request-numbers input")
        assert inputs.count() == size
        for i in range(size):
            inputs.nth(i).fill("0.25")
        before = picture(page, "#map")
        page.locator("#request-button").click()
        watched(page)
        drawn(page)
        reached = numbers(page, "actor")["reached"].split(",")
        assert len(reached) == size
        assert picture(page, "#map") != before  # asked and reached are drawn
        # A click plays the elite it points at, although the axes have different ranges.
        about, cells = server.json("/api/run"), server.json("/api/cells")
        last = about["iterations"][-1]
        archive = server.json(f"/api/archive?iteration={last}&seed=0")
        cell = next(i for i, value in enumerate(archive["fitness"]) if value is not None)
        at = archive["descriptors"][cell] if size == 3 else cells["centroids"][cell]
        low, high = np.array(about["low"]), np.array(about["high"])
        share = (np.array(at) - low) / (high - low)
        click_map(page, (share[0], share[2] if size == 3 else 0.5))
        page.wait_for_function(
            "title => document.getElementById('elite-title').textContent === title",
            arg=f"Elite of cell {cell}",
        )
        assert errors(complaints) == []


def test_a_click_finds_the_cell_of_unequal_ranges(tmp_path):
    """A click between two centroids plays the elite of the cell that is drawn there."""
    path = tmp_path / "run"
    succeed("train", f"{SCENES}:plane", "me", *SMOKE, "--evaluations", 320, "--output", path)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        about, cells = server.json("/api/run"), server.json("/api/cells")
        archive = server.json(f"/api/archive?iteration={about['iterations'][-1]}&seed=0")
        low, high = np.array(about["low"]), np.array(about["high"])
        centroids = (np.array(cells["centroids"]) - low) / (high - low)
        for share in np.random.default_rng(0).uniform(0.05, 0.95, (1000, 2)):
            away = centroids - share
            cell = int(np.square(away).sum(axis=1).argmin())
            in_task_units = int(np.square(away * (high - low)).sum(axis=1).argmin())
            if cell != in_task_units and archive["fitness"][cell] is not None:
                break
        else:
            raise AssertionError("no position tells the two distances apart")
        click_map(page, tuple(share))
        page.wait_for_function(
            "title => document.getElementById('elite-title').textContent === title",
            arg=f"Elite of cell {cell}",
        )
        assert errors(complaints) == []


def test_the_cells_of_a_grid_are_rectangles(tmp_path):
    """A filled cell has one colour up to its corners, and is found there by the pointer."""
    path = tmp_path / "run"
    task = ("vectors:sphere,dimensions=4", "me", *SMOKE, "--evaluations", 96)
    succeed("train", *task, "--hp.grid", 6, 5, "--output", path)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        cells, about = server.json("/api/cells"), server.json("/api/run")
        assert (cells["grid"], cells["corners"], len(cells["centroids"])) == ([6, 5], None, 30)
        archive = server.json(f"/api/archive?iteration={about['iterations'][-1]}&seed=0")
        filled = [i for i, value in enumerate(archive["fitness"]) if value is not None]
        colours = set()
        for cell in (filled[0], filled[-1], archive["fitness"].index(None)):
            middle = np.array([cell // 5 + 0.5, cell % 5 + 0.5])
            corners = [
                middle + 0.45 * np.array(way) for way in ((-1, -1), (1, -1), (1, 1), (-1, 1))
            ]
            places = [on_map(page, tuple(at / (6, 5))) for at in (middle, *corners)]
            (colour,) = {tuple(page.evaluate(PIXEL, place)) for place in places}
            colours.add(colour)
            page.mouse.move(*places[1])
            assert page.locator("#tooltip").inner_text().startswith(f"cell {cell}")
        assert len(colours) == 3
        # The browser has a hint about the pixels that the test itself reads.
        assert [text for text in errors(complaints) if "getImageData" not in text] == []


def test_an_algorithm_without_a_distilled_policy_says_so(tmp_path):
    path = tmp_path / "run"
    succeed("train", "point_omni", "me", *SMOKE, "--evaluations", 96, "--output", path)
    with serving_here(path) as server, browsing() as (page, _, complaints):
        page.goto(server.address)
        ready(page)
        assert page.locator("#request").is_hidden()
        archive = server.json(
            f"/api/archive?iteration={server.json('/api/run')['iterations'][-1]}&seed=0"
        )
        about, cells = server.json("/api/run"), server.json("/api/cells")
        empty = archive["fitness"].index(None)
        low, high = np.array(about["low"]), np.array(about["high"])
        click_map(page, tuple((np.array(cells["centroids"][empty]) - low) / (high - low)))
        page.wait_for_function("() => !document.getElementById('message').hidden")
        assert "me trains no policy" in page.locator("#message").inner_text()
        assert errors(complaints) == []


def test_the_page_says_that_the_server_has_stopped(run):
    with browsing() as (page, _, _):
        with serving_here(run) as server:
            page.goto(server.address)
            ready(page)
        page.wait_for_function("() => !document.getElementById('message').hidden")
        assert "does not respond" in page.locator("#message").inner_text()


def test_the_run_of_an_open_page_is_never_mixed_with_another(run, tmp_path):
    """When another server uses the same port, the page reloads and shows its run."""
    other = tmp_path / "other"
    succeed("train", "point_omni", "me", *SMOKE, "--output", other)
    said = complaint(elites("view", run, other, "--no-browser"), 2)
    assert "Only runs of one task" in said
    with browsing() as (page, _, _):
        with serving(run) as server:
            page.goto(server.address)
            ready(page)
            assert "two_links" in page.locator("#about").inner_text()
        with serving(other, "--port", server.port):
            page.wait_for_function(
                "() => document.getElementById('about').textContent.includes('point_omni')"
            )
            ready(page)
            assert page.locator("#name").inner_text() == "other"


def touch(page):
    """Return a function that sends touch events with the positions of the fingers."""
    session = page.context.new_cdp_session(page)

    def send(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})

    return send


def test_fingers_move_and_enlarge_map_and_camera(server, known):
    with browsing(viewport={"width": 900, "height": 1200}, has_touch=True) as (page, asked, said):
        page.goto(server.address)
        ready(page)
        send = touch(page)
        before = picture(page, "#map")
        x, y = on_map(page, (0.5, 0.5))
        # Two fingers that do not move request nothing.
        send("Start", (x, y))
        send("Start", (x, y), (x + 90, y))
        send("End", (x, y))
        send("End")
        # Two fingers that move apart zoom in.
        send("Start", (x - 40, y), (x + 40, y))
        for step in range(1, 6):
            send("Move", (x - 40 - 8 * step, y), (x + 40 + 8 * step, y))
        send("End")
        drawn(page)
        large = picture(page, "#map")
        assert large != before
        # One finger moves a map that is zoomed.
        send("Start", (x, y))
        for step in range(1, 6):
            send("Move", (x - 10 * step, y + 2 * step))
        send("End")
        drawn(page)
        assert picture(page, "#map") != large
        assert not [url for url in asked if "/api/watch" in url or "/api/request" in url]
        assert page.evaluate("scrollY") == 0
        page.locator("#zoom-reset").click()
        seed, last = chosen_seed(page), known[0]["iterations"][-1]
        page.touchscreen.tap(*on_map(page, places(known, seed, last, filled=True)[0][1]))
        watched(page)
        page.locator("#play").click()
        page.locator("#frame").fill("10")
        stage = page.locator("#elite-stage")
        stage.scroll_into_view_if_needed()
        drawn(page)
        seen = picture(page, "#elite-stage")
        box = stage.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        send("Start", (x, y))
        for step in range(1, 8):
            send("Move", (x + 12 * step, y))
        send("End")
        drawn(page)
        assert picture(page, "#elite-stage") != seen  # the camera has turned
        assert errors(said) == []


def test_only_the_last_of_quick_clicks_is_simulated(opened, known):
    page, asked, complaints = opened
    seed, last = chosen_seed(page), known[0]["iterations"][-1]
    cells = places(known, seed, last, filled=True)[:6]
    for _, share in cells:
        click_map(page, share)
    watched(page)
    assert page.locator("#elite-title").inner_text() == f"Elite of cell {cells[-1][0]}"
    assert len([url for url in asked if "/api/watch" in url]) == len(cells)
    assert errors(complaints) == []


def test_an_archive_that_cannot_be_read_is_not_another(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    broken = sorted((copy / "snapshots").glob("*.npz"))[0]
    broken.write_bytes(broken.read_bytes()[:100])
    with serving_here(copy) as server, browsing() as (page, _, _):
        page.goto(server.address)
        ready(page)
        page.locator("#iteration").fill("0")
        page.wait_for_function("() => !document.getElementById('message').hidden")
        assert broken.name in page.locator("#message").inner_text()
        said = page.locator("#status").inner_text()
        assert said == f"iteration {int(broken.stem)} cannot be shown"
        page.locator("#iteration").fill("1")
        page.wait_for_function(
            "() => document.getElementById('status').textContent.includes('QD-score')"
        )
