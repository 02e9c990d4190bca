"""Policies as C, the runners of the docs, and the switcher between elites and the actor."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import elites
from elites.core.hyperparameters import Hyperparameters
from elites.runs import c_source, export, formats, reducing
from elites.runs.directory import RunDirectory, RunError
from elites.training.switching import ACTOR
from program import complaint, environment, succeed
from program import elites as command
from small import SMALL

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-O2")
needs_compiler = pytest.mark.skipif(
    not shutil.which("cc"), reason="LEFT OUT: needs a C compiler, cc, on the PATH"
)


@pytest.fixture(scope="module")
def loaded(conditioned) -> elites.Run:
    return elites.load(conditioned)


# --------------------------------------------------------------------------------------------- C

PROGRAM = """
#include <stdio.h>
{opening}
int main(void)
{{
    float input[{inputs}], action[{outputs}];
    while (fread(input, sizeof(float), {inputs}, stdin) == {inputs}) {{
        policy({arguments}action);
        fwrite(action, sizeof(float), {outputs}, stdout);
    }}
    return 0;
}}
"""


def actions_of(path: Path, seen: np.ndarray, asked: np.ndarray | None, size: int) -> np.ndarray:
    """Compile a C file with every warning as an error, and return its actions [N, size]."""
    x = seen if asked is None else np.concatenate([seen, asked], axis=1)
    arguments = "input, " if asked is None else f"input, input + {seen.shape[1]}, "
    kinds = "const float *, " * (1 if asked is None else 2)
    is_header = path.suffix == ".h"
    opening = f'#include "{path.name}"' if is_header else f"void policy({kinds}float *);"
    code = PROGRAM.format(opening=opening, inputs=x.shape[1], outputs=size, arguments=arguments)
    (path.parent / "main.c").write_text(code)
    units = ["main.c"] if is_header else ["main.c", path.name]
    done = subprocess.run(
        ["cc", *STRICT, *units, "-lm", "-o", "main"],
        cwd=path.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [path.parent / "main"], input=x.astype(np.float32).tobytes(), capture_output=True
    )
    return np.frombuffer(ran.stdout, np.float32).reshape(len(seen), size)


@needs_compiler
@pytest.mark.parametrize("name", ["policy.c", "policy.h"])
def test_the_command_writes_c_that_acts_as_jax_does(loaded, conditioned, tmp_path, name):
    said = succeed("export", conditioned, tmp_path / name).stdout
    assert float(re.search(r"differs from JAX by (\S+)", said)[1]) <= 1e-5
    seen = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    expected = np.asarray(loaded.archive.best()(seen))
    np.testing.assert_allclose(actions_of(tmp_path / name, seen, None, 2), expected, atol=1e-5)
    assert "the elite of cell" in (tmp_path / name).read_text()


@needs_compiler
@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "gelu", "silu"])
def test_a_conditioned_actor_in_c_takes_a_descriptor_in_task_units(tmp_path, activation):
    built = elites.build("walker_uni", "dcg_me", **(SMALL | {"activation": activation}))
    assert built.main_td3 is not None
    generator = np.random.default_rng(0)
    parameters = generator.normal(size=built.main_td3.actor.size).astype(np.float32) / 4
    actor = elites.training.Actor(parameters, built)
    error = export.export(actor, tmp_path / "actor.h", {"task": "walker */ uni", "n": 1})
    assert error is not None
    assert error <= 1e-5
    seen = generator.normal(size=(1000, 19)).astype(np.float32)
    asked = generator.uniform(0, 1, (1000, 2)).astype(np.float32)
    found = actions_of(tmp_path / "actor.h", seen, asked, 6)
    np.testing.assert_allclose(found, actor(seen, asked), atol=1e-5)
    assert np.abs(found - actor(seen, 1 - asked)).max() > 0.01


@needs_compiler
def test_observations_are_raw_where_a_run_normalises_them(tmp_path):
    run = elites.train(
        "point_omni", "me", evaluations=64, hp=Hyperparameters(**SMALL | {"batch_size": 32}),
        normalise_observations=True,
    )  # fmt: skip
    state = run.state
    assert state is not None
    assert float(state.statistics.number[0]) > 0
    elite = run.archive.best()
    assert export.export(elite, tmp_path / "policy.c", {}) <= 1e-5
    seen = 3 + 10 * np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    found = actions_of(tmp_path / "policy.c", seen, None, 2)
    np.testing.assert_allclose(found, elite(seen), atol=1e-5)


@needs_compiler
def test_the_runner_in_c_prints_the_action_and_its_latency(loaded, conditioned, tmp_path):
    succeed("export", conditioned, tmp_path / "policy.h")
    shutil.copy(EXAMPLES / "run_exported.c", tmp_path)
    line = (EXAMPLES / "run_exported.c").read_text().partition("\n")[0]
    build = re.search(r"cc (-O2 .* -lm)", line)[1].split()
    subprocess.run(["cc", *STRICT, *build], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "a.out"], capture_output=True, text=True, check=True)
    action, latency = done.stdout.splitlines()
    expected = loaded.archive.best()(np.float32([0.9999, 0, 0]))
    np.testing.assert_allclose([float(text) for text in action.split()], expected, atol=1e-5)
    assert re.fullmatch(r"\d+\.\d\d microseconds for one action", latency)


def test_without_a_compiler_the_file_is_written_and_the_command_says_so(
    conditioned, tmp_path, monkeypatch
):
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    said = succeed("export", conditioned, tmp_path / "policy.c").stdout
    assert "not compared with JAX, because there is no C compiler" in said
    assert (tmp_path / "policy.c").exists()


def test_a_compiler_that_fails_is_one_line_without_temporary_names(
    conditioned, tmp_path, monkeypatch
):
    monkeypatch.setenv("CC", "false")
    line = complaint(command("export", conditioned, tmp_path / "p.c"), 1)
    assert line == "elites: false cannot compile the exported C file: nothing was said"
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_a_file_that_does_not_compile_is_named(tmp_path):
    (tmp_path / "policy.c").write_text("int policy = ;\n")
    with pytest.raises(RunError, match="cc cannot compile the exported C file: "):
        c_source.run(tmp_path / "policy.c", {"observation": np.zeros((1, 1))})


def test_a_policy_without_observations_is_refused_in_c():
    network = formats.Network([(np.zeros((0, 2)), np.zeros(2))], 0, 0, "relu", {})
    with pytest.raises(ValueError, match="C needs a policy with observations"):
        c_source.source(network, header=False)


# -------------------------------------------------------------------------------------- switcher


def rows_of(run: Path, seed: int) -> list[dict[str, str]]:
    with open(run / "evaluation" / "cells.csv", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if int(row["seed"]) == seed]


def pair(row: dict[str, str], name: str) -> np.ndarray:
    return np.array([float(row[f"{name}_{i}"]) for i in range(2)])


def test_the_switcher_chooses_what_the_tables_know_to_be_nearest(loaded, conditioned):
    seed = loaded.seeds[loaded.best]
    table, switcher = rows_of(conditioned, seed), loaded.switcher()
    kinds = set()
    for wanted in np.random.default_rng(0).uniform(-1, 1, (60, 2)):
        chosen = switcher(wanted)
        elite = min(np.linalg.norm(pair(row, "reevaluated_descriptor") - wanted) for row in table)
        actor = min(np.linalg.norm(pair(row, "actor_descriptor") - wanted) for row in table)
        assert chosen.error == pytest.approx(min(elite, actor), rel=1e-4, abs=1e-6)
        assert chosen.is_elite == (elite <= actor)
        kinds.add(chosen.is_elite)
    assert kinds == {True, False}


def test_what_is_known_comes_true(loaded):
    """The elite's episode ends where the switcher says, and the actor's policy is the actor's."""
    switcher, seen = loaded.switcher(), np.random.default_rng(0).normal(size=(5, 3))
    asked = np.random.default_rng(1).uniform(-1, 1, (60, 2))
    chosen = [switcher(wanted) for wanted in asked]
    elite = next(choice for choice in chosen if choice.is_elite)
    np.testing.assert_array_equal(loaded.rollout(elite.policy).descriptor, elite.reached)
    assert f"the elite of cell {elite.policy.cell} reached" in str(elite)
    actor = next(choice for choice in chosen if not choice.is_elite)
    assert loaded.actor is not None
    np.testing.assert_array_equal(actor(seen), loaded.actor(seen, actor.request))
    assert f"known error {actor.error:.4g}" in str(actor)


