"""Bad input and bad numbers, through the real command line; see docs/faults.md."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from elites.runs import checkpoint, recording
from elites.runs.directory import RunDirectory
from program import (
    HERE,
    POINT,
    SMOKE,
    arrays,
    checkpoints,
    complaint,
    contents,
    edit_json,
    elites,
    environment,
    newest,
    rows,
    started,
    succeed,
    watched,
)

OWN = HERE / "own_tasks.py"
LONG = ("--evaluations", 10**6, "--checkpoint-every", 5)


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
    more = ("--evaluations", 10**4, "--accept-changed-task")
    done = elites("resume", path, *more, apart=True, environ=rich)
    line = complaint(done, 1)
    assert "critic_loss.conditioned of seed 0 became inf" in line or "became nan" in line
    assert str(good) in line
    assert "--hp.critic-learning-rate" in line
    assert contents(path / "checkpoints") == before


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("dcg_me", ["--hp.critic-learning-rate", "--hp.actor-learning-rate"]),
        ("progress_me", ["--hp.progress-learning-rate"]),
        ("pbt_me", ["--hp.pbt-critic-learning-rate", "--hp.pbt-actor-learning-rate"]),
        ("distil", ["--learning-rate"]),
    ],
)
def test_advice_about_a_loss_names_the_options_of_the_algorithm(algorithm, options, tmp_path):
    advice = recording._last_good(RunDirectory(tmp_path), algorithm)
    assert [word for word in advice.split() if word.startswith("--")] == options


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
        (("train", "ant_omni", "--first-seed", 10**20), ["--first-seed must be at most"]),
        (("train", "ant_omni", "--device", "tpu"), ["--device", "tpu"]),
        (("train", "ant_omni", "--sedes", 3), ["unknown option '--sedes'", "'--seeds'?"]),
        (
            ("train", "ant_omni", "--seed", 3),
            ["'--first-seed 3' trains the seed of that number", "'--seeds' is how many"],
        ),
        (("train", "ant_omni", "--seed=12"), ["'--first-seed 12'"]),
        (("train", "ant_omni", "--seed"), ["'--first-seed N'"]),
        (("train", "ant_omni", "--evals", 500), ["'--evaluations'?"]),
        (
            ("train", "ant_omni", "--generations", 500),
            ["'--evaluations'?", "One iteration is 'batch_size' evaluations"],
        ),
        (
            ("train", "ant_omni", "--lr", 0.1),
            ["'--hp.actor-learning-rate'", "'--hp.critic-learning-rate'"],
        ),
        (("train", "ant_omni", "--hp.critic-lr", 1), ["'--hp.critic-learning-rate'?"]),
        (("train", "ant_omni", "--gamma", 0.9), ["Did you mean '--hp.discount'?"]),
        (("train", "ant_omni", "--batch", 8), ["'--hp.batch-size' or '--hp.td3-batch-size'?"]),
        (("train", "ant"), ["'ant_omni', 'anttrap_omni', 'ant_uni' or 'ant_maze'?"]),
        (("train", "ant_omni", "PGA-MAP-Elites"), ["Did you mean 'pga_me'?"]),
        (("eval", "nowhere"), ["Did you mean 'evaluate'?"]),
        (("resume", "nowhere"), ["nowhere: no such directory"]),
        (("resume", __file__), ["not a directory"]),
        (("evaluate", Path(__file__).parent), ["not a run"]),
        (("plot",), ["name a run"]),
        (("info", "nowhere"), ["no such directory"]),
        (("export", "nowhere", "x.onnx"), ["no such directory"]),
        (("pack", "nowhere"), ["no such directory"]),
        (("unpack", "nowhere.zip"), ["no such file"]),
        (("trian", "ant_omni"), ["unknown command 'trian'", "'train'?"]),
        (("view", "nowhere"), ["no such directory"]),
        *(
            ((command,), [f"'{command}' needs RUN. See 'elites {command} --help'"])
            for command in ("resume", "evaluate", "view", "info", "pack")
        ),
        (("view", "x", "--port", "abc"), ["--port must be a whole number, got 'abc'."]),
        (("train", "ant_omni", "--seeds", "many"), ["--seeds must be a whole number, got 'many'."]),
        (("view", "x", "--cells", "1", "b"), ["--cells does not accept '1' 'b'."]),
        (("train", "ant_omni", "--hp.discount", "x"), ["must be a number, got 'x'."]),
        (("export",), ["'export' needs RUN and FILE."]),
        (("unpack",), ["'unpack' needs FILE."]),
        (("study",), ["'study' needs PLAN."]),
        (("report",), ["'report' needs STUDY."]),
        (
            ("train", "ant_omni", "--start-from", "nowhere.csv"),
            ["cannot start from ", "nowhere.csv: there is no such file or directory"],
        ),
        (
            ("train", "ant_omni", "--start-from", __file__),
            ["neither a run directory, nor a CSV file of pyribs, nor a folder of QDax"],
        ),
        (("train", "ant_omni", "--start-from", Path(__file__).parent), ["neither a run"]),
        (("train", "ant_omni", "--pretrained", "ant_omni"), ["--start-from DIRECTORY"]),
        (("resume", "--pretrained", "ant_omni"), ["cannot be resumed", "--start-from DIRECTORY"]),
        (("pack", "--pretrained=ant_omni"), ["'pack' does not take --pretrained, which is for"]),
        (
            ("info", "run", "--pretrained", "ant_omni"),
            ["unexpected argument 'run'. Give a run directory or --pretrained, not both"],
        ),
        (("evaluate", "x", "--device", "tpu"), ["--device must be auto, cpu or gpu, got 'tpu'."]),
        (("study", Path(__file__).parent), ["a directory, but not a study. A plan is a TOML file"]),
        (("pretrained", Path(__file__).parent), ["a directory", "zip file of 'elites pack'"]),
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
    options = (*SMOKE, "--hp.pbt-replay-size", 2 * 10**9, "--seeds", 50, "--output", path)
    line = complaint(elites("train", "point_omni", "pbt_me", *options), 2)
    assert line.endswith("Lower --seeds, --hp.pbt-replay-size, --hp.pbt-population or --hp.cells")


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
    """In a checkpoint and in a snapshot, with less memory than the header claims."""
    claim = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 32), }\n"
    member = b"\x93NUMPY\x01\x00" + len(claim).to_bytes(2, "little") + claim + bytes(64)
    paths = [p / "weights.npz" for p in checkpoint.complete(run / "checkpoints")]
    for path in (*paths, *(run / "snapshots").iterdir()):
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
            for name in names:
                file.writestr(name, member)
    done = elites("evaluate", run)
    assert "none of the 2 checkpoints can be used" in complaint(done, 1)
    assert "float32[1000000000000, 32]" in done.stderr
    line = complaint(elites("plot", run), 1)
    assert "claims 128,000,000,000,000 bytes and has 64" in line


def test_a_shared_run_brings_no_code(finished, tmp_path):
    """Neither a file that is no part of a run, nor a task that would be read from beside it."""
    packed = tmp_path / "shared.zip"
    succeed("pack", finished, "--output", packed)
    with zipfile.ZipFile(packed, "a") as file:
        file.writestr("evil.py", "raise SystemExit(99)")
    line = complaint(elites("unpack", packed), 1)
    assert "'evil.py' is not a file of a run" in line
    run = Path(shutil.copytree(finished, tmp_path / "run", symlinks=True))
    (run / "evil.py").write_text("print('CODE RAN')")
    edit_json(
        run / "config.json", lambda config: config.update(task=os.path.relpath(f"{run}/evil.py:f"))
    )
    done = elites("evaluate", run)
    assert "no absolute path" in complaint(done, 2)
    assert "CODE RAN" not in done.stdout


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
    done = elites("resume", tmp_path / "light", "--evaluations", 10**4)
    assert "packed without its training state" in done.stderr


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


@pytest.mark.parametrize("options", [("--device", "gpu"), ("--evaluations", 5)])
def test_a_refused_resume_changes_nothing(run, options):
    before = contents(run)
    complaint(elites("resume", run, *options), 2)
    assert contents(run) == before


def test_a_task_that_changed_is_not_resumed(tmp_path):
    task = tmp_path / "own.py"
    task.write_text(OWN.read_text())
    succeed("train", f"{task}:paid", "me", *SMOKE, "--output", tmp_path / "run")
    task.write_text(OWN.read_text().replace("2, 2, 8, low", "2, 2, 9, low"))
    # Apart: this process has read the task's file already.
    resume = ("resume", tmp_path / "run", "--evaluations", 10**4, "--trust-task")
    line = complaint(elites(*resume, apart=True), 2)
    assert "episode_length was 8, is 9" in line


def test_a_task_that_cannot_be_loaded_is_named(tmp_path):
    (tmp_path / "own.py").write_text("import nothing_of_that_name\n")
    line = complaint(elites("train", f"{tmp_path / 'own.py'}:task", "me", *SMOKE), 2)
    assert "own.py cannot be loaded: ModuleNotFoundError" in line


def test_training_goes_on_when_nobody_reads(tmp_path):
    """Its output goes into a pipe that is closed after the first line."""
    path = tmp_path / "run"
    process = started("train", *POINT, "--output", path)
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    assert process.wait() == 0  # the run is complete
    assert checkpoints(path)[-1] == 9
    assert (path / "summary.md").exists()


def test_what_a_killed_start_left_does_not_block(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".config.writing.json").write_text("{")
    (path / "run.lock").write_text("")
    succeed("train", *POINT, "--resume", "--output", path)


def test_an_unfinished_end_is_finished(run):
    """Killed while it drew its figures: resuming draws them."""
    (run / "summary.md").unlink()
    (run / "figures" / "archive.png").unlink()
    (run / "facts.json").unlink()
    assert "finished after 9 iterations" in succeed("resume", run).stdout
    for name in ("summary.md", "figures/archive.png", "facts.json"):
        assert (run / name).exists()
    assert [r["iteration"] for r in rows(run / "reevaluations.csv")] == ["9", "9"]  # not once more


def test_a_run_that_has_just_begun_is_explained(finished, tmp_path):
    path = tmp_path / "young"
    path.mkdir()
    for name in ("config.json", "facts.json", "environment.json"):
        shutil.copy(finished / name, path)
    assert "no iteration finished yet" in succeed("info", path).stdout
    assert "no checkpoint yet" in complaint(elites("evaluate", path), 1)
    assert "nothing to draw yet" in complaint(elites("plot", path), 1)
    assert json.loads((path / "config.json").read_text())["task"] == "point_omni"


def test_a_task_of_ones_own_can_be_checked(tmp_path):
    assert (
        "paid: 8 steps of 8 random policies found no fault"
        in succeed("tasks", f"{OWN}:paid", "--check").stdout
    )
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import dataclasses\n"
        "from elites import tasks\n"
        "def shaped():\n"
        "    point = tasks.make('point_omni')\n"
        "    def step(state, action):\n"
        "        following = point.step(state, action)\n"
        "        return following._replace(reward=following.reward[None])\n"
        "    return dataclasses.replace(point, name='shaped', step=step)\n"
        "def raising():\n"
        "    raise OSError('no model file')\n"
    )
    for arguments in (
        ("tasks", f"{broken}:shaped", "--check"),
        ("train", f"{broken}:shaped", "me"),
    ):
        line = complaint(elites(*arguments), 2)
        assert "task 'shaped': reward of step must be float32[], got float32[1]" in line
    assert "no model file" in complaint(elites("tasks", f"{broken}:raising", "--check"), 2)
    assert "--check needs a task" in complaint(elites("tasks", "--check"), 2)
