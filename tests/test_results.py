"""The results page: it agrees with the recorded tables, and says what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from elites.runs import directory as directories
from elites.study import significance, statistics
from elites.study.groups import Group
from elites.study.plan import Plan
from elites.study.recorded import Folder
from elites.study.study import Item
from result_tables import ROOT, cells_of, page_scripts, rows_of
from written import study


@pytest.fixture(scope="module")
def scripts():
    """Return the modules of benchmarks/results.py."""
    return page_scripts()


@pytest.fixture(scope="module")
def data(scripts):
    return scripts.data.read()


def test_the_pages_agree_with_the_tables(scripts, data):
    for path, texts in scripts.sections.page(data).items():
        current = path.read_text("utf-8")
        assert scripts.results.replaced(path, texts) == current, (
            f"{path.relative_to(ROOT)} does not agree with the tables in docs/results. "
            "Run 'python benchmarks/results.py'"
        )


def test_the_script_checks_the_pages(scripts, data, monkeypatch, capsys):
    main = scripts.results.main
    image = ROOT / "docs" / "images" / "results_million.png"
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    monkeypatch.setattr(scripts.figures, "stale", lambda data: [])
    assert main() == 0
    monkeypatch.setattr(scripts.sections, "million", lambda data: "something else")
    monkeypatch.setattr(scripts.figures, "stale", lambda data: [image])
    assert main() == 1
    said = capsys.readouterr().out
    assert "README.md does not agree with the tables" in said
    assert "docs/images/results_million.png does not agree with the tables" in said


def test_the_images_show_the_tables_and_are_on_a_page(scripts, data):
    """Each image has a digest of its lines, areas, cells and texts. All are drawn again here."""
    digest = scripts.figures._digest
    pages = "".join(
        (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("results", "progress")
    )
    drawn = 0
    for path, figure in scripts.figures._drawn(data):
        assert f"images/{path.name}" in pages
        found = digest(figure)
        assert scripts.figures._recorded_digest(path) == found, (
            f"{path.name} does not show the tables. Run 'python benchmarks/results.py'"
        )
        panel = figure.axes[0]  # a digest that never changed would prove nothing
        if "archives" in path.name:
            cells = max(panel.collections, key=lambda each: len(each.get_paths()))
            colours = cells.get_facecolor().copy()
            colours[0, 0] += 0.01
            cells.set_facecolor(colours)
        else:
            panel.lines[0].set_ydata(1.01 * np.asarray(panel.lines[0].get_ydata()))
        assert digest(figure) != found
        drawn += 1
    assert drawn == 2 * len(scripts.data.TITLES) + 3


def test_every_table_is_read(data):
    folder = ROOT / "docs" / "results"
    tables = {path for path in folder.glob("*_*/*.csv") if path.stem.split(".")[-1] not in KINDS}
    assert {r.path for r in data.recordings} == tables


KINDS = ("reevaluations", "distilled", "cells", "new_process")


def test_the_plans_keep_models_and_have_the_seeds_of_the_page():
    folder = ROOT / "docs" / "results"
    plan, full, related = (Folder(folder, file=f"{name}.toml").plan()
                           for name in ("plan", "full", "related"))  # fmt: skip
    assert {some.keep_elites for some in (plan, full, related)} == {64}
    assert set(full.tasks) == set(plan.tasks)
    assert set(full.algorithms) <= set(plan.algorithms)
    assert full.evaluations == 1_000_000
    assert set(plan.seed_numbers) <= set(full.seed_numbers)


def test_the_plan_has_the_tasks_and_algorithms_of_the_comparison(data):
    plan = Folder(ROOT / "docs" / "results").plan()
    assert (len(plan.tasks), len(plan.algorithms), plan.seeds) == (4, 10, 8)
    assert plan.evaluations == 256_000


def test_medians_of_the_page_by_hand(scripts, data):
    group = data.full.find("ant_omni", "dcg_me")
    assert group.seeds == list(range(6))
    last = [float(row["qd_score"]) for row in rows_of("ant_omni/dcg_me.seeds_0-5.1M")[-6:]]
    assert f"{np.median(last) / 1e5:.2f} (" in scripts.sections.paper(data)
    assert cells_of(scripts.sections.million(data), "`dcg_me`")[1] == (
        f"{np.median(last) / 1e5:.1f}, 6 seeds"
    )


def test_a_run_below_its_budget_says_so(scripts):
    def group(last: int) -> Group:
        curves = {"evaluations": np.full((1, 4), last), "qd_score": np.full((1, 4), 2e5)}
        return Group("ant_omni", "me", seeds=[0, 1, 2, 3], curves=curves)

    assert scripts.data.reached(group(253_500), 256_000) == "253,500"  # within a hundredth
    assert scripts.data.reached(group(192_256), 256_000) == "192,256 of 256,000"
    assert scripts.sections._score(group(1_000_192)) == "2.0, 4 seeds"
    assert scripts.sections._score(group(877_568)) == "2.0, 4 seeds, only 877,568 evaluations"


# --------------------------------------------------------------------------------- tests and claims


def scores_on_anttrap(*names: str) -> list[float]:
    """Return the QD-scores after 89,856 evaluations of all seeds of some tables."""
    rows = [row for name in names for row in rows_of(f"anttrap_omni/{name}")]
    return [float(row["qd_score"]) for row in rows if row["evaluations"] == "89856"]


def test_p_values_of_the_page_by_hand(scripts, data):
    """Read two tables, and compute the test of AntTrap-Omni with SciPy and the planned family."""
    ours = scores_on_anttrap("dcg_me.seeds_400-407", "dcg_me.seeds_800-805.1M")
    theirs = scores_on_anttrap("pga_me.seeds_800-807")
    assert (len(ours), len(theirs)) == (14, 8)
    p = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
    cells = cells_of(scripts.sections.tests(data, data.early, 0), "AntTrap-Omni", "`pga_me`")
    assert cells[3] == "14 and 8"
    assert float(cells[5]) == pytest.approx(p, rel=0.06)
    assert float(cells[6]) == pytest.approx(28 * p, rel=0.06)  # 7 algorithms on 4 tasks
    above = np.mean([a > b for a in ours for b in theirs])
    claim = cells_of(scripts.claims.claims(data), "`dcg_me` above `pga_me`", "AntTrap-Omni")
    assert claim[2:4] == ["p < 1e-6", "192,256"]
    assert claim[-2] == "**holds**"  # the budget was planned, and one algorithm was stopped before
    assert claim[-1] == f"p = {cells[6]}, {100 * above:.0f} %, 14 and 8 seeds"


def test_a_claim_that_was_tested_early_alone_has_that_test(scripts, data):
    """The runs of `qd_pg` ended before 89,856 evaluations."""
    claim = cells_of(scripts.claims.claims(data), "`dcg_me` above `qd_pg`", "Ant-Omni")
    assert claim[3:5] == ["67,072", "22 and 4"]
    assert claim[-1] == ""


def test_every_comparison_of_a_claim_occurs_once(scripts):
    found = [
        (frozenset((claim.first, claim.second)), claim.metric, task)
        for claim in scripts.claims.CLAIMS
        for task in claim.tasks
    ]
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("claimed_above", "above", "significant", "possible", "word"),
    [
        (True, True, True, True, "**holds**"),
        (True, False, True, True, "**does not hold**"),
        (True, True, False, True, "open"),
        (True, True, False, False, "too few seeds"),
        (False, True, True, True, "**above**"),
        (False, False, True, True, "**below**"),
        (False, False, False, True, "no difference found"),
        (False, False, False, False, "too few seeds"),
    ],
)
def test_a_verdict_depends_on_the_claim_and_on_the_test(
    scripts, claimed_above, above, significant, possible, word
):
    claim = scripts.claims.CLAIMS[0]._replace(above=claimed_above)
    assert scripts.claims._verdict(claim, above, significant, possible) == word


def test_four_and_eight_seeds_are_too_few_for_the_family(scripts):
    """They divide in 495 ways, so p is at least 28 x 2 / 495 = 0.11 after the correction."""
    values = {"dcg_me": np.arange(4.0), "pga_me": 10 + np.arange(8.0)}
    comparison = statistics.compare(values, "dcg_me", "pga_me")
    test = significance.Test("walker_uni", comparison, 256_000, values["dcg_me"], values["pga_me"])
    claim = scripts.claims.CLAIMS[0]

    def tested(others: int):
        intended = [("walker_uni", "pga_me"), *((str(i), "pga_me") for i in range(others))]
        ((_, entry),) = significance.corrected([test], intended)
        return scripts.claims._Tested(test, entry.bonferroni, entry.least)

    found = tested(27)
    assert found.p == found.least == pytest.approx(28 * 2 / 495)
    assert scripts.claims._said(claim, found)[-1] == "too few seeds"
    assert scripts.claims._said(claim, tested(0))[-1] == "**does not hold**"


def test_claims_about_algorithms_that_were_not_run_are_listed(scripts, data, monkeypatch):
    claim = scripts.claims.CLAIMS[0]
    missing = claim._replace(text="something else", second="no_such_algorithm")
    monkeypatch.setattr(scripts.claims, "CLAIMS", (claim, missing))
    tested, left = scripts.claims.claims(data).split("\n\n")
    assert "something else" not in tested
    assert left.splitlines()[2:] == ["| something else | Ant-Omni, AntTrap-Omni |"]
    monkeypatch.setattr(scripts.claims, "CLAIMS", (claim,))
    assert scripts.claims.claims(data) == tested


def test_the_loss_of_the_distilled_policy_by_hand(scripts, data):
    rows = rows_of("anttrap_omni/dcg_me.seeds_800-805.1M.reevaluations")[-6:]
    assert {row["evaluations"] for row in rows} == {"1000192"}
    loss = [100 - 100 * float(row["actor_qd_score"]) / float(row["qd_score"]) for row in rows]
    cells = cells_of(scripts.claims.losses(data), "AntTrap-Omni")
    text = f"{np.median(loss):.3g} % ({min(loss):.3g} to {max(loss):.3g})"
    assert cells[3:] == [text, "1,000,192", f"{sum(x < 3 for x in loss)} of 6"]
    assert cells[2] == f"{100 - 100 * 7.0 / 7.2:.1f} %"  # of the paper's second table


# -------------------------------------------------------------------------- the list of differences


def test_archives_are_repeated_exactly(data):
    """The page says so of all archives that were re-evaluated."""
    errors = [r.reevaluations["descriptor_error"].max() for r in data.recordings if r.reevaluations]
    assert len(errors) > 30
    assert max(errors) == 0
    found = [r.new_process["descriptor_error"] for r in data.recordings if r.new_process]
    assert len(found) == len(list((ROOT / "docs" / "results").glob("*/*.new_process.csv"))) >= 7
    assert max(error.max() for error in found) == 0


@pytest.mark.parametrize(
    ("spent", "text"), [(995.0, "0.20"), (500.0, "0.20, 1 seed after 500"), (None, "0.20")]
)
def test_values_from_before_the_end_of_a_run_say_so(scripts, monkeypatch, spent, text):
    group = Group("walker_uni", "dcg_me", seeds=[0], curves={"evaluations": np.array([[1000.0]])})
    monkeypatch.setattr(scripts.sections, "evaluated", lambda *_: spent)
    monkeypatch.setattr(scripts.sections, "reevaluated", lambda *_: np.array([2e4]))
    assert scripts.sections._reevaluated(None, group, "actor_qd_score", 1e6, 1e5) == text


def test_the_last_re_evaluation_of_a_group_by_hand(scripts, data):
    rows = rows_of("hexapod_omni/dcg_me.seeds_800-803.1M.reevaluations")
    group = data.full.find("hexapod_omni", "dcg_me")
    assert group.seeds == [800, 801, 802, 803]
    assert scripts.data.evaluated(data, group, 1e6) == max(int(r["evaluations"]) for r in rows)
    assert scripts.data.evaluated(data, group, 256_000) == max(
        int(r["evaluations"]) for r in rows if int(r["evaluations"]) <= 1.01 * 256_000
    )


def test_the_values_of_a_policy_are_those_of_all_seeds_that_were_re_evaluated_then(scripts, data):
    """The curves of four seeds on Walker-Uni end earlier than those of the other four."""
    names = [
        f"walker_uni/dcg_me.seeds_{seeds}.1M.reevaluations" for seeds in ("800-803", "804-807")
    ]
    rows = [row for name in names for row in rows_of(name) if row["evaluations"] == "256256"]
    group = data.full.find("walker_uni", "dcg_me")
    assert (len(rows), len(group.seeds)) == (8, 4)
    found = scripts.data.reevaluated(data, group, "actor_descriptor_error", 1_000_000)
    assert sorted(found) == pytest.approx(
        sorted(float(row["actor_descriptor_error"]) for row in rows), rel=1e-6
    )
    assert "8 seeds after 256,256" in scripts.sections.paper(data)


def test_the_improvement_over_pga_me_by_hand(scripts, data):
    table = scripts.claims.relative(data)

    def median(*names: str) -> float:
        rows = [row for name in names for row in rows_of(f"hexapod_omni/{name}")]
        planned = [row for row in rows if row["evaluations"] in ("256000", "256256")]
        return float(np.median([float(row["qd_score"]) for row in planned]))

    ours = median("dcg_me.seeds_0-3", "dcg_me.seeds_800-803.1M")
    theirs = median("pga_me.seeds_800-807")
    cells = cells_of(table, "Hexapod-Omni")
    assert cells[-1] == f"{100 * (ours / theirs - 1):+.0f} %"
    found = [float(line.split("|")[-2].strip(" %")) for line in table.splitlines()[2:]]
    assert found[-2] == pytest.approx(np.mean(found[:4]), abs=1)
    assert found[-1] == 82


def test_errors_of_new_processes_are_in_the_table_of_files(scripts, data):
    table = scripts.sections.files(data)
    for recording in data.recordings:
        name = recording.path.relative_to(ROOT / "docs" / "results").as_posix()
        cells = cells_of(table, f"[`{name}`](results/{name})")
        kept = recording.path.with_name(f"{recording.path.stem}.new_process.csv").exists()
        assert cells[4] == ("0" if kept else "no file")


def test_conclusions_of_the_differences_agree_with_the_tests(scripts, data):
    """The headings are written by hand: no difference on Hexapod-Omni, a larger error of ours."""
    for metric in ("qd_score", "coverage"):
        found = scripts.data.pair(data.planned, "hexapod_omni", "dcg_me", "pga_me", metric)
        assert found.comparison.p > 0.05
    group = data.full.find("anttrap_omni", "dcg_me")
    errors = scripts.data.reevaluated(data, group, "actor_descriptor_error", 1_000_000)
    assert errors.min() < scripts.data.published("anttrap_omni", 3) < np.median(errors)


def test_the_trap_is_where_the_page_says(scripts, data):
    """Read the walls of the robot's model, and count the cells behind them."""
    model = json.loads((ROOT / "src/elites/tasks/models/anttrap.json").read_text("utf-8"))
    (trap,) = [body for body in model["bodies"] if body["name"] == "Trap"]
    walls = [(w["position"], w["capsule"]["radius"]) for w in trap["colliders"]]
    behind = max(at.get("x", 0.0) + radius for at, radius in walls)
    width = max(abs(at.get("y", 0.0)) + radius for at, radius in walls)
    assert (behind, width) == (scripts.differences.BEHIND, scripts.differences.WIDTH)
    archive = data.full.find("anttrap_omni", "dcg_me").archive
    cells = {i for i, (x, y) in enumerate(archive["centroids"]) if x > behind and abs(y) < width}
    filled = {int(row["cell"]) for row in rows_of("anttrap_omni/dcg_me.seeds_800-805.1M.cells")}
    text = " ".join(scripts.differences.behind_the_trap(data).split())
    count = len(cells & filled)
    assert f"`dcg_me` fills {count} of the {len(cells)} cells after 1,000,192 evaluations" in text