def test_a_run_without_tables_is_evaluated_again(loaded):
    known = loaded.switcher().known
    again = dataclasses.replace(loaded, place=None).switcher().known
    np.testing.assert_array_equal(again.cells, known.cells)
    np.testing.assert_allclose(again.reached, known.reached, atol=1e-6)
    np.testing.assert_allclose(again.requests, known.requests, atol=1e-6)


@pytest.mark.parametrize(
    ("folder", "iteration"), [("calibration", 9), ("interpolation", 9), ("calibration", 4)]
)
def test_known_requests_count_for_their_iteration_alone(conditioned, tmp_path, folder, iteration):
    run = Path(shutil.copytree(conditioned, tmp_path / "run", symlinks=True))
    (run / folder).mkdir()
    (run / folder / "requests.csv").write_text(
        "seed,iteration,cell,request_0,request_1,reached_0,reached_1,fitness\n"
        + "".join(f"{seed},{iteration},0,0.5,0.25,0.123,-0.456,7\n" for seed in (0, 1))
    )
    chosen = elites.load(run).switcher()([0.123, -0.456])
    if iteration == 9:
        assert (chosen.is_elite, chosen.error, chosen.fitness) == (False, pytest.approx(0), 7)
        assert chosen.request.tolist() == [0.5, 0.25]
    else:
        assert chosen.error > 1e-3


