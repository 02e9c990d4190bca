"""Faults and bad input, through the real command line: one test for each line of docs/faults.md."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from program import (
    HERE,
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
    succeed,
)

from elites.runs import checkpoint

OWN = HERE / "own_tasks.py"
LONG = ("--evaluations", 10**6, "--checkpoint-every", 5)


def started(*arguments: object, environ=None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        env=environ or environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for(what, process: subprocess.Popen) -> None:
    """Until something is true, as long as the process lives."""
    while not what():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def lines_in(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


# --------------------------------------------------------------------------- stopping and resuming


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(number, tmp_path):
    path = tmp_path / "run"
    process = started("train", *POINT, *LONG, "--output", path)
    wait_for(lambda: lines_in(path / "metrics.csv") > 3, process)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 3, err
    assert f"elites resume {path}" in out
    assert "stopping after this iteration" in err
    last = int(rows(path / "metrics.csv")[-1]["iteration"])
    assert checkpoints(path)[-1] == last
    assert os.readlink(path / "checkpoints" / "last") == f"{last:09d}"
    # and it does go on
    budget = 32 * (last + 3)
    done = succeed("resume", path, "--evaluations", budget)
    assert "finished after" in done.stdout
    assert [int(r["iteration"]) for r in rows(path / "metrics.csv")] == [*range(1, last + 3)]


def test_a_second_signal_leaves_at_once(tmp_path):
    """Even from within the compiler, which knows nothing of signals."""
    path = tmp_path / "run"
    slow = environment(cache=False, XLA_FLAGS="")
    process = started("train", "ant_omni", "dcg_me", "--output", path, environ=slow)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("compiling"):
            break
    process.send_signal(signal.SIGTERM)
    assert "stopping after this iteration" in "".join(process.stderr.readline() for _ in range(2))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert "left at once" in err
    assert "compiled in" not in err


def test_resume_in_another_process_comes_to_the_same_bits(tmp_path):
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    options = ("point_omni", "dcg_me", *SMOKE, "--seeds", 2, "--reach-every", 3)
    succeed("train", *options, "--evaluations", 32 * 9, "--output", straight)
    succeed("train", *options, "--evaluations", 32 * 5, "--output", halves)
    succeed("resume", halves, "--evaluations", 32 * 9)
    assert bits(newest(straight)) == bits(newest(halves))
    for table in ("metrics.csv", "reach.csv", "evaluation/metrics.csv", "evaluation/cells.csv"):
        # The first half ended with a re-evaluation of its own, at iteration 4.
        extra = [r for r in rows(halves / table) if table == "reach.csv" and r["iteration"] == "4"]
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
            info = file.getinfo(f"{name}.npy")
        data = bytearray((path / part).read_bytes())
        # The last byte of the member: 30 bytes and the name and extra field are before its data.
        header = data[info.header_offset : info.header_offset + 30]
        start = info.header_offset + 30 + int.from_bytes(header[26:28], "little")
        start += int.from_bytes(header[28:30], "little")
        data[start + info.file_size - 1] ^= 0x10
        (path / part).write_bytes(data)
        with pytest.raises(checkpoint.CheckpointError, match="damaged"):
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


@pytest.mark.parametrize(("version", "words"), [(99, "upgrade"), (0, "no longer reads")])
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


def test_a_full_disk_leaves_the_last_checkpoint_and_no_debris(run):
    """A limit on the size of files fails a write half way, as a full disk does."""
    before = contents(run / "checkpoints")
    resuming = command("resume", run, "--evaluations", 10**4)
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 20; exec "$@"', "-", *resuming],
        capture_output=True,
        text=True,
        env=environment(cache=False),
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


def watched(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that prints, at its end, whether it loaded JAX."""
    script = (
        "import atexit, sys; atexit.register(lambda: print('jax' if 'jax' in sys.modules else ''));"
        "from elites.cli import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )


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


# ------------------------------------------------------------------------------ numbers gone wrong


def archive_of(path: Path) -> dict[str, np.ndarray]:
    loaded = arrays(newest(path))
    return {k.removeprefix("archive."): v[0] for k, v in loaded.items() if k.startswith("archive.")}


@pytest.mark.parametrize("fault", ["nan_fitness", "infinite_fitness", "nan_descriptor"])
def test_what_is_not_finite_is_rejected_and_counted(fault, tmp_path):
    path = tmp_path / "run"
    succeed("train", f"{OWN}:{fault}", "me", *SMOKE, "--output", path)
    archive = archive_of(path)
    full = np.isfinite(archive["fitness"])
    assert full.any()
    assert (archive["fitness"][full] == 8.0).all()
    assert np.isfinite(archive["descriptors"]).all()
    assert (archive["descriptors"][full][:, 0] <= 0).all()  # nobody of the right half
    # each elite is in the cell of its own descriptor: none was put into "cell 0"
    distance = np.linalg.norm(archive["descriptors"][:, None] - archive["centroids"][None], axis=-1)
    assert (distance.argmin(axis=1)[full] == np.flatnonzero(full)).all()
    rejected = int(rows(path / "metrics.csv")[-1]["rejected"])
    assert 0 < rejected < 320


def test_descriptors_beyond_the_bounds_are_clipped(tmp_path):
    path = tmp_path / "run"
    succeed("train", f"{OWN}:beyond_the_bounds", "me", *SMOKE, "--output", path)
    archive = archive_of(path)
    full = np.isfinite(archive["fitness"])
    assert 1 <= full.sum() <= 4
    assert (np.abs(archive["descriptors"][full]) == 1.0).all()
    assert rows(path / "metrics.csv")[-1]["rejected"] == "0"


def test_steps_of_a_diverging_episode_never_reach_the_buffer(tmp_path):
    path = tmp_path / "run"
    options = ("pga_me", *SMOKE, "--evaluations", 96, "--output", path)
    succeed("train", f"{OWN}:diverging", *options)
    loaded = arrays(newest(path))
    size = int(loaded["replay.size"][0])
    stored = loaded["replay.rows"][0][:size]
    rejected = int(rows(path / "metrics.csv")[-1]["rejected"])
    assert 0 < rejected < 96
    assert size == 8 * (96 - rejected)  # whole episodes of eight steps, the valid ones alone
    assert np.isfinite(stored).all()


def test_a_loss_that_is_not_finite_stops_training_and_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "run"
    task = f"{OWN}:paid"
    succeed("train", task, "dcg_me", *SMOKE, "--evaluations", 160, "--output", path)
    good, before = newest(path), contents(path / "checkpoints")
    rich = environment(PAY="1e30")
    line = complaint(elites("resume", path, "--evaluations", 10**4, environ=rich), 1)
    assert "critic_loss.conditioned of seed 0 became inf" in line or "became nan" in line
    assert str(good) in line
    assert "--hp.critic-learning-rate" in line
    assert contents(path / "checkpoints") == before


# ------------------------------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "ant_omi"), ["unknown task 'ant_omi'", "'ant_omni'?", "walker_uni"]),
        (("train", "ant_omni", "dgc_me"), ["unknown algorithm", "'dcg_me'?", "qd_pg"]),
        (("train", "nowhere.py:task"), ["no file nowhere.py"]),
        (("train", "nowhere:task"), ["FILE.py:FUNCTION"]),
        (("train",), ["TASK"]),
        (("train", "ant_omni", "--preset", "papper"), ["unknown preset", "'paper'?"]),
        (("train", "ant_omni", "--hp.cels", 3), ["unknown option '--hp.cels'", "'--hp.cells'?"]),
        (("train", "ant_omni", "--hp.cells", -3), ["--hp.cells must be", "-3"]),
        (("train", "ant_omni", "--hp.cells", 10**10), ["--hp.cells must be at most"]),
        (("train", "ant_omni", "--hp.cells", "many"), ["--hp.cells", "'many'"]),
        (("train", "ant_omni", "--hp.discount", 3), ["--hp.discount must be", "3"]),
        (("train", "ant_omni", "--seeds", 0), ["--seeds must be", "0"]),
        (("train", "ant_omni", "--device", "tpu"), ["--device", "tpu"]),
        (("train", "ant_omni", "--sedes", 3), ["unknown option '--sedes'", "'--seeds'?"]),
        (("resume", "nowhere"), ["nowhere: no such directory"]),
        (("resume", __file__), ["not a directory"]),
        (("evaluate", Path(__file__).parent), ["not a run"]),
        (("plot",), ["name a run"]),
        (("info", "nowhere"), ["no such directory"]),
        (("export", "nowhere", "x.onnx"), ["no such directory"]),
        (("pack", "nowhere"), ["no such directory"]),
        (("unpack", "nowhere.zip"), ["no such file"]),
        (("trian", "ant_omni"), ["unknown command 'trian'", "'train'?"]),
    ],
)
def test_bad_input_is_one_line_before_jax_loads(arguments, words, tmp_path):
    done = watched(*arguments)
    line = complaint(done, 2)
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in line
    assert "jax" not in done.stdout


