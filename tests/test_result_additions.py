"""Sections of the results page on the offspring that enter the archive."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elites.study.recorded import Recording
from result_tables import ROOT, cells_of, page_scripts, rows_of

PAGE = " ".join((ROOT / "docs" / "results.md").read_text("utf-8").split())


@pytest.fixture(scope="module")
def scripts():
    return page_scripts()


@pytest.fixture(scope="module")
def data(scripts):
    return scripts.data.read()


def later_shares(scripts, data, task, label, until):
    """Return the share of a kind's offspring that are added late in a run, by kind."""
    columns = scripts.additions.lasting(scripts.additions.columns_of(data, task, label), until)
    early = scripts.data.EARLY
    return {kind: scripts.additions.share(columns, kind, early, until)
            for kind in scripts.additions.KINDS}  # fmt: skip


def test_shares_of_additions_by_hand(scripts, data):
    """The table of `pga_me` has every tenth iteration and the first one, which does not count."""
    rows = [r for r in rows_of("walker_uni/pga_me.seeds_800-807") if int(r["iteration"]) % 10 == 0]
    early = [r for r in rows if int(r["evaluations"]) <= scripts.data.EARLY]
    later = [r for r in rows if int(r["evaluations"]) > scripts.data.EARLY]
    shares = [
        f"{100 * np.mean([float(row[f'added.{name}']) for row in part]) / made:.2g} %"
        for part in (early, later) for name, made in (("ga", 128), ("pg", 127), ("greedy", 1))
    ]  # fmt: skip
    cells = cells_of(scripts.additions.additions(data), "Walker-Uni", "`pga_me`")
    assert cells[2:] == ["8", *shares[:3], "8", *shares[3:], "256,000"]


def test_seeds_that_were_stopped_do_not_count(scripts, data):
    """On Hexapod-Omni, eight seeds of `dcg_me` ended after 150 iterations."""
    assert len(scripts.additions.columns_of(data, "hexapod_omni", "dcg_me")) == 16
    cells = cells_of(scripts.additions.additions(data), "Hexapod-Omni", "`dcg_me`")
    assert cells[2] == cells[6] == "8"


def test_each_seed_counts_the_same_however_many_iterations_were_recorded(scripts):
    def recording(seed, iterations, added):
        columns = {"seed": [seed] * len(added), "evaluations": [100.0] * len(added),
                   "iteration": iterations}  # fmt: skip
        metrics = {"added.ga": added, "added.pg": added, **columns}
        arrays = {name: np.array(values)[:, None] for name, values in metrics.items()}
        return Recording(ROOT, "ant_omni", "dcg_me", arrays)

    # Iterations 1 and 11 are not multiples of ten.
    columns = [(recording(0, [1, 10], [99.0, 1.0]), 0),
               (recording(1, [10, 11, 20, 30], [4.0, 99.0, 6.0, 8.0]), 0)]  # fmt: skip
    assert scripts.additions.share(columns, "GA", 0, 100) == 3.5 / 128
    assert scripts.additions.share(columns, "PG", 0, 100) == 3.5 / 128
    assert scripts.additions.share(columns, "actor", 0, 100) is None


def test_both_pg_variations_of_qd_pg_count(scripts):
    """`qd_pg` makes 2 x 84 offspring by PG, one with each of its critics."""
    metrics = {"added.quality_pg": 3.0, "added.diversity_pg": 18.0, "iteration": 10, "seed": 0,
               "evaluations": 100}  # fmt: skip
    arrays = {name: np.array([[value]]) for name, value in metrics.items()}
    columns = [(Recording(ROOT, "ant_omni", "qd_pg", arrays), 0)]
    assert scripts.additions.share(columns, "PG", 0, 100) == 21 / 168


