"""Runs read back: from Python, and by `evaluate`, `info` and `algorithms`."""

from __future__ import annotations

import csv
import fcntl
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import elites
from elites.core import catalogue
from elites.runs import directory as directories
from elites.runs import lock
from program import arrays, newest, rows, succeed


def test_load_gives_archive_actor_and_metrics(conditioned):
    run = elites.load(conditioned)
    stored = arrays(newest(conditioned))
    assert run.seeds == (0, 1)
    np.testing.assert_array_equal(run.archives.policies, stored["archive.policies"])
    np.testing.assert_array_equal(run.actors, stored["learners.conditioned.actor"])
    assert run.metrics["qd_score"].shape == (9, 2)
    assert run.best == int(np.argmax(run.metrics["qd_score"][-1]))
    assert run.archive.nearest([0.0, 0.0]).fitness > 0
    with pytest.raises(ValueError, match="no checkpoint of iteration 3; kept: 8, 9"):
        elites.load(conditioned, iteration=3)


def test_the_actor_of_qd_pg_is_that_of_quality(tmp_path):
    """Of its two learners, quality is the main one."""
    run = tmp_path / "run"
    succeed("train", "point_omni", "qd_pg", "--preset", "smoke", "--no-figures", "--output", run)
    stored = arrays(newest(run))
    np.testing.assert_array_equal(elites.load(run).actors, stored["learners.quality.actor"])
    assert (stored["learners.quality.actor"] != stored["learners.diversity.actor"]).any()
    succeed("export", run, tmp_path / "actor.safetensors", "--actor")
    exported = load_file(tmp_path / "actor.safetensors")
    first = exported["layers.0.kernel"].reshape(-1)
    np.testing.assert_array_equal(first, stored["learners.quality.actor"][0, : len(first)])


def test_evaluate_finds_what_training_found(conditioned, tmp_path):
    """In another process, from files: the same bits, and the numbers of the last iteration."""
    run = shutil.copytree(conditioned, tmp_path / "run", symlinks=True)
    before = {name: rows(run / "evaluation" / name) for name in ("metrics.csv", "cells.csv")}
    shutil.rmtree(run / "evaluation")
    done = succeed("evaluate", run, apart=True)
    after = {name: rows(run / "evaluation" / name) for name in ("metrics.csv", "cells.csv")}
    # Keys of a re-evaluation do not matter on a deterministic task.
    assert after == before
    last = {row["seed"]: row for row in rows(run / "metrics.csv")[-2:]}
    for row in after["metrics.csv"]:
        for name in ("coverage", "max_fitness"):
            assert float(row[name]) == float(last[row["seed"]][name])
        assert float(row["qd_score"]) == pytest.approx(float(last[row["seed"]]["qd_score"]))
        assert float(row["descriptor_error"]) == 0.0
    with open(run / "evaluation" / "cells.csv") as file:
        cells = list(csv.DictReader(file))
    for seed in ("0", "1"):
        mine = [c for c in cells if c["seed"] == seed]
        row = next(r for r in after["metrics.csv"] if r["seed"] == seed)
        assert len(mine) == round(32 * float(row["coverage"]))
        total = sum(float(c["fitness"]) for c in mine)
        assert total == pytest.approx(float(row["qd_score"]), rel=1e-5)
        errors = [float(c["actor_descriptor_error"]) for c in mine]
        assert np.mean(errors) == pytest.approx(float(row["actor_descriptor_error"]), rel=1e-5)
        for c in mine:
            assert c["fitness"] == c["reevaluated_fitness"]
    for text in ("QD-score", "coverage", "maximum fitness", "descriptor-conditioned QD-score"):
        assert text in done.stdout


def test_evaluate_beside_training_leaves_its_tables_alone(run):
    """Those of the end, which training writes, are not replaced by those of an iteration before."""
    before = (run / "evaluation" / "metrics.csv").read_bytes()
    with lock.locked(run):
        done = succeed("evaluate", run, apart=True)
    assert "evaluation_000000009" in done.stdout
    assert (run / "evaluation_000000009" / "metrics.csv").read_bytes() == before
    assert (run / "evaluation" / "metrics.csv").read_bytes() == before
    assert (run / "run.lock").read_text() == ""


