"""Runs that share a GPU: real processes that train, and the service they share it by.

The GPU and its programs are those of `support/gpus.py`.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import gpus
from elites.study import mps
from program import HERE, environment, started, succeed

PLAN = """
tasks = ["point_omni"]
algorithms = ["OWN:mutation"]
seeds = 2
preset = "smoke"
[hp]
policy_hidden = [8]
"""
SHARED = ("--seeds-per-run", 1, "--side-by-side", 2)
TELL = """
import json, os
names = ("XLA_CLIENT_MEM_FRACTION", "CUDA_MPS_PIPE_DIRECTORY")
with open(f"{os.environ['SEEN']}/{os.getpid()}", "w") as file:
    json.dump({name: os.environ.get(name) for name in names}, file)
"""


@pytest.fixture
def plan(tmp_path) -> Path:
    """A plan with an algorithm that writes down the environment of each process that loads it."""
    own = Path(shutil.copy(HERE / "own_algorithms.py", tmp_path))
    own.write_text(own.read_text() + TELL)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("OWN", str(own)))
    return path


@pytest.fixture
def machine(tmp_path) -> dict[str, str]:
    seen = tmp_path / "seen"
    seen.mkdir()
    return environment(SEEN=str(seen), **gpus.install(tmp_path))


def test_two_runs_train_at_the_same_time(plan, machine, tmp_path):
    done = succeed("study", plan, "--output", tmp_path / "s", *SHARED, apart=True, environ=machine)
    lines = done.stderr.splitlines()
    names = ("point_omni-mutation-seeds-0-0", "point_omni-mutation-seeds-1-1")
    assert f"side by side: {' and '.join(names)}" in lines
    states = [line.split(" (")[0] for line in lines if line.startswith("point_omni")]
    assert states[:2] == [f"{name}: running" for name in names]
    assert sorted(states[2:]) == [f"{name}: done" for name in names]
    assert lines[-1].endswith("done (100 % done)")
    assert gpus.calls(tmp_path) == ["get_server_list", "start", "quit"]
    folder = (tmp_path / "calls").read_text().split()[-1]
    seen = [json.loads(path.read_text()) for path in (tmp_path / "seen").iterdir()]
    shares = {"XLA_CLIENT_MEM_FRACTION": "0.450", "CUDA_MPS_PIPE_DIRECTORY": folder}
    assert shares in seen  # the worker's. The study itself keeps its environment
    assert dict.fromkeys(shares) in seen
    assert not os.path.exists(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_service_ends_with_a_study_that_is_stopped_or_killed(number, plan, machine, tmp_path):
    study = started(
        "study", plan, "--output", tmp_path / "s", *SHARED, environ=machine, handled=signal.SIGINT
    )  # fmt: skip
    assert study.stderr is not None
    assert any(": running" in line for line in study.stderr)
    assert gpus.calls(tmp_path) == ["get_server_list", "start"]
    study.send_signal(number)
    study.communicate(timeout=120)
    assert study.returncode == (3 if number == signal.SIGINT else -number)
    folder = Path((tmp_path / "calls").read_text().split()[-1])
    if number == signal.SIGINT:  # it has waited for the end of the service
        assert not folder.exists()
    for _ in range(1200):
        if not folder.exists():
            break
        time.sleep(0.1)
    assert gpus.calls(tmp_path) == ["get_server_list", "start", "quit"]


def test_a_service_that_was_there_is_left_alone(machine, tmp_path, monkeypatch):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(theirs))
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    said = []
    with mps.serving(said.append) as environ:
        assert environ == {}
    assert said == ["runs share the GPU by the Multi-Process Service that is running already"]
    assert gpus.calls(tmp_path) == ["start", "get_server_list"]
    assert (theirs / "daemon").exists()


def test_a_service_that_does_not_start_is_said_in_one_line(machine, tmp_path, monkeypatch):
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FAKE_MPS_FAULT", "no permission\nfor this")
    said = []
    with mps.serving(said.append) as environ:
        assert environ is None
    assert said == [
        "nvidia-cuda-mps-control cannot be started, so runs are computed one after another: "
        "no permission for this"
    ]
    assert gpus.calls(tmp_path) == ["get_server_list", "start"]
