"""Plans: what a file may say, and what is said of a wrong one."""

import dataclasses
import re

import pytest

from elites.study import plan as plans
from elites.study.plan import BUILT_IN, Plan

GOOD = """
tasks = ["point_omni", "arm_reach"]
algorithms = ["me", "dcg_me"]
seeds = 4
preset = "smoke"

[hp]
cells = 16
policy_hidden = [4, 4]
"""


def read(tmp_path, text: str) -> Plan:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return plans.read(str(path))


def test_a_file_becomes_configurations(tmp_path):
    plan = read(tmp_path, GOOD)
    assert plan.pairs() == [
        ("point_omni", "me"),
        ("point_omni", "dcg_me"),
        ("arm_reach", "me"),
        ("arm_reach", "dcg_me"),
    ]
    config = plan.config("arm_reach", "dcg_me", range(2, 4))
    assert (config.task, config.algorithm) == ("arm_reach", "dcg_me")
    assert (config.seeds, config.first_seed) == (2, 2)
    assert (config.hp.cells, config.hp.policy_hidden) == (16, (4, 4))
    assert config.hp.batch_size == 32  # the preset's
    assert config.evaluations == 320


def test_the_papers_experiment_is_built_in():
    plan = BUILT_IN["paper"]
    assert (len(plan.tasks), len(plan.algorithms), plan.seeds) == (4, 8, 20)
    config = plan.config("ant_omni", "dcg_me", plan.seed_numbers)
    assert (config.evaluations, config.seeds, config.hp.cells) == (1_000_000, 20, 1024)
    assert set(BUILT_IN["ablations"].algorithms) < set(plan.algorithms)


def test_a_plan_survives_being_saved(tmp_path):
    plan = read(tmp_path, GOOD)
    again = plans.from_values(plan.to_json(), "plan.json")
    assert again.to_json() == plan.to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = 4", "sedes = 4"), r"plan.toml, line 4: unknown field 'sedes'\. Did you mean"),
        (('"arm_reach"', '"arm_reech"'), r"line 2: unknown task 'arm_reech'.*arm_reach"),
        (('"dcg_me"', '"dcg"'), r"line 3: unknown algorithm 'dcg'.*dcg_me"),
        (('["me", "dcg_me"]', "[]"), r"line 3: algorithms is empty"),
        (('["point_omni", "arm_reach"]', "[]"), r"line 2: tasks is empty"),
        (('["me", "dcg_me"]', '["me", "me"]'), r"line 3: algorithms names me twice"),
        (('["me", "dcg_me"]', '"me"'), r"line 3: algorithms must be a list of names"),
        (("seeds = 4", "seeds = 0"), r"line 4: seeds must be a whole number of at least 1"),
        (("seeds = 4", 'seeds = "many"'), r"line 4: seeds must be a whole number, got 'many'"),
        (("seeds = 4", "keep_elites = -1"), r"line 4: keep_elites must be at least 0, got -1"),
        (("seeds = 4", "keep_elites = 0.5"), r"line 4: keep_elites must be a whole number, got 0"),
        (("seeds = 4", "seed = 4"), r"Did you mean 'seeds' or 'first_seed'\?"),
        (("cells = 16", "cels = 16"), r"line 8: unknown hyperparameter 'cels'.*cells"),
        (("cells = 16", "cells = -1"), r"line 8: cells must be a whole number of at least 1"),
        (('preset = "smoke"', 'preset = "smok"'), r"line 5: unknown preset 'smok'"),
        (("seeds = 4", "seeds = = 4"), r"plan.toml: .*line 4"),
        (('algorithms = ["me", "dcg_me"]', ""), r"algorithms is missing"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, change, message):
    assert change[0] in GOOD
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, GOOD.replace(*change))
    assert "\n" not in str(caught.value)


def test_unknown_plans_name_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown plan 'papr'.*paper.*Known: paper, ablations"):
        plans.read("papr")
    with pytest.raises(ValueError, match=r"none\.toml: no such file"):
        plans.read("none.toml")


def test_a_budget_below_one_batch_is_refused():
    plan = dataclasses.replace(BUILT_IN["smoke"], evaluations=40)
    with pytest.raises(ValueError, match=r"smoke: dcg_me on point_omni: evaluations must be at"):
        plans.refuse_small_budget(plan, "smoke")


def test_and_told_with_its_line(tmp_path):
    plan = read(tmp_path, GOOD.replace("seeds = 4", "seeds = 4\nevaluations = 33"))
    with pytest.raises(ValueError, match=r"plan.toml, line 5: me on point_omni: evaluations must"):
        plans.refuse_small_budget(plan, str(tmp_path / "plan.toml"))


def test_tasks_of_ones_own_are_absolute_and_have_names_of_their_own(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("def make(): ...\n")
    text = GOOD.replace('"point_omni", "arm_reach"', f'"{tmp_path}/a.py:make", "arm_reach"')
    assert read(tmp_path, text).tasks[0] == f"{tmp_path}/a.py:make"
    text = text.replace('"arm_reach"', f'"{tmp_path}/b.py:make"')
    with pytest.raises(ValueError, match="two of the same name: make, make"):
        read(tmp_path, text)


def test_algorithms_of_ones_own_are_absolute_and_have_names_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("def me(problem, hp): ...\n")
    monkeypatch.chdir(tmp_path)
    plan = read(tmp_path, GOOD.replace('"me", ', '"a.py:me", '))
    assert plan.algorithms == (f"{tmp_path}/a.py:me", "dcg_me")
    with pytest.raises(ValueError, match="line 3: algorithms has two of the same name: me, me"):
        read(tmp_path, GOOD.replace('"dcg_me"', '"a.py:me"'))
    with pytest.raises(ValueError, match=r"line 3: algorithm 'b.py:me': there is no file b\.py"):
        read(tmp_path, GOOD.replace('"me"', '"b.py:me"'))


def test_the_algorithms_of_the_related_work_are_built_in():
    plan = BUILT_IN["related"]
    assert {"pbt_me", "cma_me", "cma_mae", "cma_mega_es", "cma_mega_td3", "dns"} < set(
        plan.algorithms
    )
    for task, algorithm in plan.pairs():
        assert plan.config(task, algorithm, plan.seed_numbers).algorithm == algorithm


def test_words_choose_a_part(tmp_path):
    plan = dataclasses.replace(read(tmp_path, GOOD), first_seed=800)
    part = plans.part(plan, ["arm_reach", "me", "800-801", "803"])
    assert part.has("arm_reach", "me", range(800, 802))
    assert part.has("arm_reach", "me", range(803, 804))
    assert not part.has("arm_reach", "me", range(800, 804))
    assert not part.has("point_omni", "me", range(800, 801))
    assert not part.has("arm_reach", "dcg_me", range(800, 801))
    whole = plans.part(plan, [])
    assert all(whole.has(task, name, plan.seed_numbers) for task, name in plan.pairs())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("arm_rech", "no such task or algorithm. Did you mean 'arm_reach'?"),
        ("pga_me", "It has point_omni, arm_reach, me, dcg_me; or seeds"),
        ("3-4", "--only 3-4: the plan has the seeds 0 to 3"),
        ("2-1", "--only 2-1: an empty range of seeds. Did you mean 1-2?"),
        ("5-3", "--only 5-3: an empty range of seeds. Did you mean 3-5?"),
    ],
)
def test_words_that_choose_nothing_are_refused(tmp_path, word, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        plans.part(read(tmp_path, GOOD), [word])
