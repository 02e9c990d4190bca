"""The report of studies whose numbers are known: what the page says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elites.study import collect
from elites.study.plan import Plan
from elites.study.study import Item
from program import complaint, edit_json, elites, succeed
from written import study


def page(path: Path) -> str:
    succeed("report", path)
    return (path / "report" / "report.html").read_text()


# ------------------------------------------------------------------------------------ missing rows


def known(item: Item, seed: int, iteration: int) -> float:
    """A score that tells its seed and iteration."""
    return 100.0 * seed + iteration


def drop(run: Path, *iterations: int) -> None:
    """Remove iterations from the metrics of a run."""
    header, *lines = (run / "metrics.csv").read_text().splitlines()
    kept = [line for line in lines if int(line.split(",")[0]) not in iterations]
    (run / "metrics.csv").write_text("\n".join([header, *kept]) + "\n")


def test_seeds_of_several_runs_are_joined_by_evaluations(tmp_path):
    plan = Plan(("point_omni",), ("me",), seeds=4, preset="smoke")
    halves = [Item("point_omni", "me", 0, 2), Item("point_omni", "me", 2, 2)]
    made = study(tmp_path / "study", plan, known, halves)
    drop(made.run(halves[0]).path, 4, 5, 6)
    drop(made.run(halves[1]).path, 2)
    results = collect.collect(made)
    assert results.problems == [
        f"{halves[0].name}: iterations 4 to 6, which metrics.csv lacks",
        f"{halves[1].name}: iteration 2, which metrics.csv lacks",
    ]
    (group,) = results.groups
    kept = [1, 3, 7, 8, 9]
    assert group.curves["iteration"].tolist() == [[i] * 4 for i in kept]
    assert group.curves["evaluations"].tolist() == [[32 * (i + 1)] * 4 for i in kept]
    assert group.curves["qd_score"].tolist() == [[100 * s + i for s in range(4)] for i in kept]
    assert "iterations 4 to 6, which metrics.csv lacks" in page(made.path)


def test_runs_without_common_evaluations_have_no_curves(tmp_path):
    plan = Plan(("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke")
    halves = [Item("point_omni", "me", 0, 1), Item("point_omni", "me", 1, 1)]
    other = Item("point_omni", "pga_me", 0, 2)
    made = study(tmp_path / "study", plan, known, [*halves, other])
    drop(made.run(halves[0]).path, *range(1, 5))
    drop(made.run(halves[1]).path, *range(5, 10))
    text = page(made.path)
    assert "curves of me on point_omni: its runs have no evaluations in common" in text
    assert "Metrics at the end" in text  # which is known all the same


def test_a_run_without_metrics_still_has_its_end(tmp_path):
    plan = Plan(("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke")
    made = study(tmp_path / "study", plan, known)
    (made.run(made.items()[0]) / "metrics.csv").unlink()
    text = page(made.path)
    assert "iterations 1 to 9, which metrics.csv lacks" in text
    assert "unfinished" not in text
    assert "Metrics at the end" in text
    assert "<th scope='row'>me</th><td>QD-score</td><td>59</td>" in text


def test_algorithms_are_not_compared_within_a_gap(tmp_path):
    plan = Plan(("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke")
    made = study(tmp_path / "study", plan, known)
    first, second = (made.run(item) for item in made.items())
    (first / "summary.md").unlink()  # still at work
    drop(first.path, 7, 8, 9)
    drop(second.path, 5, 6, 7)
    text = page(made.path)
    # Iteration 6 is the last of the first; the second has none between 4 and 8.
    assert f"Metrics after {32 * 5} evaluations, which all of them have reached" in text
    for name in ("me", "pga_me"):
        assert f"<th scope='row'>{name}</th><td>QD-score</td><td>54</td>" in text


def test_results_of_another_program_are_interpolated_between_their_points(tmp_path):
    plan = Plan(("point_omni",), ("me",), seeds=2, preset="smoke")
    made = study(tmp_path / "study", plan, known)
    foreign = tmp_path / "theirs.csv"
    foreign.write_text("evaluations,metric,value\n64,qd_score,0\n1088,qd_score,1024\n")
    succeed("report", made.path, "--add", foreign)
    text = (made.path / "report" / "report.html").read_text()
    assert "Metrics after 320 evaluations" in text
    assert "The archives of this study have 32 cells" in text
    assert "<th scope='row'>theirs</th><td>QD-score</td><td>256</td>" in text


@pytest.mark.parametrize("name", ["base", "base.txt", "base.CSV"])
def test_results_of_another_program_may_have_any_file_name(tmp_path, name):
    plan = Plan(("point_omni",), ("me",), seeds=2, preset="smoke")
    made = study(tmp_path / "study", plan, known)
    foreign = tmp_path / name
    foreign.write_text("evaluations,metric,value\n64,qd_score,0\n1088,qd_score,1024\n")
    collect.add_imported(made, foreign)
    collect.add_imported(made, foreign)  # the same once more
    results = collect.collect(made)
    assert results.problems == []
    assert [group.label for group in results.groups] == ["me", "base"]


def test_a_run_that_was_trained_longer_is_compared_where_the_others_ended(tmp_path):
    plan = Plan(("point_omni",), ("me", "pga_me"), seeds=2, preset="smoke")
    made = study(tmp_path / "study", plan, known)
    run = made.run(made.items()[0])
    edit_json(run / "config.json", lambda config: config.update(evaluations=32 * 10 + 1000))
    assert "Metrics after 320 evaluations" in page(made.path)


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


def test_an_algorithm_of_ones_own_can_be_the_reference(tmp_path):
    plan = Plan(("point_omni",), ("/somewhere/own.py:mine", "me"), seeds=3, preset="smoke")
    study(tmp_path / "study", plan, known)
    text = page(tmp_path / "study")
    assert "mine, the first algorithm of the plan, against each other algorithm" in text
    assert "Corrected for 1 comparison: mine against the others on 1 task." in text
    assert "not corrected" not in text


def test_a_single_algorithm_is_not_tested(tmp_path):
    plan = Plan(("point_omni", "arm_reach"), ("me",), seeds=3, preset="smoke")
    study(tmp_path / "study", plan, ranked)
    text = page(tmp_path / "study")
    assert "Metrics at the end" in text
    assert "Rank-sum" not in text
    assert "Corrected" not in text


def test_any_text_is_shown_as_text(tmp_path):
    plan = Plan(("point_omni",), ("me",), seeds=2, preset="smoke")
    made = study(tmp_path / "a <b> \x1b[2J \u202e", plan, known)
    label = "<script>alert(1)</script> {} %s $x$ \x9b31m \u202e" + 3000 * "w"
    foreign = tmp_path / "theirs.csv"
    rows = [f"{32 * i},qd_score,{i},point_omni,{label},0" for i in range(1, 10)]
    foreign.write_text("\n".join(["evaluations,metric,value,task,label,seed", *rows]) + "\n")
    succeed("report", made.path, "--add", foreign)
    text = (made.path / "report" / "report.html").read_text("utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; {} %s $x$ \\x9b31m \\u202ewww" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    for unprintable in ("\x1b[31m", "\x00"):
        foreign.write_text(f"evaluations,metric,value,label\n32,qd_score,1,a{unprintable}\n")
        said = complaint(elites("report", made.path, "--add", foreign), 2)
        assert "line 2: has a control character" in said
