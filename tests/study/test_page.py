"""The report in a real browser: what is shown, what can be chosen, nothing asked of other hosts."""

import pytest

from browser import browsing, needs_browser
from program import succeed

pytestmark = needs_browser

PLAN = """
tasks = ["point_omni"]
algorithms = ["me", "pga_me", "dcg_me"]
seeds = 2
preset = "smoke"
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A small study, and its page."""
    folder = tmp_path_factory.mktemp("page")
    plan, path = folder / "plan.toml", folder / "study"
    plan.write_text(PLAN)
    succeed("study", plan, "--output", path, apart=True)
    succeed("report", path)
    return path / "report" / "report.html"


@pytest.fixture
def opened(report):
    """The page, and what it asked for and complained of."""
    with browsing() as (page, asked, complaints):
        page.goto(report.as_uri())
        yield page, asked, complaints


def test_figures_and_tables_are_there_and_nothing_complains(opened, report):
    text = report.read_text("utf-8")
    for title in ("QD-score of the actor, re-binned", "coverage of the actor, re-binned, in %"):
        assert f"<th scope='row'>dcg_me</th><td>{title}</td>" in text
    page, asked, complaints = opened
    assert complaints == []
    assert asked == [report.as_uri()]
    assert page.locator("h1").inner_text() == "study"
    assert page.locator("section#point_omni figure:visible").count() == 3
    for i in range(3):
        box = page.locator("section#point_omni figure:visible svg").nth(i).bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
    table = page.locator("section#point_omni table").first
    assert "QD-score" in table.inner_text()
    assert "dcg_me" in table.inner_text()
    assert page.get_by_text("Too few seeds to tell").first.is_visible()


def test_curves_can_be_looked_at_over_each_axis(opened):
    page, _, complaints = opened
    for axis in ("environment steps", "wall-clock seconds", "evaluations"):
        page.locator("section#point_omni").get_by_text(f"over {axis}", exact=True).click()
        shown = page.locator("section#point_omni .tabs figure:visible")
        assert shown.count() == 1
        assert shown.get_attribute("aria-label").endswith(f"over {axis}")
    page.locator("section#point_omni .tabs input").first.focus()
    page.keyboard.press("ArrowRight")
    label = page.locator("section#point_omni .tabs figure:visible").get_attribute("aria-label")
    assert label.endswith("over environment steps")
    assert complaints == []


def test_a_narrow_window_does_not_scroll_sideways(opened):
    page, _, _ = opened
    page.set_viewport_size({"width": 420, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_figures_are_dark_in_a_dark_window(opened):
    page, _, _ = opened
    read = "() => getComputedStyle(document.querySelector('figure svg path')).fill"
    assert page.evaluate(read) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(read) == "rgb(27, 29, 33)"
    ink = "() => getComputedStyle(document.querySelector('figure svg use')).fill"
    assert page.evaluate(ink) != "rgb(0, 0, 0)"


def test_details_open(opened):
    page, _, _ = opened
    pairs = page.locator("section#point_omni details", has_text="Other pairs").first
    assert not pairs.get_by_text("first above second").is_visible()
    pairs.locator("summary").click()
    assert pairs.get_by_text("first above second").is_visible()