def test_a_lock_that_another_process_has_just_removed_locks_nothing(tmp_path, monkeypatch):
    """The other one made the directory, wrote nothing, and removed both between open and lock."""
    flock = fcntl.flock

    def late(file, how):
        (tmp_path / "run" / "run.lock").unlink()
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with (
            pytest.raises(lock.InUseError, match="has just removed its lock"),
            lock.locked(tmp_path / "run"),
        ):
            pytest.fail("locked")
    with lock.locked(tmp_path / "run"):
        pass


def test_two_that_write_one_file_do_not_meet(tmp_path):
    """Each of two processes writes whole files: none fails, and none is mixed."""
    path = tmp_path / "table.csv"
    script = (
        "import sys; from pathlib import Path; from elites.runs.directory import write_text\n"
        "for _ in range(150): write_text(Path(sys.argv[1]), sys.argv[2] * 5000)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(path), letter]) for letter in "ab"
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_text() in ("a" * 5000, "b" * 5000)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_what_a_process_that_is_gone_was_writing_is_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = platform.node()
    left = [
        tmp_path / f".metrics.writing-{here}-{number}.csv" for number in (gone.pid, os.getpid())
    ]
    left.append(tmp_path / f".metrics.writing-another-{gone.pid}.csv")
    for file in left:
        file.write_text("")
    folder = tmp_path / f".x.writing-{here}-{gone.pid}"  # no folder is written this way
    folder.mkdir()
    directories.sweep(tmp_path)
    assert [file.exists() for file in (*left, folder)] == [False, True, True, True]


def test_evaluate_repeats_the_episodes_of_a_stochastic_task(tmp_path):
    """The same keys as at the end of training, whatever the first seed is."""
    run = tmp_path / "run"
    options = ("--preset", "smoke", "--no-figures", "--first-seed", 5, "--output", run)
    succeed("train", "noisy_point_omni", "me", *options)
    before = rows(run / "evaluation" / "metrics.csv")
    assert float(before[0]["descriptor_error"]) > 0
    succeed("evaluate", run)
    assert rows(run / "evaluation" / "metrics.csv") == before
    succeed("evaluate", run, "--checkpoint", 8)
    assert rows(run / "evaluation" / "metrics.csv") == before
    assert rows(run / "evaluation_000000008" / "metrics.csv")[0]["iteration"] == "8"


def test_info_tells_what_a_run_is(conditioned):
    text = succeed("info", conditioned).stdout
    for words in ("dcg_me on point_omni", "3-8-8-2", "iteration 9, 320", "8, 9", "hp.cells 32"):
        assert words in text


def test_the_summary_has_the_metrics(conditioned):
    text = (conditioned / "summary.md").read_text()
    assert text.startswith("# dcg_me on point_omni")
    assert "| coverage |" in text
    assert "figures/archive.png" in text


def test_snapshots_are_light_and_kept(conditioned):
    names = sorted(p.name for p in (conditioned / "snapshots").iterdir())
    assert names == [f"{i:09d}.npz" for i in (0, 4, 8, 9)]
    with np.load(conditioned / "snapshots" / "000000009.npz") as snapshot:
        assert "policies" not in snapshot
        stored = arrays(newest(conditioned))
        for name in ("fitness", "descriptors", "origin", "born"):
            np.testing.assert_array_equal(snapshot[name], stored[f"archive.{name}"])


def test_algorithms_are_listed_and_explained():
    text = succeed("algorithms").stdout
    for name in catalogue.ALGORITHMS:
        assert name in text
    text = succeed("algorithms", "dcg_me").stdout
    assert "ga 128, pg 128" in text
    assert "31-256-256-8" in text


def test_own_tasks_are_named_by_their_file(tmp_path, monkeypatch):
    from elites import tasks
    from program import HERE

    task = tasks.make(f"{HERE / 'own_tasks.py'}:diverging")
    assert task.name == "diverging"
    assert tasks.make(f"{HERE / 'own_tasks.py'}:diverging") is task
    with pytest.raises(ValueError, match="must be a function that returns a Task, found an int"):
        tasks.make(f"{HERE / 'own_tasks.py'}:nothing")
    with pytest.raises(ValueError, match="found nothing of that name"):
        tasks.make(f"{HERE / 'own_tasks.py'}:absent")
    monkeypatch.chdir(HERE)
    assert tasks.absolute("own_tasks.py:paid") == f"{HERE / 'own_tasks.py'}:paid"