# -------------------------------------------------------------------------- the page of progress_me


def test_tests_of_progress_me_by_hand(scripts, data):
    ours, theirs = (
        [float(row["qd_score"]) for row in rows if row["evaluations"] == str(last)]
        for rows, last in (
            (rows_of("hexapod_omni/progress_me.seeds_400-407"), 256_000),
            (rows_of("hexapod_omni/dcrl_me.discount_0.9.seeds_100-105"), 256_256),
        )
    )
    p = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
    rows = scripts.progress.tests(data).splitlines()[2:]
    (row,) = [row for row in rows if "| `dcrl_me`, discount 0.9 |" in row]
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:2] == ["Hexapod-Omni", "256,000"]
    assert cells[2] == (
        f"{np.median(ours) / 1e5:.2f} ({min(ours) / 1e5:.2f} to {max(ours) / 1e5:.2f}), 8 seeds"
    )
    assert float(cells[5]) == pytest.approx(p, rel=0.06)
    assert float(cells[6]) == pytest.approx(len(rows) * p, rel=0.06)


def test_when_progress_me_reaches_the_papers_score_by_hand(scripts, data):
    first: dict[str, int] = {}
    for row in rows_of("anttrap_omni/progress_me.seeds_400-407"):
        if float(row["qd_score"]) >= 7.2e5:
            first.setdefault(row["seed"], int(row["evaluations"]))
    cells = cells_of(scripts.progress.passing(data), "AntTrap-Omni")
    span = f"{min(first.values()):,} to {max(first.values()):,}"
    assert cells[1:4] == ["7.2", "8 of 8", span]


