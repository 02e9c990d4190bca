"""The report of studies whose numbers are known: what the page says of them."""

from __future__ import annotations

import re
from pathlib import Path

from program import succeed
from written import study

from elites.study.plan import Plan
from elites.study.study import Item


def page(path: Path) -> str:
    succeed("report", path)
    return (path / "report" / "report.html").read_text()


# ------------------------------------------------------------------------------------------- tests

RANKS = {"me": 1, "dcg_me": 3, "pga_me": 2}


def ranked(item: Item, seed: int, iteration: int) -> float:
    """Every seed of the better algorithm is above every seed of the worse."""
    return 100.0 * RANKS[item.algorithm] + seed + iteration


def test_dcg_me_is_compared_with_the_others_over_all_tasks(tmp_path):
    plan = Plan(("point_omni", "arm_reach"), ("me", "dcg_me", "pga_me"), seeds=8, preset="smoke")
    study(tmp_path / "study", plan, ranked)
    text = page(tmp_path / "study")
    assert "rank-sum test: dcg_me against each other algorithm" in text
    note = "Corrected for 4 comparisons: dcg_me against the others on 2 tasks."
    assert text.count(note) == 3 * 2  # each metric of each task
    # Two samples of eight, apart: p is 2 / (16 choose 8) = 0.000155, and four times that.
    row = r"<th scope='row'>{}</th><td>0\.0002</td><td>0\.0006</td><td>0\.0006</td>"
    for task in ("point_omni", "arm_reach"):
        section = re.findall(rf'<section id="{task}">.*?</section>', text, re.DOTALL)[0]
        for other in ("me", "pga_me"):
            assert len(re.findall(row.format(other), section)) == 2  # QD-score, maximum fitness
        assert "Other pairs, not corrected" in section


def test_without_dcg_me_the_first_algorithm_is_the_reference(tmp_path):
    plan = Plan(("point_omni",), ("pga_me", "me"), seeds=3, preset="smoke")
    study(tmp_path / "study", plan, ranked)
    text = page(tmp_path / "study")
    assert "pga_me, the first algorithm of the plan, against each other algorithm" in text
    assert "Corrected for 1 comparison: pga_me against the others on 1 task." in text


def test_a_single_algorithm_is_not_tested(tmp_path):
    plan = Plan(("point_omni", "arm_reach"), ("me",), seeds=3, preset="smoke")
    study(tmp_path / "study", plan, ranked)
    text = page(tmp_path / "study")
    assert "Metrics at the end" in text
    assert "Rank-sum" not in text
    assert "Corrected" not in text