@pytest.mark.parametrize(("suffix", "package"), [("onnx", "onnx"), ("safetensors", "safetensors")])
def test_a_missing_package_names_the_command_that_installs_it(finished, tmp_path, suffix, package):
    script = (
        f"import sys; sys.modules['{package}'] = None\n"
        "from elites.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "export", str(finished), str(tmp_path / f"p.{suffix}")],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert "pip install 'elites[export]'" in complaint(done, 2)


def test_a_gpu_that_is_not_there_is_an_error(tmp_path):
    done = elites("train", *POINT, "--device", "gpu", "--output", tmp_path / "run")
    line = complaint(done, 2)
    assert "--device gpu was asked for" in line
    assert "elites[gpu]" in line
    assert list(tmp_path.iterdir()) == []


def test_too_much_memory_says_what_to_lower(tmp_path):
    path = tmp_path / "run"
    options = (*SMOKE, "--hp.replay-size", 2 * 10**9, "--seeds", 50, "--output", path)
    line = complaint(elites("train", "point_omni", "dcg_me", *options), 2)
    for word in ("needs about", "free", "--seeds", "--hp.replay-size", "--hp.batch-size"):
        assert word in line


# -------------------------------------------------------------------------------- malicious files


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 5])
def test_no_code_runs_from_a_pickle_with_our_names(run, tmp_path, protocol):
    trap = tmp_path / "trap"
    evil = pickle.dumps(Malicious(trap), protocol)
    for path in checkpoint.complete(run / "checkpoints"):
        (path / "weights.npz").write_bytes(evil)
        (path / "state.npz").write_bytes(evil)
    for path in (run / "snapshots").iterdir():
        path.write_bytes(evil)
    for arguments in (("resume", run, "--evaluations", 10**4), ("evaluate", run), ("plot", run)):
        complaint(elites(*arguments), 1)
    assert not trap.exists()


