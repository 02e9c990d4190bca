"""Faults and bad input, through the real command line: one test for each line of docs/faults.md."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import quick
from elites.runs import checkpoint
from program import (
    HERE,
    ONE_LAYER,
    POINT,
    SMOKE,
    arrays,
    bits,
    checkpoints,
    command,
    complaint,
    contents,
    edit_json,
    elites,
    environment,
    newest,
    rows,
    started,
    succeed,
    usual_environment,
    watched,
)

OWN = HERE / "own_tasks.py"
LONG = ("--evaluations", 10**6, "--checkpoint-every", 5)


def wait_for(what, process: subprocess.Popen) -> None:
    """Until something is true, as long as the process lives."""
    while not what():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def lines_in(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


# --------------------------------------------------------------------------- stopping and resuming


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    path = tmp_path / "run"
    process = started("train", *POINT, *LONG, "--output", path, handled=number)
    wait_for(lambda: lines_in(path / "metrics.csv") > 3, process)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 3, err
    assert f"resume {path}" in out
    assert "stopping after this iteration" in err
    last = int(rows(path / "metrics.csv")[-1]["iteration"])
    assert checkpoints(path)[-1] == last
    assert os.readlink(path / "checkpoints" / "last") == f"{last:09d}"
    # and it does go on
    budget = 32 * (last + 3)
    done = succeed("resume", path, "--evaluations", budget)
    assert "finished after" in done.stdout
    assert [int(r["iteration"]) for r in rows(path / "metrics.csv")] == [*range(1, last + 3)]


def test_a_run_that_is_not_to_end_with_its_terminal_does_not(tmp_path):
    """As under nohup: a signal that is ignored stays so."""
    path = tmp_path / "run"
    process = started("train", *POINT, *LONG, "--output", path, ignored=signal.SIGHUP)
    wait_for(lambda: lines_in(path / "metrics.csv") > 3, process)
    process.send_signal(signal.SIGHUP)
    before = lines_in(path / "metrics.csv")
    wait_for(lambda: lines_in(path / "metrics.csv") > before + 20, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 3, err


def test_a_second_signal_leaves_at_once(tmp_path):
    """Even from within the compiler, which knows nothing of signals."""
    path = tmp_path / "run"
    slow = environment(cache=False, **{quick.OFF: "0"})
    process = started("train", "ant_omni", "dcg_me", "--output", path, environ=slow)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("compiling"):
            break
    process.send_signal(signal.SIGTERM)
    assert any("stopping after this iteration" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "left at once" in err
    assert "compiled in" not in err


def test_resume_in_another_process_comes_to_the_same_bits(tmp_path):
    """With the compiler that users have."""
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    options = ("point_omni", "dcg_me", *SMOKE, *ONE_LAYER, "--seeds", 2, "--reevaluate-every", 3)
    apart = {"apart": True, "environ": usual_environment()}
    succeed("train", *options, "--evaluations", 32 * 9, "--output", straight, **apart)
    succeed("train", *options, "--evaluations", 32 * 5, "--output", halves, **apart)
    succeed("resume", halves, "--evaluations", 32 * 9, **apart)
    assert bits(newest(straight)) == bits(newest(halves))
    for table in (
        "metrics.csv",
        "reevaluations.csv",
        "evaluation/metrics.csv",
        "evaluation/cells.csv",
    ):
        # The first half ended with a re-evaluation of its own, at iteration 4.
        extra = [
            r
            for r in rows(halves / table)
            if table == "reevaluations.csv" and r["iteration"] == "4"
        ]
        assert [r for r in rows(halves / table) if r not in extra] == rows(straight / table)
    assert [int(r["iteration"]) for r in rows(halves / "metrics.csv")[::2]] == [*range(1, 9)]


def test_a_finished_run_says_so(run):
    before = contents(run)
    done = succeed("resume", run)
    assert "finished already" in done.stdout
    after = contents(run)
    del before["environment.json"], after["environment.json"]
    assert before == after


# ----------------------------------------------------------------------------- damaged checkpoints


def test_a_truncated_newest_checkpoint_is_named_and_passed_over(run, finished):
    file = newest(run) / "state.npz"
    os.truncate(file, file.stat().st_size // 2)
    done = succeed("resume", run)
    assert f"warning: {file}: damaged" in done.stderr
    assert "trying the one before" in done.stderr
    assert "resumed at iteration 8" in done.stderr
    assert bits(newest(run)) == bits(newest(finished))
    assert rows(run / "metrics.csv") == rows(finished / "metrics.csv")
    assert list((run / "checkpoints").glob("damaged-000000009-*"))  # nothing is thrown away


@pytest.mark.parametrize("part", ["weights.npz", "state.npz"])
def test_one_flipped_bit_in_any_array_is_refused(finished, tmp_path, part):
    source = newest(finished)
    names = list(checkpoint.read_manifest(source)["arrays"][part])
    assert names
    for name in names:
        path = Path(shutil.copytree(source, tmp_path / name))
        with zipfile.ZipFile(path / part) as file:
            members = {info.filename: bytearray(file.read(info)) for info in file.infolist()}
        members[f"{name}.npy"][-1] ^= 0x10
        # Written anew, the zip's own checksums are right again: ours has to notice.
        with zipfile.ZipFile(path / part, "w", zipfile.ZIP_STORED) as file:
            for member, data in members.items():
                file.writestr(member, bytes(data))
        with pytest.raises(checkpoint.CheckpointError, match=f"{name}: damaged: its checksum"):
            arrays(path)


def test_a_flipped_bit_is_refused_by_the_commands(run):
    for path in checkpoint.complete(run / "checkpoints"):
        data = bytearray((path / "weights.npz").read_bytes())
        data[len(data) // 2] ^= 1
        (path / "weights.npz").write_bytes(data)
    for arguments in (("resume", run, "--evaluations", 10**4), ("evaluate", run)):
        done = elites(*arguments)
        assert "none of the 2 checkpoints can be used" in complaint(done, 1)
        assert done.stderr.count("damaged") == 2


def test_the_only_checkpoint_has_none_before_it(run):
    first, last = checkpoint.complete(run / "checkpoints")
    shutil.rmtree(first)
    data = bytearray((last / "weights.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (last / "weights.npz").write_bytes(data)
    done = elites("evaluate", run)
    assert complaint(done, 1).endswith(
        "; there is no other checkpoint. Start again in another directory"
    )
    assert f"{last / 'weights.npz'}: archive." in done.stderr
    assert "trying" not in done.stderr


def test_missing_extra_and_misshapen_arrays_are_listed(run):
    for path in checkpoint.complete(run / "checkpoints"):
        loaded = checkpoint.load(path, (checkpoint.WEIGHTS, checkpoint.STATE))
        weights = {k: v for k, v in loaded.arrays.items() if k.startswith("archive.")}
        state = {k: v for k, v in loaded.arrays.items() if k not in weights}
        del weights["archive.born"]
        weights["archive.colour"] = np.zeros(3, np.float32)
        weights["archive.fitness"] = weights["archive.fitness"][:, :-1]
        parts = {checkpoint.WEIGHTS: weights, checkpoint.STATE: state}
        checkpoint.save(run / "checkpoints", loaded.iteration, parts, loaded.information)
    line = complaint(elites("resume", run, "--evaluations", 10**4), 1)
    assert "missing archive.born int32[2, 32]" in line
    assert "extra archive.colour float32[3]" in line
    assert "archive.fitness float32[2, 31] instead of archive.fitness float32[2, 32]" in line


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (("arm_reach", "me"), "task is point_omni, not arm_reach"),
        (("point_omni", "me_es"), "algorithm is me, not me_es"),
        (
            ("point_omni", "me", "--hp.policy-hidden", 16, 16),
            "hp.policy_hidden is (8, 8), not (16, 16)",
        ),
        (("point_omni", "me", "--seeds", 3), "seeds is 2, not 3"),
    ],
)
def test_resume_as_another_run_shows_what_differs(finished, change, shown):
    options = () if "--seeds" in change else ("--seeds", 2)
    done = elites("train", *change, *SMOKE, *options, "--output", finished, "--resume")
    assert shown in complaint(done, 2)


def test_train_with_resume_goes_on_with_the_same_run(run):
    options = ("--seeds", 2, "--evaluations", 32 * 11, "--output", run, "--resume")
    done = succeed("train", *POINT, *options)
    assert "resumed at iteration 9 of 10" in done.stderr


def test_a_checkpoint_of_another_run_is_refused(run):
    edit_json(run / "config.json", lambda config: config["hp"].update(iso_sigma=0.5))
    line = complaint(elites("resume", run, "--evaluations", 10**4), 1)
    assert "hp.iso_sigma is 0.005, not 0.5" in line


@pytest.mark.parametrize(
    ("version", "words"), [(99, "install a newer version"), (0, "no longer reads")]
)
def test_checkpoints_of_other_formats(run, version, words):
    for path in checkpoint.complete(run / "checkpoints"):
        edit_json(path / "manifest.json", lambda manifest: manifest.update(format=version))
    line = complaint(elites("resume", run, "--evaluations", 10**4), 1)
    assert f"format {version}" in line
    assert words in line


@pytest.mark.parametrize("version", [99, 0])
def test_configurations_of_other_formats(run, version):
    edit_json(run / "config.json", lambda config: config.update(format=version))
    assert f"format {version}" in complaint(elites("info", run), 2)


# --------------------------------------------------------------------------------------- the disk


def test_a_full_disk_leaves_the_last_checkpoint_and_no_debris(run, tmp_path):
    """A limit on the size of files fails a write half way, as a full disk does."""
    # It would leave half an entry among the compiled code of all tests: it has a copy of that.
    compiled = shutil.copytree(os.environ["JAX_COMPILATION_CACHE_DIR"], tmp_path / "compiled")
    before = contents(run / "checkpoints")
    resuming = command("resume", run, "--evaluations", 10**4)
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 20; exec "$@"', "-", *resuming],
        capture_output=True,
        text=True,
        env=environment(JAX_COMPILATION_CACHE_DIR=str(compiled), PYTHONDONTWRITEBYTECODE="1"),
        check=False,
    )
    line = complaint(done, 1)
    assert str(run / "checkpoints") in line
    assert "too large" in line
    assert contents(run / "checkpoints") == before
    assert not list(run.rglob(".*"))
    succeed("resume", run, "--evaluations", 32 * 11)  # with room again it goes on


@pytest.mark.parametrize("where", ["below a file", "where nobody may write"])
def test_an_unwritable_directory_fails_before_jax_loads(where, tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "run" if where == "below a file" else Path("/proc/run")
    done = watched("train", *POINT, "--output", path)
    assert str(path) in complaint(done, 1) or str(path.parent) in complaint(done, 1)
    assert "jax" not in done.stdout


# ------------------------------------------------------------------------------------ other runs


def test_two_processes_do_not_share_a_run_and_a_dead_one_does_not_keep_it(tmp_path):
    path = tmp_path / "run"
    first = started("train", *POINT, *LONG, "--output", path)
    wait_for(lambda: len(checkpoints(path)) > 0, first)
    line = complaint(elites("resume", path), 1)
    assert f"in use by process {first.pid}" in line
    assert f"elites resume {path}" in complaint(elites("train", *POINT, "--output", path), 2)
    first.kill()
    first.communicate()
    last = checkpoints(path)[-1]
    done = succeed("resume", path, "--evaluations", 32 * (last + 3))
    assert f"recovered the lock left by process {first.pid}" in done.stderr


def test_an_existing_run_is_never_overwritten(finished):
    before = contents(finished)
    done = watched("train", *POINT, "--seeds", 2, "--output", finished)
    assert f"elites resume {finished}" in complaint(done, 2)
    assert "jax" not in done.stdout
    assert contents(finished) == before


def test_a_directory_of_something_else_is_not_taken_over(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    line = complaint(elites("train", *POINT, "--output", tmp_path), 2)
    assert "not empty and not a run" in line
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_refused_run_leaves_no_directory(tmp_path):
    path = tmp_path / "deep" / "run"
    line = complaint(elites("train", *POINT, "--evaluations", 33, "--output", path), 2)
    assert "evaluations must be at least 32 + 32" in line
    assert list(tmp_path.iterdir()) == []