def test_a_reduced_run_keeps_what_is_known_of_its_actor(conditioned, loaded, tmp_path):
    (tmp_path / "few").mkdir()
    reducing.reduce(RunDirectory(conditioned), tmp_path / "few", elites=4, seed=None)
    known, before = elites.load(tmp_path / "few").switcher().known, loaded.switcher().known
    assert (known.cells != ACTOR).sum() == 4
    np.testing.assert_array_equal(
        known.reached[known.cells == ACTOR], before.reached[before.cells == ACTOR]
    )


def test_tables_of_another_archive_are_refused(conditioned, tmp_path):
    run = Path(shutil.copytree(conditioned, tmp_path / "run", symlinks=True))
    table = run / "evaluation" / "cells.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(RunError, match="is of another archive: run"):
        elites.load(run).switcher(seed=1)


def test_an_algorithm_without_actor_switches_between_elites(finished):
    switcher = elites.load(finished).switcher(seed=1)
    assert (switcher.known.cells != ACTOR).all()
    assert switcher(switcher.archive[3].descriptor).policy.cell == switcher.archive[3].cell
    with pytest.raises(ValueError, match="a descriptor has 2 entries"):
        switcher([1.0])
    with pytest.raises(ValueError, match="one descriptor of finite numbers"):
        switcher([1.0, np.nan])


@pytest.mark.parametrize("wanted", [(0.3, -0.4), (0.9, 0.9), (-0.5, 0.1)])
def test_the_policy_that_is_chosen_can_be_exported_alone(loaded, conditioned, tmp_path, wanted):
    path = tmp_path / "policy.safetensors"
    said = succeed("export", conditioned, path, "--switcher", "--descriptor", *wanted).stdout
    chosen = loaded.switcher()(wanted)
    assert f"known error {chosen.error:.4g}" in said
    seen = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.testing.assert_allclose(formats.run(path, {"observation": seen}), chosen(seen), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("s.onnx", "--switcher"), "a switcher is a .safetensors file, got"),
        (("s.safetensors", "--switcher", "--actor"), "give it without --actor and --cell"),
        (("s.safetensors", "--switcher", "--archive", "csv"), "without --switcher, --actor"),
        (("s.c", "--switcher", "--descriptor", 1), "a descriptor has 2 entries"),
    ],
)
def test_bad_choices_are_refused(conditioned, tmp_path, options, words):
    name, *rest = options
    assert words in complaint(command("export", conditioned, tmp_path / name, *rest), 2)
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------- runners