def test_no_code_runs_from_a_pickle_inside_an_array(run, tmp_path):
    trap = tmp_path / "trap"
    objects = np.array([Malicious(trap)], dtype=object)
    path = newest(run) / "weights.npz"
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
    np.savez(path, allow_pickle=True, **{n.removesuffix(".npy"): objects for n in names})
    for file in (run / "snapshots").iterdir():
        np.savez(file, allow_pickle=True, fitness=objects, centroids=objects)
    done = elites("evaluate", run)
    assert f"warning: {path}" in done.stderr
    complaint(elites("plot", run), 1)
    assert not trap.exists()


def test_a_header_that_claims_a_huge_shape_is_refused_before_allocation(run):
    path = newest(run)
    edit_json(
        path / "manifest.json",
        lambda m: m["arrays"]["weights.npz"]["archive.fitness"].update(shape=[10**15, 32]),
    )
    (path.parent / "000000008" / "manifest.json").unlink()
    line = complaint(elites("evaluate", run), 1)
    assert "1000000000000000" in line


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("../outside.txt", 0o100644),
        ("figures/../../outside.txt", 0o100644),
        ("/outside.txt", 0o100644),
        ("..\\outside.txt", 0o100644),
        ("C:outside.txt", 0o100644),
        ("figures/link", 0o120777),
    ],
)
def test_a_packed_run_cannot_write_elsewhere(finished, tmp_path, name, mode):
    packed = tmp_path / "shared.zip"
    succeed("pack", finished, "--output", packed)
    with zipfile.ZipFile(packed, "a") as file:
        info = zipfile.ZipInfo(name)
        info.filename = name  # as it is: the constructor would change separators
        info.external_attr = mode << 16
        file.writestr(info, "/etc/passwd" if mode == 0o120777 else "intruder")
    line = complaint(elites("unpack", packed, "--output", tmp_path / "a" / "run"), 1)
    assert "refused" in line
    assert name in line
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["shared.zip"]
    assert not (tmp_path / "a" / "run").exists()


def test_a_packed_run_is_the_run(finished, tmp_path):
    succeed("pack", finished, "--output", tmp_path / "all.zip")
    succeed("unpack", tmp_path / "all.zip", "--output", tmp_path / "all")
    same = contents(tmp_path / "all")
    original = {k: v for k, v in contents(finished).items() if k != "run.lock"}
    assert same == original
    assert os.readlink(tmp_path / "all" / "checkpoints" / "last") == newest(finished).name
    succeed("resume", tmp_path / "all", "--evaluations", 32 * 11)
    # without the training state there is less, enough to look at and to deploy
    succeed("pack", finished, "--no-training-state", "--output", tmp_path / "light.zip")
    succeed("unpack", tmp_path / "light.zip")
    succeed("evaluate", tmp_path / "light")
    assert "state.npz: missing" in elites("resume", tmp_path / "light").stderr


# ------------------------------------------------------------------------------------ metrics file


def test_half_a_last_line_is_passed_over(run, finished):
    path = run / "metrics.csv"
    text = path.read_text()
    path.write_text(text[:-7])
    for arguments in (("plot", run), ("info", run)):
        succeed(*arguments)
    assert "iteration 8," in succeed("info", run).stdout
    os.truncate(newest(run) / "state.npz", 5)  # so that the last iteration is done again
    succeed("resume", run)
    assert rows(path) == rows(finished / "metrics.csv")


def test_a_run_that_has_just_begun_is_explained(finished, tmp_path):
    path = tmp_path / "young"
    path.mkdir()
    for name in ("config.json", "resolved.json", "environment.json"):
        shutil.copy(finished / name, path)
    assert "no iteration finished yet" in succeed("info", path).stdout
    assert "no checkpoint yet" in complaint(elites("evaluate", path), 1)
    assert "nothing to draw yet" in complaint(elites("plot", path), 1)
    assert json.loads((path / "config.json").read_text())["task"] == "point_omni"