def test_a_seed_that_never_reaches_the_score_is_counted(scripts, data, monkeypatch):
    """With a bar of 9.4e5 on AntTrap-Omni, some of the eight seeds stay below."""
    ends = [float(r["qd_score"]) for r in rows_of("anttrap_omni/progress_me.seeds_400-407")[-8:]]
    for bar, word in ((9.4e5, None), (1e9, "never")):
        monkeypatch.setattr(scripts.progress, "published", lambda task, index, bar=bar: bar)
        cells = cells_of(scripts.progress.passing(data), "AntTrap-Omni")
        assert cells[2] == f"{sum(end >= bar for end in ends)} of 8"
        assert word is None or cells[3] == word


# --------------------------------------------------------------------------------- tables and pages


def test_seeds_of_a_source_with_other_random_numbers_count_in_addition(scripts, data):
    group = data.planned.find("ant_omni", "dcg_me")
    keys = list(zip(group.sources, group.seeds, strict=True))
    assert len(keys) == len(set(keys)) == 10
    assert scripts.sections.seed_numbers(group) == "0 to 5 and 0 to 3 of 4df66d0"


def test_a_page_that_differs_is_noticed(scripts, tmp_path):
    replaced = scripts.results.replaced
    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- begin x -->\n\nold\n\n<!-- end x -->\n| <!-- begin y --><!-- end y -->"
    )
    new = replaced(page, {"x": "new", "y": "1"})
    assert new == (
        "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\n| <!-- begin y -->1<!-- end y -->"
    )
    with pytest.raises(ValueError, match="has no place '<!-- begin z -->'"):
        replaced(page, {"z": ""})


def test_a_run_is_added_by_its_tables(scripts, tmp_path, monkeypatch):
    import results_rows

    adding = scripts.results.adding
    monkeypatch.setattr(results_rows, "LONG", 8)
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
    table = adding.record(tmp_path / "tables", [[run]])[0]
    assert table == tmp_path / "tables/point_omni/me.discount_0.5.seeds_0-1.csv"
    iterations = [row["iteration"] for row in results_rows.rows_of(table)]
    assert iterations == ["1", "1", "9", "9"]  # the first and the last
    stem = table.with_suffix("")
    assert results_rows.rows_of(Path(f"{stem}.cells.csv")) == [
        {"seed": "1", "iteration": "9", "cell": "5", "fitness": "6", "descriptor_0": "7"}
    ]
    kept = json.loads(Path(f"{stem}.environment.json").read_text())
    assert kept == [versions]
