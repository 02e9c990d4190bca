"""A task or an algorithm that changed since a run was trained: refused, accepted, or warned of."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from elites import tasks, trust
from elites.runs import fingerprints
from program import (
    SMOKE,
    complaint,
    contents,
    edit_json,
    elites,
    environment,
    forget,
    newest,
    rows,
    succeed,
)

TASK = '''"""A point that is paid for staying near the start."""

import jax
import jax.numpy as jnp
import numpy as np

from elites import Task, TaskState

GOALS = np.array([[0.5, 0.5], [-0.5, 0.25]], np.float32)


@jax.jit
def pay(place):
    return jnp.min(jnp.sum((place[None] - GOALS) ** 2, axis=1))


def make():
    def state_of(place, reward):
        return TaskState(place, place, reward, jnp.bool_(False), place)

    def reset(key):
        return state_of(jnp.full(2, 0.1), jnp.float32(0.0))

    def step(state, action):
        # A tenth of the action is added.
        place = state.inner + 0.1 * action
        reward = 1.0 - pay(place)
        return state_of(place, jnp.where(place[0] > 0.95, 0.0, reward))

    return Task("mine", 2, 2, 10, (-1.0, -1.0), (1.0, 1.0), reset, step)
'''

ALGORITHM = """from elites.core import map_elites
from elites.core.spec import Offspring, Spec, Variation
from elites.core.variation import ga


def shifted(spec, state, key, count):
    made = ga(spec, state, key, count)
    return Offspring(made.policies + 0.001, made.targets)


def make(problem, hp):
    variations = (Variation("shifted", hp.batch_size, shifted),)
    return map_elites.algorithm(Spec("shifting", problem, hp, variations))
"""
LONGER = ("--evaluations", 352)


def change(path: Path, old: str, new: str) -> None:
    """Change a file as its owner does, who trusts it again."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    forget()
    trust.record(f"{path}:make")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("own")
    task, run = folder / "task.py", folder / "run"
    task.write_text(TASK)
    forget()
    succeed("train", f"{task}:make", "me", *SMOKE, "--output", run)
    return task, run


@pytest.fixture
def own(trained, tmp_path) -> tuple[Path, Path]:
    """A task of one's own, as it was when trained, and a copy of a run on it."""
    task, run = trained
    task.write_text(TASK)
    forget()
    return task, Path(shutil.copytree(run, tmp_path / "run", symlinks=True))


VISIBLE = ("1.0 - pay", "2.0 - pay")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (*VISIBLE, "(the reward of a probe is 1."),
        ("0.1 * action", "0.11 * action", "of a probe is"),
        ("> 0.95, 0.0", "> 0.95, -1.0", "(a probe of 6 steps agrees within 0.2%)"),  # far away
        ("[-0.5, 0.25]", "[-0.5, 0.26]", "(a probe of 6 steps agrees within 0.2%)"),
        ("full(2, 0.1)", "full(2, 0.2)", "the task's reset is different (the reward of a probe"),
    ],
)
def test_a_task_whose_code_changed_is_not_resumed(own, old, new, said):
    task, run = own
    change(task, old, new)
    before = contents(run)
    line = complaint(elites("resume", run, *LONGER), 2)
    assert "was started with a different task or version: the code of the task's" in line
    assert said in line
    assert "or continue with --accept-changed-task" in line
    assert contents(run) == before
    again = ("train", f"{task}:make", "me", *SMOKE, "--resume", "--output", run)
    assert said in complaint(elites(*again), 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A tenth of the action is added.", "# Another comment."),
        ("reward = 1.0 - pay(place)", "reward = (\n            1.0 - pay(place)\n        )"),
        ("pay", "price"),
        ('"""A point that is paid', '"""A point which is paid'),
    ],
)
def test_comments_formatting_and_names_do_not_matter(own, old, new):
    task, run = own
    change(task, old, new)
    done = succeed("resume", run, *LONGER)
    assert "warning" not in done.stderr
    assert newest(run).name == "000000010"


