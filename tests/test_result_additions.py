"""Sections of the results page on the offspring that enter the archive."""

from __future__ import annotations

import numpy as np
import pytest

from elites.study.recorded import Recording
from result_tables import ROOT, cells_of, page_scripts, rows_of

PAGE = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())
HALF_PG = ("dcg_me", "pga_me")


@pytest.fixture(scope="module")
def scripts():
    return page_scripts()


@pytest.fixture(scope="module")
def data(scripts):
    return scripts.data.read()


def shares(scripts, data, task, label, after, until):
    """Return the mean additions of each kind, by the name of its column."""
    columns = scripts.additions.lasting(scripts.additions.columns_of(data, task, label), until)
    return {kind: scripts.additions.mean(columns, kind, after, until) or 0.0
            for kind in scripts.additions.KINDS}  # fmt: skip


def test_means_of_additions_by_hand(scripts, data):
    rows = rows_of("walker_uni/pga_me.seeds_800-807")
    early = [r for r in rows if int(r["evaluations"]) <= scripts.data.EARLY]
    later = [r for r in rows if int(r["evaluations"]) > scripts.data.EARLY]
    means = [
        f"{np.mean([float(row[f'added.{name}']) for row in part]):.2f}"
        for part in (early, later) for name in ("ga", "pg", "greedy")
    ]  # fmt: skip
    cells = cells_of(scripts.additions.additions(data), "Walker-Uni", "`pga_me`")
    assert cells[2:] == ["8", *means[:3], "8", *means[3:], "256,000"]


def test_seeds_that_were_stopped_do_not_count(scripts, data):
    """On Hexapod-Omni, eight seeds of `dcg_me` ended after 150 iterations."""
    assert len(scripts.additions.columns_of(data, "hexapod_omni", "dcg_me")) == 16
    cells = cells_of(scripts.additions.additions(data), "Hexapod-Omni", "`dcg_me`")
    assert cells[2] == cells[6] == "8"


def test_each_seed_counts_the_same_however_many_iterations_were_recorded(scripts):
    def recording(seed, added):
        columns = {"seed": [seed] * len(added), "evaluations": [100.0] * len(added)}
        metrics = {"added.ga": added, "added.quality_pg": added, **columns}
        arrays = {name: np.array(values)[:, None] for name, values in metrics.items()}
        return Recording(ROOT, "ant_omni", "me", arrays)

    columns = [(recording(0, [1.0]), 0), (recording(1, [4.0, 6.0, 8.0]), 0)]
    assert scripts.additions.mean(columns, "GA", 0, 100) == 3.5
    assert scripts.additions.mean(columns, "PG", 0, 100) == 3.5
    assert scripts.additions.mean(columns, "actor", 0, 100) is None


def test_what_the_page_says_about_additions(scripts, data):
    early, end = scripts.data.EARLY, 256_000
    for task in scripts.data.TITLES:
        for label in {r.label for r in data.recordings if r.task == task}:
            found = shares(scripts, data, task, label, 0, early)
            if found["GA"]:
                assert found["GA"] > found["PG"] + found["actor"], (task, label)
        for label in HALF_PG:
            until = 192_256 if (task, label) == ("anttrap_omni", "pga_me") else end
            found = shares(scripts, data, task, label, early, until)
            assert found["PG"] < 0.04 * sum(found.values())
    for task, last in (("ant_omni", end), ("anttrap_omni", 192_256)):
        conditioned, plain, alone = (
            shares(scripts, data, task, label, early, last)["GA"]
            for label in ("dcg_me", "pga_me", "me")
        )
        assert 4 < conditioned / alone < 5
        assert plain < alone


def test_how_often_the_greedy_actor_is_added_elsewhere(data):
    tables = [r for r in data.recordings if r.label == "pga_me" and r.task != "walker_uni"]
    added = sum(int((table.metrics["added.greedy"] > 0).sum()) for table in tables)
    rows = sum(table.metrics["added.greedy"].size for table in tables)
    assert f"in {added} of the {rows:,} recorded iterations of all seeds" in PAGE


def test_seeds_of_pga_me_on_walker_uni_by_hand(scripts, data):
    rows = [r for r in rows_of("walker_uni/pga_me.seeds_800-807") if r["seed"] == "804"]
    late = [int(r["iteration"]) for r in rows
            if int(r["iteration"]) > 120 and float(r["added.greedy"]) > 0]  # fmt: skip
    recorded = sum(int(r["iteration"]) > 120 for r in rows)
    assert cells_of(scripts.additions.greedy(data), "804") == [
        "804", f"{len(late)} of {recorded}", str(late[-1]),
        f"{float(rows[-1]['max_fitness']):,.0f}", f"{float(rows[-1]['qd_score']) / 1e5:.2f}",
    ]  # fmt: skip
    scores = [seed.score for seed in scripts.additions.greedy_seeds(data)]
    assert scores == sorted(scores)
    assert len(scores) == 8
