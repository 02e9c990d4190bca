"""The results page: it agrees with the recorded tables, and says what is missing."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from elites.runs import directory as directories
from elites.study import statistics
from elites.study.plan import Plan
from elites.study.recorded import Folder
from elites.study.study import Item
from written import study

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scripts():
    """Return the modules of benchmarks/results.py."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import results
        import results_claims
        import results_data
        import results_sections
    finally:
        sys.path.pop(0)
    return results, results_data, results_sections, results_claims


@pytest.fixture(scope="module")
def data(scripts):
    return scripts[1].read()


def test_the_pages_agree_with_the_tables(scripts, data):
    results, _, sections, _ = scripts
    for path, texts in sections.page(data).items():
        current = path.read_text("utf-8")
        assert results.replaced(path, texts) == current, (
            f"{path.relative_to(ROOT)} does not agree with the tables in docs/results. "
            "Run 'python benchmarks/results.py'"
        )


def test_the_script_checks_the_pages(scripts, data, monkeypatch, capsys):
    results, _, sections, _ = scripts
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    assert results.main() == 0
    monkeypatch.setattr(sections, "million", lambda data: "something else")
    assert results.main() == 1
    assert "README.md does not agree with the tables" in capsys.readouterr().out


def test_the_images_of_the_page_exist(scripts):
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    for name in ("million", "related", *scripts[1].TITLES):
        assert f"images/results_{name}.png" in page
        assert (ROOT / "docs" / "images" / f"results_{name}.png").exists()


def test_every_table_is_read(data):
    folder = ROOT / "docs" / "results"
    tables = {path for path in folder.glob("*_*/*.csv") if path.stem.split(".")[-1] not in KINDS}
    assert {r.path for r in data.recordings} == tables


KINDS = ("reevaluations", "distilled", "cells", "new_process")


def test_the_plans_name_the_tasks_and_algorithms_of_the_issue(data):
    plan = Folder(ROOT / "docs" / "results").plan()
    assert (len(plan.tasks), len(plan.algorithms), plan.seeds) == (4, 10, 8)
    assert plan.evaluations == 256_000


def test_medians_of_the_page_by_hand(scripts, data):
    group = data.full.find("ant_omni", "dcg_me")
    assert group.seeds == list(range(6))
    rows = (ROOT / "docs/results/ant_omni/dcg_me.seeds_0-5.1M.csv").read_text().splitlines()
    last = [float(row.split(",")[2]) for row in rows[-6:]]
    assert f"{np.median(last) / 1e5:.2f} (" in scripts[2].paper(data)


def test_a_claim_is_tested_where_there_are_results(scripts, data):
    _, values, _, claims = scripts
    pair = values.pair(data.early, "ant_omni", "dcg_me", "pga_me", "qd_score")
    expected = statistics.rank_sum(pair.first, pair.second)[0]
    assert pair.comparison.p == expected < 0.005
    claim = claims.CLAIMS[0]
    assert claims._verdict(data, claim, "ant_omni").startswith("**holds** after 90k (p = ")
    missing = dataclasses.replace(data.early, groups=[])
    empty = data._replace(early=missing, planned=data.planned, full=missing)
    nothing = claim._replace(second="no_such_algorithm")
    assert claims._verdict(empty, nothing, "ant_omni") == "not run yet"


def test_p_values_of_the_page_by_hand(scripts, data):
    """Read two tables, and compute the test of AntTrap-Omni with SciPy and the planned family."""

    def scores(*names: str) -> list[float]:
        found = []
        for name in names:
            path = ROOT / "docs/results/anttrap_omni" / f"{name}.csv"
            with path.open(newline="") as file:
                rows = [r for r in csv.DictReader(file) if r["evaluations"] == "89856"]
            found += [float(row["qd_score"]) for row in rows]
        return found

    ours = scores("dcg_me.seeds_400-407", "dcg_me.seeds_800-805.1M")
    theirs = scores("pga_me.seeds_800-807")
    assert (len(ours), len(theirs)) == (14, 8)
    p = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
    section = scripts[2].tests(data, data.early, 0)
    (row,) = [r for r in section.splitlines() if r.startswith("| AntTrap-Omni | `pga_me` |")]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[4] == "14 and 8"
    assert float(cells[6]) == pytest.approx(p, rel=0.06)
    assert float(cells[7]) == pytest.approx(28 * p, rel=0.06)  # 7 algorithms on 4 tasks


def test_seeds_of_a_source_with_other_random_numbers_count_in_addition(scripts, data):
    group = data.planned.find("ant_omni", "dcg_me")
    keys = list(zip(group.sources, group.seeds, strict=True))
    assert len(keys) == len(set(keys)) == 10
    assert scripts[2].seed_numbers(group) == "0 to 5 and 0 to 3 of 4df66d0"


def test_a_page_that_differs_is_noticed(scripts, tmp_path):
    results = scripts[0]
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- begin x -->\n\nold\n\n<!-- end x -->\n| <!-- begin y --><!-- end y -->"
    )
    new = results.replaced(page, {"x": "new", "y": "1"})
    assert new == (
        "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\n| <!-- begin y -->1<!-- end y -->"
    )
    with pytest.raises(ValueError, match="has no place '<!-- begin z -->'"):
        results.replaced(page, {"z": ""})


def test_a_run_is_added_by_its_tables(scripts, tmp_path, monkeypatch):
    adding = scripts[0].adding
    monkeypatch.setattr(adding, "LONG", 8)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "plan.toml").write_text(
        'tasks = ["point_omni"]\nalgorithms = ["me"]\nseeds = 2\nevaluations = 320\n'
    )
    plan = Plan(("point_omni",), ("me",), seeds=2, evaluations=320, hp={"discount": 0.5})
    item = Item("point_omni", "me", 0, 2)
    made = study(tmp_path / "study", plan, lambda item, seed, i: 10.0 * seed + i, [item])
    run = made.run(item)
    versions = {"elites": "1", "commit": "c", "python": "3", "jax": "1.2", "device": "GPU"}
    rest = {"command": "/secret/elites", "time": "now", "backend": "gpu", "platform": "Linux"}
    sessions = [{**rest, **versions, "jaxlib": "1.2", "numpy": "2", "optax": "0"}]
    directories.write_json(run / directories.ENVIRONMENT, sessions)
    (run.evaluation / "cells.csv").write_text(
        "seed,iteration,cell,fitness,descriptor_0,descriptor_error\n0,9,1,2,3,4\n1,9,5,6,7,8\n"
    )
    table = adding.add(tmp_path / "tables", [run])
    assert table == tmp_path / "tables/point_omni/me.discount_0.5.seeds_0-1.csv"
    iterations = [row["iteration"] for row in adding.rows_of(table)]
    assert iterations == ["1", "1", "9", "9"]  # the first and the last
    stem = table.with_suffix("")
    assert adding.rows_of(Path(f"{stem}.cells.csv")) == [
        {"seed": "1", "iteration": "9", "cell": "5", "fitness": "6", "descriptor_0": "7"}
    ]
    kept = json.loads(Path(f"{stem}.environment.json").read_text())
    assert kept == [versions]
