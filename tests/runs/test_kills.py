"""Twenty processes killed at random moments lose nothing but the work since the last checkpoint."""

from __future__ import annotations

import random
import subprocess
import time

from elites.runs import checkpoint
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


def test_twenty_kills(tmp_path):
    path = tmp_path / "run"
    chance = random.Random(0)
    # A checkpoint in every iteration: most of the time is spent saving.
    options = ("--checkpoint-every", 1, "--reevaluate-every", 3, "--output", path, "--resume")
    options = ("--evaluations", 10**7, *options)
    reached, moments = 0, set()
    for kill in range(20):
        process = subprocess.Popen(
            command("train", *DCG, *options),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if kill % 7 == 6:  # some die while they start
            time.sleep(chance.uniform(0.2, 3.0))
        else:
            while not (new := checkpoints(path)) or new[-1] <= reached:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.02)
            if kill % 2:  # others die at any moment, these while they save
                while process.poll() is None and not list(path.glob("checkpoints/.writing-*")):
                    pass
            else:
                time.sleep(chance.uniform(0.0, 0.25))
        process.kill()
        process.communicate()
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
