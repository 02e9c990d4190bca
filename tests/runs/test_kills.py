"""Twenty processes killed at random moments lose nothing but the work since the last checkpoint."""

from __future__ import annotations

import random
import subprocess
import time

import pytest

from elites.runs import checkpoint
from forking import forking
from program import (
    ONE_LAYER,
    SMOKE,
    bits,
    checkpoints,
    command,
    environment,
    newest,
    rows,
    succeed,
)

DCG = ("point_omni", "dcg_me", *SMOKE, *ONE_LAYER)  # with replay buffer, critics, actor


@pytest.fixture
def start(tmp_path):
    """Start a command in a process that has loaded JAX."""
    with forking(tmp_path / "errors.txt") as start:
        yield start


def killed_at_its_start(options: tuple, seconds: float) -> None:
    process = subprocess.Popen(
        command("train", *DCG, *options),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(seconds)
    process.kill()
    process.wait()


def test_twenty_kills(start, tmp_path):
    path = tmp_path / "run"
    chance = random.Random(0)
    # A checkpoint in every iteration: most of the time is spent saving.
    options = ("--checkpoint-every", 1, "--reevaluate-every", 3, "--output", path, "--resume")
    options = ("--evaluations", 10**7, *options)
    reached, moments = 0, set()
    for kill in range(20):
        if kill % 7 == 6:  # some die while they start
            killed_at_its_start(options, chance.uniform(0.2, 3.0))
        else:
            process = start("train", *DCG, *options)
            while not (new := checkpoints(path)) or new[-1] <= reached:
                process.check()
                time.sleep(0.02)
            if kill % 2:  # others die at any moment, these while they save
                while not list(path.glob("checkpoints/.writing-*")):
                    process.check()
            else:
                time.sleep(chance.uniform(0.0, 0.25))
            process.kill()
        whole = checkpoint.complete(path / "checkpoints") if path.exists() else []
        for found in whole:
            bits(found)  # every checkpoint with its final name is whole
        last = int(whole[-1].name) if whole else 0
        assert last >= reached, "a kill took back what was saved"
        reached = last
        moments.add(bool(list((path / "checkpoints").glob(".writing-*"))))
    assert reached >= 18  # all others died after a save of theirs
    assert True in moments  # some kills hit a save

    budget = 32 * (reached + 4)
    succeed("resume", path, "--evaluations", budget, apart=True)
    undisturbed = tmp_path / "undisturbed"
    options = ("--checkpoint-every", 1, "--reevaluate-every", 3, "--output", undisturbed)
    succeed("train", *DCG, "--evaluations", budget, *options, apart=True)
    assert newest(path).name == newest(undisturbed).name
    assert bits(newest(path)) == bits(newest(undisturbed))
    for table in ("metrics.csv", "reevaluations.csv", "evaluation/cells.csv"):
        assert rows(path / table) == rows(undisturbed / table)
    names = [sorted(p.name for p in (r / "snapshots").iterdir()) for r in (path, undisturbed)]
    assert names[0] == names[1]
    assert not list(path.rglob(".*"))