def test_what_the_page_says_about_additions(scripts, data):
    end = 256_000
    ga = {label: later_shares(scripts, data, "ant_omni", label, end)["GA"]
          for label in ("dcg_me", "pga_me", "me")}  # fmt: skip
    texts = [f"{100 * share:.1f} %" for share in ga.values()]
    assert (
        f"on Ant-Omni, {texts[0]} of the GA offspring of `dcg_me` are added, {texts[1]} of those "
        f"of `pga_me` and {texts[2]} of those of `me`"
    ) in PAGE
    assert ga["dcg_me"] > ga["pga_me"] > ga["me"]
    seldom = []
    for task in scripts.data.TITLES:
        for label in ("dcg_me", "pga_me"):
            columns = scripts.additions.columns_of(data, task, label)
            until = scripts.additions.last_evaluations(data, columns)
            seldom.append(later_shares(scripts, data, task, label, until)["PG"])
    assert f"it is at most {100 * max(seldom):.2f} % of them in the later part" in PAGE
    ant, hexapod = (later_shares(scripts, data, task, "progress_me", end)["PG"]
                    for task in ("ant_omni", "hexapod_omni"))  # fmt: skip
    assert f"it is {100 * ant:.1f} % on Ant-Omni and {100 * hexapod:.1f} % on Hexapod" in PAGE


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


def test_what_the_page_says_about_seeds_that_get_ahead(scripts, data):
    """Late additions were recorded only after these seeds were ahead, and others need no actor."""
    seeds = scripts.additions.greedy_seeds(data)
    others = [seed.seed for seed in seeds if not seed.late]
    rows = rows_of("walker_uni/pga_me.seeds_800-807")
    bound = max(float(r["max_fitness"]) for r in rows if int(r["seed"]) in others)
    for seed in (seed.seed for seed in seeds if seed.late):
        own = [r for r in rows if int(r["seed"]) == seed]
        ahead = min(int(r["iteration"]) for r in own if float(r["max_fitness"]) > bound)
        late = [int(r["iteration"]) for r in own if float(r["added.greedy"])]
        assert ahead < min(i for i in late if i > scripts.additions.LATE_AFTER)
    assert "In each of the five seeds" in PAGE
    assert len(seeds) - len(others) == 5

    def scores(label):
        """Return the last QD-score of each seed up to 191,232 evaluations and a hundredth more."""
        columns = scripts.additions.columns_of(data, "walker_uni", label)
        lasting = scripts.additions.lasting(columns, 191_232)
        return [
            recording.metrics["qd_score"][:, column][
                recording.metrics["evaluations"][:, column] <= 1.01 * 191_232
            ][-1]
            for recording, column in lasting
        ]

    ablation, conditioned = scores("dcg_me_no_actor_evaluation"), scores("dcg_me")
    assert (len(ablation), len(conditioned)) == (4, 8)
    assert sum(score > max(conditioned) for score in ablation) == 3


def test_iterations_beyond_the_plan_do_not_count(scripts, data):
    """Seeds of `pga_me` may be trained longer than those of `dcg_me` that are shown beside them."""
    more = {"evaluations": 1_000_192, "iteration": 3907, "qd_score": 9e9, "added.greedy": 1}

    def longer(recording):
        if (recording.task, recording.label) != ("walker_uni", "pga_me"):
            return recording
        rows = {
            name: np.vstack(
                [values, np.full_like(values[-1:], more[name]) if name in more else values[-1:]]
            )
            for name, values in recording.metrics.items()
        }
        return dataclasses.replace(recording, metrics=rows)

    extended = data._replace(recordings=[longer(one) for one in data.recordings])
    assert scripts.additions.greedy_seeds(extended) == scripts.additions.greedy_seeds(data)
    assert len(scripts.additions.greedy_seeds(data)) == 8


def test_a_sentence_that_the_tables_do_not_support_is_named(scripts, data, monkeypatch):
    def all_late(data):
        return [one._replace(score=10.0 - one.late) for one in greedy_seeds(data)]

    greedy_seeds = scripts.additions.greedy_seeds
    monkeypatch.setattr(scripts.additions, "greedy_seeds", all_late)
    with pytest.raises(ValueError, match="do not support the sentence 'each seed with a late add"):
        scripts.additions.greedy(data)


def test_the_text_on_ablations_says_which_differ(scripts, data, monkeypatch):
    said = scripts.differences._ablations(data)
    assert "no difference is significant" in said
    monkeypatch.setattr(scripts.differences, "LEVEL", 0.09)
    assert "only the difference to ablation 1 is significant" in scripts.differences._ablations(
        data
    )
    monkeypatch.setattr(scripts.differences, "LEVEL", 0.5)
    said = scripts.differences._ablations(data)
    assert "only those to ablations 1 and 3 are significant" in said
    monkeypatch.setattr(scripts.differences, "LEVEL", 1.1)
    with pytest.raises(ValueError, match="not all ablations differ significantly"):
        scripts.differences._ablations(data)