@pytest.fixture(scope="module")
def switcher_file(conditioned, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("switcher") / "switcher.safetensors"
    said = succeed("export", conditioned, path, "--switcher").stdout
    assert re.search(r"a switcher of \d+ elites and \d+ requests, of seed \d, iteration 9", said)
    return path


def example(name: str, *arguments: object, stand_ins: Path | None = None) -> list[str]:
    """Return the lines that an example prints, in a process that cannot import JAX."""
    places = [str(EXAMPLES), *([str(stand_ins)] if stand_ins else [])]
    script = (
        f"import runpy, sys; sys.modules['jax'] = None; sys.path[:0] = {places!r}; "
        f"runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["elite", "actor"])
def test_the_switcher_runs_with_numpy_alone(loaded, switcher_file, kind):
    switcher = loaded.switcher()
    asked = np.random.default_rng(1).uniform(-1, 1, (60, 2)).astype(np.float32)
    wanted = next(w for w in asked if switcher(w).is_elite == (kind == "elite"))
    action, error, latency = example("run_switcher.py", switcher_file, *wanted)
    chosen = switcher(wanted)
    np.testing.assert_allclose(json.loads(action), chosen(np.zeros(3)), atol=1e-5)
    assert float(error.removeprefix("known error ")) == pytest.approx(chosen.error, rel=1e-3)
    assert "microseconds" in latency


def test_the_runner_of_policies_knows_every_activation(tmp_path):
    for activation in ("relu", "tanh", "elu", "gelu", "silu"):
        generator = np.random.default_rng(0)
        layers = [
            (generator.normal(size=(i, o)), generator.normal(size=o)) for i, o in [(5, 4), (4, 2)]
        ]
        layers = [(kernel.astype(np.float32), bias.astype(np.float32)) for kernel, bias in layers]
        formats.write(formats.Network(layers, 3, 2, activation, {}), tmp_path / "p.safetensors")
        sys.path.insert(0, str(EXAMPLES))
        try:
            import run_exported
        finally:
            sys.path.remove(str(EXAMPLES))
        x = generator.normal(size=(10, 5)).astype(np.float32)
        read = run_exported.load(tmp_path / "p.safetensors")
        expected = formats.run(tmp_path / "p.safetensors", {"observation": x})
        np.testing.assert_allclose(run_exported.forward(*read, x), expected, atol=1e-5)
        (tmp_path / "p.safetensors").unlink()


STAND_INS = {  # the few calls of ROS 2 that the example makes
    "rclpy/__init__.py": """
import json
from std_msgs.msg import Float32MultiArray
def init(): pass
def spin(node):
    for i in range(1000):
        if i == 500:
            node.topics["descriptor"](Float32MultiArray(data=[-0.5, 0.5]))
        node.topics["observation"](Float32MultiArray(data=[i / 1000, 0.0, 1.0]))
    print(json.dumps(node.sent))
""",
    "rclpy/node.py": """
class Node:
    def __init__(self, name):
        self.topics, self.sent = {}, []
    def create_publisher(self, kind, topic, depth):
        assert topic == "action"
        return self
    def publish(self, message):
        self.sent.append(list(message.data))
    def create_subscription(self, kind, topic, callback, depth):
        self.topics[topic] = callback
    def get_logger(self):
        return self
    def info(self, text):
        print(text)
""",
    "std_msgs/__init__.py": "",
    "std_msgs/msg.py": """
class Float32MultiArray:
    def __init__(self, data=()):
        assert all(isinstance(value, float) for value in data)
        self.data = data
""",
}


def test_the_policy_of_the_ros_example_acts_and_switches(loaded, switcher_file, tmp_path):
    """With stand-ins for rclpy and std_msgs: ROS itself is not part of this test."""
    for name, text in STAND_INS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = example("ros2_policy.py", switcher_file, 0.25, -0.75, stand_ins=tmp_path)
    first, second, latency, actions = lines
    switcher = loaded.switcher()
    for line, wanted in ((first, [0.25, -0.75]), (second, [-0.5, 0.5])):
        assert line == f"descriptor {wanted}: known error {switcher(wanted).error:.4g}"
    assert "microseconds for one action" in latency
    sent = np.array(json.loads(actions))
    seen = np.stack([np.arange(1000) / 1000, np.zeros(1000), np.ones(1000)], -1)
    np.testing.assert_allclose(sent[:500], switcher([0.25, -0.75])(seen[:500]), atol=1e-5)
    np.testing.assert_allclose(sent[500:], switcher([-0.5, 0.5])(seen[500:]), atol=1e-5)
