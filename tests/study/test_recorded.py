"""Recorded tables and the parts of a plan: how they are read, joined and reported."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from elites.core.hyperparameters import Hyperparameters
from elites.files import RunError
from elites.runs.config import Config
from elites.study import collect, recorded
from elites.study.comparison import comparison_point
from elites.study.groups import SeedResults, distinct
from elites.study.plan import Plan
from elites.study.recorded import Folder
from elites.study.study import Item
from program import complaint, elites, succeed
from written import study

PLAN = """
tasks = ["point_omni", "arm_reach"]
algorithms = ["dcg_me", "pga_me", "me"]
seeds = 4
preset = "smoke"
evaluations = 1_000
"""
COLUMNS = "iteration,seed,qd_score,coverage,max_fitness,evaluations,env_steps,seconds"


def write(folder: Path, name: str, seeds: range, last: int, score: float = 0.0) -> Path:
    """Write a table with a row for every 100 evaluations up to `last`.

    The QD-score is `score`, plus the seed, plus a thousandth of the evaluations.
    """
    lines = [COLUMNS]
    for spent in range(100, last + 1, 100):
        for seed in seeds:
            value = score + seed + spent / 1000
            lines.append(f"{spent // 100},{seed},{value},0.5,{value},{spent},{spent},{spent}.0")
    path = folder / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "tables"
    path.mkdir()
    (path / "plan.toml").write_text(PLAN)
    write(path, "point_omni/dcg_me.seeds_0-3", range(4), 1000, 10.0)
    write(path, "point_omni/pga_me.seeds_0-1", range(2), 500)
    write(path, "point_omni/pga_me.seeds_1-3.1M", range(1, 4), 2000, 5.0)
    write(path, "point_omni/dcg_me.discount_0.9.lengthscale_0.48.seeds_7-8", range(7, 9), 1000)
    return path


def group(path: Path, label: str, task: str = "point_omni"):
    found = collect.collect(Folder(path)).find(task, label)
    assert found is not None
    return found


def test_tables_are_read_by_their_names(folder):
    problems: list[str] = []
    found = Folder(folder).read(problems)
    assert problems == []
    assert {(r.task, r.label, tuple(r.seeds)) for r in found} == {
        ("point_omni", "dcg_me", (0, 1, 2, 3)),
        ("point_omni", "pga_me", (0, 1)),
        ("point_omni", "pga_me", (1, 2, 3)),
        ("point_omni", "dcg_me, discount 0.9, lengthscale 0.48", (7, 8)),
    }
    name = recorded.stem("dcg_me", range(7, 9), ["discount_0.9", "lengthscale_0.48"])
    assert (folder / "point_omni" / f"{name}.csv").exists()
    assert recorded.stem("me", range(4), budget="1M") == "me.seeds_0-3.1M"


def test_a_seed_counts_once_from_the_longest_table(folder):
    found = group(folder, "pga_me")
    assert sorted(found.seeds) == [0, 1, 2, 3]
    # Seed 1 has the values of the longer table, whose scores are higher by 5.
    row = dict(zip(found.seeds, found.curves["qd_score"][0], strict=True))
    assert row == {0: 0.1, 1: 6.1, 2: 7.1, 3: 8.1}
    # Of four seeds, none is left out: they are joined where all have values.
    assert found.curves["evaluations"][-1].tolist() == [500.0] * 4
    assert (found.finished, found.missing) == (3, [0])


def test_a_seed_that_was_stopped_is_left_out_if_four_others_remain(folder):
    write(folder, "point_omni/pga_me.seeds_10-10", range(10, 11), 1000)
    found = group(folder, "pga_me")
    assert sorted(found.seeds) == [1, 2, 3, 10]
    assert found.curves["evaluations"][-1, 0] == 1000  # the plan's budget, not 2000
    assert found.finished == 4


def test_only_planned_seeds_count_as_finished(folder):
    """The plan has the seeds 0 to 3. Others do not stand in for them."""
    write(folder, "arm_reach/me.seeds_10-13", range(10, 14), 1000)
    write(folder, "arm_reach/me.seeds_2-2", range(2, 3), 1000)
    write(folder, "arm_reach/me.seeds_3-3.source_older", range(3, 4), 1000)
    results = collect.collect(Folder(folder))
    found = results.find("arm_reach", "me")
    assert found is not None
    assert (found.finished, found.missing) == (6, [0, 1, 3])
    assert found in results.unfinished
    write(folder, "arm_reach/me.seeds_0-3", range(4), 1000)
    results = collect.collect(Folder(folder))
    assert results.find("arm_reach", "me") not in results.unfinished


def test_the_report_names_the_seeds_that_it_has_instead_of_planned_ones(folder):
    for first in (10, 20):  # a seed of another source may have the same number
        source = f".source_from_{first}" if first > 10 else ""
        write(folder, f"point_omni/me.seeds_10-13{source}", range(10, 14), 1000)
    succeed("report", folder)
    text = (folder / "report" / "report.html").read_text()
    assert "4 seeds each (0 to 3)" in text
    assert (
        "<td>me</td><td>0 of 4 planned seeds finished, results of seeds 10 to 13 after 1,000 "
        "evaluations</td>" in text
    )


def test_a_budget_is_reached_within_a_hundredth(folder):
    path = write(folder, "arm_reach/me.seeds_0-0", range(1), 900)
    path.write_text(path.read_text() + "10,0,50.0,0.5,50.0,995,995,1.0\n")
    assert group(folder, "me", "arm_reach").finished == 1
    path.write_text(path.read_text().replace(",995,995,", ",985,985,"))
    assert group(folder, "me", "arm_reach").finished == 0


def test_re_evaluations_near_the_end_are_final(folder):
    def write_again(spent: int) -> None:
        rows = [f"9,{seed},{spent},1,0.25,{seed}" for seed in range(4)]
        header = "iteration,seed,evaluations,qd_score,descriptor_error,actor_qd_score"
        path = folder / "point_omni" / "dcg_me.seeds_0-3.reevaluations.csv"
        path.write_text("\n".join([header, *rows]) + "\n")

    write_again(1000)
    found = group(folder, "dcg_me")
    assert found.final["actor_qd_score"].tolist() == [0, 1, 2, 3]
    assert found.final["descriptor_error"].tolist() == [0.25] * 4
    write_again(500)
    assert np.isnan(group(folder, "dcg_me").final["actor_qd_score"]).all()


def test_cells_become_an_archive(folder):
    rows = ["seed,cell,fitness,descriptor_0,descriptor_1", "0,3,1.5,0.1,0.2", "2,7,2.5,0.3,0.4"]
    (folder / "point_omni" / "dcg_me.seeds_0-3.cells.csv").write_text("\n".join(rows) + "\n")
    found = group(folder, "dcg_me")
    assert found.archive is not None
    assert found.archive_seed == 2
    (full,) = np.flatnonzero(np.isfinite(found.archive["fitness"][0]))
    assert full == 7
    assert found.archive["descriptors"][0, 7].tolist() == [0.3, 0.4]
    assert found.archive["centroids"].shape == (32, 2)  # of the preset


def test_the_report_says_how_many_evaluations_an_archive_has(folder):
    """Metrics end at the budget of the plan, an archive is that of the end of its run."""
    rows = ["seed,cell,fitness,descriptor_0,descriptor_1", "1,3,1.5,0.1,0.2", "1,7,2.5,0.3,0.4"]
    for name in ("dcg_me.seeds_0-3", "pga_me.seeds_1-3.1M"):
        (folder / "point_omni" / f"{name}.cells.csv").write_text("\n".join(rows) + "\n")
    assert group(folder, "dcg_me").archive_evaluations == 1000
    assert group(folder, "pga_me").archive_evaluations == 2000
    succeed("report", folder)
    text = (folder / "report" / "report.html").read_text()
    # Matplotlib repeats texts of a figure, which are drawn as paths, in comments.
    assert re.findall("<!-- (.* of cells.*) -->", text) == [
        "6.2 % of cells after 1,000",
        "6.2 % of cells after 2,000",
    ]
    assert (
        "Runs of pga_me were trained beyond the budget. Their archives have more evaluations than "
        "the curves and metrics above." in text
    )


def test_a_damaged_table_is_named_and_left_out(folder):
    path = write(folder, "point_omni/me.seeds_0-2", range(2), 500)
    results = collect.collect(Folder(folder))
    assert results.problems == [f"{path}: does not have the seeds 0 to 2 of its name"]
    found = results.find("point_omni", "me")
    assert found is not None
    assert not found.curves


def test_the_report_says_what_is_missing_and_compares_where_all_are(folder):
    succeed("report", folder)
    text = (folder / "report" / "report.html").read_text()
    for row in (
        "<th scope='row'>point_omni</th><td>pga_me</td><td>3 of 4 planned seeds finished, results "
        "of seeds 0 to 3 after 500 evaluations</td>",
        "<th scope='row'>point_omni</th><td>me</td><td>0 of 4 planned seeds finished, no results "
        "yet</td>",
        "<th scope='row'>arm_reach</th><td>dcg_me</td><td>0 of 4 planned seeds finished, no "
        "results yet</td>",
    ):
        assert row in text
    assert "Metrics after 500 evaluations, which all of them have reached" in text
    assert "<th scope='row'>pga_me</th><td>PGA-MAP-Elites</td>" in text
    # The comparison with the paper's algorithm and that with other settings are two families.
    assert (
        "Corrected for 4 comparisons, of which 1 can be made so far: dcg_me against the "
        "algorithms of the paper on 1 task." in text
    )
    assert "Corrected for 1 comparison: dcg_me against the other algorithms on 1 task." in text
    # Two algorithms are tested after the most evaluations that both have.
    section = text[text.index("<h4>QD-score</h4>") :]
    for name, after in (("pga_me", "500"), ("dcg_me, discount 0.9, lengthscale 0.48", "the end")):
        row = rf"<th scope='row'>{name}</th>(<td>[^<]*</td>){{6}}<td>{after}</td>"
        assert re.search(row, section)
    assert "recorded tables pga_me.seeds_0-1.csv, pga_me.seeds_1-3.1M.csv" in text
    assert f"Compute more with <code>elites study {folder / 'plan.toml'}</code>" in text


def test_only_a_study_takes_results_of_other_programs(folder, tmp_path):
    said = complaint(elites("report", folder, "--add", tmp_path / "theirs.csv"), 2)
    assert "is a folder of recorded tables" in said


# ------------------------------------------------------------------------------------ joined parts


def known(item: Item, seed: int, iteration: int) -> float:
    return 100.0 * seed + iteration


SMALL = Plan(("point_omni",), ("me", "pga_me"), seeds=4, preset="smoke")


def test_parts_of_a_plan_are_joined(tmp_path):
    first = study(tmp_path / "first", SMALL, known, [Item("point_omni", "me", 0, 2)])
    items = [Item("point_omni", "me", 1, 3), Item("point_omni", "pga_me", 0, 4)]
    second = study(tmp_path / "second", SMALL, known, items)
    alone, both = collect.collect(first), collect.collect(first, second)
    assert [(g.label, g.finished, g.missing) for g in alone.groups] == [
        ("me", 2, [2, 3]),
        ("pga_me", 0, [0, 1, 2, 3]),
    ]
    assert [(g.label, g.finished, g.missing) for g in both.groups] == [
        ("me", 4, []),
        ("pga_me", 4, []),
    ]
    assert both.groups[0].seeds == [0, 1, 2, 3]
    assert both.groups[0].curves["qd_score"][0].tolist() == [1, 101, 201, 301]
    assert both.unfinished == []
    assert len(alone.unfinished) == 2
    succeed("report", first.path, "--join", second.path)
    text = (first.path / "report" / "report.html").read_text()
    assert "unfinished" not in text
    assert re.search(r"pga_me</th><td>QD-score</td>.*?<td>4</td></tr>", text)


def write_beside(table: Path, kind: str, header: str, rows: list[str]) -> Path:
    """Write another table of a run beside its metrics, and return its path."""
    path = table.with_name(f"{table.stem}.{kind}.csv")
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_the_evaluation_of_a_new_process_counts_if_it_is_the_last(folder):
    table = write(folder, "arm_reach/me.seeds_0-1", range(2), 1000)
    own = "iteration,seed,evaluations,qd_score,descriptor_error"
    write_beside(table, "reevaluations", own, ["5,0,500,1,0.5", "5,1,500,2,0.5"])
    new = "seed,iteration,qd_score,reevaluated_qd_score,descriptor_error"
    write_beside(table, "new_process", new, ["0,10,9,3,0", "1,10,9,4,0"])

    def recording():
        (found,) = [r for r in Folder(folder).read([]) if r.path == table]
        return found

    found = recording()
    assert found.own_reevaluations["descriptor_error"].tolist() == [[0.5, 0.5]]
    assert found.new_process["evaluations"].tolist() == [[1000, 1000]]
    assert found.reevaluations["evaluations"].tolist() == [[500, 500], [1000, 1000]]
    assert found.reevaluations["qd_score"].tolist() == [[1, 2], [3, 4]]
    assert group(folder, "me", "arm_reach").final["descriptor_error"].tolist() == [0, 0]
    write_beside(table, "reevaluations", own, ["10,0,1000,1,0.25", "10,1,1000,2,0.25"])
    assert recording().reevaluations["qd_score"].tolist() == [[1, 2]]
    write_beside(table, "new_process", new, ["0,11,9,3,0", "1,11,9,4,0"])
    with pytest.raises(RunError, match=r"new_process\.csv: is of iteration 11, which me\.seeds"):
        _ = dataclasses.replace(recording(), unreadable=()).new_process


def test_a_damaged_re_evaluation_is_named_and_the_rest_of_the_run_is_shown(folder):
    table = write(folder, "arm_reach/me.seeds_0-1", range(2), 1000)
    own = "iteration,seed,evaluations,qd_score,descriptor_error"
    good = write_beside(table, "reevaluations", own, ["9,0,1000,1,0.5", "9,1,1000,2,0.5"])
    damaged = write_beside(table, "new_process", "garbage", [])
    other = write(folder, "arm_reach/pga_me.seeds_0-1", range(2), 1000)
    also = write_beside(other, "reevaluations", "garbage", [])
    results = collect.collect(Folder(folder))
    assert [text.split(": ")[0] for text in results.problems] == [str(damaged), str(also)]
    found = results.find("arm_reach", "me")
    assert found is not None
    assert good.exists()
    assert found.final["descriptor_error"].tolist() == [0.5, 0.5]
    assert found.curves["qd_score"].shape[1] == 2
    succeed("report", folder)
    assert f"<li>{damaged}: " in (folder / "report" / "report.html").read_text()


def test_the_archive_with_the_highest_qd_score_above_the_offset_is_shown(folder):
    """Seed 0 has the higher sum of fitness, but seed 1 has more elites above the offset."""
    text = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(f"{text}[hp]\nqd_offset = -10.0\n")
    rows = ["seed,cell,fitness,descriptor_0,descriptor_1",
            "0,3,-1,0.1,0.2", "1,3,-2,0.1,0.2", "1,7,-3,0.3,0.4"]  # fmt: skip
    (folder / "point_omni" / "dcg_me.seeds_0-3.cells.csv").write_text("\n".join(rows) + "\n")
    found = group(folder, "dcg_me")
    assert found.archive_seed == 1
    assert found.facts["qd_offset"] == -10


def test_an_archive_has_the_cells_of_its_own_configuration(folder):
    rows = ["seed,cell,fitness,descriptor_0,descriptor_1", "2,7,2.5,0.3,0.4"]
    stem = folder / "point_omni" / "dcg_me.seeds_0-3"
    Path(f"{stem}.cells.csv").write_text("\n".join(rows) + "\n")
    hp = Hyperparameters(cells=16)
    config = Config(task="point_omni", algorithm="dcg_me", seeds=4, evaluations=1000, hp=hp)
    Path(f"{stem}.config.json").write_text(json.dumps(config.to_json()))
    found = group(folder, "dcg_me")
    assert found.archive is not None
    assert found.archive["centroids"].shape == (16, 2)


def test_a_report_does_not_execute_the_file_of_a_task(folder, tmp_path):
    """Tables of a task in a file are shown without the file, and without archives."""
    (folder / "plan.toml").write_text(
        f'tasks = ["{tmp_path}/gone.py:mine"]\nalgorithms = ["me"]\nseeds = 2\nevaluations = 1000\n'
    )
    table = write(folder, "mine/me.seeds_0-1", range(2), 1000)
    cells = write_beside(
        table, "cells", "seed,cell,fitness,descriptor_0,descriptor_1", ["0,1,2,3,4"]
    )
    results = collect.collect(Folder(folder))
    assert results.problems == [
        f"{cells}: archives of {tmp_path}/gone.py:mine cannot be drawn from tables, because a "
        "report does not execute the file of a task"
    ]
    found = results.find("mine", "me")
    assert found is not None
    assert found.finished == 2


def test_finished_parts_with_the_same_budget_are_compared_at_the_end(tmp_path):
    """One plan names the budget that the preset has in the other. Each has two of the seeds."""
    small = dataclasses.replace(SMALL, seeds=2)
    theirs = dataclasses.replace(small, first_seed=2, evaluations=small.budget("point_omni"))
    first, second = (study(tmp_path / n, p, known) for n, p in (("1", small), ("2", theirs)))
    results = collect.collect(first, second)
    assert [(g.label, g.finished, g.stopped) for g in results.groups] == [
        ("me", 4, []),
        ("pga_me", 4, []),
    ]
    point = comparison_point(results.of("point_omni"))
    assert point is not None
    assert point.text == "at the end"


def test_results_outside_the_plan_that_were_stopped_early_are_named_and_shorten_no_table(folder):
    (folder / "point_omni" / "pga_me.seeds_0-1.csv").unlink()
    write(folder, "point_omni/pga_me.seeds_0-3", range(4), 1000)
    write(folder, "point_omni/me.seeds_0-3", range(4), 1000)
    write(folder, "point_omni/dcrl_me.seeds_0-1", range(2), 300)
    results = collect.collect(Folder(folder))
    assert [g.label for g in results.unfinished if g.task == "point_omni"] == ["dcrl_me"]
    assert "dcrl_me" not in [g.label for g in results.tabled("point_omni")]
    succeed("report", folder)
    text = (folder / "report" / "report.html").read_text()
    assert (
        "<td>dcrl_me</td><td>not in the plan, results of seeds 0 to 1 after 300 evaluations</td>"
        in text
    )
    assert "<h3>Metrics at the end" in text


def test_a_study_with_other_settings_is_not_joined(tmp_path):
    first = study(tmp_path / "first", SMALL, known)
    longer = dataclasses.replace(SMALL, evaluations=640)
    second = study(tmp_path / "second", longer, known)
    said = complaint(elites("report", first.path, "--join", second.path), 2)
    assert "cannot be joined, it has other settings: evaluations is 640, not None" in said


def test_recorded_tables_with_other_settings_are_not_joined(folder, tmp_path):
    first = study(tmp_path / "first", SMALL, known)
    (folder / "plan.toml").write_text(f"{PLAN}[hp]\ndiscount = 0.5\n")
    with pytest.raises(ValueError, match=r"tables: cannot be joined, it has other settings: hp is"):
        collect.collect(first, Folder(folder))
    said = complaint(elites("report", first.path, "--join", folder), 2)
    assert "cannot be joined, it has other settings: hp is {'discount': 0.5}, not {}" in said


def test_recorded_tables_are_joined_up_to_the_budget_of_the_first_plan(folder, tmp_path):
    """The tables have up to 2,000 evaluations, and the plan of the study has about 320."""
    first = study(tmp_path / "first", SMALL, known, [Item("point_omni", "me", 0, 4)])
    budget = SMALL.budget("point_omni")
    assert budget < 400
    found = collect.collect(first, Folder(folder)).find("point_omni", "pga_me")
    assert found is not None
    assert found.budgets == {budget}
    assert found.curves["evaluations"][:, 0].tolist() == list(range(100, budget + 1, 100))


def test_tables_of_tasks_that_the_first_plan_lacks_are_left_out(folder, tmp_path):
    write(folder, "arm_reach/me.seeds_0-3", range(4), 1000)
    first = study(tmp_path / "first", SMALL, known)
    results = collect.collect(first, Folder(folder))
    assert results.tasks == ["point_omni"]
    assert results.problems == []
    assert group(folder, "me", "arm_reach").seeds == [0, 1, 2, 3]  # of its own plan


def test_a_finished_run_is_preferred_to_a_longer_one():
    def part(seeds: list[int], last: float, done: bool) -> SeedResults:
        curves = {"evaluations": np.full((1, len(seeds)), last), "seed": np.array([seeds])}
        return SeedResults(seeds, curves, {"qd_score": np.array(seeds)} if done else None)

    other = dataclasses.replace(part([2], 50, False), source="older")
    both = distinct([part([2], 100, True), other])
    assert [(p.source, p.seeds) for p in both] == [("", [2]), ("older", [2])]
    kept = distinct([part([0, 1, 2], 900, False), part([2, 3], 100, True), part([1], 950, False)])
    assert [(p.seeds, p.last, p.final is None) for p in kept] == [
        ([0], 900.0, True),
        ([2, 3], 100.0, False),
        ([1], 950.0, True),
    ]
