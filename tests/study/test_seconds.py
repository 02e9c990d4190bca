"""Estimates of the time of an iteration: what is measured, what is derived and how, and files."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from elites.files import RunError
from elites.study import seconds
from elites.study.seconds import Clock, Measurement, Work

ROOT = Path(__file__).parents[2]
H200 = "NVIDIA H200"
TABLE = seconds.read(seconds.TABLE)
DCG = Work("ant_omni", "dcg_me", (512,))


def without(**fields) -> Clock:
    """A clock that lacks the measurements with these fields."""
    kept = [m for m in TABLE if any(getattr(m, k) != v for k, v in fields.items())]
    assert len(kept) < len(TABLE)
    return Clock(H200, kept)


def test_what_was_measured_is_said_so():
    clock = Clock(H200, TABLE)
    assert clock.alone(DCG, 20) == (0.766, "measured")
    assert clock.together(DCG, 4, 2) == (0.42, "measured")
    between = clock.alone(DCG, 14)
    assert between.seconds == pytest.approx((0.394 + 0.766) / 2)
    assert between.basis == "from 1, 4, 6, 8 and 20 seeds"
    assert not between.measured


def test_what_was_derived_from_a_run_is_not_called_measured():
    clock, trap = Clock(H200, TABLE), Work("anttrap_omni", "dcg_me", (512,))
    assert clock.alone(trap, 4) == (0.268, "measured, less 7 % for checkpoints")
    assert not clock.alone(trap, 4).measured
    assert clock.together(trap, 2, 2).basis == "2 runs as one, measured, less 7 % for checkpoints"
    assert clock.alone(DCG, 6) == (0.318, "measured, less 3 % for checkpoints")
    own = Measurement(H200, "anttrap_omni", "dcg_me", 4, 0.25, "elites study --measure")
    assert Clock(H200, [*TABLE, own]).alone(trap, 4) == (0.25, "measured")


@pytest.mark.parametrize(
    ("algorithm", "rows", "seeds", "measured"),
    [("pga_me", 256, 8, 0.347), ("dcrl_me", 256, 8, 0.292), ("me", 256, 8, 0.070)],
)
def test_stages_predict_algorithms_that_were_measured_otherwise(algorithm, rows, seeds, measured):
    estimate = without(algorithm=algorithm).alone(Work("ant_omni", algorithm, (rows,)), seeds)
    assert estimate.basis == "from stages"
    assert estimate.seconds == pytest.approx(measured, rel=0.135)


def test_stages_predict_other_numbers_of_seeds():
    eight = without(seeds=8, task="ant_omni", algorithm="dcg_me").alone(DCG, 8)
    assert eight.seconds == pytest.approx(0.394, rel=0.1)
    hexapod = Clock(H200, TABLE).alone(Work("hexapod_omni", "dcg_me", (512,)), 20)
    assert hexapod.basis == "from 8 seeds"
    assert hexapod.seconds == pytest.approx(0.399 * 0.766 / 0.394, rel=0.05)
    together = without(together=2).together(DCG, 4, 2)
    assert together.basis == "2 runs as one, measured"
    assert together.seconds == pytest.approx(0.42, rel=0.01)


def test_robots_and_rounds_count():
    clock = Clock(H200, TABLE)
    one, two = (clock.alone(Work("ant_omni", "me_es", rows), 4) for rows in ((512,), (512, 512)))
    assert two.seconds - one.seconds == pytest.approx(0.077)
    walker = clock.alone(Work("walker_uni", "me", (256,)), 20)
    assert walker.seconds > 2 * clock.alone(Work("ant_omni", "me", (256,)), 20).seconds


@pytest.mark.parametrize(
    "work",
    [
        Work("point_omni", "dcg_me", (512,)),  # a task without a measurement
        Work("ant_omni", "own.py:mine", (256,)),
        Work("ant_omni", "dcg_me", (512,), "cells=512"),
    ],
)
def test_nothing_is_made_up(work):
    assert Clock(H200, TABLE).alone(work, 20) is None
    assert Clock("another device", TABLE).alone(DCG, 20) is None


def test_two_measurements_give_a_line_and_one_does_not():
    one = Measurement("laptop", "ant_omni", "me", 4, 1.0, "here")
    clock = Clock("laptop", [one])
    me = Work("ant_omni", "me", (256,))
    assert clock.alone(me, 4).measured
    assert clock.alone(me, 8) is None
    clock = Clock("laptop", [one, dataclasses.replace(one, seeds=8, seconds=1.5)])
    assert clock.alone(me, 16) == (2.5, "from 4 and 8 seeds")


@pytest.mark.parametrize(
    "found", [m for m in TABLE if ".csv" in m.source], ids=lambda m: f"{m.task}-{m.seeds}"
)
def test_figures_of_the_package_are_those_of_the_result_files(found):
    """The column `seconds` of the named file gives the figure, less the share that is named."""
    header, *lines = (ROOT / re.split("[,:]", found.source)[0]).read_text().splitlines()
    names = header.split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in lines]
    first, last = rows[0], rows[-1]
    iterations = int(last["iteration"]) - int(first["iteration"])
    each = (float(last["seconds"]) - float(first["seconds"])) / iterations
    assert found.seconds == pytest.approx(each / (1 + found.less / 100), abs=0.001)
    said = re.search(r"less (\d+) %", found.source)
    assert found.less == (int(said[1]) if said else 0)
    assert len({row["seed"] for row in rows}) == found.seeds


def test_every_figure_says_where_it_was_measured():
    for found in TABLE:
        name = re.search(r"docs/[\w./-]+\.(md|csv|jsonl)", found.source)
        assert name, found
        assert (ROOT / name[0]).is_file(), found


def test_own_measurements_are_kept_and_replace_older_ones(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert seconds.measurements() == TABLE
    one = Measurement("laptop", "point_omni", "me", 3, 0.5, "today", variant="cells=32")
    other = dataclasses.replace(one, seeds=4)
    path = seconds.store([one, other])
    assert seconds.store([dataclasses.replace(one, seconds=0.25)]) == path
    own = seconds.measurements()[len(TABLE) :]
    assert [(m.seeds, m.seconds) for m in own] == [(3, 0.25), (4, 0.5)]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seconds": -1}, "seconds and seeds must be greater than 0"),
        ({"seconds": "fast"}, "'seconds' is 'fast', not a whole number or a number"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"less": -5}, "less must be a percentage from 0 to 99"),
        ({"stages": {"train": 1.0}}, "'ask' is missing"),
    ],
)
def test_a_damaged_cache_is_named_and_left_out(change, what, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = seconds.store([Measurement("laptop", "point_omni", "me", 3, 0.5, "today")])
    data = json.loads(path.read_text())
    data["measurements"][0] |= change
    path.write_text(json.dumps(data))
    with pytest.raises(RunError, match=re.escape(what)):
        seconds.read(path)
    assert seconds.measurements() == TABLE
    assert f"{path}, entry 1" in capsys.readouterr().err