def test_a_change_is_accepted_and_recorded(own):
    task, run = own
    change(task, *VISIBLE)
    succeed("resume", run, *LONGER, "--accept-changed-task")
    assert int(rows(run / "metrics.csv")[-1]["iteration"]) == 10
    sessions = json.loads((run / "environment.json").read_text())
    assert "accepted_changes" not in sessions[0]
    (said,) = sessions[1]["accepted_changes"]
    assert said.startswith("the code of the task's step is different (the reward of a probe")
    assert said in succeed("info", run).stdout
    # From now on, this is the task of the run.
    succeed("resume", run, "--evaluations", 384)
    change(task, "2.0 - pay", "3.0 - pay")
    again = ("train", f"{task}:make", "me", *SMOKE, "--evaluations", 416, "--output", run)
    succeed(*again, "--resume", "--accept-changed-task")
    assert "is for --resume" in complaint(elites(*again, "--accept-changed-task"), 2)


def test_a_change_that_the_arrays_do_not_survive_cannot_be_accepted(own):
    task, run = own
    change(task, "(1.0, 1.0), reset", "(2.0, 2.0), reset")
    line = complaint(elites("resume", run, *LONGER, "--accept-changed-task"), 2)
    assert "descriptor_high was [1.0, 1.0], is [2.0, 2.0]" in line
    assert "go on with" not in line


def test_another_length_of_episodes_can_be_accepted(own):
    task, run = own
    change(task, "2, 2, 10,", "2, 2, 11,")
    assert "--accept-changed-task" in complaint(elites("resume", run, *LONGER), 2)
    succeed("resume", run, *LONGER, "--accept-changed-task")


def test_loading_warns_in_one_line(own, tmp_path):
    task, run = own
    export = ("export", run, tmp_path / "policy.safetensors")
    for arguments in (("evaluate", run), export):
        assert succeed(*arguments).stderr == ""
    change(task, *VISIBLE)
    page = ("view", run, "--export", tmp_path / "page.html", "--rollouts", 1)
    for arguments in (("evaluate", run), (*export[:2], tmp_path / "again.safetensors"), page):
        (line,) = succeed(*arguments).stderr.splitlines()
        assert line.startswith(f"elites: warning: the task changed since {run} was trained: the co")


# ----------------------------------------------------------------------- other machines, versions


def traced_elsewhere(run: Path, **changes) -> None:
    """Make a run look as if another version of JAX had traced its task."""

    def edit(facts):
        recorded = facts["fingerprint"]["task"]
        recorded.update(jax="0.9.0")
        recorded["code"]["step"]["digest"] = "of another version"
        for name, factor in changes.items():
            recorded["probe"][name] = (factor * np.array(recorded["probe"][name])).tolist()

    edit_json(run / "facts.json", edit)


def test_another_version_of_jax_is_no_change(own):
    _, run = own
    traced_elsewhere(run, reward=1.001, observation=0.999)  # rounding that grew
    assert succeed("evaluate", run).stderr == ""
    assert "warning" not in succeed("resume", run, *LONGER).stderr
    recorded = json.loads((run / "facts.json").read_text())["fingerprint"]["task"]
    assert recorded["jax"] != "0.9.0", "recorded anew, to be compared exactly from now on"


def test_with_another_version_of_jax_the_probe_decides(own):
    task, run = own
    traced_elsewhere(run)
    change(task, *VISIBLE)
    line = complaint(elites("resume", run, *LONGER), 2)
    assert "version: the reward of a probe is 1." in line
    assert "--accept-changed-task" in line


def test_a_probe_of_another_form_is_passed_over(own):
    """As an earlier version recorded it: numbers of eight steps, without ranges."""
    _, run = own
    traced_elsewhere(run)
    edit_json(
        run / "facts.json",
        lambda facts: facts["fingerprint"]["task"]["probe"].update(reward=[1.0] * 8),
    )
    succeed("resume", run, *LONGER)


def test_another_device_is_no_change(own):
    """Equal code is equal wherever it was traced."""
    _, run = own
    edit_json(run / "facts.json", lambda facts: facts["fingerprint"]["task"].update(backend="gpu"))
    succeed("resume", run, *LONGER)


