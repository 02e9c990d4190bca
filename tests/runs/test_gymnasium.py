"""Runs on environments of Gymnasium, through the commands that users type."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="LEFT OUT: needs gymnasium")

import elites as package
import own_environments
from elites import names
from elites.tasks.workers import pool
from elites.viewer.player import Player
from program import SMOKE, bits, complaint, edit_json, elites, newest, rows, succeed

OWN = Path(own_environments.__file__).resolve()
POINT = f"gymnasium:{OWN}:seeded_point,descriptor={OWN}:place,episode_length=25,over=final"
HOPPER = "gymnasium:Hopper-v5,episode_length=30"


@pytest.fixture(scope="module", autouse=True)
def no_worker_left():
    yield
    pool.close()


@pytest.fixture(scope="module")
def hopper(tmp_path_factory) -> Path:
    """Two iterations of MAP-Elites. Read only."""
    path = tmp_path_factory.mktemp("runs") / "hopper"
    budget = ("--evaluations", 96, "--output", path)
    done = succeed("train", HOPPER, "me", *SMOKE, "--descriptor", "mean_velocity", *budget)
    assert "descriptor bounds estimated from 64 random policies: mean velocity x" in done.stdout
    return path


def test_halves_equal_the_whole(tmp_path, monkeypatch):
    """Also with a start of its own for every evaluation: it follows from the seed of the run."""
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    task = f"{POINT},low=-1/-1,high=1/1,random_start=yes"
    options = (task, "me", *SMOKE, "--checkpoint-every", 100)
    whole, half = (("--evaluations", 32 + 32 * n) for n in (2, 1))
    monkeypatch.setenv(pool.VARIABLE, "2")
    succeed("train", *options, *whole, "--output", straight)
    succeed("train", *options, *half, "--output", halves)
    pool.close()
    monkeypatch.setenv(pool.VARIABLE, "1")  # no part of the configuration
    succeed("resume", halves, *whole)
    assert newest(straight).name == newest(halves).name == "000000002"
    assert bits(newest(straight)) == bits(newest(halves))
    assert rows(straight / "metrics.csv") == rows(halves / "metrics.csv")
    assert rows(straight / "evaluation" / "cells.csv") == rows(halves / "evaluation" / "cells.csv")


def test_the_run_keeps_the_bounds_that_were_estimated(hopper):
    config = json.loads((hopper / "config.json").read_text())
    facts = json.loads((hopper / "facts.json").read_text())
    assert config["task"].startswith(f"{HOPPER.split(',')[0]},descriptor=mean_velocity,")
    bounds = dict(part.split("=") for part in config["task"].split(",")[1:])
    assert [float(bounds["low"])] == facts["descriptor_low"]
    assert [float(bounds["high"])] == facts["descriptor_high"]
    assert set(facts["fingerprint"]["task"]["simulator"]) == {"gymnasium", "mujoco"}


def test_a_run_in_python_starts_from_another_with_its_bounds(hopper, tmp_path):
    """Random policies would give other bounds, and the source would be refused."""
    source = shutil.copytree(hopper, tmp_path / "source", symlinks=True)

    def widen(config):
        config["task"] = str(names.parse(config["task"]).replace(low="-9", high="9"))

    edit_json(source / "config.json", widen)
    edit_json(
        source / "facts.json", lambda f: f.update(descriptor_low=[-9.0], descriptor_high=[9.0])
    )
    options = {"preset": "smoke", "evaluations": 64, "progress": False}
    task = f"{HOPPER},descriptor=mean_velocity"
    run = package.train(task, "me", start_from=source, **options)
    assert run.algorithm.problem.descriptor_high == (9.0,)
    assert "start.initial" in run.algorithm.origins


def test_evaluating_again_repeats_the_archive_to_the_bit(hopper):
    run = package.load(hopper)
    again = run.reevaluate()
    filled = np.isfinite(run.archives.fitness)
    assert filled.sum() > 1
    assert np.array_equal(again.fitness[filled], np.asarray(run.archives.fitness)[filled])
    elite = run.archive.best()
    assert run.rollout(elite).fitness == elite.fitness
    before = rows(hopper / "evaluation" / "cells.csv")
    succeed("evaluate", hopper)
    assert rows(hopper / "evaluation" / "cells.csv") == before


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
def test_an_exported_policy_has_the_same_return_in_plain_gymnasium(hopper, tmp_path, suffix):
    import gymnasium

    file = tmp_path / f"policy.{suffix}"
    succeed("export", hopper, file)
    act = policy_of(file)
    env = gymnasium.make("Hopper-v5", max_episode_steps=30)
    observation, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        action = act(observation.astype(np.float32)[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + reward, terminated or truncated
    np.testing.assert_allclose(total, package.load(hopper).archive.best().fitness, rtol=1e-4)


def policy_of(file: Path):
    """Return the function from observations to actions of an exported policy."""
    if file.suffix == ".onnx":
        onnxruntime = pytest.importorskip("onnxruntime", reason="LEFT OUT: needs onnxruntime")
        session = onnxruntime.InferenceSession(file)
        return lambda seen: session.run(None, {session.get_inputs()[0].name: seen})[0]
    from safetensors.numpy import load_file

    tensors = load_file(file)
    layers = [(tensors[f"layers.{i}.kernel"], tensors[f"layers.{i}.bias"]) for i in range(3)]
    assert len(tensors) == 2 * len(layers)

    def act(x: np.ndarray) -> np.ndarray:
        for kernel, bias in layers[:-1]:
            x = np.maximum(x @ kernel + bias, 0)
        return np.tanh(x @ layers[-1][0] + layers[-1][1])

    return act


def test_the_page_shows_what_an_elite_does(hopper):
    from elites.runs.directory import RunDirectory

    player = Player(RunDirectory(hopper))
    elite = package.load(hopper).archive.best()
    found = player.watch(player.newest, 0, elite.cell)["elite"]
    assert found["fitness"] == elite.fitness
    assert found["reached"] == pytest.approx(elite.descriptor.tolist())
    scene = player.scene()
    assert scene is not None
    assert scene["bodies"] == ["torso", "thigh", "leg", "foot"]
    assert [shape["kind"] for shape in scene["shapes"]] == ["plane"] + ["capsule"] * 4
    assert scene["dt"] == 0.008
    assert found["poses"]["bodies"] == len(scene["bodies"])
    assert found["poses"]["frames"] == found["steps"] + 1


def test_a_changed_environment_is_not_resumed(tmp_path):
    source = tmp_path / "env.py"
    source.write_text(OWN.read_text())
    run = tmp_path / "run"
    name = f"gymnasium:{source}:point,descriptor={source}:place,episode_length=25,over=final"
    options = ("me", *SMOKE, "--evaluations", 64, "--output", run)
    succeed("train", f"{name},low=-1/-1,high=1/1", *options)
    pool.close()
    changed = OWN.read_text().replace("1.0 - 0.5 * np.sum", "1.0 - 0.4 * np.sum")
    assert changed != source.read_text()
    source.write_text(changed)
    message = complaint(elites("resume", run, "--trust-task", apart=True), 2)
    assert "the reward of a probe is" in message
    assert "--accept-changed-task" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gymnasium:Hoper-v5", "Environment 'Hoper' doesn't exist. Did you mean: 'Hopper'?"),
        ("gymnasium:Hopper-v5,feets=a", "unknown option 'feets'. Did you mean 'feet'?"),
        ("gymnasium:Hopper-v5,low=0/0,high=1/1", "low has 2 numbers, the descriptor has 1 axes"),
        ("gymnasium:Hopper-v5,over=final", "over= is for a descriptor of your own"),
        ("gymnasium:absent.py:make", "there is no file absent.py"),
        (
            "gymnasium:ale_py:ALE/Pong-v5",
            "a file that imports the package, with a function that",
        ),
        ("brax:absent.py:make", "brax has no environment with a colon"),
        (f"gymnasium:{OWN}:failing,descriptor={OWN}:place,episode_length=5", "the motor is broken"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(name, message, tmp_path):
    run = tmp_path / "run"
    said = complaint(elites("train", name, "me", *SMOKE, "--output", run), 2)
    assert message in said
    assert not run.exists()