def test_a_run_without_fingerprint_gets_one(own):
    _, run = own
    edit_json(run / "facts.json", lambda facts: facts.pop("fingerprint"))
    assert succeed("evaluate", run).stderr == ""
    succeed("resume", run, *LONGER)
    facts = json.loads((run / "facts.json").read_text())
    assert set(facts["fingerprint"]["task"]["code"]) == {"reset", "step"}


@pytest.mark.parametrize("damage", [3, {"task": 3}, {"task": {"code": 3, "probe": {"reward": 1}}}])
def test_a_damaged_fingerprint_is_no_traceback(own, damage):
    _, run = own
    edit_json(run / "facts.json", lambda facts: facts.update(fingerprint=damage))
    done = elites("resume", run, *LONGER)
    assert done.returncode in (0, 2), done.stderr


# ---------------------------------------------------------------------------- algorithms, and ours


def test_an_algorithm_whose_code_changed_is_not_resumed(tmp_path):
    own, run = tmp_path / "own.py", tmp_path / "run"
    own.write_text(ALGORITHM)
    forget()
    succeed("train", "point_omni", f"{own}:make", *SMOKE, "--output", run)
    change(own, "def shifted", "# A comment.\ndef shifted")
    succeed("resume", run, *LONGER)
    change(own, "+ 0.001", "+ 0.002")
    line = complaint(elites("resume", run, "--evaluations", 384), 2)
    assert "version: the algorithm's code of ask is different" in line
    assert succeed("evaluate", run).stderr == "", "the archive holds, whoever filled it"
    succeed("resume", run, "--evaluations", 384, "--accept-changed-task")
    succeed("resume", run, "--evaluations", 416)


def test_tasks_of_elites_have_a_fingerprint_too(finished):
    recorded = json.loads((finished / "facts.json").read_text())["fingerprint"]
    assert set(recorded) == {"task"}
    assert np.array(recorded["task"]["probe"]["descriptor"]).shape == (6, 2, 2)


def test_a_change_among_many_constants_shows():
    def code(table):
        return fingerprints._code(jax.jit(lambda x: (x * table).sum()), np.float32(1.0))

    many = np.ones(10_000, np.float32)
    before, changed = code(many), many.copy()
    changed[4321] = 1.01
    assert fingerprints._same_code(before, code(many * np.float32(1 + 1e-7)))  # rounding
    assert not fingerprints._same_code(before, code(changed))
    sums = np.sum(before["constants"], axis=0)
    earlier = {**before, "constants": sums.tolist()}  # as an earlier version recorded them
    assert fingerprints._same_code(earlier, code(many))
    assert not fingerprints._same_code(earlier, code(2 * many))
    none = {"digest": "x", "constants": []}
    assert fingerprints._same_code({"digest": "x", "constants": [0.0, 0.0]}, none)
    assert fingerprints._same_code(none, none)


def fingerprint_elsewhere(name: str, **environ: str) -> dict:
    """Of a task, in a process with another environment."""
    script = (
        "import json, sys; from elites import tasks; from elites.runs import fingerprints\n"
        "print(json.dumps(fingerprints.of_task(tasks.make(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, name],
        env=environment(**environ),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_code_of_a_task_is_the_same_in_every_process():
    """Whatever was traced before, and in whichever order sets are."""
    found = fingerprint_elsewhere("ant_omni", PYTHONHASHSEED="7")
    assert found["code"] == fingerprints.of_task(tasks.make("ant_omni"))["code"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names instructions of another machine")
def test_another_machine_is_no_change():
    """The walker touches the ground as it begins: rounding decides how it is pushed off."""
    task = tasks.make("walker_uni")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=SSE4_2"
    found = fingerprint_elsewhere("walker_uni", XLA_FLAGS=flags)
    assert fingerprints.task_changes(found, task) == []
    older = {**found, "jax": "0.9.0", "code": {}}
    assert fingerprints.task_changes(older, task) == []

    def step(state, action):
        after = task.step(state, action)
        return after._replace(reward=2 * after.reward)

    (said,) = fingerprints.task_changes(older, dataclasses.replace(task, step=step))
    assert said.startswith("the reward of a probe is")
